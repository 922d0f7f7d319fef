"""Calls of several runs in one row: what each asked for and what it came to, differences marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from lab.render.ansi import ansi
from lab.render.blocks import SHOWN_CHARACTERS, SHOWN_LINES, extent, hidden_foot, output_section
from lab.render.calls import (
    NOT_SHOWN_AS_ARGUMENTS,
    SAID_BY_THE_ROW,
    Printed,
    arguments_of,
    edit_block,
    is_edit,
    printed_block,
    printed_of,
    raw_arguments,
)
from lab.render.diff import changed
from lab.render.fold import CallView
from lab.render.held_against import Held, Sameness, are_equal, held_against
from lab.render.kinds import EDITORS
from lab.render.marks import differing, lines_of, shown_with_marks
from lab.render.normal_form import path_in
from lab.render.numbers import plural
from lab.render.results import exit_code
from lab.render.text import Excerpt, excerpt, visible_html, words_of

_VALUE_LINES = 6
_VALUE_CHARACTERS = 600
_MOST_ARGUMENTS = 40
# Names of one argument in different tools.
_COMMON_NAMES = {"cmd": "command", "file_path": "path", "filePath": "path"}
_NEW = ("new_string", "new_str", "content", "file_text")
_OUTPUT = {"stdout": "output", "observation": "output"}
_TOLD = "Told the model"
_EQUAL_WORDS = {_TOLD: "the model was told the same", "Said": "said the same"}


def matched_calls(steps: Sequence[Sequence[CallView]]) -> Iterator[list[int | None]]:
    """Calls of the steps that belong together, as places within each step, None where a step has none.

    To each call of the first step that has calls belongs the same call of another step, else one of the same
    tool, else one that is left. What belongs to none stands by itself.
    """
    first = next((place for place, calls in enumerate(steps) if calls), None)
    if first is None:
        return
    assigned = [_assigned(steps[first], calls) if at > first else {} for at, calls in enumerate(steps)]
    for index in range(len(steps[first])):
        row: list[int | None] = [places.get(index) for places in assigned]
        row[first] = index
        yield row
    for at, calls in enumerate(steps):
        taken = set(assigned[at].values())
        for index in range(len(calls)) if at != first else ():
            if index not in taken:
                yield [index if place == at else None for place in range(len(steps))]


def _assigned(base: Sequence[CallView], calls: Sequence[CallView]) -> dict[int, int]:
    found: dict[int, int] = {}
    rules: tuple[Callable[[CallView, CallView], bool], ...] = (
        lambda one, other: _tool(one) == _tool(other) and one.arguments == other.arguments,
        lambda one, other: _tool(one) == _tool(other),
        lambda one, other: True,
    )
    left = list(range(len(calls)))
    for rule in rules:
        for index, one in enumerate(base):
            at = None if index in found else next((at for at in left if rule(one, calls[at])), None)
            if at is not None:
                found[index] = at
                left.remove(at)
    return found


def _tool(call: CallView) -> str:
    return (call.executor or call.tool).lower()


def folded_when_equal(held: Held, words: str, facts: str, markup: str, end: str = "") -> str:
    """A block, folded under "equal output, 3 lines, 180 bytes" where it is equal; `end` is markup."""
    if not markup or held.sameness in {Sameness.ALONE, Sameness.OTHER}:
        return markup
    label = _EQUAL_WORDS.get(words, f"equal {words.lower()}")
    if held.sameness is Sameness.NEARLY:
        label = f"{_EQUAL_WORDS.get(words, f'{words.lower()} equal')} but for {held.remark}"
    return (
        f'<details class="alike"><summary>{label}{", " if facts else ""}{facts}'
        f"{f'<span class=end>{end}</span>' if end else ''}</summary>{markup}</details>"
    )


class CallRow:
    """The calls of a row that belong together; None: a column has none. `runs`: what columns link to."""

    def __init__(
        self, calls: Sequence[CallView | None], *, letters: Sequence[str], runs: Sequence[int | None]
    ) -> None:
        self._calls = calls
        self._letters = letters
        self._runs = runs
        self._printed = [_printed(run, call) for run, call in zip(runs, calls, strict=True)]
        self._asked = [{} if call is None else _asked(call) for call in calls]
        self._first = next((place for place, call in enumerate(calls) if call is not None), 0)

    def body(self, place: int) -> str:
        """What one column's call asked for and what it came to, "" for a column without one."""
        call = self._calls[place]
        if call is None:
            return ""
        asked = "" if call.malformed else self._asked_for(place, call)
        return asked + "".join(self._came_to(place, call, one) for one in self._printed[place])

    # What was asked for.

    @cached_property
    def _held_asked(self) -> dict[str, list[Held]]:
        names = dict.fromkeys(name for asked in self._asked for name in asked)
        return {
            name: held_against([asked.get(name) for asked in self._asked], self._letters) for name in names
        }

    def _asked_for(self, place: int, call: CallView) -> str:
        held = {name: self._held_asked[name][place] for name in self._asked[place]}
        is_edit_here = is_edit(call)
        if place != self._first and self._asks_the_same(place, held):
            what = "edit" if is_edit_here else "call"
            return _alike(f"same {what} as {self._letters[self._first]}")
        if is_edit_here:
            return edit_block(self._runs[place], call) + self._new_text(place, call)
        if all(one.sameness is not Sameness.OTHER for one in held.values()):
            return arguments_of(call)
        return self._marked_arguments(place, held)

    def _asks_the_same(self, place: int, held: Mapping[str, Held]) -> bool:
        first = self._calls[self._first]
        call = self._calls[place]
        same_names = set(self._asked[place]) == set(self._asked[self._first])
        equal = all(one.sameness in {Sameness.EQUAL, Sameness.NEARLY} for one in held.values())
        return bool(first and call and same_names and equal and held and first.kind == call.kind)

    def _marked_arguments(self, place: int, held: Mapping[str, Held]) -> str:
        """The arguments that differ or that others have not; what is equal is said in the first column."""
        command, rows = "", []
        for name, one in held.items():
            text = self._asked[place][name]
            if one.sameness in {Sameness.EQUAL, Sameness.NEARLY} and (one.first or name in SAID_BY_THE_ROW):
                continue
            if one.sameness is not Sameness.OTHER and name in NOT_SHOWN_AS_ARGUMENTS - {"command"}:
                continue
            if name == "command":
                command = _marked(text, one, SHOWN_LINES, SHOWN_CHARACTERS)
                command = f'<pre class="command">{command}</pre>'
            else:
                shown = _marked(text, one, _VALUE_LINES, _VALUE_CHARACTERS)
                rows.append(f"<dt>{visible_html(name[:80])}</dt><dd>{shown}</dd>")
        return command + (f'<dl class="arguments mono">{"".join(rows)}</dl>' if rows else "")

    def _new_text(self, place: int, call: CallView) -> str:
        """What differs between this edit's new text and that of the first column's edit of the same file."""
        first = self._calls[self._first]
        if place == self._first or first is None or not is_edit(first) or _path(first) != _path(call):
            return ""
        before, after = _new_of(first), _new_of(call)
        letters = self._letters[self._first], self._letters[place]
        if are_equal(before, after):
            return _alike(f"the new text is that of {letters[0]}; what it replaces is not")
        old, new = lines_of(before.text), lines_of(after.text)
        stretches = differing(old, new)
        if not stretches:
            return _alike(f"the new text begins as that of {letters[0]} does; where they differ is not shown")
        cut = "" if before.whole and after.whole else ", as far as both are shown here"
        name = visible_html(f"new text, {letters[0]} → {letters[1]}{cut}")
        lines = changed(old, new, stretches)
        return f'<section class="diff between"><header>{name}</header>{lines}</section>'

    # What came of it.

    @cached_property
    def _held_printed(self) -> dict[str, list[Held]]:
        texts: dict[str, list[Excerpt | None]] = {}
        for place, printed in enumerate(self._printed):
            for one in printed:
                if _is_text(one):
                    texts.setdefault(_name_of(one), [None] * len(self._calls))[place] = one.text
        return {name: held_against(found, self._letters, printed=True) for name, found in texts.items()}

    def _came_to(self, place: int, call: CallView, one: Printed) -> str:
        run = self._runs[place]
        held = self._held_printed[_name_of(one)][place] if _is_text(one) else Held()
        if held.sameness is Sameness.ALONE:
            return printed_block(run, one)
        if held.sameness is Sameness.OTHER:
            return _marked_block(run, one, held)
        is_first = one is next((printed for printed in self._printed[place] if printed.part), None)
        code = call.result.get("exit_code")
        end = exit_code(code) if is_first and code is not None else ""
        inner = one._replace(mark="")
        block = _marked_block(run, inner, held) if held.marks.differs else printed_block(run, inner)
        return folded_when_equal(held, one.title, extent(one.text), block, end) + one.mark


