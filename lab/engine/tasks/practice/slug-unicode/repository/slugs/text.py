"""Titles to slugs."""

import re
import unicodedata

from slugs.cutting import cut

_GAP = re.compile(r"[\W_]+")

# What decomposition alone does not turn into ASCII.
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "þ": "th", "ı": "i"}
)


def slugify(title, *, unicode=False, limit=80):
    """Return the slug of `title`; the empty string if nothing of it can be used.

    >>> slugify("What's new?")
    'whats-new'
    """
    text = title.lower()
    text = text.replace("'", "").replace("\u2019", "")
    if not unicode:
        text = to_ascii(text)
    return cut(join(words(text)), limit)


def words(text):
    """Split into runs of letters and digits."""
    return [word for word in _GAP.split(text) if word]


def join(parts):
    return "-".join(parts)


def to_ascii(text):
    """Reduce to ASCII: accents go, a few letters are spelled out, the rest is dropped.

    >>> to_ascii("smørrebrød")
    'smorrebrod'
    """
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return decomposed.encode("ascii", "ignore").decode("ascii")
