"""Template tags for runs: a list's row, icons, numbers."""

from __future__ import annotations

import datetime as dt

from django import template

from lab.models import Run
from lab.render import numbers
from lab.render.text import visible_text
from lab.services import run_pages

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
