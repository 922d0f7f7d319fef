"""Text as HTML: escaped, with what cannot be seen made visible."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from lab.engine.key_shapes import mask_key_shapes

# C0 and C1 controls but tab and newline, bidi and zero-width marks, separators, lone surrogates, tags.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]+"
)
_MARKED_SPANS = 500


def name_of(character: str) -> str:
    """The visible sign for a character that has none: ␛ for escape, ⟨U+202E⟩ for a bidi override."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _signs(run: str) -> str:
    """The signs of a run; one that repeats is counted, so that a megabyte of NUL stays short."""
    parts = []
    for character, same in groupby(run):
        count = sum(1 for _ in same)
        sign = name_of(character)
        parts.append(sign * count if count <= 8 else f"{sign}×{count:,}")
    return "".join(parts)


def visible_html(text: str, *, spans: int = _MARKED_SPANS) -> str:
    """`text` escaped for HTML. The first `spans` runs of unseen characters are elements, later ones signs."""
    if not _UNSEEN.search(text):
        return html.escape(text)
    left = spans

    def sign(match: re.Match[str]) -> str:
        nonlocal left
        left -= 1
        signs = _signs(match.group())
        return f'<span class="unseen">{signs}</span>' if left >= 0 else signs

    return _UNSEEN.sub(sign, html.escape(text))


def visible(text: str) -> SafeString:
    """`text` as safe HTML, with carriage returns, controls and bidi marks shown, and keys masked."""
    return mark_safe(visible_html(mask_key_shapes(text).replace("\r\n", "\n")))  # noqa: S308 - escaped above


def visible_text(text: str) -> str:
    """`text` without anything unseen, for attributes, titles and labels; keys are masked. Not escaped."""
    return _seen(mask_key_shapes(text).replace("\r\n", "\n"))


def _seen(text: str) -> str:
    return _UNSEEN.sub(lambda match: _signs(match.group()), text)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line of at most `limit` characters, an ellipsis where it was cut. Not escaped.

    Keys are masked. A text of just `limit` characters is taken for one that was cut when it was stored.
    """
    beginning = mask_key_shapes(text[: limit * 4], growing=len(text) >= limit * 4 or len(text) == limit)
    line = _seen(" ".join(beginning.split()))
    return line if len(line) <= limit and len(text) <= limit * 4 else line[: limit - 1] + "…"


def cut_in_the_middle(text: str, limit: int = 90) -> str:
    """The text with its middle left out: a test's name differs at its end."""
    if len(text) <= limit:
        return text
    tail = limit * 2 // 3
    return text[: limit - tail - 1] + "…" + text[-tail:]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a long text, and how long the whole is.

    `characters` and `lines` are those of the whole text, None where they are not known without reading all of
    it; `size` is bytes. `tail` holds the last characters where they were kept.
    """

    text: str
    characters: int | None = None
    lines: int | None = None
    size: int | None = None
    tail: str = ""

    @property
    def whole(self) -> bool:
        return self.characters is not None and self.characters <= len(self.text)

    @property
    def ending(self) -> str:
        return self.tail or (self.text[-4000:] if self.whole else "")


EMPTY = Excerpt("", 0, 0, 0)


def excerpt(value: Any) -> Excerpt:
    """Whatever stands in a payload as an excerpt: a text is its own, None and anything else is empty."""
    if isinstance(value, Excerpt):
        return value
    if not isinstance(value, str) or not value:
        return EMPTY
    return Excerpt(value, len(value), count_lines(value), len(value.encode("utf-8", "replace")))


def words_of(value: Any) -> str:
    """The text that `excerpt` would give, where nobody asks how long the whole is."""
    if isinstance(value, Excerpt):
        return value.text
    return value if isinstance(value, str) else ""


def line_html(value: Any, limit: int = 200) -> str:
    """Whatever stands in a payload as one line of markup, cut where it is longer."""
    return visible_html(one_line(words_of(value), limit))


def count_lines(text: str) -> int:
    """Lines as a reader counts them: a last line without its newline is one too."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def first_lines(text: str, *, lines: int, characters: int) -> str:
    """The beginning of `text`: at most so many lines and characters."""
    text = text[:characters]
    at = -1
    for _ in range(lines):
        at = text.find("\n", at + 1)
        if at == -1:
            return text
    return text[:at]


def safe(markup: str) -> SafeString:
    """Markup put together in this package from escaped parts."""
    # What mark_safe does, without its look for lazy texts: a page calls this two thousand times.
    return SafeString(markup)
