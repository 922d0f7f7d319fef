"""The tab with the patches of runs side by side: against each other, or one against the gold patch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lab.engine.key_shapes import masked_beginning
from lab.models import Role
from lab.render.compared_patches import ShownDiff, notes_of, shown_diffs
from lab.render.numbers import plural
from lab.render.text import cut_in_the_middle, visible_text
from lab.services import compared_patches
from lab.services.compared_patches import GOLD, LETTERS, ComparedFile, RunPatch, Variant
from lab.web.comparison_tab_asks import Ask
from lab.web.http import holds

# The page shows so many lines of diffs in all, so many of one file, and so many files.
MOST_LINES = 5_000
MOST_LINES_OF_A_FILE = 1_500
MOST_FILES = 300
# A longer diff is folded.
OPEN_LINES = 400
TEXT_CHARACTERS = 20_000
_NAME_CHARACTERS = 90


class Side(NamedTuple):
    """One patch in a line. `run` is 0 for the gold patch; `text`: what is no diff, as far as it is shown."""

    name: str
    run: int
    words: str
    added: int | None
    removed: int
    notes: list[str]
    can_be_read: bool
    text: str


class ShownVariant(NamedTuple):
    """What some of the runs do to a file. `names` in words: "A", "A and C"."""

    names: str
    added: int
    removed: int
    binary: bool
    notes: list[str]
    diff: ShownDiff


class ShownFile(NamedTuple):
    """A file with its diffs. `words` say how the patches relate: "differs", "only in A", "same in all"."""

    path: str
    name: str
    sign: str
    words: str
    variants: list[ShownVariant]
    without: str
    opened: bool


class GoldAsk(NamedTuple):
    """A link to one run against gold; `current`: it is shown."""

    name: str
    url: str
    current: bool


def patches(ask: Ask) -> dict[str, Any]:
    """What comparisons/_patches.html shows."""
    sides = compared_patches.patches_of(ask.runs)
    may_see = holds(ask.request, Role.OPERATOR)
    of = ask.choice("of", LETTERS[: len(ask.runs)])
    place = LETTERS.index(of)
    task = ask.runs[place].task_id
    against_gold = ask.choice("against", ("runs", GOLD)) == GOLD
    gold = compared_patches.gold_patch(task_id=task) if may_see and against_gold else None
    shown = [sides[place], gold] if gold is not None else sides
    compared = compared_patches.compare(shown)
    files = list(_shown_files(compared))
    lay = ask.choice("lay", ("beside", "over"))
    asked_gold = {"against": GOLD, "of": of} if gold is not None else {}
    return {
        "sides": [_side(side) for side in shown],
        "words": _words(shown, compared),
        "files": [file for file in files if file.sign != "="],
        "same": [file for file in files if file.sign == "="],
        "more_files": max(0, len(compared) - MOST_FILES),
        "lay": lay,
        "beside_url": ask.address("patches", **asked_gold),
        "over_url": ask.address("patches", **asked_gold, lay="over"),
        "has_variants": any(len(file.variants) > 1 for file in files),
        "many_variants": any(len(file.variants) > 2 for file in files),
        "against_gold": gold is not None,
        "asked_for_gold": against_gold,
        "runs_url": ask.address("patches", lay="over" if lay == "over" else ""),
        "has_gold": gold is not None or compared_patches.has_gold(task_id=task),
        "may_see_gold": may_see,
        "gold_asks": [
            GoldAsk(
                letter, ask.address("patches", against=GOLD, of=letter), gold is not None and letter == of
            )
            for letter in LETTERS[: len(ask.runs)]
        ],
        "one_task": ask.one_task,
    }


_STATE_WORDS = {
    "waiting": "no patch yet: the run goes on",
    "none": "no patch: the run ended without one",
    "unrecorded": "not recorded: its file holds no patch",
    "empty": "empty: it changes nothing",
    "text": "no diff: shown as the text that it is",
}


def _side(patch: RunPatch) -> Side:
    files = patch.files.values()
    is_diff = patch.state == "diff"
    words = plural(len(files), "file") if is_diff else _STATE_WORDS.get(patch.state, visible_text(patch.why))
    return Side(
        name=patch.name,
        run=patch.run,
        words=words,
        added=sum(section.added for section in files) if is_diff else None,
        removed=sum(section.removed for section in files),
        notes=[f"left out: {visible_text(words)}" for words in patch.left_out],
        can_be_read=bool(patch.run) and patch.state in {"empty", "text", "diff"},
        text=visible_text(masked_beginning(patch.text, TEXT_CHARACTERS)) if patch.state == "text" else "",
    )


def _words(sides: Sequence[RunPatch], files: Sequence[ComparedFile]) -> str:
    """The counts in a sentence."""
    known = [side for side in sides if side.known]
    if len(known) < 2:
        return "There is nothing to compare: fewer than two of the patches are known."
    names = joined([side.name for side in known])
    if not files:
        return f"The patches of {names} change nothing."
    if all(file.relation == "same" for file in files):
        return f"The patches of {names} are the same in {plural(len(files), 'file')}."
    differ = sum(file.relation == "differs" for file in files)
    parts = [f"{plural(differ, 'file differs', 'files differ')}"] if differ else []
    alone: dict[str, int] = {}
    for file in files:
        if file.relation == "only":
            alone[_only(file)] = alone.get(_only(file), 0) + 1
    parts += [f"{count:,} {words}" for words, count in alone.items()]
    same = sum(file.relation == "same" for file in files)
    left = "" if len(known) == len(sides) else f" Compared are {names}."
    parts += [f"{same:,} same in all"] if same else []
    return f"{', '.join(parts)}.{left}"


def joined(names: Sequence[str]) -> str:
    """ "A", "A and B", "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _only(file: ComparedFile) -> str:
    return f"only in {joined([name for variant in file.variants for name in variant.names])}"


def _shown_files(files: Sequence[ComparedFile]) -> Iterator[ShownFile]:
    """The first files with their diffs, until the page is full."""
    left = MOST_LINES
    for file in files[:MOST_FILES]:
        most = min(left, MOST_LINES_OF_A_FILE)
        diffs = shown_diffs([variant.section.raw for variant in file.variants], most=most)
        lines = sum(diff.shown for diff in diffs)
        left = max(0, left - lines)
        yield ShownFile(
            path=visible_text(file.path),
            name=cut_in_the_middle(visible_text(file.path), _NAME_CHARACTERS),
            sign="=" if file.relation == "same" else "≠",
            words={"differs": "differs", "same": "same in all"}.get(file.relation, _only(file)),
            variants=[_variant(variant, diff) for variant, diff in zip(file.variants, diffs, strict=True)],
            without=joined(file.without) if file.without else "",
            opened=file.relation != "same" and 0 < lines <= OPEN_LINES,
        )


def _variant(variant: Variant, diff: ShownDiff) -> ShownVariant:
    section = variant.section
    notes = notes_of(section.raw)
    return ShownVariant(joined(variant.names), section.added, section.removed, "binary" in notes, notes, diff)
