"""Steps of several runs in rows: what the runs did alike stands in one row, whatever the steps' numbers.

Pure and deterministic. A step is an `Action`; how a tool call becomes one is not known here.

Two runs are aligned as a whole: of all ways to pair their steps in order, the one that has most in common.
A pair counts for the same subject, more for the same arguments, more again for the same result, and each of
these the more, the rarer it is: a file that both edit once holds runs together, the fortieth `ls` hardly.
Steps of one kind with another target (≠) are paired only where no pair of the same action is lost by it, and
only if their targets are close (same file, or same verb and directory) or they follow on a shared row.
Gaps are free. Of pairings that are equally good the one that pairs earliest is taken.

More than two runs are merged one after the other, those with the most in common first. Which these are, and
every tie, is decided by what the runs hold, never by their order.
"""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How much a pair counts for the same subject, the same arguments and the same result, each times its rarity.
_LEVELS = (4, 3, 1)
# Rarity of what a run has once; of what it has n times: this divided by the root of n, at least 1.
_RAREST = 16
# More than all pairs of the sign ≠ in an alignment count together: they never cost a pair of the same action.
_SAME_ACTION = 1 << 24
# Scores that are made at once: few enough to stay in the processor's cache.
_AT_ONCE = 1 << 17
# Words for a kind of step: what is called and what comes of it; what can differ in it; what two of them do.
_CALLS = {
    "read": ("call", "output"),
    "edit": ("edit", "result"),
    "test": ("test run", "output"),
    "shell": ("command", "output"),
    "final": ("final answer", "words"),
}
_ARGUMENTS = {"edit": "content", "test": "options", "final": "words"}
_DOING = {
    "edit": "both edit",
    "test": "both run tests",
    "shell": "both run a command",
    "final": "both answer",
}
_READING = {
    "read": "both read, other file",
    "grep": "both search, other pattern",
    "find": "both look for files, other name",
    "ls": "both list files, other folder",
}
_LONGEST = 80


class Sign(StrEnum):
    """How two steps in one row relate."""

    EQUAL = "="
    ALIKE = "≈"
    OTHER = "≠"


class Action(NamedTuple):
    """One step as it is aligned; all texts are in a normal form, so that equality means "the same".

    `kind`: read, edit, test, shell or final. `subject`: what is done to what, such as "edit src/a.py" or
    "pytest tests"; the same subject is the same action. `arguments`: everything that was asked, whole or as a
    digest. `result`: a digest of what came of it, "" while nobody knows. `reads` and `edits`: paths of files.
    """

    kind: str
    subject: str
    arguments: str
    result: str = ""
    reads: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


class Alignment(NamedTuple):
    """Rows in order; a row has for each run the place of its step, counted from 0, or None for a gap.

    `places`: of a projection, where each row stood in the alignment it was taken from; else empty.
    """

    rows: tuple[tuple[int | None, ...], ...]
    places: tuple[int, ...] = ()


# A row of runs that are being merged, and the steps that stand in it.
_Row = tuple[int | None, ...]


class _Coded(NamedTuple):
    """Steps as numbers, so that many are compared at once; a gap has weight 0 and a number of its own.

    Each is of shape (levels, steps). `same`: subject, arguments, result. `near`: verb and directory, file.
    """

    same: NDArray[np.int32]
    same_weights: NDArray[np.int64]
    near: NDArray[np.int32]


def align(runs: Sequence[Sequence[Action]]) -> Alignment:
    """The steps of `runs` in rows: what was done alike stands in one row.

    Each run's steps keep their order, and steps of different kinds never share a row. Between two shared rows
    the first run's own steps come first, then the second's. Runs given in another order have the same rows,
    with their columns in that order. 2 x 5,000 steps take half a second and some 15 MB.
    """
    given = [tuple(run) for run in runs]
    contents = sorted(set(given))
    column_of = {content: column for column, content in enumerate(contents)}
    columns = [column_of[content] for content in given]
    return Alignment(_in_order([tuple(row[column] for column in columns) for row in _merged(contents)]))


