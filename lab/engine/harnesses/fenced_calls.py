"""Commands that stand in the text of a reply: in a fenced block, or in an element, of one tag.

What counts as one is what ```` ```tag\\s*\\n(.*?)\\n``` ```` and `<tag>(.*?)</tag>` find, a dot taking line
ends too. They are looked for by hand: a reply may be large, and such an expression would look at its text
again and again. The time here grows with the length of the text.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

_CLOSING_FENCE = "\n```"


class _Found(NamedTuple):
    """A command from `start` to `end` of the text, and where to look on."""

    start: int
    end: int
    after: int


def commands_in(text: str, *, tag: str, form: Literal["fence", "element"]) -> list[str]:
    """The commands of a text in order, without the space around them."""
    return _elements(text, tag) if form == "element" else _fenced(text, tag)


def _elements(text: str, tag: str) -> list[str]:
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: list[str] = []
    at = text.find(opening)
    while at >= 0:
        start = at + len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        found.append(text[start:end].strip())
        at = text.find(opening, end + len(closing))
    return found


def _fenced(text: str, tag: str) -> list[str]:
    opening = f"```{tag}"
    found: list[str] = []
    at = text.find(opening)
    while at >= 0:
        space = at + len(opening)
        content = _after_space(text, space)
        block = _block(text, space, content)
        if block is not None:
            found.append(text[block.start : block.end].strip())
            at = text.find(opening, block.after)
        elif "\n" in text[space:content]:
            # Nothing closes this one, so nothing closes a later one.
            break
        else:
            at = text.find(opening, content)
    return found


def _block(text: str, space: int, content: int) -> _Found | None:
    """The block whose tag ends at `space`; its command begins in the line of `content`, where space ends."""
    last = text.rfind("\n", space, content)
    if last < 0:
        return None
    start = last + 1
    end = text.find(_CLOSING_FENCE, start)
    if end < 0:
        # Blank lines and the closing fence alone: the command is empty.
        before = text.rfind("\n", space, last)
        if before < 0 or not text.startswith(_CLOSING_FENCE, last):
            return None
        start, end = before + 1, last
    return _Found(start, end, end + len(_CLOSING_FENCE))


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