def _is_text(one: Printed) -> bool:
    return bool(one.part) and one.binary is None


def _name_of(one: Printed) -> str:
    """What a text is held against: what a command printed against that, a complaint against a complaint."""
    return "told" if one.title == _TOLD else _OUTPUT.get(one.part, one.part)


def _printed(run: int | None, call: CallView | None) -> list[Printed]:
    if call is None:
        return []
    return [raw_arguments(call), *printed_of(run, call)] if call.malformed else printed_of(run, call)


def _asked(call: CallView) -> dict[str, Excerpt]:
    """The arguments of a call as texts, by names that tools have in common."""
    if call.malformed:
        return {}
    is_editor = (call.executor or call.tool).lower() in EDITORS
    asked: dict[str, Excerpt] = {}
    for name, value in list(call.arguments.items())[:_MOST_ARGUMENTS]:
        if name != "description":
            known = "action" if is_editor and name == "command" else _COMMON_NAMES.get(name, name)
            asked[known] = excerpt(value if isinstance(value, str | Excerpt) else repr(value))
    return asked


def _path(call: CallView) -> str:
    return path_in((), words_of(call.arguments.get("file_path") or call.arguments.get("path")))


def _new_of(call: CallView) -> Excerpt:
    """The text that an edit puts in."""
    return next((excerpt(call.arguments[name]) for name in _NEW if name in call.arguments), excerpt(None))


