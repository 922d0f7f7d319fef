"""Calls that a model wrote into the text of its reply: where they stand, and what stands around them."""

from __future__ import annotations

import re
from typing import NamedTuple

from lab.render.text import Excerpt

_OPENING = re.compile(r"(?:(?:^|\n) {0,3}(?:```|~~~)[\w.+-]*[ \t]*\n|<[\w.-]+>)\s*$")
_CLOSING = re.compile(r"\s*?(?:\n {0,3}(?:```|~~~)|</[\w.-]+>)")
_BLOCK_END = "</function>"
# A fence or an element begins this near before its command.
_BEFORE = 200
_MOST_PLACES = 50


class Written(NamedTuple):
    """The text of a reply before a call and behind it; the call itself is shown as what it does."""

    before: str
    after: str


def around_call(content: str, raw: Excerpt) -> Written | None:
    """What stands around the call that `raw` is the markup or the command of; None when it is not found.

    Of a long text only the beginning is known: what is not there to be read counts as part of the call.
    """
    sought = raw.text
    at = content.find(sought) if sought.strip() else -1
    for _ in range(_MOST_PLACES):
        if at < 0:
            return None
        end = at + len(sought) if raw.whole else _end(content, at + len(sought))
        opening = _OPENING.search(content, max(0, at - _BEFORE), at)
        closing = _CLOSING.match(content, end)
        if sought.startswith("<") or (opening and (closing or end == len(content))):
            return Written(
                content[: opening.start() if opening else at].rstrip(),
                content[closing.end() if opening and closing else end :].strip(),
            )
        at = content.find(sought, at + 1)
    return None


def _end(content: str, start: int) -> int:
    ends = [content.find(_BLOCK_END, start) + len(_BLOCK_END), content.find("\n```", start)]
    return min((end for end in ends if end >= start), default=len(content))
