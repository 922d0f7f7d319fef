"""Which lines and words of two texts differ, as marks on both. The cost grows with their lengths only."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import NamedTuple

from lab.render.diff import common_ends
from lab.render.text import visible_html

# Pairs of lines that are matched one with another between two places that are known to be the same.
_MATCHED_PAIRS = 40_000
# Words of longer lines are not matched: what both begin and end with is left out of the mark.
_MATCHED_CHARACTERS = 400
_MATCHED_WORD_PAIRS = 10_000
_LEAST_ALIKE = 0.4
# An equal stretch within a long line that differs is cut in its middle beyond this.
_EQUAL_CHARACTERS = 400
_EQUAL_END = 120
_CONTEXT_LINES = 3
# Lines of one text whose words are marked.
_WORD_MARKED_LINES = 12
# Numbers as `cat -n`, editors and agents' viewers write them: "  12\ttext", "12:text", "12. text", "12|text".
_NUMBERED = re.compile(r"[ \t]{0,8}(\d{1,7})(?:\t|[.:|→] ?)")
_LEAST_NUMBERED = 2
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Segment = tuple[str, bool]


@dataclass(slots=True)
class Marks:
    """What of a text's lines differs from another text.

    `differs`: places of lines, from 0. `partners`: for some of them the line that stands there in the other.
    """

    differs: set[int] = field(default_factory=set)
    partners: dict[int, str] = field(default_factory=dict)

    def take_in(self, other: Marks) -> None:
        """Marks against one more text: what differs from any of them is marked."""
        self.differs |= other.differs
        self.partners = other.partners | self.partners


def lines_of(text: str) -> list[str]:
    """Lines without their ends; a carriage return before a newline is part of the end."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    return text.removesuffix("\n").split("\n") if text else []


