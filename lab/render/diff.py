"""Unified diffs and replaced texts as HTML: numbers and signs in their own columns, changed words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

from django.utils.safestring import SafeString

from lab.engine.diffs import FilePatch, PatchLine, parse_patch, unquoted
from lab.render.numbers import MINUS
from lab.render.text import safe, visible_html

FOLDED_LINES = 400
_SHOWN_LINES = 5_000
_WORD_MARKED_PAIRS = 200
_WORD_MARKED_CHARACTERS = 400
_HEAD_CHARACTERS = 8_000
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


class DiffLine(NamedTuple):
    """One line: `sign` is "+", "-", " ", or "@" for a hunk's head; `number` is that of its own file."""

    sign: str
    number: int | None
    text: str


def _lines_of(file: FilePatch) -> list[DiffLine]:
    """The lines to show; those of a section that could not be read stand there as they are."""
    if not file.hunks:
        unread = not file.binary and ("@@ " in file.raw or not file.path)
        return (
            [DiffLine(" ", None, line) for line in file.raw.removesuffix("\n").split("\n")] if unread else []
        )
    lines = []
    for hunk in file.hunks:
        head = f"@@ -{hunk.old_start} +{hunk.new_start} @@ {hunk.heading}"
        lines.append(DiffLine("@", None, head.rstrip()))
        lines += [_line(line) for line in hunk.lines]
    return lines


def _line(line: PatchLine) -> DiffLine:
    if line.mark == "\\":
        return DiffLine("@", None, line.text.strip())
    return DiffLine(line.mark, line.old_number if line.mark == "-" else line.new_number, line.text)


_HEAD_NOTES = re.compile(
    r"^(?:(?P<link>new file mode 120000)|(?P<new>new file mode)|(?P<deleted>deleted file mode)"
    r"|rename from (?P<renamed>.*)|copy from (?P<copied>.*)|old mode (?P<was>.*)|new mode (?P<is>.*))",
    re.MULTILINE,
)
_NOTE_WORDS = {
    "link": "new link",
    "new": "new",
    "deleted": "deleted",
    "renamed": "renamed from {}",
    "copied": "copied from {}",
    "was": "mode was {}",
    "is": "mode is {}",
}


def _notes_of(file: FilePatch) -> list[str]:
    """In words what lines cannot say: new, deleted, binary, mode, renamed."""
    head = file.raw.partition("\n@@ ")[0][:_HEAD_CHARACTERS]
    notes = [
        _NOTE_WORDS[match.lastgroup].format(unquoted(match[match.lastgroup]))
        for match in _HEAD_NOTES.finditer(head)
        if match.lastgroup
    ]
    return [*notes, "binary"] if file.binary else notes


def unified(patch: str) -> SafeString:
    """A git diff as safe HTML, a block a file. A file of more than 400 lines is folded.

    What is no diff, or is one cut off, is shown as the text that it is.
    """
    left = _SHOWN_LINES
    blocks = []
    for file in parse_patch(patch):
        lines = _lines_of(file)
        blocks.append(_file_block(file, lines, left))
        left = max(0, left - len(lines))
    return safe("".join(blocks))


def counts(added: int | None, removed: int | None) -> str:
    """ "+11 −4" as markup; "binary" where lines are not counted."""
    if added is None or removed is None:
        return '<span class="quiet">binary</span>'
    return f'<span class="plus">+{added}</span> <span class="minus">{MINUS}{removed}</span>'


def _file_block(file: FilePatch, lines: list[DiffLine], left: int) -> str:
    notes = "".join(f' <span class="quiet">{visible_html(note)}</span>' for note in _notes_of(file))
    numbers = counts(None, None) if file.binary else counts(file.added, file.removed)
    if lines and not file.hunks:
        numbers = '<span class="quiet">shown as text</span>'
    head = f'<code>{visible_html(file.path or "text")}</code>{notes} <span class="end">{numbers}</span>'
    body = _table(lines[:left])
    if len(lines) > left:
        body += f'<p class="cut-mark">{len(lines) - left:,} more lines: download the patch to read them</p>'
    if not lines:
        return f'<section class="diff"><header>{head}</header></section>'
    if len(lines) > FOLDED_LINES:
        return (
            f'<details class="diff"><summary>{head} <span class="quiet">{len(lines):,} lines</span>'
            f"</summary>{body}</details>"
        )
    return f'<section class="diff"><header>{head}</header>{body}</section>'


