"""Runs side by side as HTML: rows with a cell a run and signs between them, folded stretches, the divergence.

Pure functions over plain values, without a template: a page holds hundreds of cells, and a live one is sent
again whenever a run goes on.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from django.utils.safestring import SafeString

from lab.analysis import alignment
from lab.analysis.alignment import Action, Sign
from lab.render.diff import counts
from lab.render.icons import icon
from lab.render.numbers import plural
from lab.render.text import one_line, safe, visible_html, visible_text

_ARGUMENT_CHARACTERS = 160
# What the band quotes of a command.
_CLAUSE_CHARACTERS = 50
_SIGN_WORDS = {
    Sign.EQUAL: "same call, same arguments, same output",
    Sign.ALIKE: "same action, something differs",
    Sign.OTHER: "same kind, other target",
}


class ShownStep(Protocol):
    """A step as its line shows it."""

    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def icon(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def argument(self) -> str: ...
    @property
    def more_calls(self) -> int: ...
    @property
    def result(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def failed(self) -> bool: ...
    @property
    def failed_test(self) -> bool: ...
    @property
    def added(self) -> int | None: ...
    @property
    def removed(self) -> int | None: ...
    @property
    def pending(self) -> bool: ...
    @property
    def action(self) -> Action: ...


class ShownRow(Protocol):
    """A row: a step or a gap for each column, and how each step relates to that of the column `base`."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> tuple[int, int]: ...
    @property
    def base(self) -> int: ...
    @property
    def steps(self) -> Sequence[ShownStep | None]: ...
    @property
    def signs(self) -> Sequence[Sign | None]: ...
    @property
    def is_equal(self) -> bool: ...


# Subjects of scripts that stand in the command itself; subjects that are no call.
_SCRIPT = re.compile(r"(\S+) (?:<<|-[ce])")
_NO_CALLS = frozenset(("", "nothing", "pending", "answer", "not understood"))


class Calls:
    """In which steps of each column a call is made; rows are looked through once, when first asked."""

    def __init__(self, rows: Sequence[ShownRow] = ()) -> None:
        self._rows = rows

    @cached_property
    def _found(self) -> Mapping[tuple[int, str], list[tuple[int, int]]]:
        found: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for row in self._rows:
            for column, step in enumerate(row.steps):
                for call in _calls_told_apart(step.action) if step is not None else ():
                    found.setdefault((column, call), []).append((row.index, step.number if step else 0))
        return found

    def made_by(self, column: int, row: ShownRow, step: ShownStep) -> tuple[list[int], bool]:
        """The steps of a column nearest to `row` that make the calls of `step`, and whether they make all."""
        calls = _calls_told_apart(step.action)
        places = [self._found[column, call] for call in calls if (column, call) in self._found]
        nearest = [min(one, key=lambda place: (abs(place[0] - row.index), place[0])) for one in places]
        return sorted({number for _, number in nearest}), len(places) == len(calls)


def _calls_told_apart(action: Action) -> set[str]:
    """The calls of a step, those that say little by their subject (an edit, a script) with what was asked."""
    return {
        f"{call} {action.arguments}"
        if call.startswith(("edit ", "write ")) or _SCRIPT.fullmatch(call)
        else call
        for call in alignment.calls_of(action) - _NO_CALLS
    }


class Frame(NamedTuple):
    """What all rows of a page share: the runs of the columns, their letters, the query without a place.

    `recorded`: whether the steps of each run are known at all. `ended`: whether each has. `reached`: the
    place of the row that holds the newest step of each, -1 without one. `calls`: those of all rows.
    """

    runs: Sequence[int]
    letters: Sequence[str]
    recorded: Sequence[bool]
    ended: Sequence[bool]
    query: str
    reached: Sequence[int]
    calls: Calls = Calls()

    def is_to_come(self, row: ShownRow, column: int) -> bool:
        """Whether the run of a column without a step in this row goes on and has not come this far."""
        return not self.ended[column] and row.index > self.reached[column]

    def address(self, name: str, place: tuple[int, int]) -> str:
        """The page with a place of its own, as an attribute holds it; script or none, it leads to the row."""
        run, step = place
        return f"{html.escape(self.query)}&amp;{name}={run}.{step}#row-{run}-{step}"


def items_html(items: Iterable[str]) -> SafeString:
    """Items of this module, one after the other."""
    return safe("".join(items))


# ---- rows --------------------------------------------------------------------------------------------------