def _alike(words: str) -> str:
    return f'<p class="alike-line">{visible_html(words)}</p>'


def _marked(text: Excerpt, held: Held, most_lines: int, most_characters: int) -> str:
    shown = shown_with_marks(
        lines_of(text.text), held.marks, most_lines=most_lines, most_characters=most_characters
    )
    remark = f'<span class="skipped">{visible_html(held.remark)}\n</span>' if held.remark else ""
    cut = '<span class="skipped">…</span>' if shown.left_out or not text.whole else ""
    return f"{shown.markup}{cut}{remark}"


def _marked_block(run: int | None, one: Printed, held: Held) -> str:
    """An output with its differing lines marked, and what of it is not shown."""
    lines = lines_of(one.text.text)
    shown = shown_with_marks(
        lines, held.marks, most_lines=SHOWN_LINES, most_characters=SHOWN_CHARACTERS, html=ansi
    )
    # An empty last line is no line that is left out.
    characters = shown.characters if shown.left_out else len(one.text.text)
    foot = hidden_foot(one.text, characters, run=run, seq=one.seq, part=one.part)
    notes = [held.remark] if held.remark else []
    if shown.more_differ:
        notes.append(f"{plural(shown.more_differ, 'more line')} differ below")
    said = "".join(f'<p class="foot differ">{visible_html(note)}</p>' for note in notes)
    return output_section(
        one.title, one.icon, one.facts or extent(one.text), shown.markup, said + foot + one.mark
    )
