"""What is new about one watched run: steps at once, the draft and the panel's parts a few times a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from django.template.loader import render_to_string

from lab.live import messages
from lab.live.hub import Message
from lab.models import Draft
from lab.render.events import draft_html
from lab.services import run_pages
from lab.services.trajectories import LogReader

PARTS_SECONDS = 0.25
DRAFT_SECONDS = 0.05
_EVENTS_AT_ONCE = 200


class RunState(NamedTuple):
    """What the watcher's one query says of a run. `draft` is the version of the streaming text."""

    last_seq: int
    status: str
    cancel_asked: bool
    draft: int


class StepFeed:
    """Turns what is new in one run's log, and its streaming text, into messages. For one thread."""

    def __init__(self, *, run_id: int, position: int) -> None:
        self.run_id = run_id
        self._reader = LogReader(run_id=run_id, after=position)
        self._draft_seen = 0
        self._draft_at = 0.0
        self.waits = False

    def changed(self, state: RunState) -> Iterator[Message]:
        """The messages that a look at the run's state calls for."""
        while state.last_seq > self._reader.position:
            batch = self._reader.read(limit=_EVENTS_AT_ONCE)
            if batch is None:
                break
            yield messages.steps(batch)
        yield from self._draft(state)

    def _draft(self, state: RunState) -> Iterator[Message]:
        self.waits = state.draft != self._draft_seen
        now = time.monotonic()
        if not self.waits or now - self._draft_at < DRAFT_SECONDS:
            return
        self._draft_seen, self._draft_at, self.waits = state.draft, now, False
        message = current_draft(self.run_id, seq=self._reader.position)
        if message is not None:
            yield message


class PanelFeed:
    """Turns what changed beside the steps of one run into messages. For one thread."""

    def __init__(self, *, run_id: int) -> None:
        self.run_id = run_id
        self._seen: tuple[object, ...] = ()
        self._parts: dict[str, str] = {}
        self._at = 0.0
        self.waits = True

    def changed(self, state: RunState) -> Iterator[Message]:
        """The parts that differ from what was sent before; all of them at the first look."""
        self.waits = self.waits or state[:3] != self._seen
        now = time.monotonic()
        if not self.waits or now - self._at < PARTS_SECONDS:
            return
        self._seen, self._at, self.waits = state[:3], now, False
        fresh = rendered_parts(self.run_id)
        changed = [html for name, html in fresh.items() if self._parts.get(name) != html]
        self._parts = fresh
        if changed:
            yield messages.parts(changed, status=state.status, last=state.last_seq)


def rendered_parts(run_id: int) -> dict[str, str]:
    """The parts of a run's page beside its steps, by name."""
    run = run_pages.find_run(run_id)
    if run is None:
        return {}
    context = {"panel": run_pages.panel(run)}
    return {name: render_to_string(f"runs/_{name}.html", context) for name in run_pages.PARTS}


def current_draft(run_id: int, *, seq: int) -> Message | None:
    """The text that is still streaming, None when the log has gone on since."""
    draft = Draft.objects.filter(run_id=run_id).first()
    if draft is None or draft.after_seq < seq:
        return None
    html = draft_html(
        content=draft.content, reasoning=draft.reasoning, calls=draft.calls, characters=draft.characters
    )
    return messages.draft(html, seq=draft.after_seq, step=draft.step, version=draft.version)
