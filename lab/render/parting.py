"""Where a replayed conversation left its recording: what was recorded, what is asked now."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.safestring import SafeString

from lab.engine.llm.failures import DIVERGED
from lab.engine.llm.replay import parted_lines
from lab.render.fold import LogEvent
from lab.render.text import safe, visible_html, words_of


class Parting(NamedTuple):
    """`head` says where, `lines` is the markup of both sides."""

    head: str
    lines: SafeString


def is_parting(event: LogEvent) -> bool:
    """Whether the event is the refusal of a replay."""
    return event.payload.get("error") == DIVERGED


def parting_of(message: object) -> Parting | None:
    """What a refusal of a replay tells; None where it tells no two sides."""
    parted = parted_lines(words_of(message))
    if parted is None:
        return None
    head, recorded, asked = parted
    lines = (
        f'<dl class="parted"><dt>recorded</dt><dd class="del"><span aria-hidden="true">− </span>'
        f'{visible_html(recorded)}</dd><dt>asked now</dt><dd class="add"><span aria-hidden="true">+ </span>'
        f"{visible_html(asked)}</dd></dl>"
    )
    return Parting(head, safe(lines))
