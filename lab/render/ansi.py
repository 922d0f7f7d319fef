"""Terminal output as HTML: colours become classes, every other sequence stays visible as text."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from django.utils.safestring import SafeString
from rich.color import Color, ColorSystem
from rich.style import Style
from rich.text import Text

from lab.render.text import safe, visible_html

# Erasing to the end of a line changes nothing in a log, and `grep --color` writes it around every hit.
_ERASE_LINE = re.compile(r"\x1b\[[0-2]?K")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OTHER_ESCAPE = re.compile(r"\x1b(?!\[[0-9;]{0,64}m)")
# What rich would drop without a trace.
_DROPPED_BY_RICH = re.compile("[\x07\x08\x0b\x0c]")
_COLOURED_SPANS = 2_000
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "strike", "reverse")


def ansi(text: str) -> SafeString:
    """Terminal output as safe HTML with classes `fg-1` … `bg-15`, `bold`, `dim`, …

    A carriage return within a line leaves what was printed over it, as a terminal would. Titles, links, the
    clipboard and cursor movements are text. After 2,000 coloured pieces the rest has no colour.
    """
    if "\x1b" not in text and "\r" not in text:
        return safe(visible_html(text))
    text = _ERASE_LINE.sub("", text.replace("\r\n", "\n"))
    text = _DROPPED_BY_RICH.sub(lambda match: chr(0x2400 + ord(match.group())), text)
    text = _OTHER_ESCAPE.sub("␛", text)
    last = next(islice(_COLOUR.finditer(text), _COLOURED_SPANS, None), None)
    head, rest = (text, "") if last is None else (text[: last.start()], _COLOUR.sub("", text[last.start() :]))
    return safe(_coloured(head) + visible_html(rest))


def _coloured(text: str) -> str:
    decoded = Text.from_ansi(text)
    plain = decoded.plain
    parts = []
    at = 0
    for start, end, style in decoded.spans:
        classes = _classes(style) if isinstance(style, Style) else ""
        if start < at or not classes:
            continue
        parts.append(visible_html(plain[at:start]))
        parts.append(f'<span class="{classes}">{visible_html(plain[start:end])}</span>')
        at = end
    parts.append(visible_html(plain[at:]))
    if text.endswith("\n") and not plain.endswith("\n"):
        parts.append("\n")
    return "".join(parts)


@lru_cache(maxsize=1024)
def _classes(style: Style) -> str:
    names = [f"fg-{_number(style.color)}"] if style.color and not style.color.is_default else []
    if style.bgcolor and not style.bgcolor.is_default:
        names.append(f"bg-{_number(style.bgcolor)}")
    names += [name for name in _ATTRIBUTES if getattr(style, name)]
    return " ".join(names)


def _number(color: Color) -> int:
    """The nearest of the sixteen colours."""
    return color.downgrade(ColorSystem.STANDARD).number or 0