def row_html(row: ShownRow, frame: Frame, *, body: str | None = None, opened: bool = False) -> SafeString:
    """One row as a list item that opens. `body`: what opens, where it is there already."""
    run, step = row.name
    differs = "" if row.is_equal else " data-difference"
    inside = body or f'<a class="more" href="{frame.address("open", row.name)}">What each run did here</a>'
    waits = "" if body is not None else " data-waits"
    return safe(
        f'<li class="unit" id="row-{run}-{step}" data-name="{run}.{step}" data-index="{row.index}"{differs}>'
        f'<details{" open" if opened else ""}><summary class="cells" data-row>'
        f"{cells_html(row, frame)}</summary>"
        f'<div class="opened"{waits}>{inside}</div></details></li>'
    )


def cells_html(row: ShownRow, frame: Frame) -> SafeString:
    """The cells of a row with the signs between them."""
    parts = []
    for column, step in enumerate(row.steps):
        if column:
            parts.append(_sign(row, frame, column))
        if step is None:
            parts.append(_gap(row, frame, column))
            continue
        # Equal output may have more blank lines at its end; it is told as that which it is equal to.
        told_as = row.steps[row.base] if row.signs[column] is Sign.EQUAL else None
        parts.append(_cell(step, frame.runs[column], column, _result(told_as or step)))
    return safe("".join(parts))


def _cell(step: ShownStep, run: int, column: int, result: str) -> str:
    more = f' <span class="quiet">+ {step.more_calls} parallel</span>' if step.more_calls else ""
    argument = (
        step.argument
        if len(step.argument) <= _ARGUMENT_CHARACTERS
        else one_line(step.argument, _ARGUMENT_CHARACTERS)
    )
    style = "span" if step.kind == "final" else "code"
    return (
        f'<span class="cell" id="cell-{run}-{step.number}" data-c="{column}" data-kind="{step.kind}" '
        f'data-step="{step.number}"><span class="n">{step.number}</span>{icon(step.icon)}'
        f'<span class="call"><b>{visible_html(one_line(step.tool, 60))}</b> '
        f"<{style}>{visible_html(argument)}</{style}>{more}</span>"
        f'<span class="result">{result}</span></span>'
    )


def _result(step: ShownStep) -> str:
    if step.pending:
        return f'<span class="pending">{icon("running")} running</span>'
    words = visible_html(one_line(step.result, 80))
    if step.kind == "edit" and (step.added is not None or step.removed is not None) and not step.failed:
        words = counts(step.added or 0, step.removed or 0)
    if step.exit_code is not None:
        name, mark = ("failed", "cross") if step.exit_code else ("passed", "ok")
        code = f'<span class="{name}">{icon(mark)} exit {step.exit_code}</span>'
        return f"{code} · {words}" if words else code
    return f'<span class="failed">{icon("cross")}</span> {words or "failed"}' if step.failed else words


def _gap(row: ShownRow, frame: Frame, column: int) -> str:
    if not frame.recorded[column]:
        return _unrecorded(column)
    if frame.is_to_come(row, column):
        # Seen once, below the newest step; read aloud in each row.
        name = "quiet" if row.index == frame.reached[column] + 1 else "visually-hidden"
        return f'<span class="gap later" data-c="{column}"><span class="{name}">not there yet</span></span>'
    return f'<span class="gap" data-c="{column}"></span>'


def _unrecorded(column: int) -> str:
    return f'<span class="gap unrecorded" data-c="{column}"></span>'


def _sign(row: ShownRow, frame: Frame, column: int) -> str:
    words = sign_words(row, frame, column)
    sign = row.signs[column]
    shown = sign.value if sign is not None else ""
    if not words:
        return f'<span class="sign" data-c="{column}"></span>'
    name = f' data-sign="{sign.name.lower()}"' if sign is not None else ""
    escaped = html.escape(words)
    return (
        f'<span class="sign" data-c="{column}"{name} title="{escaped}">{shown}'
        f'<span class="visually-hidden"> {escaped} </span></span>'
    )


def sign_words(row: ShownRow, frame: Frame, column: int) -> str:
    """What the sign at the left of a column says on hover; "" where there is nothing to say."""
    acting = [place for place, step in enumerate(row.steps) if step is not None]
    if len(acting) == 1:
        # Said once a row, in front of the second column, whichever of them acts.
        others = [place for place in range(len(row.steps)) if place != acting[0]]
        if column != 1 or any(frame.is_to_come(row, place) for place in others):
            return ""
        return _done_by(row, frame, acting[0])
    first, step = row.steps[row.base], row.steps[column]
    if first is None or step is None or column == row.base:
        return ""
    sign = row.signs[column]
    why = visible_text(alignment.why(first.action, step.action))
    against = f" (against {frame.letters[row.base]})" if len(row.steps) > 2 else ""
    if sign is None:
        return f"other actions, same number{against}"
    return f"{_SIGN_WORDS[sign]}{against}{': ' + why if sign is not Sign.EQUAL and why else ''}"