def without_numbers(lines: list[str]) -> list[str]:
    """The lines of a file without the numbers that a tool puts before them; other lines as they are.

    Numbers count where they rise by one from line to line through most of the text.
    """
    found = [_NUMBERED.match(line) for line in lines]
    numbers = [int(match[1]) if match else None for match in found]
    rising = sum(
        before is not None and after == before + 1
        for before, after in zip(numbers, numbers[1:], strict=False)
    )
    if rising < max(_LEAST_NUMBERED, len(lines) // 2):
        return lines
    return [line[match.end() :] if match else line for line, match in zip(lines, found, strict=True)]


def compared(left: Sequence[str], right: Sequence[str]) -> tuple[Marks, Marks]:
    """What differs in each of two texts. Exchanging the texts exchanges the marks."""
    of_left, of_right = Marks(), Marks()
    for i1, i2, j1, j2 in differing(left, right):
        of_left.differs.update(range(i1, i2))
        of_right.differs.update(range(j1, j2))
        for i, j in zip(range(i1, i2), range(j1, j2), strict=False):
            of_left.partners[i], of_right.partners[j] = right[j], left[i]
    return of_left, of_right


Stretch = tuple[int, int, int, int]


def differing(left: Sequence[str], right: Sequence[str]) -> list[Stretch]:
    """Stretches of lines in the place of one another as start and end in both, in order; one may be empty.

    Exchanging the texts exchanges the sides of the stretches.
    """
    if list(right) < list(left):
        return [(i1, i2, j1, j2) for j1, j2, i1, i2 in _differing(right, left)]
    return list(_differing(left, right))


def _differing(left: Sequence[str], right: Sequence[str]) -> Iterator[Stretch]:
    budget = _MATCHED_PAIRS
    for i1, i2, j1, j2 in _between_anchors(left, right):
        head, tail = common_ends(left[i1:i2], right[j1:j2])
        i1, i2, j1, j2 = i1 + head, i2 - tail, j1 + head, j2 - tail
        pairs = (i2 - i1) * (j2 - j1)
        if not pairs:
            if i1 < i2 or j1 < j2:
                yield i1, i2, j1, j2
        elif pairs <= budget:
            budget -= pairs
            yield from _matched(left, right, (i1, i2, j1, j2))
        else:
            yield from _unmatched(left, right, (i1, i2, j1, j2))


def _between_anchors(left: Sequence[str], right: Sequence[str]) -> Iterator[Stretch]:
    """Stretches between lines that each text has once, in the longest order common to both."""
    head, tail = common_ends(left, right)
    i1, i2, j1, j2 = head, len(left) - tail, head, len(right) - tail
    once_left, once_right = _once(left, i1, i2), _once(right, j1, j2)
    places = [(i, once_right[line]) for line, i in once_left.items() if line in once_right]
    for i, j in _longest_rising(places):
        if i > i1 or j > j1:
            yield i1, i, j1, j
        i1, j1 = i + 1, j + 1
    if i1 < i2 or j1 < j2:
        yield i1, i2, j1, j2


def _once(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    counts = Counter(lines[start:end])
    return {lines[at]: at for at in range(start, end) if counts[lines[at]] == 1}


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs, sorted by their first numbers, whose second numbers rise."""
    ends: list[int] = []
    before: list[int] = []
    for at, (_, second) in enumerate(pairs):
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high) // 2
            if pairs[ends[middle]][1] < second:
                low = middle + 1
            else:
                high = middle
        before.append(ends[low - 1] if low else -1)
        ends[low : low + 1] = [at]
    chain = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _matched(left: Sequence[str], right: Sequence[str], stretch: Stretch) -> Iterator[Stretch]:
    i1, i2, j1, j2 = stretch
    matcher = difflib.SequenceMatcher(None, left[i1:i2], right[j1:j2], autojunk=False)
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        if tag != "equal":
            yield i1 + a1, i1 + a2, j1 + b1, j1 + b2


def _unmatched(left: Sequence[str], right: Sequence[str], stretch: Stretch) -> Iterator[Stretch]:
    """Where matching would take too long: the lines that the other text has nowhere in this stretch."""
    i1, i2, j1, j2 = stretch
    here, there = set(left[i1:i2]), set(right[j1:j2])
    if here.isdisjoint(there):
        yield stretch
        return
    yield from ((i, i + 1, j1, j1) for i in range(i1, i2) if left[i] not in there)
    yield from ((i2, i2, j, j + 1) for j in range(j1, j2) if right[j] not in here)


def segments(own: str, other: str) -> list[Segment]:
    """A line in pieces that differ from the other line or not; none where too little is common to both."""
    if max(len(own), len(other)) > _MATCHED_CHARACTERS:
        pieces = _ends_apart(own, other)
    elif other < own:
        pieces = _words_apart(other, own)[1]
    else:
        pieces = _words_apart(own, other)[0]
    alike = sum(len(text) for text, differs in pieces if not differs)
    return pieces if 2 * alike >= _LEAST_ALIKE * (len(own) + len(other)) else []


def _ends_apart(own: str, other: str) -> list[Segment]:
    head = len(commonprefix([own, other]))
    tail = len(commonprefix([own[head:][::-1], other[head:][::-1]]))
    over = len(own) - tail
    return _without_empty([(own[:head], False), (own[head:over], True), (own[over:], False)])


def _words_apart(left: str, right: str) -> tuple[list[Segment], list[Segment]]:
    before, after = _WORD.findall(left), _WORD.findall(right)
    head, tail = common_ends(before, after)
    inner = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(inner[0]) * len(inner[1]) > _MATCHED_WORD_PAIRS:
        return _ends_apart(left, right), _ends_apart(right, left)
    first = ("".join(before[:head]), False)
    last = ("".join(before[len(before) - tail :]), False)
    of_left, of_right = [first], [first]
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, *inner, autojunk=False).get_opcodes():
        of_left.append(("".join(inner[0][i1:i2]), tag != "equal"))
        of_right.append(("".join(inner[1][j1:j2]), tag != "equal"))
    return _without_empty([*of_left, last]), _without_empty([*of_right, last])


def _without_empty(pieces: list[Segment]) -> list[Segment]:
    return [piece for piece in pieces if piece[0]]


class Shown(NamedTuple):
    """Markup of the part of a text that is shown, with its marks.

    `characters`: how many characters of the text it holds. `left_out`: whether something is not shown.
    `more_differ`: lines that differ and are not shown.
    """

    markup: str
    characters: int
    left_out: bool
    more_differ: int


def shown_with_marks(
    lines: Sequence[str],
    marks: Marks,
    *,
    most_lines: int,
    most_characters: int,
    html: Callable[[str], str] = visible_html,
) -> Shown:
    """The lines that differ with a few around them; everything where it is short. `html` escapes a text."""
    wanted = _wanted(len(lines), marks.differs, most_lines)
    parts: list[str] = []
    characters = count = words = 0
    next_line = 0
    for at in wanted:
        if count >= most_lines or characters >= most_characters:
            break
        parts.append(_skipped(at - next_line))
        next_line, count = at + 1, count + 1
        left = most_characters - characters
        if at not in marks.differs:
            line = lines[at][:left]
            parts.append(f"{html(line)}\n")
            characters += len(line) + 1
            continue
        partner = marks.partners.get(at) if words < _WORD_MARKED_LINES else None
        words += partner is not None
        markup, used = _marked_line(lines[at], partner, left, html)
        parts.append(f'<mark class="differs">{markup}\n</mark>')
        characters += used + 1
    more = sum(at >= next_line for at in marks.differs)
    whole = sum(map(len, lines)) + len(lines)
    return Shown("".join(parts), min(characters, whole), characters < whole, more)


def _wanted(total: int, differs: set[int], most_lines: int) -> Sequence[int]:
    """The places of the lines to show, rising."""
    if total <= most_lines:
        return range(total)
    kept: list[int] = []
    for at in sorted(differs):
        start = max(at - _CONTEXT_LINES, kept[-1] + 1 if kept else 0)
        kept += range(start, min(total, at + _CONTEXT_LINES + 1))
        if len(kept) >= most_lines:
            break
    return kept or range(most_lines)


def _skipped(count: int) -> str:
    lines = "line" if count == 1 else "lines"
    return f'<span class="skipped">{count:,} equal {lines}\n</span>' if count else ""


def _marked_line(line: str, partner: str | None, most: int, html: Callable[[str], str]) -> tuple[str, int]:
    """A line that differs, its words marked where they can be told, and how many characters it shows."""
    is_plain = "\x1b" not in line and "\r" not in line
    pieces = segments(line, partner) if partner is not None and is_plain else []
    if not pieces:
        return html(line[:most]), len(line[:most])
    parts = []
    used = 0
    for text, differs in pieces:
        if used >= most:
            break
        shown, characters = _piece(text[: most - used] if differs else text, html, differs=differs)
        parts.append(shown)
        used += characters
    return "".join(parts), used


def _piece(text: str, html: Callable[[str], str], *, differs: bool) -> tuple[str, int]:
    if differs:
        return f'<span class="word">{html(text)}</span>', len(text)
    if len(text) <= _EQUAL_CHARACTERS:
        return html(text), len(text)
    left_out = len(text) - 2 * _EQUAL_END
    cut = f'<span class="skipped">{left_out:,} equal characters</span>'
    return html(text[:_EQUAL_END]) + cut + html(text[-_EQUAL_END:]), 2 * _EQUAL_END
