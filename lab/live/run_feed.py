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

PARTS_SECONDS = 0.4
DRAFT_SECONDS = 0.05
_EVENTS_AT_ONCE = 200


class RunState(NamedTuple):
    """What the watcher's one query says of a run. `draft` is the version of the streaming text."""

    last_seq: int
    status: str
    cancel_asked: bool
    draft: int


class RunFeed:
    """Turns changes of one run into messages. Lives on the watcher's thread."""

    def __init__(self, *, run_id: int, position: int) -> None:
        self.run_id = run_id
        self._reader = LogReader(run_id=run_id, after=position)
        self._seen: RunState | None = None
        self._parts: dict[str, str] = {}
        self._parts_stale = True
        self._parts_at = 0.0
        self._draft_version = 0
        self._draft_at = 0.0

    def changed(self, state: RunState) -> Iterator[Message]:
        """The messages that a look at the run's state calls for; steps before anything else is computed."""
        if state != self._seen:
            self._parts_stale = self._parts_stale or self._differs_for_parts(state)
            while state.last_seq > self._reader.position:
                batch = self._reader.read(limit=_EVENTS_AT_ONCE)
                if batch is None:
                    break
                yield messages.steps(batch)
            self._seen = state
        yield from self._draft(state)
        yield from self._changed_parts(state)

    @property
    def waits(self) -> bool:
        """Whether something is held back and due soon."""
        return self._parts_stale or (self._seen is not None and self._seen.draft != self._draft_version)

    def _differs_for_parts(self, state: RunState) -> bool:
        return self._seen is None or state[:3] != self._seen[:3]

    def _changed_parts(self, state: RunState) -> list[Message]:
        now = time.monotonic()
        if not self._parts_stale or now - self._parts_at < PARTS_SECONDS:
            return []
        self._parts_stale, self._parts_at = False, now
        fresh = rendered_parts(self.run_id)
        changed = [html for name, html in fresh.items() if self._parts.get(name) != html]
        self._parts = fresh
        return [messages.parts(changed, seq=self._reader.position, status=state.status)] if changed else []

    def _draft(self, state: RunState) -> list[Message]:
        now = time.monotonic()
        if state.draft == self._draft_version or now - self._draft_at < DRAFT_SECONDS:
            return []
        self._draft_version, self._draft_at = state.draft, now
        message = current_draft(self.run_id, seq=self._reader.position)
        return [message] if message else []


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