def _done_by(row: ShownRow, frame: Frame, column: int) -> str:
    """Who does what one column does here: it alone, or another one at another place."""
    step = row.steps[column]
    told = []
    for other in range(len(row.steps)) if step is not None else ():
        numbers, whole = frame.calls.made_by(other, row, step) if other != column and step else ([], True)
        if numbers:
            part = "" if whole else "part of it "
            steps = "step" if len(numbers) == 1 else "steps"
            listed = " and ".join(filter(None, (", ".join(map(str, numbers[:-1])), str(numbers[-1]))))
            told.append(f"{frame.letters[other]} {part}in its {steps} {listed}")
    letter = frame.letters[column]
    return f"{letter} does this here; {', '.join(told)}" if told else f"only {letter} did this"


def stretch_html(rows: Sequence[ShownRow], words: str, frame: Frame) -> SafeString:
    """Equal rows as one line that opens."""
    run, step = rows[0].name
    last = rows[-1]
    return safe(
        f'<li class="unit stretch" id="stretch-{run}-{step}" data-name="{run}.{step}" '
        f'data-index="{rows[0].index}" data-last="{last.index}"><details>'
        f"<summary data-row>{icon('chevron', 'fold')}"
        f"<b>{plural(len(rows), 'step')} alike</b> "
        f'<span class="second cut">{visible_html(one_line(words, 300))}: equal calls, equal output</span>'
        f"</summary>"
        f'<ol class="within" data-waits><li><a class="more" href="{frame.address("at", rows[0].name)}">'
        f"Show these steps</a></li></ol></details></li>"
    )


def edge_html(
    side: str, rows: int, place: tuple[int, int], frame: Frame, address: str, *, of: int | None = None
) -> SafeString:
    """That there are more rows `side` ("before" or "after") the row at `place`; a script fetches them.

    `of`: the run in whose pane they are.
    """
    word = "earlier" if side == "before" else "later"
    whose = "" if of is None else f"-{of}"
    things = plural(rows, f"{word} row" if of is None else f"{word} step")
    return safe(
        f'<li class="edge" id="edge-{side}{whose}" data-edge="{side}"><a href="{frame.address("at", place)}" '
        f'data-url="{html.escape(address)}">{things}</a></li>'
    )


def pane_row_html(row: ShownRow, column: int, frame: Frame) -> SafeString:
    """One step in the pane of its run; `data-partner` is the same in all steps of its row."""
    step = row.steps[column]
    if step is None:
        return safe("")
    run = frame.runs[column]
    base, number = row.name
    differs = "" if row.is_equal else " data-difference"
    return safe(
        f'<li class="unit" id="row-{run}-{step.number}" data-name="{run}.{step.number}" '
        f'data-index="{row.index}" data-partner="{base}.{number}"{differs}><details>'
        f'<summary class="cells" data-row>{_cell(step, run, 0, _result(step))}</summary>'
        f'<div class="opened" data-waits><a class="more" href="{frame.address("open", (run, step.number))}">'
        f"What the run did here</a></div></details></li>"
    )


def pane_band_html(run: int, row: int) -> SafeString:
    """That a run parts from another one in this row, in its pane."""
    return safe(
        f'<li class="band" id="divergence-{run}-{row}" data-divergence tabindex="-1">{icon("branch")}'
        f"<b>First sustained divergence</b></li>"
    )


# ---- where they part ---------------------------------------------------------------------------------------


