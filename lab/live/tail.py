"""The watchers of a process, for all watched runs: one for steps, one for everything beside them.

Each reads the state of all watched runs in one query when something may be new (lab/live/bell.py): on SQLite
it asks for that every few milliseconds, on PostgreSQL it is rung. Steps have a thread to themselves, so that
no step waits until a panel is rendered.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping
from typing import Protocol

from django.db import DatabaseError, connection
from django.db.models import F, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce

from lab.live.bell import Bells, News
from lab.live.comparison_feed import COMPARISON, ComparisonFeed
from lab.live.grid_feed import GridFeed
from lab.live.hub import Hub, Topic
from lab.live.list_feed import ListFeed
from lab.live.run_feed import PanelFeed, RunState, StepFeed
from lab.models import Control, Run

STEP_SECONDS = 0.02
PANEL_SECONDS = 0.1
_GATHER_SECONDS = 0.003
_RETRY_SECONDS = 1.0
_SWITCH_SECONDS = 0.0005
# A thread that nobody needs ends by itself; the next viewer starts another.
_IDLE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Feeds(Protocol):
    """What a watcher asks at each look. Used by that watcher's thread alone."""

    @property
    def waits(self) -> bool:
        """Whether something is held back and due soon."""

    def look(self, hub: Hub, topics: Mapping[Topic, int]) -> None:
        """Publish what is new of these topics; each has the position it began at."""


class StepFeeds:
    """Steps and streaming text of all watched runs."""

    def __init__(self) -> None:
        self._feeds: dict[Topic, StepFeed] = {}

    @property
    def waits(self) -> bool:
        return any(feed.waits for feed in self._feeds.values())

    def look(self, hub: Hub, topics: Mapping[Topic, int]) -> None:
        self._feeds = {
            topic: self._feeds.get(topic) or StepFeed(run_id=topic.key, position=position)
            for topic, position in topics.items()
            if topic.kind == "run"
        }
        states = run_states([topic.key for topic in self._feeds])
        for topic, feed in self._feeds.items():
            if topic.key in states:
                hub.publish(topic, feed.changed(states[topic.key]))


class PanelFeeds:
    """The parts beside the steps of all watched runs, watched comparisons, and rows and cells of lists."""

    def __init__(self) -> None:
        self._panels: dict[Topic, PanelFeed] = {}
        self._comparisons: dict[Topic, ComparisonFeed] = {}
        self._lists: dict[Topic, ListFeed | GridFeed] = {}

    @property
    def waits(self) -> bool:
        feeds = (*self._panels.values(), *self._comparisons.values(), *self._lists.values())
        return any(feed.waits for feed in feeds)

    def look(self, hub: Hub, topics: Mapping[Topic, int]) -> None:
        runs = [topic for topic in topics if topic.kind == "run"]
        compared = [topic for topic in topics if topic.kind == COMPARISON]
        self._panels = {topic: self._panels.get(topic) or PanelFeed(run_id=topic.key) for topic in runs}
        self._comparisons = {
            topic: self._comparisons.get(topic) or ComparisonFeed(topic) for topic in compared
        }
        self._lists = {
            topic: self._lists.get(topic) or _feed(topic, position)
            for topic, position in topics.items()
            if topic.kind not in ("run", COMPARISON)
        }
        states = run_states(
            [*(topic.key for topic in runs), *(run for topic in compared for run in topic.runs)]
        )
        for topic, panel in self._panels.items():
            if topic.key in states:
                hub.publish(topic, panel.changed(states[topic.key]))
        for topic, feed in self._comparisons.items():
            hub.publish(topic, feed.changed(states))
        for topic, rows in self._lists.items():
            hub.publish(topic, rows.changed())


def _feed(topic: Topic, position: int) -> ListFeed | GridFeed:
    return GridFeed(topic, position=position) if topic.kind == "grid" else ListFeed(topic)


class Watcher:
    """Looks at the database on a thread of its own while there are viewers."""

    def __init__(self, hub: Hub, feeds: Feeds, *, news: News, name: str, seconds: float) -> None:
        self._hub = hub
        self._news = news
        self._feeds = feeds
        self._name = name
        self._seconds = seconds
        # Guards _thread: sockets of several loops may join at once.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known: frozenset[Topic] = frozenset()

    def ensure(self) -> None:
        """See to it that the thread runs."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
                self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread is not None

    def _watch(self) -> None:
        # The loop gives the interpreter up at each of many sends and waits to get it back for one interval a
        # time, while this thread renders: with the usual 5 ms, twenty viewers heard of a step 100 ms late.
        sys.setswitchinterval(_SWITCH_SECONDS)
        idle_since = time.monotonic()
        while True:
            topics = self._hub.topics()
            if topics:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _IDLE_SECONDS and self._ended():
                return
            began = time.monotonic()
            if not self._looked(topics):
                time.sleep(_RETRY_SECONDS)
                continue
            # What a look took is part of the pause, or each step would wait that much longer.
            rest = self._seconds - (time.monotonic() - began)
            self._news.rest(pause=max(rest, self._seconds / 4), waits=self._feeds.waits)

    def _looked(self, topics: Mapping[Topic, int]) -> bool:
        """Look once; False when that failed. Live pages go on from their positions afterwards."""
        try:
            self._look(topics)
        except DatabaseError as error:
            logger.warning("%s could not ask the database: %s", self._name, error)
            connection.close()
        except Exception:
            # One run that cannot be shown must not silence all others.
            logger.exception("%s could not show what is new", self._name)
        else:
            return True
        self._news.forget()
        return False

    def _ended(self) -> bool:
        """Ends the thread unless somebody has joined meanwhile."""
        with self._lock:
            if self._hub.topics():
                return False
            self._thread = None
        connection.close()
        return True

    def _look(self, topics: Mapping[Topic, int]) -> None:
        moved = self._news.moved()
        watched = frozenset(topics)
        if moved or self._feeds.waits or watched != self._known:
            self._known = watched
            self._feeds.look(self._hub, topics)


def run_states(run_ids: list[int]) -> dict[int, RunState]:
    """The state of all these runs, in one query."""
    if not run_ids:
        return {}
    newest = Control.objects.filter(run=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    rows = (
        Run.objects.filter(pk__in=run_ids)
        .annotate(
            asked=Coalesce(Subquery(newest), Value(0)), draft_version=Coalesce(F("draft__version"), Value(0))
        )
        .values_list("pk", "last_seq", "status", "cancel_asked", "asked", "draft_version")
    )
    return {pk: RunState(*state) for pk, *state in rows}


def _start() -> None:
    for watcher in _watchers:
        watcher.ensure()
    _bells.ensure()


def _anybody_watches() -> bool:
    return any(watcher.runs for watcher in _watchers)


hub = Hub(on_first=_start)
_bells = Bells(wanted=_anybody_watches)
_watchers = (
    Watcher(
        hub,
        StepFeeds(),
        news=_bells.new(gather_seconds=_GATHER_SECONDS),
        name="lab-watcher-steps",
        seconds=STEP_SECONDS,
    ),
    Watcher(
        hub,
        PanelFeeds(),
        news=_bells.new(gather_seconds=PANEL_SECONDS),
        name="lab-watcher-panels",
        seconds=PANEL_SECONDS,
    ),
)
