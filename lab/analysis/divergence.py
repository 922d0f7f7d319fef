"""Where two aligned runs part for good.

A difference that the runs come back from is a detour and parts nobody. There are two kinds of evidence that
they do not come back:

* **files**: a file that does not end the same in both runs parts them at the latest in the row where its
  edits begin to differ: one run edits it alone, or both with other content. With both final patches at hand
  they say which files end the same, and a file in neither of them (a script to reproduce the bug) counts
  for nothing. Without them a file ends the same if the last row that edits it is equal in both runs, or if
  whoever edits it takes it back in the end (`rm`, `git checkout`); files outside the workspace count for
  nothing. An equal write of the whole file is a new beginning.
* **way**: the first difference after the last stretch the runs went together, if from there on each of them
  does something that the other one never does. Where files part the runs, it is looked for up to that row
  only (before it, where both edit the same file there and write other words: until then they were after the
  same), and one row alike that is not routine is a stretch together: as long as they do the same and have
  edited nothing for good, they have not parted (after ten rows of their own it takes more, as follows).
  Where no file parts them it takes at least three rows in sequence, not all of them routine, or the same
  edit, or one such row if only one of the runs has gone off or at the very end of both. A routine ending is
  no way back: most runs end with tests and an answer.

Alike are rows of the sign = or ≈ (and steps of several calls that have one in common), except edits with
other content of a file that does not end the same. Routine is a test run, looking at the own changes,
taking back and cleaning up, and the final answer. No difference is what is routine, what the other run does
as well, only earlier, later or more often (a command that failed and is tried again), and an edit of no
file but those that end the same or count for nothing.

Where a run has not ended, the rows after its last step say nothing yet: neither what the other one did
there, nor a few rows alike at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Literal, NamedTuple

from lab.analysis.alignment import Action, Alignment, Sign, calls_of, project, sign

# So many rows alike in sequence are a common way; fewer come about by chance (both look at one file again).
_TOGETHER = 3
# After so many rows of their own, one row alike is chance, too.
_LONG = 10
# Commands after which a file is as it was, or is gone.
_UNDOING = ("rm ", "git checkout ", "git restore ")
_ROUTINE_COMMANDS = ("git diff", "git status", "git log", "git show")


class Divergence(NamedTuple):
    """The first sustained divergence of two runs: the row where it begins, and why it counts as one.

    `because` "files": the file `path` is edited differently here and stays different to the end. "way": from
    here on the runs come back to no common way. `row` is a place in the rows of the alignment.
    """

    row: int
    because: Literal["files", "way"]
    path: str = ""


class _Pair(NamedTuple):
    """A row of the two runs, its place in the alignment they were taken from, and whether it is open.

    Open is a row where the run without a step goes on and may still do what the other one did.
    """

    one: Action | None
    other: Action | None
    place: int
    is_open: bool

    @property
    def steps(self) -> tuple[Action, ...]:
        return tuple(step for step in (self.one, self.other) if step is not None)

    @property
    def same_call(self) -> bool:
        """Whether both did the same with the same arguments, whatever came of it."""
        if self.one is None or self.other is None:
            return False
        return self.one[:3] == self.other[:3]

    @property
    def is_whole(self) -> bool:
        """Whether each step writes a file as a whole: what was in it before makes no difference."""
        return all(step.subject.startswith("write ") for step in self.steps)

    @property
    def edited(self) -> dict[str, None]:
        return dict.fromkeys(path for step in self.steps for path in step.edits)


class _Row(Enum):
    """A row in which nobody does something that the other one never does."""

    ALIKE = "alike"
    ROUTINE = "alike, as in any two runs"
    REJOINED = "the same edit"
    NOTHING = "not alike and no difference"


def first_sustained(
    runs: Sequence[Sequence[Action]],
    alignment: Alignment,
    *,
    first: int,
    second: int,
    same_files: Mapping[str, bool] | None,
    ended: tuple[bool, bool],
) -> Divergence | None:
    """Where runs `first` and `second` (columns of `alignment`) part for good; None: they do not.

    `same_files`: for each file of the two final patches whether both end alike; None: not known.
    `ended`: whether the first and the second run have ended. A row of the answer is one of `alignment`.
    """
    if same_files and all(same_files.values()):
        return None
    pairs = _pairs(runs, alignment, (first, second), ended)
    differing = _ending_differently(pairs, same_files)
    files = _by_files(pairs, differing)
    if files is None:
        return _by_way(pairs, differing, together=_TOGETHER, at_end=all(ended))
    until_then = [pair for pair in pairs if pair.place < files.row or _parts_here(pair, files.row)]
    way = _by_way(until_then, differing, together=1, at_end=False)
    return files if way is None or way.row == files.row else way


def _parts_here(pair: _Pair, row: int) -> bool:
    """Whether this is the row that parts the runs by a file, and by more than the words they write."""
    return pair.place == row and not _is_common(pair)


def _pairs(
    runs: Sequence[Sequence[Action]], alignment: Alignment, columns: tuple[int, int], ended: tuple[bool, bool]
) -> list[_Pair]:
    """The rows of two runs, without the last ones that a run which goes on has not come to."""
    pair = project(alignment, columns)
    shared = [at for at, row in enumerate(pair.rows) if None not in row]
    tail = shared[-1] + 1 if shared else 0
    until = len(pair.rows)
    for side in range(2):
        if not ended[side] and all(row[side] is None for row in pair.rows[tail:]):
            until = tail
    one, other = (runs[column] for column in columns)
    return [
        _Pair(
            None if a is None else one[a],
            None if b is None else other[b],
            pair.places[at],
            at >= tail and not ended[0 if a is None else 1],
        )
        for at, (a, b) in enumerate(pair.rows[:until])
    ]


def _ending_differently(pairs: Sequence[_Pair], same_files: Mapping[str, bool] | None) -> frozenset[str]:
    """The files that do not end the same: as the patches have it, else as the edits have it so far."""
    if same_files is not None:
        return frozenset(path for path, same in same_files.items() if not same)
    differing: set[str] = set()
    last: tuple[dict[str, Action], dict[str, Action]] = ({}, {})
    for pair in (pair for pair in pairs if not pair.is_open):
        for path in pair.edited:
            if not pair.same_call:
                differing.add(path)
            else:
                # Equal again; what is edited otherwise after this is added again.
                differing.discard(path)
        for side, step in enumerate((pair.one, pair.other)):
            if step is not None:
                last[side].update(dict.fromkeys(step.edits, step))
    return frozenset(
        path
        for path in differing
        if not path.startswith(("/", "~"))
        and not all(_undoes(steps[path]) for steps in last if path in steps)
    )


def _undoes(step: Action) -> bool:
    return any(part.startswith(_UNDOING) for part in step.subject.split(" && "))


def _by_files(pairs: Sequence[_Pair], differing: frozenset[str]) -> Divergence | None:
    began: dict[str, int] = {}
    for pair in (pair for pair in pairs if not pair.is_open):
        for path in differing.intersection(pair.edited):
            if not pair.same_call:
                began.setdefault(path, pair.place)
            elif pair.is_whole:
                began.pop(path, None)
    found = [Divergence(place, "files", path) for path, place in began.items()]
    return min(found, default=None)


def _by_way(
    pairs: Sequence[_Pair], differing: frozenset[str], *, together: int, at_end: bool
) -> Divergence | None:
    """The first difference after the last common way, if both runs go a way of their own from there.

    `together`: so many rows alike make a common way; `at_end`: one does at the very end.
    """
    done = (_done(pair.one for pair in pairs), _done(pair.other for pair in pairs))
    start: int | None = None
    acted: set[int] = set()
    apart, alike, telling = 0, 0, False
    for at, pair in enumerate(pairs):
        own = _own(pair, done, differing)
        if own:
            start = at if start is None else start
            acted |= own
            apart += 1
            alike, telling = 0, False
            continue
        row = _row(pair)
        alike += row is not _Row.NOTHING
        telling = telling or row in (_Row.ALIKE, _Row.REJOINED)
        enough = 1 if len(acted) < 2 else together if apart < _LONG else _TOGETHER
        if row is _Row.REJOINED or (telling and alike >= enough):
            start, apart = None, 0
            acted.clear()
    if start is None or len(acted) < 2 or (at_end and telling):
        return None
    return Divergence(pairs[start].place, "way")


def _done(steps: Iterable[Action | None]) -> frozenset[str | tuple[str, str]]:
    """What a run does: subjects of calls, and with their arguments edits too."""
    return frozenset(name for step in steps if step is not None for name in _names(step))


def _names(step: Action) -> Iterable[str | tuple[str, str]]:
    return [(step.subject, step.arguments)] if step.edits else calls_of(step)


def _own(
    pair: _Pair,
    done: tuple[AbstractSet[str | tuple[str, str]], AbstractSet[str | tuple[str, str]]],
    differing: frozenset[str],
) -> frozenset[int]:
    """Which of the two runs does something in this row that the other one never does."""
    if _is_common(pair) and (pair.same_call or differing.isdisjoint(pair.edited)):
        return frozenset()

    def alone(step: Action | None, others: AbstractSet[str | tuple[str, str]]) -> bool:
        if step is None or _is_routine(step) or all(name in others for name in _names(step)):
            return False
        return not step.edits or not differing.isdisjoint(step.edits)

    return frozenset(side for side in range(2) if alone((pair.one, pair.other)[side], done[1 - side]))


def _is_common(pair: _Pair) -> bool:
    """Whether the row has the sign = or ≈."""
    if pair.one is None or pair.other is None:
        return False
    return sign(pair.one, pair.other) in (Sign.EQUAL, Sign.ALIKE)


def _is_routine(step: Action) -> bool:
    return step.kind in ("test", "final") or step.subject.startswith((*_ROUTINE_COMMANDS, *_UNDOING))


def _row(pair: _Pair) -> _Row:
    if not _is_common(pair):
        return _Row.NOTHING
    if all(map(_is_routine, pair.steps)):
        return _Row.ROUTINE
    return _Row.REJOINED if pair.same_call and pair.edited else _Row.ALIKE