class ShownParting(Protocol):
    """Where one run leaves another for good."""

    @property
    def row(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def column(self) -> int: ...
    @property
    def because(self) -> str: ...
    @property
    def path(self) -> str: ...


def band_html(
    parting: ShownParting,
    rows: Sequence[ShownRow],
    frame: Frame,
    *,
    first: bool,
    also: Sequence[ShownParting] = (),
    staying: Sequence[int] = (),
) -> SafeString:
    """The band above the row where runs part: after which step, what each did then, and why it counts.

    `also`: further runs that leave the same one in the same row. `staying`: columns that never part from it.
    """
    letters, base = frame.letters, frame.letters[parting.base]
    whom = ""
    if also:
        names = joined([letters[parting.column], *(letters[one.column] for one in also)])
        whom = f": {names} part from {base} here"
    elif len(frame.runs) > 2:
        whom = f" of {letters[parting.column]} from {base}"
    key = " <kbd>v</kbd>" if first else ""
    anchors = "".join(f'<span id="divergence-{frame.runs[one.column]}"></span>' for one in also)
    return safe(
        f'<li class="band" id="divergence-{frame.runs[parting.column]}" data-divergence '
        f'data-c="{parting.column}" data-index="{parting.row}" tabindex="-1">'
        f"{icon('branch')}<span>{anchors}<b>First sustained divergence{whom}</b> "
        f"{parting_words(parting, rows, frame, also)}{_staying_words(parting.base, staying, frame)}"
        f"</span>{key}</li>"
    )


def parting_words(
    parting: ShownParting, rows: Sequence[ShownRow], frame: Frame, also: Sequence[ShownParting] = ()
) -> str:
    """ "after step 5. A searches a.py, B edits a.py; they come back to no common way.", as markup."""
    partings = (parting, *also)
    paths = {parting.base: parting.path} | {one.column: one.path for one in partings}
    doers: dict[str, list[str]] = {}
    for column, path in paths.items():
        doers.setdefault(_did(rows[parting.row :], column, frame, path), []).append(frame.letters[column])
    did = ", ".join(
        f"{'each of ' if len(letters) > 1 else ''}{joined(letters)} {does}" for does, letters in doers.items()
    )
    reasons: dict[str, list[str]] = {}
    for one in partings:
        reasons.setdefault(_reason(one), []).append(frame.letters[one.column])
    if len(reasons) == 1:
        why = next(iter(reasons))
    else:
        why = "; ".join(f"of {joined(letters)}: {reason}" for reason, letters in reasons.items())
    return f"{_after(rows[: parting.row], list(paths), frame)}. {did[0].upper()}{did[1:]}; {why}."


def _reason(parting: ShownParting) -> str:
    if parting.because == "files":
        path = f"<code>{visible_html(one_line(parting.path, 120))}</code>"
        return f"{path} is different from here to the end"
    return "they come back to no common way"


def _staying_words(base: int, staying: Sequence[int], frame: Frame) -> str:
    """ " C goes A's way to the end.", nothing where no run does."""
    if not staying:
        return ""
    so_far = "to the end" if all(frame.ended[column] for column in (base, *staying)) else "so far"
    verb = "go" if len(staying) > 1 else "goes"
    return f" {joined([frame.letters[one] for one in staying])} {verb} {frame.letters[base]}'s way {so_far}."


def joined(names: Sequence[str]) -> str:
    """ "A", "A and B", "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _after(before: Sequence[ShownRow], columns: Sequence[int], frame: Frame) -> str:
    numbers = [
        next((step.number for row in reversed(before) if (step := row.steps[column]) is not None), 0)
        for column in columns
    ]
    if not any(numbers):
        return "at the first step"
    if len(set(numbers)) == 1:
        return f"after step {numbers[0]}"
    told = [
        f"step {number} of {frame.letters[column]}" if number else f"the start of {frame.letters[column]}"
        for number, column in zip(numbers, columns, strict=True)
    ]
    return f"after {' and '.join(told)}"


def _did(rows: Sequence[ShownRow], column: int, frame: Frame, path: str) -> str:
    step = next((step for row in rows if (step := row.steps[column]) is not None), None)
    if step is None:
        return "has ended" if frame.ended[column] else "has done no more so far"
    return doing(step, path)


def doing(step: ShownStep, path: str = "") -> str:
    """What a step does, as a verb and its object in markup: "edits <code>zones.py</code>".

    `path`: of several files the one that is named.
    """
    if step.kind == "final":
        return "ends with its answer"
    paths: Mapping[str, Sequence[str]] = {"edit": step.action.edits, "read": step.action.reads}
    files = paths.get(step.kind, ()) if step.icon != "lens" else ()
    if files:
        first = path if path in files else files[0]
        named = f"{first} and {len(files) - 1} more" if len(files) > 1 else first
        return f"{'edits' if step.kind == 'edit' else 'reads'} {_quoted(named, 60)}"
    return _running(step)


# What is read through a call that names no file, by the verb of its normal form.
_LOOKING = {"grep": "searches", "find": "looks for files", "ls": "lists"}


def _running(step: ShownStep) -> str:
    """One short clause of what a step runs: the program and its main operand, never the text of a script."""
    clauses = [one for call in step.action.subject.split(" + ") for one in call.split(" && ")]
    tests = [one for one in clauses if one.startswith("pytest")] if step.kind == "test" else []
    clause = (tests or clauses)[0]
    verb, _, target = clause.partition(" ")
    if verb in _LOOKING and target:
        return f"{_LOOKING[verb]} {_quoted(target)}"
    script = _SCRIPT.fullmatch(clause)
    if script is not None:
        name = _SCRIPTS.get(script[1])
        return f"runs {name}" if name else f"runs a script of {_quoted(script[1])}"
    return f"runs {_quoted((step.argument or step.tool) if clause in _NO_CALLS else clause)}"


_SCRIPTS = {"python": "a Python script", **dict.fromkeys(("bash", "sh", "zsh"), "a shell script")}


def _quoted(text: str, most: int = _CLAUSE_CHARACTERS) -> str:
    return f"<code>{visible_html(one_line(text, most))}</code>"
