"""What the page's script does with a socket, for tests without a browser: fragments by id, newer ones win."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.live.lab_server import LabServer

_ITEM = re.compile(
    r'<li class="(?:step|moment)[^"]*" id="(event-\d+)" data-seqs="([\d,]+)" data-last-seq="(\d+)"', re.S
)
_PART = re.compile(r'id="part-(\w+)"')


class Page:
    """A page that keeps what it was sent across sockets."""

    def __init__(self, server: LabServer, run_id: int, cookie: str, *, last_seq: int = 0) -> None:
        self.server = server
        self.run_id = run_id
        self.cookie = cookie
        self.last_seq = last_seq
        self.items: dict[str, tuple[list[int], str]] = {}
        self.parts: dict[str, str] = {}
        self.status = ""
        self.draft = ""
        self.gaps = 0
        self.messages: list[dict[str, Any]] = []
        self._socket: ClientConnection | None = None
        self._open = ExitStack()

    def connect(self, *, origin: str = "", cookie: str | None = None) -> None:
        address = f"ws://{self.server.host}/ws/runs/{self.run_id}/?after={self.last_seq}"
        opened = connect(
            address,
            origin=origin or f"http://{self.server.host}",  # type: ignore[arg-type]
            additional_headers={"Cookie": self.cookie if cookie is None else cookie},
            compression=None,
            max_size=None,
            open_timeout=60,
        )
        self._socket = self._open.enter_context(opened)

    def drop(self) -> None:
        """Cut the connection without a word."""
        if self._socket is not None:
            self._socket.socket.close()
            self._socket = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def read_until(self, condition: Callable[[Page], bool], *, seconds: float = 90) -> Page:
        """Take messages until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition(self):
            assert self._socket is not None
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"event {self.last_seq}, parts {sorted(self.parts)}, status {self.status!r}"
                )
            try:
                self.take(json.loads(self._socket.recv(timeout=left)))
            except TimeoutError:
                continue
        return self

    def read_to_end_of_socket(self, *, seconds: float = 90) -> None:
        assert self._socket is not None
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self.take(json.loads(self._socket.recv(timeout=60)))
            raise AssertionError(f"the socket was still open after {seconds} s")
        except ConnectionClosed:
            self._socket = None

    def take(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if "steps" in message:
            if message["after"] > self.last_seq:
                self.gaps += 1
            self._take_items(message["steps"])
            self.last_seq = max(self.last_seq, message["seq"])
            self.draft = ""
        for name in _PART.findall(message.get("parts", "")):
            self.parts[name] = message["parts"]
        self.status = message.get("status", self.status)
        self.draft = message.get("draft", self.draft)

    def _take_items(self, html: str) -> None:
        starts = [*(match.start() for match in _ITEM.finditer(html)), len(html)]
        for match, end in zip(_ITEM.finditer(html), starts[1:], strict=True):
            known = self.items.get(match[1])
            if known is None or known[0][-1] < int(match[3]):
                self.items[match[1]] = ([int(seq) for seq in match[2].split(",")], html[match.start() : end])

    @property
    def seqs(self) -> list[int]:
        """The numbers of all events shown, in the order of the page."""
        ordered = sorted(self.items.items(), key=lambda item: int(item[0].removeprefix("event-")))
        return [seq for _, (seqs, _) in ordered for seq in seqs]
