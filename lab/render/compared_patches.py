"""What several patches do to one file, as HTML: a diff each, with what the others do not have marked."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from django.utils.safestring import SafeString

from lab.engine.key_shapes import masked_beginning
from lab.render.diff import words_apart
from lab.render.numbers import MINUS
from lab.render.text import safe, visible_html

# Of one section so much is read for display.
_SECTION_CHARACTERS = 400_000
_LINE_CHARACTERS = 2_000
# Beyond this many pairs of lines matching takes seconds; whether a line is there at all is told all the same.
_MATCHED_PAIRS = 250_000
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")
_STARTS = re.compile(r"(?m)^(?=@@ )")


class Line(NamedTuple):
    """One line of a diff. `sign`: "+", "-", " ", or "@" for a hunk's head and git's own remarks."""

    sign: str
    number: int | None
    text: str


class ShownDiff(NamedTuple):
    """A diff as HTML, "" where there are no lines; how many lines it shows and how many it leaves out."""

    html: SafeString
    shown: int
    more: int


def shown_diffs(sections: Sequence[str], *, most: int) -> list[ShownDiff]:
    """Each section of a git diff about one file as HTML, at most `most` lines of each.

    Lines are marked that the first section does not have; in the first one, those that the second lacks.
    """
    sides = [_lines(section) for section in sections]
    found = []
    for place, lines in enumerate(sides):
        other = sides[0] if place else sides[1] if len(sides) > 1 else None
        # Of a diff of which nothing is shown its length alone is asked for.
        apart = {} if other is None or not most else _apart(lines, other)
        rows = [_row(line, apart.get(at)) for at, line in enumerate(lines[:most])]
        html = f'<div class="diff-lines mono" tabindex="0" dir="auto">{"".join(rows)}</div>' if rows else ""
        found.append(ShownDiff(safe(html), len(rows), len(lines) - len(rows)))
    return found


_NOTES = (
    ("new file mode 120000", "new link"),
    ("new file mode", "new"),
    ("deleted file mode", "deleted"),
    ("rename from", "renamed"),
    ("old mode", "mode"),
)


def notes_of(section: str) -> list[str]:
    """In words what the lines of a section cannot say: new, deleted, renamed, mode, binary."""
    head = _STARTS.split(section, maxsplit=1)[0][:8_000]
    words = [word for start, word in _NOTES if re.search(rf"(?m)^{start}", head)]
    if "new link" in words:
        words.remove("new")
    binary = "\nGIT binary patch\n" in head or "\nBinary files " in head
    return [*words, "binary"] if binary else words


def _lines(section: str) -> list[Line]:
    """The lines of all hunks, of a diff that is cut off as far as it goes: no parser of diffs does that."""
    lines: list[Line] = []
    old = new = 0
    begins = _STARTS.search(section)
    if begins is None:
        return []
    body = masked_beginning(section[begins.start() :], _SECTION_CHARACTERS)
    for text in body.removesuffix("\n").split("\n"):
        head = _HUNK.match(text)
        if head:
            old, new = int(head[1]), int(head[2])
            lines.append(Line("@", None, f"@@ -{old} +{new} @@ {head[3]}".rstrip()))
        elif text.startswith("\\"):
            lines.append(Line("@", None, text[1:].strip()))
        else:
            sign = text[:1] if text[:1] in {"+", "-"} else " "
            lines.append(Line(sign, old if sign == "-" else new, text[1:]))
            old += sign != "+"
            new += sign != "-"
    return lines


def _apart(lines: Sequence[Line], other: Sequence[Line]) -> dict[int, str]:
    """Place of a changed line that `other` does not have -> its text as markup, changed words marked."""
    own = [(at, line) for at, line in enumerate(lines) if line.sign in {"+", "-"}]
    theirs = [line for line in other if line.sign in {"+", "-"}]
    if len(own) * len(theirs) > _MATCHED_PAIRS:
        left = Counter((line.sign, line.text) for line in theirs)
        left.subtract((line.sign, line.text) for _, line in own)
        return {at: _text(line) for at, line in own if left[line.sign, line.text] < 0}
    matcher = difflib.SequenceMatcher(
        None,
        [(line.sign, line.text) for _, line in own],
        [(line.sign, line.text) for line in theirs],
        autojunk=False,
    )
    found: dict[int, str] = {}
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            found |= _marked(own[i1:i2], theirs[j1:j2])
    return found


def _marked(own: Sequence[tuple[int, Line]], theirs: Sequence[Line]) -> dict[int, str]:
    """A stretch that differs: each line beside the one in its place, of the same sign."""
    beside = {sign: iter([line.text for line in theirs if line.sign == sign]) for sign in "+-"}
    found: dict[int, str] = {}
    for at, line in own:
        other = next(beside[line.sign], None)
        marked = None if other is None else words_apart(line.text, other)
        found[at] = (marked[0] if marked else "") or _text(line)
    return found


def _text(line: Line) -> str:
    more = len(line.text) - _LINE_CHARACTERS
    cut = f" … {more:,} more characters" if more > 0 else ""
    return f"{visible_html(line.text[:_LINE_CHARACTERS], spans=20)}{cut}"


_CLASS = {"+": "add", "-": "del", "@": "hunk", " ": ""}
_SIGN = {"+": "+", "-": MINUS, "@": "", " ": ""}


def _row(line: Line, apart: str | None) -> str:
    mark = "" if apart is None else '<span title="not in the other">≠</span>'
    number = "" if line.number is None else line.number
    return (
        f'<div class="line {_CLASS[line.sign]}{"" if apart is None else " apart"}"><span class="apart-sign">'
        f'{mark}</span><span class="no">{number}</span><span class="sign">{_SIGN[line.sign]}</span>'
        f"<span>{_text(line) if apart is None else apart}\n</span></div>"
    )
