"""The containers that a process has prepared for its next sandboxes.

After a sandbox was started, another container of the same kind is prepared beside it. It is handed out once,
to a specification that agrees in everything it was made with. It stays while sandboxes of its kind are in use
here and a little longer, and goes with the process: what a process that was killed leaves is the reaper's.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import SandboxLimits
from lab.engine.sandboxes.docker_boot import Booted

# The sandbox that was just started has the machine for so long before another one is made beside it.
LATER_SECONDS = 0.5
# How long one stays after the last sandbox of its kind has ended, and how often that is looked for.
IDLE_SECONDS = 60.0
_LOOK_SECONDS = 5.0
# What making one costs where the daemon is well.
_TAKE_SECONDS = 1.0
# Making one is given up by then, in words of the daemon's.
_MAKING_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """What a container is made with: no two sandboxes that differ in it are given the same one."""

    daemon: str
    image: str
    limits: SandboxLimits
    user: str
    lab: str


class _Wanted(NamedTuple):
    make: Callable[[], Booted]
    due: float


class Pool:
    """Of one process; its methods may be called from any thread. At most one container of each kind."""

    def __init__(self) -> None:
        # In the order in which the kinds were wanted last.
        self._ready: dict[Kind, Booted] = {}
        self._wanted: dict[Kind, _Wanted] = {}
        self._discarded: list[Booted] = []
        self._making: Kind | None = None
        self._in_use: Counter[Kind] = Counter()
        self._last_use: dict[Kind, float] = {}
        self._most = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def take(self, kind: Kind) -> Booted | None:
        """The container prepared for this kind, which is the caller's from now on; None: there is none.

        One that is just being made is waited for, but no longer than making another one takes: then that is
        the caller's to try, who hears from the daemon itself what is wrong.
        """
        with self._changed:
            self._wanted.pop(kind, None)
            self._changed.wait_for(lambda: self._making != kind, _TAKE_SECONDS)
            return self._ready.pop(kind, None)

    def want(self, kind: Kind, make: Callable[[], Booted], most: int, *, later: float = 0.0) -> None:
        """Have one prepared by `make`, beside the caller, `later` seconds from now.

        Of more than `most` those go that were wanted longest ago.
        """
        with self._changed:
            self._most = most
            self._last_use[kind] = time.monotonic()
            if (there := self._ready.pop(kind, None)) is not None:
                self._ready[kind] = there
            elif self._making != kind:
                self._wanted.pop(kind, None)
                self._wanted[kind] = _Wanted(make, time.monotonic() + later)
            self._drop_beyond()
            self._work()

    def hold(self, kind: Kind) -> None:
        """A sandbox of this kind is in use: what is prepared for the next one stays."""
        with self._changed:
            self._in_use[kind] += 1

    def release(self, kind: Kind) -> None:
        with self._changed:
            self._in_use[kind] -= 1
            self._last_use[kind] = time.monotonic()

    def discard(self, made: Booted) -> None:
        """Remove one that cannot be used, beside the caller."""
        with self._changed:
            self._discarded.append(made)
            self._work()

    def waiting(self) -> list[str]:
        """The identifiers of the containers that are ready."""
        with self._changed:
            return [one.identifier for one in self._ready.values()]

    def is_settled(self) -> bool:
        """Whether nothing is to be prepared or removed just now."""
        with self._changed:
            return self._making is None and not self._wanted and not self._discarded

    def clear(self) -> None:
        """Remove all that is prepared, and what is just being made."""
        with self._changed:
            self._wanted.clear()
            self._changed.wait_for(lambda: self._making is None, _MAKING_SECONDS)
            gone = [*self._ready.values(), *self._discarded]
            self._ready.clear()
            self._discarded.clear()
        for one in gone:
            one.discard()

    def forget(self) -> None:
        """In a forked child: these are its parent's."""
        for one in list(self._ready.values()):
            one.first.let_go()

    def _work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="docker-pool", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _drop_beyond(self) -> None:
        beyond = max(0, len(self._ready) + len(self._wanted) - self._most)
        for kind in [*self._ready, *self._wanted][:beyond]:
            if kind in self._ready:
                self._discarded.append(self._ready.pop(kind))
            else:
                del self._wanted[kind]

    def _drop_unused(self) -> None:
        since = time.monotonic() - IDLE_SECONDS
        unused = [one for one, last in self._last_use.items() if last < since and not self._in_use[one]]
        for kind in unused:
            del self._last_use[kind], self._in_use[kind]
            if kind in self._ready:
                self._discarded.append(self._ready.pop(kind))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._drop_unused()
                discarded, self._discarded = self._discarded, []
                now = time.monotonic()
                kind = next((one for one, wanted in self._wanted.items() if wanted.due <= now), None)
                self._making = kind
                if not discarded and kind is None:
                    if not self._ready and not self._wanted:
                        self._thread = None
                        return
                    waits = [wanted.due - now for wanted in self._wanted.values()]
                    self._changed.wait(min([*waits, _LOOK_SECONDS]))
                    continue
                make = self._wanted.pop(kind).make if kind is not None else None
            if kind is not None and make is not None:
                self._make(kind, make)
            for one in discarded:
                one.discard()

    def _make(self, kind: Kind, make: Callable[[], Booted]) -> None:
        made = None
        try:
            made = make()
        except Exception as error:
            # Whoever starts the next sandbox is told, if it still holds then.
            _log.info("docker: no container could be prepared (%s)", error)
        finally:
            with self._changed:
                self._making = None
                if made is not None:
                    self._ready[kind] = made
                    self._drop_beyond()
                self._changed.notify_all()


# Keyed by process: a forked child has neither its parent's threads nor its containers.
_pools: dict[int, Pool] = {}


def pool() -> Pool:
    """That of this process."""
    if os.getpid() not in _pools:
        _pools[os.getpid()] = Pool()
        atexit.register(_clear, os.getpid())
    return _pools[os.getpid()]


def _clear(process: int) -> None:
    # A forked child that ends runs what its parent has registered.
    if process == os.getpid():
        with contextlib.suppress(SandboxLostError):
            _pools[process].clear()


def _forget() -> None:
    for one in list(_pools.values()):
        one.forget()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)
