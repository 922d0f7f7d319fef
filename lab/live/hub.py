"""Who watches what in this process: topics, viewers, and a bounded queue for each viewer.

The watcher's thread publishes; each viewer's own task sends. Nobody waits for a slow browser: when its queue
is full it is emptied, and its task catches up from the log when the browser reads again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

QUEUE_BYTES = 1_000_000


class Topic(NamedTuple):
    """What can be watched: one run's steps, a list of runs, or `runs` side by side, in ascending order.

    `key` is 0 for the home page and for a comparison.
    """

    kind: str
    key: int
    runs: tuple[int, ...] = ()


class Message(NamedTuple):
    """One text for the page. It covers the log after `after` up to `seq`; both are equal without an event."""

    after: int
    seq: int
    text: str


class Viewer:
    """One socket's queue. `put` comes from a watcher's thread, `next` from the socket's own task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # Guards the fields below: two threads use them.
        self._lock = threading.Lock()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._lagging = False
        self._ready = asyncio.Event()

    def put(self, message: Message) -> None:
        """Add a message, or drop everything when this viewer does not keep up. `wake` tells the task."""
        with self._lock:
            if self._lagging:
                return
            self._messages.append(message)
            self._bytes += len(message.text)
            if self._bytes > QUEUE_BYTES:
                self._messages.clear()
                self._bytes = 0
                self._lagging = True

    def wake(self) -> None:
        """Let the task look at its queue. Called on the loop."""
        self._ready.set()

    @property
    def held_bytes(self) -> int:
        return self._bytes

    async def next(self) -> Message | None:
        """The next message; None says that some were dropped, once, and that the log has to be read."""
        while True:
            with self._lock:
                if self._lagging:
                    self._lagging = False
                    return None
                if self._messages:
                    message = self._messages.popleft()
                    self._bytes -= len(message.text)
                    return message
                self._ready.clear()
            await self._ready.wait()


class Hub:
    """The topics of this process and their viewers."""

    def __init__(self, *, on_first: Callable[[], None]) -> None:
        # Guards the two tables: sockets come and go on the loop, the watcher reads on its thread.
        self._lock = threading.Lock()
        self._viewers: dict[Topic, set[Viewer]] = {}
        self._positions: dict[Topic, int] = {}
        self._on_first = on_first

    def join(self, topic: Topic, viewer: Viewer, *, position: int) -> None:
        """From now on `viewer` gets what is new. `position` is where a topic nobody watched yet begins."""
        with self._lock:
            self._viewers.setdefault(topic, set()).add(viewer)
            self._positions.setdefault(topic, position)
        self._on_first()

    def leave(self, topic: Topic, viewer: Viewer) -> None:
        with self._lock:
            viewers = self._viewers.get(topic, set())
            viewers.discard(viewer)
            if not viewers:
                self._viewers.pop(topic, None)
                self._positions.pop(topic, None)

    def topics(self) -> dict[Topic, int]:
        """What is watched, with the position it began at."""
        with self._lock:
            return dict(self._positions)

    def viewers(self, topic: Topic) -> int:
        with self._lock:
            return len(self._viewers.get(topic, ()))

    def publish(self, topic: Topic, messages: Iterable[Message]) -> None:
        """Give each message to each viewer of the topic."""
        with self._lock:
            viewers = list(self._viewers.get(topic, ()))
        loops = {viewer.loop for viewer in viewers}
        for message in messages:
            for viewer in viewers:
                viewer.put(message)
            # Once a message and not once a viewer: each call is a system call, at which threads take turns.
            for loop in loops:
                _wake_all(loop, [viewer for viewer in viewers if viewer.loop is loop])


def _wake_all(loop: asyncio.AbstractEventLoop, viewers: list[Viewer]) -> None:
    def wake() -> None:
        for viewer in viewers:
            viewer.wake()

    # A closed loop belongs to a process that is going down: nobody reads there any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(wake)
