"""What is new about one watched run: steps at once, the draft and the panel's parts a few times a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from django.template.loader import render_to_string

from lab.live import messages
from lab.live.hub import Message
from lab.models import Draft, Run
from lab.render.events import draft_html
from lab.services import run_pages
from lab.services.trajectories import LogReader

PARTS_SECONDS = 0.25
DRAFT_SECONDS = 0.05
_EVENTS_AT_ONCE = 200
# Before a sandbox is up nothing streams but how far its image is, and that stands in the panel.
_MAKING_READY = frozenset({Run.Status.PREPARING, Run.Status.VERIFYING})


class RunState(NamedTuple):
    """What the watcher's one query says of a run.

    `asked` is the newest thing a person asked for, 0 without one; `draft` the version of the streaming text.
    """

    last_seq: int
    status: str
    cancel_asked: bool
    asked: int
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
        self._sent = Panel("", 0, {})
        self._at = 0.0
        self.waits = True

    def changed(self, state: RunState) -> Iterator[Message]:
        """The parts that differ from what was sent before; all of them at the first look.

        Status and last number go with the parts they were read with: the run may have gone on since `state`
        was, and a page told "running" beside the last parts would wait for ever.
        """
        seen = (*state[:4], state.draft if state.status in _MAKING_READY else 0)
        self.waits = self.waits or seen != self._seen
        now = time.monotonic()
        if not self.waits or now - self._at < PARTS_SECONDS:
            return
        self._seen, self._at, self.waits = seen, now, False
        fresh, sent = current_panel(self.run_id), self._sent
        if fresh is None:
            return
        self._sent = fresh
        changed = [html for name, html in fresh.parts.items() if sent.parts.get(name) != html]
        if changed or fresh[:2] != sent[:2]:
            yield messages.parts(changed, status=fresh.status, last=fresh.last_seq)


class Panel(NamedTuple):
    """What stands beside the steps of a run, by name, and the status and last number it was read with."""

    status: str
    last_seq: int
    parts: Mapping[str, str]


def current_panel(run_id: int) -> Panel | None:
    """The panel as it is now; None for a run that is gone."""
    run = run_pages.find_run(run_id)
    if run is None:
        return None
    context = {"panel": run_pages.panel(run)}
    parts = {name: render_to_string(f"runs/_{name}.html", context) for name in run_pages.PARTS}
    return Panel(run.status, run.last_seq, parts)


def current_draft(run_id: int, *, seq: int) -> Message | None:
    """The text that is still streaming, None when the log has gone on since."""
    draft = Draft.objects.filter(run_id=run_id).first()
    if draft is None or draft.after_seq < seq or draft.step == run_pages.BEFORE_STEPS:
        return None
    html = draft_html(
        content=draft.content, reasoning=draft.reasoning, calls=draft.calls, characters=draft.characters
    )
    return messages.draft(html, seq=draft.after_seq, step=draft.step, version=draft.version)
