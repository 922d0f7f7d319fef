"""Which files each of several runs read and changed, and in which of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lab.models import Run
from lab.render.text import cut_in_the_middle, visible_text
from lab.services.compared_patches import LETTERS, is_imported
from lab.services.facts import facts_of
from lab.services.outlines import Outline

Touch = Literal["changed", "edited", "read", "untouched", "unknown"]
_NAME_CHARACTERS = 60
_CHANGE_WORDS = {"added": "new", "deleted": "deleted", "mode": "mode"}


class Touched(NamedTuple):
    """What one run did with a file.

    `touch`: "changed" (it is in the patch), "edited" (a step edited it and no patch holds it, or none is
    there yet), "read", "untouched", or "unknown" where no step is recorded. `added` and `removed` are lines
    of the patch, None of a binary file. `edits` and `reads` are numbers of steps.
    """

    touch: Touch
    added: int | None = None
    removed: int | None = None
    note: str = ""
    edits: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that touched it, in order."""
        return tuple(sorted({*self.edits, *self.reads}))


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file that at least one of the runs touched; `sides` in the order of the runs.

    `same`: whether the patches that hold it do the same to it; None where nobody knows, or one holds it.
    """

    path: str
    name: str
    sides: tuple[Touched, ...]
    same: bool | None

    @property
    def changed(self) -> bool:
        """Whether a run changed it, or tried to."""
        return any(side.touch in {"changed", "edited"} for side in self.sides)

    @property
    def in_patch(self) -> bool:
        """Whether the patch of a run holds it."""
        return any(side.touch == "changed" for side in self.sides)

    @property
    def differs(self) -> bool:
        """Whether the runs did not all do the same with it, as far as one knows."""
        return len({side.touch for side in self.sides}) > 1 or self.same is False


class SideFacts(NamedTuple):
    """One run's files in a line. `patched`: its patch says what it changed; otherwise steps alone do.

    `recorded`: there is a patch or a step; of what another program tells there may be neither.
    """

    name: str
    run: int
    patched: bool
    changed: int
    read: int
    recorded: bool


class ComparedFiles(NamedTuple):
    """Files of patches first, then those only edited, of each those that differ; and a line for each run."""

    sides: list[SideFacts]
    rows: list[FileRow]


def compare(
    runs: Sequence[Run],
    outlines: Sequence[Outline],
    same: Sequence[Mapping[str, bool] | None] | None = None,
    *,
    letters: Sequence[str] = LETTERS,
) -> ComparedFiles:
    """Files of the newest attempts; `same` as `compared_patches.same_files` gives it. No query."""
    sides = [_touched(run, outline) for run, outline in zip(runs, outlines, strict=True)]
    paths = dict.fromkeys(path for side in sides for path in side)
    rows = [
        FileRow(
            path=path,
            name=cut_in_the_middle(visible_text(path), _NAME_CHARACTERS),
            sides=tuple(
                side.get(path, _nothing(outline)) for side, outline in zip(sides, outlines, strict=True)
            ),
            same=_same(path, sides, same),
        )
        for path in paths
    ]
    rows.sort(key=lambda row: (not row.in_patch, not row.changed, not row.differs, row.path))
    return ComparedFiles(
        [
            SideFacts(
                name=name,
                run=run.pk,
                patched=_is_patched(run),
                changed=sum(one.touch == "changed" for one in side.values()),
                read=sum(bool(one.reads) for one in side.values()),
                recorded=bool(side or outline.steps) or not is_imported(run),
            )
            for name, run, side, outline in zip(letters[: len(runs)], runs, sides, outlines, strict=True)
        ],
        rows,
    )


def _nothing(outline: Outline) -> Touched:
    return Touched("untouched" if outline.steps else "unknown")


def _same(
    path: str, sides: Sequence[Mapping[str, Touched]], same: Sequence[Mapping[str, bool] | None] | None
) -> bool | None:
    """Only the first run is held against the others: where it and all others agree, all agree."""
    holding = [place for place, side in enumerate(sides) if path in side and side[path].touch == "changed"]
    if same is None or len(holding) < 2 or holding[0] != 0:
        return None
    known = [(same[place - 1] or {}).get(path) for place in holding[1:]]
    if False in known:
        return False
    return None if None in known else True


def _is_patched(run: Run) -> bool:
    return run.status in {Run.Status.VERIFYING, Run.Status.ENDED}


def _touched(run: Run, outline: Outline) -> dict[str, Touched]:
    reads: dict[str, list[int]] = {}
    edits: dict[str, list[int]] = {}
    for step in outline.steps:
        for path in step.action.reads:
            reads.setdefault(path, []).append(step.number)
        for path in step.action.edits:
            edits.setdefault(path, []).append(step.number)
    # A patch that was written with CRLF has it behind its paths as well.
    files = {
        str(file.get("path") or "").removesuffix("\r"): file for file in facts_of(run).changed_files or ()
    }
    return {
        path: _side(files.get(path), tuple(edits.get(path, ())), tuple(reads.get(path, ())))
        for path in dict.fromkeys([*files, *edits, *reads])
        if path
    }


def _side(file: Mapping[str, Any] | None, edits: tuple[int, ...], reads: tuple[int, ...]) -> Touched:
    if file is None:
        return Touched("edited" if edits else "read", edits=edits, reads=reads)
    return Touched(
        touch="changed",
        added=file.get("added"),
        removed=file.get("removed"),
        note=_CHANGE_WORDS.get(str(file.get("change")), ""),
        edits=edits,
        reads=reads,
    )
