"""What tells a watcher that something may be new: SQLite's own count of commits, or a ring.

A ring comes by PostgreSQL's LISTEN, on one connection a process, or through Channels' layer. Both may fail: a
watcher looks once a second anyhow, and four times a second while nobody can be heard.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from channels.layers import BaseChannelLayer
from django.conf import settings
from django.db import connection

from lab.services.doorbell import GROUP, NOTIFY_CHANNEL, SEND_SECONDS, layer

LOST_SECONDS = 1.0
DEAF_SECONDS = 0.25
_CHECK_SECONDS = 5.0
_RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)
# It tells of a server that is away by a traceback a second.
logging.getLogger("channels_redis.pubsub").setLevel(logging.CRITICAL)


class News(Protocol):
    """Whether a watcher should look. `moved` and `rest` are called on its thread alone."""

    def moved(self) -> bool:
        """Whether something may be new since the last call."""

    def rest(self, *, pause: float, waits: bool) -> None:
        """Sleep until it is time to ask again. `waits`: something is due after `pause` seconds."""

    def forget(self) -> None:
        """Take everything for new at the next call."""


class Commits:
    """SQLite: each look asks whether another connection has committed; no table is read for it."""

    def __init__(self) -> None:
        self._version: int | None = None

    def moved(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            version = int(cursor.fetchone()[0])
        moved = version != self._version
        self._version = version
        return moved

    def rest(self, *, pause: float, waits: bool) -> None:
        time.sleep(pause)

    def forget(self) -> None:
        self._version = None


class Rings:
    """A watcher's own bell, rung by the ears of this process."""

    def __init__(self, *, heard: Callable[[], bool], gather_seconds: float) -> None:
        self._heard = heard
        self._gather_seconds = gather_seconds
        self._rung = threading.Event()
        self._looked = 0.0

    def ring(self) -> None:
        self._rung.set()

    def moved(self) -> bool:
        rung = self._rung.is_set()
        self._rung.clear()
        now = time.monotonic()
        due = now - self._looked >= self._longest() * 0.9
        if rung or due:
            self._looked = now
        return rung or due

    def rest(self, *, pause: float, waits: bool) -> None:
        # Of a burst of rings one look takes all.
        time.sleep(min(pause, self._gather_seconds))
        self._rung.wait(pause if waits else self._longest())

    def forget(self) -> None:
        self._rung.set()

    def _longest(self) -> float:
        return LOST_SECONDS if self._heard() else DEAF_SECONDS


class Ear(threading.Thread):
    """Hears rings on a thread of its own while `wanted`, and connects again when it lost its connection."""

    def __init__(
        self, name: str, *, ring: Callable[[], None], wanted: Callable[[], bool], lock: threading.Lock
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._ring, self._wanted, self._lock = ring, wanted, lock
        self.hears = self.ended = False

    def run(self) -> None:
        said = False
        while not self._ends():
            try:
                self._listen()
            except Exception as error:
                # Whatever it is: pages look by themselves until it is over.
                if not said:
                    logger.warning(
                        "%s hears nothing until it can connect again (%s)", self.name, _line(error)
                    )
                said = True
                time.sleep(_RETRY_SECONDS)
            else:
                said = False
            finally:
                self.hears = False

    def _ends(self) -> bool:
        """Ends the thread unless somebody wants to hear again meanwhile."""
        with self._lock:
            self.ended = not self._wanted()
            return self.ended

    def _listen(self) -> None:
        """Ring until nobody wants to hear any more; an error when the connection is lost."""
        raise ConnectionError("an ear of no kind hears nothing")

    def _is_heard(self) -> None:
        if not self.hears:
            self.hears = True
            # What rang before is not heard any more.
            self._ring()


class PostgresqlEar(Ear):
    """LISTEN, on a connection that does nothing else and belongs to no pool."""

    def _listen(self) -> None:
        own: Any = connection
        with own.Database.connect(**own.get_connection_params(), autocommit=True) as listening:
            listening.execute(f"LISTEN {NOTIFY_CHANNEL}")
            self._is_heard()
            while self._wanted():
                for _ in listening.notifies(timeout=LOST_SECONDS, stop_after=1):
                    self._ring()


class LayerEar(Ear):
    """A subscription through Channels' layer, asked every few seconds whether it still works."""

    def _listen(self) -> None:
        asyncio.run(self._subscribe())

    async def _subscribe(self) -> None:
        through = layer()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                name = await through.new_channel()
                await through.group_add(GROUP, name)
            self._is_heard()
            async with asyncio.TaskGroup() as tasks:
                hearing = tasks.create_task(self._hear(through, name))
                await self._check(through, name)
                hearing.cancel()
        finally:
            async with asyncio.timeout(SEND_SECONDS):
                await through.flush()

    async def _hear(self, through: BaseChannelLayer, name: str) -> None:
        while True:
            message = await through.receive(name)
            if message["type"] == "news":
                self._ring()

    async def _check(self, through: BaseChannelLayer, name: str) -> None:
        """Returns when nobody wants to hear any more; an error says that the server is away."""
        checked = time.monotonic()
        while self._wanted():
            await asyncio.sleep(0.5)
            if time.monotonic() - checked > _CHECK_SECONDS:
                async with asyncio.timeout(SEND_SECONDS):
                    await through.send(name, {"type": "check"})
                checked = time.monotonic()


class Bells:
    """All bells of this process, and the ears that ring them."""

    def __init__(self, *, wanted: Callable[[], bool]) -> None:
        # Guards the ears: sockets of several loops may join at once.
        self._lock = threading.Lock()
        self._wanted = wanted
        self._bells: list[Rings] = []
        self._ears: dict[type[Ear], Ear] = {}

    def new(self, *, gather_seconds: float) -> News:
        """The news of one watcher, of the kind that this lab's database offers.

        After a look, rings of the next `gather_seconds` are one.
        """
        if connection.vendor == "sqlite":
            return Commits()
        bell = Rings(heard=self.heard, gather_seconds=gather_seconds)
        self._bells.append(bell)
        return bell

    def heard(self) -> bool:
        """Whether a ring would be heard now."""
        return any(ear.hears for ear in self._ears.values())

    def ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    def ensure(self) -> None:
        """See to it that the ears listen."""
        if connection.vendor == "sqlite":
            return
        kinds: list[type[Ear]] = [PostgresqlEar, *([LayerEar] if settings.LAB_REDIS_URL else [])]
        with self._lock:
            for kind in kinds:
                ear = self._ears.get(kind)
                if ear is None or ear.ended or not ear.is_alive():
                    ear = kind(kind.__name__, ring=self.ring, wanted=self._wanted, lock=self._lock)
                    self._ears[kind] = ear
                    ear.start()
        self.ring()


def _line(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
