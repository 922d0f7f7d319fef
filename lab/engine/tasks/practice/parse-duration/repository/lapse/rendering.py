"""Timedelta to text."""

from datetime import timedelta

from lapse.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, WEEK

_STEPS = (
    ("w", WEEK),
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", MILLISECOND),
    ("us", MICROSECOND),
)


def render(span, parts=None):
    """Return the shortest text for `span`; with `parts`, only that many of its largest units.

    >>> render(timedelta(hours=26, seconds=5), parts=2)
    '1d 2h'
    """
    rest = abs(span) // timedelta(microseconds=1)
    words = []
    for name, size in _STEPS:
        amount, rest = divmod(rest, size)
        if amount:
            words.append(f"{amount}{name}")
    if not words:
        return "0s"
    sign = "-" if span < timedelta(0) else ""
    return sign + " ".join(words[:parts])
