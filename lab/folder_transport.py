"""Messages as files of one folder: kombu's filesystem transport, but a message is there whole or not."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem, virtual
from kombu.utils import json as kombu_json

# Written without types.
_json: Any = kombu_json
_virtual_channel: Any = virtual.Channel
_log = logging.getLogger(__name__)


class Channel(filesystem.Channel):
    """Kombu's own writes a file in place and reads it without waiting: a torn message would end the worker.

    The option `folder` holds `messages`, `control` (which queues there are), `incoming` (being written),
    `taken` (being read) and `unreadable`, all on one file system.
    """

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override] # kombu differs too
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        self._write_whole(self._folder("messages") / name, payload)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        names = sorted(path.name for path in self._folder("messages").iterdir())
        for name in names:
            if name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = self._folder("taken") / name
            try:
                (self._folder("messages") / name).rename(taken)
            except FileNotFoundError:
                # Another worker was faster.
                continue
            try:
                message = _whole_message(taken.read_bytes())
            except (OSError, ValueError) as error:
                self._put_aside(taken, error)
                continue
            taken.unlink(missing_ok=True)
            return message
        raise Empty

    def get_table(self, exchange: str) -> list[Any]:
        """The queues of an exchange; a list that cannot be read is as good as none and is written anew."""
        try:
            rows = _json.loads((self._folder("control") / f"{exchange}.exchange").read_text())
            return [filesystem.exchange_queue_t(*row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        row = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        self._change_table(exchange, lambda rows: rows if row in rows else [row, *rows])

    def _delete(
        self, queue: str, exchange: str, routing_key: str, pattern: str, *args: Any, **options: Any
    ) -> None:
        _virtual_channel._delete(self, queue, exchange, routing_key, pattern, *args, **options)
        gone = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        self._change_table(exchange, lambda rows: [row for row in rows if row != gone])

    def _change_table(self, exchange: str, change: Callable[[list[Any]], list[Any]]) -> None:
        with self._only_one_writer():
            before = self.get_table(exchange)
            after = change(before)
            if after != before:
                self._write_whole(self._folder("control") / f"{exchange}.exchange", after)

    @contextlib.contextmanager
    def _only_one_writer(self) -> Iterator[None]:
        with (self._folder("control") / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write_whole(self, path: Path, content: Any) -> None:
        """Write beside the place and rename: readers see all of it or nothing, whatever is killed."""
        beside = self._folder("incoming") / f"{uuid.uuid4()}"
        try:
            beside.write_text(_json.dumps(content))
            beside.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise

    def _put_aside(self, taken: Path, error: Exception) -> None:
        aside = self._folder("unreadable") / taken.name
        with contextlib.suppress(OSError):
            taken.rename(aside)
        _log.warning("a message of the queue cannot be read (%s); it lies in %s", error, aside)

    def _folder(self, name: str) -> Path:
        return Path(self.transport_options["folder"]) / name


class Transport(filesystem.Transport):
    """The built-in broker."""

    Channel = Channel


def make_folders(folder: Path) -> None:
    """Whoever can write there can queue tasks: 0700.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("messages", "control", "incoming", "taken", "unreadable"):
        (folder / name).mkdir(exist_ok=True, mode=0o700)


def _whole_message(raw: bytes) -> dict[str, Any]:
    message = _json.loads(raw.decode())
    if not isinstance(message, dict) or not isinstance(message.get("properties"), dict):
        raise ValueError("no message")
    if "delivery_tag" not in message["properties"]:
        raise ValueError("no delivery tag")
    return message
