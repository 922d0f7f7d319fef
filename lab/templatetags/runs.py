"""Template tags for runs: a list's row, icons, numbers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

from django import template

from lab.models import Run
from lab.render import numbers
from lab.render.text import visible_text
from lab.services import endpoint_pages, run_pages

register = template.Library()


@register.simple_tag
def run_row(run: Run) -> run_pages.RunRow:
    """What a list says of a run: `{% run_row run as row %}`."""
    return run_pages.row_of(run)


@register.filter
def thousands(number: int | None) -> str:
    """131072 as 131,072."""
    return "" if number is None else f"{number:,}"


@register.filter
def plain(text: object) -> str:
    """A name or title with what cannot be seen made visible; the template escapes it."""
    return visible_text(str(text))


@register.filter
def growing(since: dt.datetime | None) -> str:
    """A clock that grows, in tenths of a second."""
    return numbers.growing(since, fine=True) if since else ""


@register.filter
def day_and_time(at: dt.datetime | None) -> str:
    return numbers.day_and_time(at) if at else ""


@register.filter
def at_key(values: Mapping[object, object], key: object) -> object:
    """What a mapping holds there, None where nothing is."""
    return values.get(key)


@register.filter
def rate(amount: Decimal) -> str:
    """A price of a million tokens: $2.50, $0.987654."""
    text = format(round(amount, 6).normalize(), "f")
    whole, _, places = text.partition(".")
    return f"${int(whole):,}.{places.ljust(2, '0')}"


@register.filter
def rate_words(part: str) -> str:
    """A part of a price in words."""
    return endpoint_pages.PART_WORDS.get(part, part)


@register.filter
def derivation(values: Mapping[str, Decimal]) -> str:
    """How a rate of output came about: "2 GPUs × $3.20 an hour ÷ (1,500 tokens/s × 0.6)"."""
    gpus, speed = values["gpus"], values["tokens_per_second"]
    return (
        f"{gpus:,f} GPU{'' if gpus == 1 else 's'} × {rate(values['usd_per_gpu_hour'])} an hour ÷ "
        f"({speed:,f} tokens/s × {values['utilisation']:f}), input included"
    )
