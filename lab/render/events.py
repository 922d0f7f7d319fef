"""Records of a run's log as HTML fragments: the one renderer of page and stream.

A step is one fragment, made again whole at each of its events; an event outside a step has a fragment of its
own. A fragment names the numbers of its events, so that "every event once and in order" can be checked on the
union of them, and does not depend on who looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from lab.engine.key_shapes import masked_end
from lab.render.blind import blinded, is_shown
from lab.render.fold import LogEvent, StepView, group, step_of
from lab.render.icons import icon
from lab.render.moments import moment_html
from lab.render.steps import step_html
from lab.render.text import safe, visible_html

__all__ = [
    "Fragment",
    "LogEvent",
    "MapStep",
    "StepView",
    "draft_html",
    "fragment",
    "fragments",
    "group",
    "map_entry",
    "minimap",
]

MAP_LINKS = 400
_DRAFT_TAIL = 6_000
# A private key that is being written may begin before what is shown.
_LONGEST_KEY = 4_000


@dataclass(frozen=True, slots=True)
class Fragment:
    """One list item of the run page. `id` is `event-<number of its first model call or only event>`."""

    id: str
    seqs: tuple[int, ...]
    html: SafeString
    map_html: SafeString

    @property
    def first_seq(self) -> int:
        return self.seqs[0]

    @property
    def last_seq(self) -> int:
        return self.seqs[-1]


def fragment(run: int, events: list[LogEvent], *, blind: bool = False) -> Fragment:
    """The fragment of one group of events (see `group`); `blind`: without what betrays the run's arm."""
    first = events[0]
    if first.step is None:
        html = safe("") if blind and not is_shown(first) else moment_html(run, first)
        return Fragment(f"event-{first.seq}", (first.seq,), html, safe(""))
    view = step_of([blinded(event) for event in events] if blind else events)
    html = step_html(run, view, blind=blind)
    return Fragment(f"event-{view.first_seq}", view.seqs, html, map_entry(_map_step(view)))


def fragments(run: int, events: Sequence[LogEvent]) -> list[Fragment]:
    """The fragments of consecutive events, in the order of their first numbers."""
    return [fragment(run, members) for members in group(events)]


@dataclass(frozen=True, slots=True)
class MapStep:
    """A step as the minimap shows it; `seq` is the number its fragment is called by."""

    seq: int
    number: int
    kind: str
    icon: str
    failed_test: bool


def map_entry(step: MapStep, *, last: int = 0) -> SafeString:
    """A link of the minimap. `last` is the number of the last step where one link stands for several."""
    failed = ' class="failed-test"' if step.failed_test else ""
    label = f"steps {step.number} to {last}" if last > step.number else f"step {step.number}"
    result = ", a test run failed" if step.failed_test else ""
    return safe(
        f'<li id="map-event-{step.seq}" data-kind="{step.kind}"{failed}><a href="?at={step.seq}" '
        f'data-target="event-{step.seq}" aria-label="{label}, {step.kind}{result}">'
        f"<span>{step.number}</span>{icon(step.icon)}</a></li>"
    )


def minimap(steps: Sequence[MapStep]) -> SafeString:
    """The links of the minimap, at most 400: in a longer run each stands for an equal stretch."""
    stretch = -(-len(steps) // MAP_LINKS) or 1
    entries = []
    for start in range(0, len(steps), stretch):
        part = steps[start : start + stretch]
        first = next((step for step in part if step.failed_test), part[0])
        shown = MapStep(part[0].seq, part[0].number, first.kind, first.icon, first.failed_test)
        entries.append(map_entry(shown, last=part[-1].number))
    return safe("".join(entries))


def _map_step(view: StepView) -> MapStep:
    return MapStep(view.first_seq, view.number, view.kind, view.icon, view.failed_test)


def draft_html(*, content: str, reasoning: str, calls: str, characters: int) -> SafeString:
    """Text that still streams: its newest 6,000 characters, a bar at the end, how much has come.

    What looks like a key is masked from its first characters on.
    """
    parts = []
    # Only the newest of a long text is stored as a draft.
    gone = max(0, characters - len(content) - len(reasoning) - len(calls))
    longest = max(len(content), len(reasoning), len(calls))
    for name, text in (("reasoning", reasoning), ("said prose", content), ("arguments mono", calls)):
        if not text:
            continue
        tail = masked_end(text, _DRAFT_TAIL, growing=True, around=_LONGEST_KEY)
        before = max(0, len(text) - _DRAFT_TAIL) + (gone if len(text) == longest > _DRAFT_TAIL else 0)
        cut = f'<span class="quiet">{before:,} characters before this … </span>' if before else ""
        label = "<b>Reasoning</b> " if name == "reasoning" else ""
        parts.append(
            f'<div class="{name}" dir="auto">{label}{cut}{visible_html(tail)}'
            '<span class="caret"></span></div>'
        )
    parts.append(f'<p class="being-written">being written · {characters:,} characters so far</p>')
    return safe("".join(parts))
