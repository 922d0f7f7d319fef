"""Unified diffs and replaced texts as HTML: numbers and signs in their own columns, changed words marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.utils.safestring import SafeString

from lab.render.numbers import MINUS
from lab.render.text import safe, visible_html

FOLDED_LINES = 400
_SHOWN_LINES = 5_000
_WORD_MARKED_PAIRS = 200
_WORD_MARKED_CHARACTERS = 400
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@(.*)")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(slots=True)
class DiffLine:
    """One line: `sign` is "+", "-", " ", or "@" for a hunk's head; `number` is that of its own file."""

    sign: str
    number: int | None
    text: str


@dataclass(slots=True)
class DiffFile:
    """One file of a diff. `notes` says in words what lines cannot: new, deleted, binary, mode, renamed."""

    path: str
    notes: list[str] = field(default_factory=list)
    lines: list[DiffLine] = field(default_factory=list)
    added: int = 0
    removed: int = 0


def parse(patch: str) -> list[DiffFile]:
    """The files of a git diff. Never raises: what is no diff becomes lines without a sign."""
    return list(_Parser(patch).files())


class _Parser:
    def __init__(self, patch: str) -> None:
        self._lines = patch.split("\n")
        if self._lines and not self._lines[-1]:
            self._lines.pop()
        self._old = self._new = 0
        self._in_hunk = False

    def files(self) -> Iterator[DiffFile]:
        current: DiffFile | None = None
        for line in self._lines:
            if line.startswith("diff --git "):
                if current:
                    yield current
                current = DiffFile(_path_of(line))
                self._in_hunk = False
                continue
            current = current or DiffFile("")
            if self._in_hunk or line.startswith("@@ "):
                self._hunk_line(current, line)
            else:
                _head_line(current, line)
        if current:
            yield current

    def _hunk_line(self, current: DiffFile, line: str) -> None:
        if match := _HUNK.match(line):
            self._in_hunk = True
            self._old, self._new = int(match[1]), int(match[2])
            current.lines.append(DiffLine("@", None, line))
        elif line.startswith("+"):
            current.lines.append(DiffLine("+", self._new, line[1:]))
            current.added += 1
            self._new += 1
        elif line.startswith("-"):
            current.lines.append(DiffLine("-", self._old, line[1:]))
            current.removed += 1
            self._old += 1
        elif line.startswith("\\"):
            current.lines.append(DiffLine("@", None, line[2:]))
        else:
            current.lines.append(DiffLine(" ", self._new, line[1:]))
            self._old += 1
            self._new += 1


def _path_of(line: str) -> str:
    rest = line[len("diff --git ") :]
    _, separator, path = rest.rpartition(" b/")
    return path if separator else rest


_HEAD_NOTES: tuple[tuple[str, str], ...] = (
    ("new file mode 120000", "new link"),
    ("new file mode", "new"),
    ("deleted file mode", "deleted"),
    ("rename from ", "renamed from "),
    ("copy from ", "copied from "),
    ("old mode ", "mode was "),
    ("new mode ", "mode is "),
)


def _head_line(current: DiffFile, line: str) -> None:
    if line.startswith("+++ b/") and not current.path:
        current.path = line[len("+++ b/") :]
    elif line.startswith(("Binary files ", "GIT binary patch")):
        current.notes.append("binary")
    else:
        for prefix, note in _HEAD_NOTES:
            if line.startswith(prefix):
                rest = line[len(prefix) :].strip() if prefix.endswith(" ") else ""
                current.notes.append(note + rest)
                return


def unified(patch: str) -> SafeString:
    """A git diff as safe HTML, a block a file. A file of more than 400 lines is folded."""
    left = _SHOWN_LINES
    blocks = []
    for file in parse(patch):
        blocks.append(_file_block(file, left))
        left = max(0, left - len(file.lines))
    return safe("".join(blocks))


def counts(added: int | None, removed: int | None) -> str:
    """ "+11 −4" as markup; "binary" where lines are not counted."""
    if added is None or removed is None:
        return '<span class="quiet">binary</span>'
    return f'<span class="plus">+{added}</span> <span class="minus">{MINUS}{removed}</span>'


def _file_block(file: DiffFile, left: int) -> str:
    notes = "".join(f' <span class="quiet">{visible_html(note)}</span>' for note in file.notes)
    numbers = counts(file.added, file.removed) if "binary" not in file.notes else counts(None, None)
    head = f'<code>{visible_html(file.path or "text")}</code>{notes} <span class="end">{numbers}</span>'
    body = _table(file.lines[:left])
    if len(file.lines) > left:
        body += (
            f'<p class="cut-mark">{len(file.lines) - left:,} more lines: download the patch to read them</p>'
        )
    if not file.lines:
        return f'<section class="diff"><header>{head}</header></section>'
    if len(file.lines) > FOLDED_LINES:
        return (
            f'<details class="diff"><summary>{head} <span class="quiet">{len(file.lines):,} lines</span>'
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


def line_counts(old: str, new: str) -> tuple[int, int]:
    """How many lines a replacement adds and removes, common head and tail apart."""
    before, after = old.split("\n"), new.split("\n")
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return len(after) - head - tail, len(before) - head - tail


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
            if words := _words(lines[old].text, lines[new].text):
                marked[old], marked[new] = words
        index = max(plus, index + 1)
    return marked


def _run(lines: list[DiffLine], start: int, sign: str) -> int:
    end = start
    while end < len(lines) and lines[end].sign == sign:
        end += 1
    return end


def _words(old: str, new: str) -> tuple[str, str] | None:
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