def by_number(lengths: Sequence[int]) -> Alignment:
    """Steps of equal number in one row, for runs of `lengths` steps; kinds may differ in a row."""
    return Alignment(tuple(zip_longest(*(range(length) for length in lengths))))


def project(alignment: Alignment, columns: Sequence[int]) -> Alignment:
    """The rows as they are for `columns` alone: rows where none of them has a step are left out."""
    kept = [
        (place, tuple(row[column] for column in columns))
        for place, row in enumerate(alignment.rows)
        if any(row[column] is not None for column in columns)
    ]
    return Alignment(tuple(row for _, row in kept), tuple(place for place, _ in kept))


def sign(a: Action, b: Action) -> Sign | None:
    """How two steps relate; None: they have nothing in common and are never aligned.

    Equal arguments are "=" only with an equal result that is known; a final answer is its own result. Steps
    of several calls are alike when one of the calls is the same action.
    """
    if a.kind != b.kind:
        return None
    if a.subject != b.subject:
        return Sign.OTHER if calls_of(a).isdisjoint(calls_of(b)) else Sign.ALIKE
    known = bool(a.result) or a.kind == "final"
    return Sign.EQUAL if known and (a.arguments, a.result) == (b.arguments, b.result) else Sign.ALIKE


def calls_of(step: Action) -> frozenset[str]:
    """What is called in a step: several calls that run beside one another are joined in its subject."""
    return frozenset(step.subject.split(" + "))


def _merged(contents: Sequence[tuple[Action, ...]]) -> list[_Row]:
    """Rows for runs of which no two are equal."""
    if not contents:
        return []
    coded, order = _coded(contents), _order_of_merging(contents)
    width = len(contents)
    rows = [_row(width, {order[0]: step}) for step in range(len(contents[order[0]]))]
    for count, run in enumerate(order[1:], start=1):
        merged = [column for column in order[:count] if contents[column]]
        members = [_gapped(coded[column], [row[column] for row in rows]) for column in merged]
        pairs = _best_pairs(members, coded[run]) if rows and contents[run] else []
        kinds = [
            next(contents[c][step].kind for c, step in enumerate(row) if step is not None) for row in rows
        ]
        partners = dict(pairs) | _following(pairs, kinds, [step.kind for step in contents[run]])
        taken = set(partners.values())
        rows = [
            row if at not in partners else (*row[:run], partners[at], *row[run + 1 :])
            for at, row in enumerate(rows)
        ]
        rows += [_row(width, {run: step}) for step in range(len(contents[run])) if step not in taken]
        rows = list(_in_order(rows))
    return rows


def _row(width: int, steps: dict[int, int]) -> _Row:
    return tuple(steps.get(column) for column in range(width))


def _following(
    pairs: Sequence[tuple[int, int]], kinds: Sequence[str], other_kinds: Sequence[str]
) -> dict[int, int]:
    """Pairs of one kind that follow directly on a pair (or on the start), whatever their targets are."""
    found: dict[int, int] = {}
    a, b = 0, 0
    for end_a, end_b in [*pairs, (len(kinds), len(other_kinds))]:
        while a < end_a and b < end_b and kinds[a] == other_kinds[b]:
            found[a] = b
            a, b = a + 1, b + 1
        a, b = end_a + 1, end_b + 1
    return found


