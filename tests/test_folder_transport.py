from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection
from kombu.simple import SimpleQueue

from lab.celery import BUILT_IN_BROKER, folder_transport_options
from lab.folder_transport import Transport


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> None:
    """A process remembers which queues it has declared."""
    Transport.global_state.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def queue(folder: Path) -> Iterator[SimpleQueue]:
    options = folder_transport_options(folder)
    with Connection(BUILT_IN_BROKER, transport_options=options) as connection:
        yield connection.SimpleQueue("runs", no_ack=True)


@pytest.mark.parametrize("torn", [b"", b'{"body": "e30', b"\xff\xfe", b"[]", b'{"properties": {}}'])
def test_a_message_that_cannot_be_read_is_moved_aside_and_the_next_one_arrives(
    folder: Path, queue: SimpleQueue, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "messages" / "0_0.runs.msg").write_bytes(torn)
    queue.put({"n": 1})
    with caplog.at_level(logging.WARNING):
        assert queue.get(timeout=60).payload == {"n": 1}
    assert [path.read_bytes() for path in (folder / "unreadable").iterdir()] == [torn]
    assert list((folder / "messages").iterdir()) == []
    assert len(caplog.messages) == 1
    assert str(folder / "unreadable" / "0_0.runs.msg") in caplog.messages[0]
    with pytest.raises(Empty):
        queue.get(timeout=0.2)


def test_a_list_of_queues_that_was_torn_is_written_anew(folder: Path, queue: SimpleQueue) -> None:
    for table in (folder / "control").glob("*.exchange"):
        table.write_bytes(b"")
    Transport.global_state.clear()
    with Connection(BUILT_IN_BROKER, transport_options=folder_transport_options(folder)) as connection:
        other = connection.SimpleQueue("runs", no_ack=True)
        other.put({"n": 2})
        assert other.get(timeout=60).payload == {"n": 2}


def test_each_of_many_messages_is_whole_and_arrives_once(folder: Path, queue: SimpleQueue) -> None:
    """Written while they are looked for: what is seen before it is whole would be moved aside."""

    def write() -> None:
        with Connection(BUILT_IN_BROKER, transport_options=folder_transport_options(folder)) as connection:
            writer = connection.SimpleQueue("runs", no_ack=True)
            for n in range(300):
                writer.put({"n": n, "much": "x" * 200_000})

    thread = threading.Thread(target=write)
    thread.start()
    got = sorted(queue.get(timeout=60).payload["n"] for _ in range(300))
    thread.join()
    assert got == list(range(300))
    assert list((folder / "unreadable").iterdir()) == []
