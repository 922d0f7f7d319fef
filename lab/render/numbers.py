"""Numbers as the lab writes them. Unknown is None and is written as the word, never as 0 or a dash."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from django.utils.safestring import SafeString

from lab.render.text import safe

UNKNOWN = safe('<span class="unknown">unknown</span>')
NOT_RECORDED = safe('<span class="unknown">not recorded</span>')
MINUS = "−"


def count(number: int | None) -> str | SafeString:
    """126,328, or the mark for unknown."""
    return UNKNOWN if number is None else f"{number:,}"


def plural(number: int, word: str, many: str = "") -> str:
    """ "1 step", "1,204 steps"."""
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def dollars(amount: Decimal | float | None, *, places: int = 4) -> str | SafeString:
    """$0.0817 inside a run; more places where fewer would show nothing of a cost that is not 0."""
    if amount is None:
        return UNKNOWN
    value = Decimal(amount)
    if value and abs(value) < Decimal(1).scaleb(-places):
        return f"${value:.2g}" if value >= Decimal("1e-6") else "under $0.000001"
    return f"${value:,.{places}f}"


def clock(seconds: float) -> str:
    """1:42, 3:00:00."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def duration(seconds: float | None) -> str | SafeString:
    """0.02 s, 1.9 s, 1:42; for how long something took."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 60:
        return clock(seconds)
    return f"{seconds:.2f} s" if seconds < 0.1 else f"{seconds:.1f} s"


def size(number: int | None) -> str | SafeString:
    """312 bytes, 4.1 KB, 2.1 MB."""
    if number is None:
        return UNKNOWN
    if number < 1000:
        return plural(number, "byte")
    for unit, factor in (("KB", 1e3), ("MB", 1e6)):
        if number < factor * 1000:
            return f"{number / factor:.1f} {unit}"
    return f"{number / 1e9:.1f} GB"


def moment(at: dt.datetime) -> SafeString:
    """14:32:08 with the full time on hover."""
    return safe(f'<time datetime="{at.isoformat()}" title="{at:%Y-%m-%d %H:%M:%S} UTC">{at:%H:%M:%S}</time>')


def day_and_time(at: dt.datetime) -> SafeString:
    """29 Nov 14:31 with the full time on hover."""
    return safe(
        f'<time datetime="{at.isoformat()}" title="{at:%Y-%m-%d %H:%M:%S} UTC">{at.day} {at:%b %H:%M}</time>'
    )


def growing(since: dt.datetime, *, allowed: float | None = None, fine: bool = False) -> SafeString:
    """A clock that the page lets grow; without script it says since when. `fine` shows tenths of a second."""
    extra = f' data-allowed="{allowed:g}"' if allowed is not None else ""
    tenths = " data-fine" if fine else ""
    return safe(
        f'<time class="clock" datetime="{since.isoformat()}" data-since="{int(since.timestamp() * 1000)}"'
        f"{extra}{tenths}>since {since:%H:%M:%S}</time>"
    )
