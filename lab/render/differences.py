"""Two texts as a diff, and single values as text, for pages that put two things side by side."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from django.utils.safestring import SafeString

from lab.engine.key_shapes import mask_key_shapes
from lab.render.diff import common_ends, unified
from lab.render.text import safe, visible_text

CONTEXT_LINES = 3
# Beyond this many pairs of lines a whole block is as readable as its matches, and matching takes seconds.
_MATCHED_PAIRS = 4_000_000
_ROWS = 2_000
_CHARACTERS = 300_000
_LINE_CHARACTERS = 2_000

Opcode = tuple[str, int, int, int, int]


def text_difference(name: str, old: str, new: str) -> SafeString:
    """A unified diff of two texts as safe HTML under the head `name`, keys masked; "" for equal texts.

    A line of more than 2,000 characters is broken into such pieces. Of a difference of more than 2,000 lines
    or 300,000 characters the first are shown, and how many more lines there are is said.
    """
    if old == new:
        return safe("")
    before, after = mask_key_shapes(old), mask_key_shapes(new)
    if before == after:
        return safe('<p class="label">They differ in text that looks like a key and is masked here.</p>')
    rows = list(_hunks(_lines(before), _lines(after)))
    shown = rows[: _fitting(rows)]
    head = visible_text(name).replace("\n", " ").replace("\t", " ")
    patch = "".join(_hunk_text(hunk) for hunk in _regrouped(shown))
    more = len(rows) - len(shown)
    rest = f'<p class="cut-mark">{more:,} more lines of the difference</p>' if more else ""
    return safe(unified(f"--- a/{head}\n+++ b/{head}\n{patch}") + rest)


def value_text(value: Any) -> str:
    """A JSON value in one line where it is short, else indented; keys masked. Not escaped."""
    if isinstance(value, str):
        return visible_text(value) if value else '""'
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 100 and isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return visible_text(text)


def _lines(text: str) -> list[str]:
    """Lines without their ends, a last empty one for a text that ends with a newline."""
    if not text:
        return []
    return [
        line[at : at + _LINE_CHARACTERS]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), _LINE_CHARACTERS)
    ]


def _fitting(rows: list[_Row]) -> int:
    """How many of the rows are shown."""
    characters = accumulate(len(row.text) for row in rows)
    return min(_ROWS, sum(1 for _ in takewhile(lambda so_far: so_far <= _CHARACTERS, characters)))


class _Row(NamedTuple):
    """A line of the difference; `old` and `new` are its places on both sides, counted from 0."""

    hunk: int
    sign: str
    text: str
    old: int
    new: int


def _hunks(before: list[str], after: list[str]) -> Iterator[_Row]:
    for hunk, group in enumerate(_groups(before, after)):
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                for step, line in enumerate(before[i1:i2]):
                    yield _Row(hunk, " ", line, i1 + step, j1 + step)
                continue
            for step, line in enumerate(before[i1:i2]):
                yield _Row(hunk, "-", line, i1 + step, j1)
            for step, line in enumerate(after[j1:j2]):
                yield _Row(hunk, "+", line, i2, j1 + step)


def _groups(before: list[str], after: list[str]) -> Iterator[list[Opcode]]:
    """Stretches that differ, each with a few equal lines around it."""
    if len(before) * len(after) <= _MATCHED_PAIRS:
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        yield from matcher.get_grouped_opcodes(CONTEXT_LINES)
        return
    head, tail = common_ends(before, after)
    start, over = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    i2, j2 = len(before) - tail, len(after) - tail
    yield [
        ("equal", start, head, start, head),
        ("replace", head, i2, head, j2),
        ("equal", i2, i2 + over, j2, j2 + over),
    ]


def _regrouped(rows: list[_Row]) -> Iterator[list[_Row]]:
    hunk: list[_Row] = []
    for row in rows:
        if hunk and row.hunk != hunk[0].hunk:
            yield hunk
            hunk = []
        hunk.append(row)
    if hunk:
        yield hunk


def _hunk_text(rows: list[_Row]) -> str:
    old = sum(row.sign != "+" for row in rows)
    new = sum(row.sign != "-" for row in rows)
    # As in every unified diff: a side without lines names the line before, others their first one.
    old_start = rows[0].old + (1 if old else 0)
    new_start = rows[0].new + (1 if new else 0)
    body = "".join(f"{row.sign}{row.text}\n" for row in rows)
    return f"@@ -{old_start},{old} +{new_start},{new} @@\n{body}"
