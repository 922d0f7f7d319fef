"""Markup of the lab's pages for a file that stands by itself: nothing in it runs, sends or leads out of it.

Everything is allowed by name. An element that is not keeps its text, an attribute that is not is left out.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable

from django.utils.safestring import SafeString

from lab.render.icons import icon
from lab.render.numbers import plural
from lab.render.text import one_line, safe, visible_html


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ELEMENTS = _named("""
    a abbr article aside b blockquote br caption code col colgroup dd del details dfn div dl dt em figcaption
    figure footer h1 h2 h3 h4 h5 h6 header hr i ins kbd li main mark meter nav ol p pre q s samp section small
    span strong sub summary sup table tbody td tfoot th thead time tr u ul var wbr
    svg g path circle rect line polyline polygon text tspan title desc use symbol defs pattern
""")
_ATTRIBUTES = _named("""
    class id title open hidden lang dir role scope colspan rowspan headers datetime tabindex start
    min max low high optimum value name
    viewbox x y x1 y1 x2 y2 cx cy r rx ry d points width height transform preserveaspectratio fill stroke
    stroke-width stroke-dasharray stroke-linecap stroke-linejoin text-anchor dominant-baseline patternunits
    data-kind data-state data-sign data-series data-icon data-letter data-column data-columns data-place
    data-c data-many data-lay data-view data-part
""")
# Outside quotes no markup of the lab holds a ">".
_TAG = re.compile(r"""<(?:(/?)([A-Za-z][\w-]*)((?:[^>"']|"[^"]*"|'[^']*')*)>)?""")
_ATTRIBUTE = re.compile(r"""([^\s=/"'>]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")
# A page's own address with another query is the same file.
_INSIDE = re.compile(r"(?:\?[^#]*)?(#[\w-]+)")
_SPRITE = re.compile(r"[^#]*icons\.svg#([\w-]+)")
_SYMBOL = re.compile(r'<symbol id="')
_KNOWN_TAGS = 20_000


class Standalone:
    """Makes markup stand by itself; what it has once made of a tag is kept."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, markup: str) -> SafeString:
        """`markup`, put together by the lab, without whatever runs, sends or leads to another place.

        Links stay where they lead within the file, icons of the sprite are those of the file (`symbols`).
        """
        ends: list[str] = []
        known = self._known

        def made(match: re.Match[str]) -> str:
            tag = match.group()
            name = (match[2] or "").lower()
            if name == "a":
                if match[1]:
                    return ends.pop() if ends else ""
                shown = _tag(name, match[3])
                ends.append("</a>" if shown.startswith("<a ") else "</span>")
                return shown
            found = known.get(tag)
            if found is None:
                found = _end(name) if match[1] else _tag(name, match[3])
                if len(known) < _KNOWN_TAGS:
                    known[tag] = found
            return found

        return safe(_TAG.sub(made, markup))


def _end(name: str) -> str:
    return f"</{name}>" if name in _ELEMENTS else ""


def _tag(name: str, rest: str | None) -> str:
    if not name:
        # A comment, or a sign that nobody has escaped.
        return "&lt;"
    if name not in _ELEMENTS:
        return ""
    attributes = "".join(_attributes(name, rest or ""))
    close = "/" if (rest or "").rstrip().endswith("/") else ""
    if name == "a" and " href=" not in attributes:
        name = "span"
    return f"<{name}{attributes}{close}>"


def _attributes(element: str, rest: str) -> Iterable[str]:
    for match in _ATTRIBUTE.finditer(rest):
        name, value = match[1].lower(), match[2]
        plain = html.unescape((value or "").strip("\"'"))
        if name == "href":
            plain = _inside(element, plain)
            if not plain:
                continue
        elif not (name in _ATTRIBUTES or name.startswith("aria-")) or "url(" in plain.lower():
            continue
        shown = "viewBox" if name == "viewbox" else name
        yield f" {shown}" if value is None else f' {shown}="{html.escape(plain)}"'


def _inside(element: str, address: str) -> str:
    """Where an address leads within the file, "" where it does not."""
    sprite = _SPRITE.fullmatch(address)
    if element == "use":
        return f"#icon-{sprite[1]}" if sprite else ""
    inside = _INSIDE.fullmatch(address) if element == "a" else None
    return inside[1] if inside else ""


NO_ROOM = safe('<p class="file-cut">Left out: the file would be too large.</p>')


def folded_html(rows: int, words: str) -> SafeString:
    """The beginning of a folded stretch, whose rows and end follow it."""
    shown = visible_html(one_line(words, 300))
    return safe(
        f'<li class="unit stretch"><details><summary>{icon("chevron", "fold")}'
        f'<b>{plural(rows, "step")} alike</b> <span class="second cut">{shown}</span></summary>'
        '<ol class="within">'
    )


def symbols(sprite: str) -> SafeString:
    """The icons of the sprite (an SVG file's text) as markup that shows nothing by itself."""
    inner = sprite[sprite.index(">") + 1 : sprite.rindex("</svg>")]
    named = _SYMBOL.sub('<symbol id="icon-', inner)
    return safe(f'<svg width="0" height="0" aria-hidden="true" class="symbols">{Standalone()(named)}</svg>')


_COMMENTS = re.compile(r"/\*.*?\*/", re.DOTALL)


def style_element(sheets: Iterable[str]) -> tuple[SafeString, str]:
    """Style sheets of the lab as one element, and the only source of styles that a policy has to allow.

    Raises:
        ValueError: a sheet asks for something of another place.
    """
    text = "\n".join(_COMMENTS.sub("", sheet).strip() for sheet in sheets)
    for sign in ("</", "@import", "url("):
        if sign in text.lower():
            raise ValueError(f"a style sheet with {sign} cannot stand in a file by itself")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return safe(f"<style>{text}</style>"), f"'sha256-{digest}'"
