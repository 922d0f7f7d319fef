"""A log in a file: groups are written whole, a torn line is left out, and one process writes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.events import MessageSent, ModelCallStarted, Paused
from lab.engine.sinks import JSONLSink, blob_folder, drop_torn_line, read_log


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def paused(person: str) -> Paused:
    return Paused(person=person)


def test_what_was_written_is_read_again_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sink = JSONLSink(path)
    sink.append(paused("Ada"))
    sink.emit(paused("Ben"), paused("Cleo"))
    sink.close()
    more = JSONLSink(path, first_seq=4)
    more.append(paused("Dan"))
    more.close()
    records = read_log(path)
    assert [record.seq for record in records] == [1, 2, 3, 4]
    assert [record.event.person for record in records if isinstance(record.event, Paused)] == [
        "Ada",
        "Ben",
        "Cleo",
        "Dan",
    ]


def test_a_line_that_was_torn_is_left_out_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sink = JSONLSink(path)
    sink.emit(paused("Ada"), paused("Ben"))
    sink.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [record.seq for record in read_log(path)] == [1]
    drop_torn_line(path)
    assert path.read_bytes() == whole[: whole.index(b"\n") + 1]


@pytest.mark.parametrize("line", ["{}", "[]", "7", '{"seq": 1}', "{", '{"seq": 1, "kind": "unheard_of"}'])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(InvalidValueError, match=r"log.jsonl.* is no event log: line 1: "):
        read_log(path)


def test_a_log_that_is_being_written_cannot_be_written_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sink = JSONLSink(path)
    with pytest.raises(BlockingIOError):
        JSONLSink(path)
    sink.close()
    JSONLSink(path).close()


@pytest.mark.requires("root")
def test_on_a_full_disk_a_group_is_written_whole_or_not_at_all(full_disk: Path) -> None:
    path = full_disk / "log.jsonl"
    sink = JSONLSink(path)
    message = MessageSent(person="Ada", message={"role": "user", "content": "x" * 9_000})
    call = ModelCallStarted(step=1, request=1, body_sha256="0" * 64, message_count=1)

    def fill() -> None:
        for _ in range(20):
            sink.emit(call, message)

    with pytest.raises(OSError, match="No space left"):
        fill()
    written = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert written == ["model_call_started", "message_sent"] * (len(written) // 2)
    assert 0 < len(written) == len(sink.records)
    assert path.read_bytes().endswith(b"\n")
    record = sink.append(paused("Ada"))
    assert record.seq == len(written) + 1
    assert [one.seq for one in read_log(path)] == list(range(1, len(written) + 2))


def test_a_blob_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sink = JSONLSink(path)
    sha256 = sink.put_blob(b"data")
    assert sink.put_blob(b"data") == sha256
    assert [file.name for file in blob_folder(path).iterdir()] == [sha256]
    assert (blob_folder(path) / sha256).read_bytes() == b"data"
