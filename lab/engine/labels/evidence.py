"""Finding words that a person marked on a page in the text they come from.

A page shows a text with its markup rendered and its white space folded, so that the words are first looked
for as they are, then without what rendering may have taken away or put in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

# White space, and marks that rendering of Markdown takes away.
_DROPPED = frozenset("*_`~#>|\\")
_CONTEXT = 40


class Found(NamedTuple):
    """Characters `start` to `end` of a text; `context`: how many around them are as on the page."""

    start: int
    end: int
    context: int


def text_hash(text: str) -> str:
    """SHA-256 of a text, by which offsets into it are known to hold."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def locate(text: str, quote: str, *, prefix: str = "", suffix: str = "") -> Found | None:
    """Where a quote stands in a text, of several places the one whose surroundings are `prefix` and `suffix`.

    None where it is not in the text. Linear in the text's length; looks at 500 places at most.
    """
    exact = [(start, start + len(quote)) for start in _occurrences(text, quote)]
    places = exact or list(_tolerant(text, quote))
    scored = (
        Found(start, end, _before(text, start, prefix) + _after(text, end, suffix)) for start, end in places
    )
    return max(scored, key=lambda found: (found.context, -found.start), default=None)


_MOST_OCCURRENCES = 500


def _occurrences(text: str, words: str) -> Iterator[int]:
    start, found = text.find(words) if words else -1, 0
    while start != -1 and found < _MOST_OCCURRENCES:
        yield start
        found += 1
        start = text.find(words, start + 1)


def _kept(text: str) -> tuple[str, list[int]]:
    """The characters that rendering never drops, and where each stands."""
    places = [place for place, one in enumerate(text) if not one.isspace() and one not in _DROPPED]
    return "".join(text[place] for place in places), places


def _tolerant(text: str, quote: str) -> Iterator[tuple[int, int]]:
    wanted, _ = _kept(quote)
    if not wanted:
        return
    kept, places = _kept(text)
    for start in _occurrences(kept, wanted):
        yield places[start], places[start + len(wanted) - 1] + 1


def _before(text: str, start: int, prefix: str) -> int:
    return _shared(text[max(0, start - 4 * _CONTEXT) : start][::-1], prefix[::-1])


def _after(text: str, end: int, suffix: str) -> int:
    return _shared(text[end : end + 4 * _CONTEXT], suffix)


def _shared(near: str, shown: str) -> int:
    """With how many characters that rendering keeps both begin alike."""
    text, _ = _kept(near)
    wanted, _ = _kept(shown[:_CONTEXT])
    shared = 0
    for one, other in zip(text, wanted, strict=False):
        if one != other:
            break
        shared += 1
    return shared