def _in_order(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """The rows as they are read: the leftmost run goes on until its next row has to wait for another run."""
    kept = list(rows)
    members = [[column for column, step in enumerate(row) if step is not None] for row in kept]
    queues: list[list[tuple[int, int]]] = [[] for _ in range(len(kept[0]) if kept else 0)]
    for number, row in enumerate(kept):
        for column in members[number]:
            queues[column].append((row[column] or 0, number))
    order = [[number for _, number in sorted(queue)] for queue in queues]
    reached = [0] * len(order)
    missing = [len(those) for those in members]
    for queue in order:
        if queue:
            missing[queue[0]] -= 1
    ordered: list[_Row] = []
    while len(ordered) < len(kept):
        waiting = (queue[at] for queue, at in zip(order, reached, strict=True) if at < len(queue))
        number = next(number for number in waiting if not missing[number])
        ordered.append(kept[number])
        for column in members[number]:
            reached[column] += 1
            if reached[column] < len(order[column]):
                missing[order[column][reached[column]]] -= 1
    return tuple(ordered)


def _levels(action: Action) -> tuple[Hashable, Hashable, Hashable | None]:
    """What two steps can have in common, the least first; None cannot be had in common."""
    subject = (action.kind, action.subject)
    arguments = (*subject, action.arguments)
    return subject, arguments, (*arguments, action.result) if action.result else None


def _near(action: Action) -> tuple[Hashable, Hashable | None]:
    """What makes targets close: the same verb in the same directory (or without a file), the same file."""
    path = next(iter(action.edits or action.reads), None)
    verb = action.subject.partition(" ")[0] if action.kind not in ("test", "final") else ""
    if path is None:
        return (action.kind, verb), None
    return (action.kind, verb, posixpath.dirname(path)), (action.kind, path)


def _coded(contents: Sequence[Sequence[Action]]) -> list[_Coded]:
    import numpy as np

    counts = Counter(level for run in contents for action in run for level in _levels(action))
    numbers: dict[Hashable, int] = {}

    def number(code: Hashable | None) -> int:
        return -1 if code is None else numbers.setdefault(code, len(numbers))

    def weight(level: int, code: Hashable | None) -> int:
        return 0 if code is None else _LEVELS[level] * _rarity(counts[code], len(contents))

    coded = []
    for run in contents:
        levels = [_levels(action) for action in run]
        same = [[number(code) for code in step] for step in levels]
        weights = [[weight(level, code) for level, code in enumerate(step)] for step in levels]
        near = [[number(code) for code in _near(action)] for action in run]
        coded.append(
            _Coded(
                np.array(same, dtype=np.int32).reshape(-1, len(_LEVELS)).T,
                np.array(weights, dtype=np.int64).reshape(-1, len(_LEVELS)).T,
                np.array(near, dtype=np.int32).reshape(-1, 2).T,
            )
        )
    return coded


def _rarity(count: int, runs: int) -> int:
    """From `_RAREST` for what each run has once down to 1."""
    return max(1, round(_RAREST / math.sqrt(max(1.0, count / runs))))


def _gapped(coded: _Coded, places: Sequence[int | None]) -> _Coded:
    """The steps at `places`, with gaps."""
    import numpy as np

    at = np.array([-1 if place is None else place for place in places], np.int64)
    gaps = at < 0
    placed = _Coded(coded.same[:, at], coded.same_weights[:, at], coded.near[:, at])
    placed.same[:, gaps], placed.same_weights[:, gaps], placed.near[:, gaps] = -2, 0, -2
    return placed


def _order_of_merging(contents: Sequence[Sequence[Action]]) -> list[int]:
    """The two runs that have most in common, then always the one with most in common with any of those."""
    width = len(contents)
    if width < 3:
        return list(range(width))
    bags = [Counter(level for action in run for level in _levels(action)) for run in contents]

    def shared(a: int, b: int) -> Fraction:
        return Fraction(2 * (bags[a] & bags[b]).total(), max(1, bags[a].total() + bags[b].total()))

    likeness = {(a, b): shared(a, b) for a in range(width) for b in range(a + 1, width)}
    order = [*max(likeness, key=lambda pair: (likeness[pair], -pair[0], -pair[1]))]
    while len(order) < width:
        left = [run for run in range(width) if run not in order]
        order.append(
            max(left, key=lambda run: (max(likeness[min(run, o), max(run, o)] for o in order), -run))
        )
    return order


def _scores(members: Sequence[_Coded], run: _Coded) -> Iterator[NDArray[np.int64]]:
    """For each row its score with every step: that of the best of the row's members."""
    import numpy as np

    at_once = 1 + _AT_ONCE // run.same.shape[1]
    for start in range(0, members[0].same.shape[1], at_once):
        part = slice(start, start + at_once)
        yield from reduce(np.maximum, (_block(member, part, run) for member in members))


def _block(member: _Coded, part: slice, run: _Coded) -> NDArray[np.int64]:
    """Scores of some rows of one column with all steps of a run, of shape (rows, steps)."""
    import numpy as np

    near = member.near[:, part, None]
    block: NDArray[np.int64] = (near[0] == run.near[0]).astype(np.int64)
    block += (near[1] == run.near[1]) & (near[1] >= 0)  # not every step has a file
    # Few pairs have the same subject, and only they can have more in common.
    same, weights = member.same[:, part], member.same_weights[:, part]
    row, step = np.nonzero(same[0][:, None] == run.same[0])
    shared = weights[0, row]
    for level in range(1, len(_LEVELS)):
        shared += weights[level, row] * (same[level, row] == run.same[level, step])
    block[row, step] += shared * _SAME_ACTION
    return block


def _best_pairs(members: Sequence[_Coded], run: _Coded) -> list[tuple[int, int]]:
    """Rows and steps that belong together, in order; the sum of their scores is the greatest there is."""
    import numpy as np

    steps = run.same.shape[1]
    before = np.zeros(steps + 1, np.int64)
    row_adds, step_adds = [], []
    for scores in _scores(members, run):
        now = before.copy()
        np.maximum(now[1:], before[:-1] + scores, out=now[1:])
        np.maximum.accumulate(now, out=now)
        # A bit a cell is all that the way back needs.
        row_adds.append(np.packbits(now[1:] != before[1:]).tobytes())
        step_adds.append(np.packbits(now[1:] != now[:-1]).tobytes())
        before = now
    pairs = []
    at, step = len(row_adds) - 1, steps - 1
    while at >= 0 and step >= 0:
        byte, bit = step >> 3, 128 >> (step & 7)
        if not row_adds[at][byte] & bit:
            at -= 1
        elif not step_adds[at][byte] & bit:
            step -= 1
        else:
            pairs.append((at, step))
            at, step = at - 1, step - 1
    return pairs[::-1]


def why(a: Action, b: Action) -> str:
    """What is the same and what is other in two steps, such as "same command, other output"."""
    found = sign(a, b)
    if found is None:
        return f"nothing in common: {_short(a.subject)}; {_short(b.subject)}"
    if found is Sign.OTHER:
        return _why_other(a, b)
    if a.subject != b.subject:
        return _why_partly(a, b)
    call, outcome = _CALLS.get(a.kind, ("call", "output"))
    if a.arguments != b.arguments:
        same_outcome = f", same {outcome}" if a.result and a.result == b.result else ""
        other = "lines" if a.subject.startswith("read ") else _ARGUMENTS.get(a.kind, "arguments")
        doing = _DOING["final"] if a.kind == "final" else f"both {_short(a.subject)}"
        return f"{doing}, other {other}{same_outcome}"
    if found is Sign.EQUAL:
        return f"same {call}" if a.kind == "final" else f"same {call}, same {outcome}"
    if a.result and b.result:
        return f"same {call}, other {outcome}"
    if a.result or b.result:
        return f"same {call}, one has not ended yet or its {outcome} is not known"
    return f"same {call}, {outcome} of both not known"


def _why_partly(a: Action, b: Action) -> str:
    both = _short(" + ".join(sorted(calls_of(a) & calls_of(b))))
    alone = (_short(" + ".join(sorted(calls_of(one) - calls_of(other)))) for one, other in ((a, b), (b, a)))
    return f"both {both}; beside it: {'; '.join(more or 'nothing' for more in alone)}"


def _why_other(a: Action, b: Action) -> str:
    named = f"{_short(a.subject)}; {_short(b.subject)}"
    one, other = (next(iter(action.edits or action.reads), "") for action in (a, b))
    verb = a.subject.partition(" ")[0]
    if a.kind == "read" and verb in _READING and verb == b.subject.partition(" ")[0]:
        return f"{_READING[verb]}: {named}"
    doing = _DOING.get(a.kind, f"both {a.kind}")
    if one and one == other:
        return f"{doing}, same file {one}, in another way"
    if one and other and (folder := posixpath.dirname(one)) == posixpath.dirname(other):
        return f"{doing}, other file in {folder or 'the top folder'}: {one}; {other}"
    return f"{doing}, other target: {named}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
