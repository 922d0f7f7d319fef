"""What a Docker daemon says while it pulls or builds: by line, summed over layers, broken off anytime."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from docker import APIClient

from lab.engine.llm.base import JSONObject
from lab.engine.stop import StopSignal

# A daemon that says nothing for so long is not going on. Steps of a build may be silent for long.
QUIET_SECONDS = 1800.0
_LOOK_SECONDS = 0.1
# Adding to and taking from a session's hooks: several threads share one.
_HOOKS = threading.Lock()


class BrokenOffError(Exception):
    """The stop signal was set; what the daemon did is undone by the daemon."""


class SilentDaemonError(Exception):
    """The daemon said nothing for `QUIET_SECONDS`."""


def daemon_says(
    api: APIClient, ask: Callable[[], Iterable[JSONObject]], stop: StopSignal | None
) -> Iterator[JSONObject]:
    """The lines that `ask` streams by this client, until its end.

    A request is broken off by closing its connection, upon which the daemon stops too. That takes effect
    also while the daemon has not begun to answer.

    Raises:
        BrokenOffError: `stop` was set.
        SilentDaemonError: nothing came for too long.
        Whatever `ask` raises.
    """
    stop = stop or StopSignal()
    asked = _Asked(api, ask)
    thread = threading.Thread(target=asked.run, name="docker stream", daemon=True)
    thread.start()
    quiet = 0.0
    try:
        while True:
            if stop.is_set():
                raise BrokenOffError
            try:
                line = asked.lines.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                quiet += _LOOK_SECONDS
                if quiet > QUIET_SECONDS:
                    raise SilentDaemonError from None
                continue
            quiet = 0.0
            if isinstance(line, BaseException):
                raise line
            if line is None:
                return
            yield line
    finally:
        asked.abandon()


class _Asked:
    """One streamed request in a thread of its own."""

    def __init__(self, api: APIClient, ask: Callable[[], Iterable[JSONObject]]) -> None:
        self._api, self._ask = api, ask
        # Bounded, so that a daemon that talks fast waits for whoever reads.
        self.lines: queue.Queue[JSONObject | BaseException | None] = queue.Queue(maxsize=1000)
        self._abandoned = threading.Event()
        self._responses: list[Any] = []

    def run(self) -> None:
        try:
            with self._caught_responses():
                for line in self._ask():
                    self._put(line)
                    if self._abandoned.is_set():
                        return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, line: JSONObject | BaseException | None) -> None:
        while not self._abandoned.is_set():
            with contextlib.suppress(queue.Full):
                self.lines.put(line, timeout=_LOOK_SECONDS)
                return

    @contextlib.contextmanager
    def _caught_responses(self) -> Iterator[None]:
        """See to it that this thread's responses can be closed: the SDK gives out only their lines."""
        own = threading.get_ident()

        def caught(response: Any, *arguments: object, **options: object) -> None:
            if threading.get_ident() == own:
                self._responses.append(response)
                if self._abandoned.is_set():
                    _hang_up(response)

        self._set_hooks(lambda hooks: [*hooks, caught])
        try:
            yield
        finally:
            self._set_hooks(lambda hooks: [hook for hook in hooks if hook is not caught])

    def _set_hooks(self, change: Callable[[list[Any]], list[Any]]) -> None:
        with _HOOKS:
            # A new list, because another thread may be going through the old one.
            self._api.hooks = {**self._api.hooks, "response": change(self._api.hooks["response"])}

    def abandon(self) -> None:
        self._abandoned.set()
        for response in self._responses:
            _hang_up(response)


def _hang_up(response: Any) -> None:
    """End the connection under a thread that reads from it; closing alone would leave that one waiting."""
    connection = getattr(response.raw, "connection", None)
    under = getattr(connection, "sock", None)
    if under is not None:
        with contextlib.suppress(OSError):
            under.shutdown(socket.SHUT_RDWR)


class LayerSum:
    """Adds up what a pull says of each layer. `done` and `total` are compressed bytes.

    `total` is None until each layer that has to be fetched has said its size.
    """

    def __init__(self) -> None:
        self._fetched: dict[str, tuple[int, int | None]] = {}
        self._unpacked: set[str] = set()

    def hear(self, line: JSONObject) -> bool:
        """Take one line; True when it was about a layer."""
        layer, status = line.get("id"), line.get("status", "")
        detail = line.get("progressDetail") or {}
        if not isinstance(layer, str) or not isinstance(status, str):
            return False
        done, total = self._fetched.get(layer, (0, None))
        if status in ("Pulling fs layer", "Waiting"):
            self._fetched.setdefault(layer, (0, None))
        elif status == "Downloading" and isinstance(detail.get("current"), int):
            size = detail.get("total")
            self._fetched[layer] = (detail["current"], size if isinstance(size, int) and size > 0 else None)
        elif status in ("Verifying Checksum", "Download complete") and layer in self._fetched:
            # A small layer is there before a word was said of its size.
            self._fetched[layer] = (total or done, total or done)
        elif status == "Pull complete":
            self._unpacked.add(layer)
        elif status == "Already exists":
            self._fetched.pop(layer, None)
        else:
            return layer in self._fetched
        return True

    @property
    def done(self) -> int:
        return sum(done for done, total in self._fetched.values())

    @property
    def known(self) -> int:
        """The sizes that were said so far: at least so much there is."""
        return sum(total or done for done, total in self._fetched.values())

    @property
    def total(self) -> int | None:
        sizes = [total for done, total in self._fetched.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def is_unpacking(self) -> bool:
        """Whether all is fetched, and some not in place yet."""
        return bool(self._fetched) and self.total == self.done and len(self._unpacked) < len(self._fetched)
