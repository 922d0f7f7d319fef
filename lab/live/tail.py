"""One watcher a process for all watched runs.

On SQLite it asks every 20 ms whether another connection has committed (`PRAGMA data_version`: no table is
read), and reads the state of all watched runs in one query when the answer moved. Other databases are asked
that one query every 50 ms.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping

import structlog
from django.db import DatabaseError, close_old_connections, connection
from django.db.models import F, Value
from django.db.models.functions import Coalesce

from lab.live.hub import Hub, Topic
from lab.live.list_feed import ListFeed
from lab.live.run_feed import RunFeed, RunState
from lab.models import Run

SQLITE_SECONDS = 0.02
OTHER_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_SWITCH_SECONDS = 0.0005
# A thread that nobody needs ends by itself; the next viewer starts another.
_IDLE_SECONDS = 5.0

logger = structlog.get_logger(__name__)


class Watcher:
    """Watches the database on a thread of its own while there are viewers."""

    def __init__(self) -> None:
        self.hub = Hub(on_first=self._ensure)
        # Guards _thread: sockets of several loops may join at once.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._runs: dict[Topic, RunFeed] = {}
        self._lists: dict[Topic, ListFeed] = {}
        self._version: int | None = None
        self._known: frozenset[Topic] = frozenset()

    def _ensure(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="lab-watcher", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        # The loop gives the interpreter up at each of many sends and waits to get it back for one interval a
        # time, while this thread renders: with the usual 5 ms, twenty viewers heard of a step 100 ms late.
        sys.setswitchinterval(_SWITCH_SECONDS)
        idle_since = time.monotonic()
        while True:
            topics = self.hub.topics()
            if topics:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _IDLE_SECONDS and self._ended():
                return
            pause = SQLITE_SECONDS if connection.vendor == "sqlite" else OTHER_SECONDS
            try:
                self._look(topics)
            except DatabaseError as error:
                # A restart of the database must not end live pages: they go on from their positions.
                logger.warning("watcher_database_error", error=str(error))
                self._version = None
                close_old_connections()
                pause = _RETRY_SECONDS
            except Exception:
                # One run that cannot be shown must not silence all others.
                logger.exception("watcher_error")
                self._version = None
                pause = _RETRY_SECONDS
            time.sleep(pause)

    def _ended(self) -> bool:
        """Ends the thread unless somebody has joined meanwhile."""
        with self._lock:
            if self.hub.topics():
                return False
            self._thread = None
        connection.close()
        return True

    def _look(self, topics: Mapping[Topic, int]) -> None:
        moved = self._moved()
        watched = frozenset(topics)
        waiting = any(feed.waits for feed in self._runs.values()) or any(
            feed.waits for feed in self._lists.values()
        )
        if not (moved or waiting or watched != self._known):
            return
        self._known = watched
        self._match(topics)
        self._publish_runs()
        for topic, feed in self._lists.items():
            self.hub.publish(topic, feed.changed() if moved or feed.waits else [])

    def _moved(self) -> bool:
        if connection.vendor != "sqlite":
            return True
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            version = int(cursor.fetchone()[0])
        moved = version != self._version
        self._version = version
        return moved

    def _match(self, topics: Mapping[Topic, int]) -> None:
        """Feeds for what is watched now, and for nothing else."""
        self._runs = {topic: feed for topic, feed in self._runs.items() if topic in topics}
        self._lists = {topic: feed for topic, feed in self._lists.items() if topic in topics}
        for topic, position in topics.items():
            if topic.kind == "run":
                if topic not in self._runs:
                    self._runs[topic] = RunFeed(run_id=topic.key, position=position)
            elif topic not in self._lists:
                self._lists[topic] = ListFeed(topic)

    def _publish_runs(self) -> None:
        if not self._runs:
            return
        states = run_states([topic.key for topic in self._runs])
        for topic, feed in self._runs.items():
            state = states.get(topic.key)
            if state is not None:
                self.hub.publish(topic, feed.changed(state))


def run_states(run_ids: list[int]) -> dict[int, RunState]:
    """The state of all these runs, in one query."""
    rows = (
        Run.objects.filter(pk__in=run_ids)
        .annotate(draft_version=Coalesce(F("draft__version"), Value(0)))
        .values_list("pk", "last_seq", "status", "cancel_asked", "draft_version")
    )
    return {pk: RunState(last_seq, status, asked, draft) for pk, last_seq, status, asked, draft in rows}


watcher = Watcher()