def replaced(old: str, new: str, *, lines: int = 80) -> SafeString:
    """What an edit replaces as safe HTML: common lines as context, at most `lines` lines."""
    before, after = old[:40_000].split("\n"), new[:40_000].split("\n")
    rows: list[DiffLine] = []
    if len(before) * len(after) > 250_000:
        # Matching two long texts is quadratic; whole blocks are as readable there.
        rows = [DiffLine("-", None, line) for line in before] + [DiffLine("+", None, line) for line in after]
    else:
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag == "equal":
                rows += [DiffLine(" ", None, line) for line in before[i1:i2]]
                continue
            rows += [DiffLine("-", None, line) for line in before[i1:i2]]
            rows += [DiffLine("+", None, line) for line in after[j1:j2]]
    more = f'<p class="cut-mark">{len(rows) - lines:,} more lines</p>' if len(rows) > lines else ""
    return safe(_table(rows[:lines]) + more)


def added(new: str, *, lines: int = 80) -> SafeString:
    """What an edit puts in as safe HTML, at most `lines` lines of it."""
    rows = [DiffLine("+", None, line) for line in new[:40_000].removesuffix("\n").split("\n")]
    more = f'<p class="cut-mark">{len(rows) - lines:,} more lines</p>' if len(rows) > lines else ""
    return safe(_table(rows[:lines]) + more)


def line_counts(old: str, new: str) -> tuple[int, int]:
    """How many lines a replacement adds and removes, common head and tail apart."""
    before, after = old.split("\n"), new.split("\n")
    head, tail = common_ends(before, after)
    return len(after) - head - tail, len(before) - head - tail


def common_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many first and how many last lines both have in common; no line counts for both."""
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return head, tail


def changed(
    before: Sequence[str],
    after: Sequence[str],
    stretches: Sequence[tuple[int, int, int, int]],
    *,
    lines: int = 80,
) -> SafeString:
    """Two texts' lines as safe HTML where they differ, at most `lines` lines.

    `stretches`: start and end in both of what stands in the place of one another, in order.
    """
    rows: list[DiffLine] = []
    for i1, i2, j1, j2 in stretches:
        if rows:
            rows.append(DiffLine("@", None, ""))
        rows += [DiffLine("-", at + 1, before[at]) for at in range(i1, i2)]
        rows += [DiffLine("+", at + 1, after[at]) for at in range(j1, j2)]
    more = f'<p class="cut-mark">{len(rows) - lines:,} more lines</p>' if len(rows) > lines else ""
    return safe(_table(rows[:lines]) + more)


_ROW_CLASS = {"+": "add", "-": "del", "@": "hunk", " ": ""}
_SIGN = {"+": "+", "-": MINUS, "@": "", " ": ""}


def _table(lines: list[DiffLine]) -> str:
    if not lines:
        return ""
    marked = _word_marks(lines)
    rows = []
    for index, line in enumerate(lines):
        text = marked.get(index) or visible_html(line.text, spans=20)
        number = "" if line.number is None else line.number
        name = _ROW_CLASS[line.sign]
        rows.append(
            f'<div class="line {name}"><span class="no">{number}</span>'
            f'<span class="sign">{_SIGN[line.sign]}</span>'
            f"<span>{text}\n</span></div>"
        )
    return f'<div class="diff-lines mono" tabindex="0" dir="auto">{"".join(rows)}</div>'


def _word_marks(lines: list[DiffLine]) -> dict[int, str]:
    """Markup of lines whose changed words can be told: each removed line with the added one in its place."""
    marked: dict[int, str] = {}
    pairs = 0
    index = 0
    while index < len(lines) and pairs < _WORD_MARKED_PAIRS:
        if lines[index].sign != "-":
            index += 1
            continue
        minus = _run(lines, index, "-")
        plus = _run(lines, minus, "+")
        for old, new in zip(range(index, minus), range(minus, plus), strict=False):
            pairs += 1
            if words := words_apart(lines[old].text, lines[new].text):
                marked[old], marked[new] = words
        index = max(plus, index + 1)
    return marked


def _run(lines: list[DiffLine], start: int, sign: str) -> int:
    end = start
    while end < len(lines) and lines[end].sign == sign:
        end += 1
    return end


def words_apart(old: str, new: str) -> tuple[str, str] | None:
    """Two lines as markup, the words marked that the other does not have; None where little is alike."""
    if max(len(old), len(new)) > _WORD_MARKED_CHARACTERS:
        return None
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.quick_ratio() < 0.4 or matcher.ratio() < 0.4:
        return None
    left, right = [], []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        gone, come = visible_html("".join(before[i1:i2])), visible_html("".join(after[j1:j2]))
        strong = tag != "equal"
        left.append(f'<span class="word">{gone}</span>' if strong and gone else gone)
        right.append(f'<span class="word">{come}</span>' if strong and come else come)
    return "".join(left), "".join(right)
