"""Looks after containers that run: one that writes too much, and a daemon that no longer answers.

A daemon that is restarted closes its connections and is noticed by them; one that hangs is noticed here, as
otherwise a long command would wait for it until its time-out.

Two threads a process: one asks the daemons whether they answer, whatever the other one waits for, which asks
for sizes. Of these one is asked for after the other, so that a daemon adds up the files of one container at a
time for each process. A container's look is late by at most ANSWER_SECONDS for each other one of this process
whose files are many; and a worker child, where runs are, has one sandbox at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import docker as sdk
import requests

from lab.engine.sandboxes import docker_client

# How often a container's size is asked for; the daemon adds up its files, so not before ten times as long has
# passed as that took.
_LOOK_SECONDS = 2.0
_COSTS = 10
# So often in a row a size may stay unknown; with enough files no daemon adds them up in time, and the limit
# would hold nothing.
_UNKNOWN_TIMES = 3
# How often the daemon must answer, and how long it may take.
_PING_SECONDS = 10.0
_PATIENCE_SECONDS = 12
# Between two looks at what is due.
_PAUSE_SECONDS = 0.5


class _Watched:
    """One container: who is told, and when it is looked at next."""

    def __init__(
        self, client: sdk.DockerClient, identifier: str, most: int | None, tell: Callable[[str], None]
    ) -> None:
        self.client = client
        self.identifier = identifier
        self.most = most
        self.tell = tell
        self.due = time.monotonic() + _LOOK_SECONDS
        self.unknown = 0


class Watch:
    """The containers of this process that run."""

    def __init__(self) -> None:
        self._containers: dict[str, _Watched] = {}
        # The threads and those who start and stop sandboxes.
        self._changing = threading.Lock()
        self._is_running = False
        self._changed = threading.Event()

    def add(
        self, client: sdk.DockerClient, identifier: str, most: int | None, tell: Callable[[str], None]
    ) -> None:
        """Watch a container. `most` is how many bytes it may write; `tell` is given the reason of its end.

        After `tell` was called it is watched no more.
        """
        with self._changing:
            self._containers[identifier] = _Watched(client, identifier, most, tell)
            if not self._is_running:
                self._is_running = True
                for look in (self._look_at_sizes, self._look_at_daemons):
                    threading.Thread(target=look, name="docker-watch", daemon=True).start()
        self._changed.set()

    def remove(self, identifier: str) -> None:
        with self._changing:
            self._containers.pop(identifier, None)

    def _watched(self) -> list[_Watched]:
        """Those there are; none: once there may be some again."""
        with self._changing:
            watched = list(self._containers.values())
            if not watched:
                self._changed.clear()
        if not watched:
            self._changed.wait()
        return watched

    def _look_at_sizes(self) -> None:
        while True:
            for one in self._watched():
                if one.most is not None and time.monotonic() >= one.due:
                    self._weigh(one, one.most)
            time.sleep(_PAUSE_SECONDS)

    def _look_at_daemons(self) -> None:
        answered: dict[int, float] = {}
        while True:
            watched = self._watched()
            if not watched:
                answered.clear()
                continue
            now = time.monotonic()
            for client in {id(one.client): one.client for one in watched}.values():
                if now - answered.setdefault(id(client), now - _PING_SECONDS / 2) >= _PING_SECONDS:
                    self._ping(client)
                    answered[id(client)] = time.monotonic()
            time.sleep(_PAUSE_SECONDS)

    def _ping(self, client: sdk.DockerClient) -> None:
        url = f"{client.api.base_url}/_ping"
        try:
            client.api.get(url, timeout=_PATIENCE_SECONDS)
        except docker_client.ERRORS as error:
            reason = str(docker_client.explained(error, "The sandbox is lost"))
            with self._changing:
                lost = [one for one in self._containers.values() if one.client is client]
            for one in lost:
                self._end(one, reason)

    def _weigh(self, one: _Watched, most: int) -> None:
        began = time.monotonic()
        try:
            written = written_bytes(one.client, one.identifier)
        except docker_client.ERRORS as error:
            # One that is just removed, and a daemon that is gone, are noticed elsewhere.
            one.unknown += _is_untold(error)
            one.due = time.monotonic() + _LOOK_SECONDS
            if one.unknown >= _UNKNOWN_TIMES:
                reason = f"could not be told {_UNKNOWN_TIMES} times in a row, as with millions of files"
                self._end_and_kill(one, f"How much the sandbox wrote {reason}; its limit is {_size(most)}")
            return
        now = time.monotonic()
        one.unknown, one.due = 0, now + max(_LOOK_SECONDS, _COSTS * (now - began))
        if written > most:
            self._end_and_kill(one, f"The sandbox wrote more than {_size(most)}, its limit")

    def _end_and_kill(self, one: _Watched, reason: str) -> None:
        self._end(
            one, f"{reason}: it was ended. disk_mb of its task, or LAB_SANDBOX_DISK_GB, sets the limit."
        )
        with contextlib.suppress(*docker_client.ERRORS):
            one.client.api.kill(one.identifier)

    def _end(self, one: _Watched, reason: str) -> None:
        self.remove(one.identifier)
        one.tell(reason)


def _is_untold(error: BaseException) -> bool:
    """Whether a daemon that is there could not say a size, or not in time."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return isinstance(error, requests.ReadTimeout) or status >= 500


def _size(limit: int) -> str:
    """A limit in the unit it was given in: `disk_mb` counts in 1024² bytes, LAB_SANDBOX_DISK_GB in 10⁹."""
    if limit % 1024**2 == 0:
        return f"{limit // 1024**2} MB"
    return f"{limit / 1e9:.6g} GB"


def written_bytes(client: sdk.DockerClient, identifier: str) -> int:
    """How much a container has written over its image.

    Raises: one of docker_client.ERRORS.
    """
    url = f"{client.api.base_url}/v{client.api.api_version}/containers/{identifier}/json"
    answer = client.api.get(url, params={"size": "1"}, timeout=docker_client.ANSWER_SECONDS)
    answer.raise_for_status()
    return int(answer.json().get("SizeRw") or 0)


# Keyed by process: a forked child has none of its parent's threads.
_watches: dict[int, Watch] = {}


def watch() -> Watch:
    return _watches.setdefault(os.getpid(), Watch())
