"""The lab's own format gives back every record as it was, and says where a file is not whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.events import Record
from lab.engine.formats.base import Document
from lab.engine.formats.catalogue import FORMATS
from lab.engine.formats.detection import probe, recognise
from lab.engine.formats.lab_log import LabLog
from lab.engine.formats.trajectory import Found, Problem, RecordedLog, Trajectory
from lab.engine.llm.base import JSONObject
from tests.engine.formats.made_trajectories import logged, trajectories


def written(*logs: list[Record]) -> bytes:
    facts = [({"task": {"name": "click-1"}, "records": len(log)}, log) for log in logs]
    return b"".join(LabLog().pieces(facts))


def document(folder: Path, data: bytes) -> Document:
    local = folder / "file"
    local.write_bytes(data)
    return Document("given/runs.jsonl", local)


def read(folder: Path, data: bytes) -> list[Found]:
    return list(LabLog().read([document(folder, data)]))


def log_of(found: Trajectory) -> list[Record]:
    return logged(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab-log")


@given(st.lists(trajectories(), max_size=3))
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read_and_written_again_byte_by_byte(
    folder: Path, found: list[Trajectory]
) -> None:
    data = written(*map(log_of, found))
    logs = [one for one in read(folder, data) if isinstance(one, RecordedLog)]
    assert [list(one.records) for one in logs] == [list(map(_as_written, log_of(one))) for one in found]
    assert b"".join(LabLog().pieces((one.facts, one.records) for one in logs)) == data


def _as_written(record: Record) -> Record:
    """A line says a time in milliseconds."""
    at = record.at.replace(microsecond=record.at.microsecond // 1000 * 1000)
    return record.model_copy(update={"at": at})


def test_a_file_is_told_by_its_first_line(folder: Path, sample: Trajectory) -> None:
    data = written(log_of(sample))
    assert LabLog().recognises(probe(document(folder, data)))
    found = recognise(FORMATS, probe(document(folder, data)))
    assert found is not None
    assert found.name == "trajectory-lab"
    assert LabLog().recognises(probe(document(folder, written())))
    assert not LabLog().recognises(probe(document(folder, b'{"format": "other"}\n{"run": {}}\n')))
    assert not LabLog().recognises(probe(document(folder, b"[1]\n[2]\n")))


@pytest.fixture
def sample() -> Trajectory:
    from tests.engine.formats.test_write_atif import trajectory, turn

    return trajectory(turn())


def changed(data: bytes, line: int, change: Callable[[JSONObject], object]) -> bytes:
    lines = data.splitlines(keepends=True)
    fields = json.loads(lines[line])
    change(fields)
    lines[line] = json.dumps(fields).encode() + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[: data.rindex(b"\n", 0, -1) + 1], "the file is not whole; export the run again"),
        (lambda data: data[:-20] + b"\n", "is not JSON"),
        (lambda data: changed(data, 3, lambda one: one.update(kind="unheard_of")), "is no record of a log"),
        (lambda data: changed(data, 3, lambda one: one.pop("at")), "is no record of a log"),
        (lambda data: changed(data, 3, lambda one: one.update(seq=7)), "is record 7 where 2 belongs"),
        (lambda data: changed(data, 1, lambda one: one.update(run=[])), "the file is not whole"),
        (
            lambda data: data[: data.index(b"\n") + 1] + b"[]\n" + data[data.index(b"\n") + 1 :],
            "stands before",
        ),
    ],
)
def test_a_run_that_is_broken_is_a_problem_and_the_others_are_read(
    folder: Path, sample: Trajectory, change: Callable[[bytes], bytes], said: str
) -> None:
    log = log_of(sample)
    whole = written(log)
    found = read(folder, change(whole) + written(log).partition(b"\n")[2])
    problem = next(one for one in found if isinstance(one, Problem))
    assert said in problem.message
    assert problem.place.startswith("line ")
    assert isinstance(found[-1], RecordedLog)
    assert list(found[-1].records) == list(map(_as_written, log))


def test_a_version_that_is_newer_is_not_guessed_at(folder: Path, sample: Trajectory) -> None:
    data = changed(written(log_of(sample)), 0, lambda one: one.update(version=2))
    (problem,) = read(folder, data)
    assert isinstance(problem, Problem)
    assert "use a newer release" in problem.message


def test_two_runs_with_the_same_records_are_told_apart_by_what_they_are_called(
    folder: Path, sample: Trajectory
) -> None:
    log = log_of(sample)
    pairs = [({"seed": seed, "records": len(log)}, log) for seed in (1, 2, 1)]
    found = read(folder, b"".join(LabLog().pieces(pairs)))
    first, second, third = (one.origin.sha256 for one in found if isinstance(one, RecordedLog))
    assert first == third != second


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_broken_files_give_problems_and_nothing_else(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(written(log_of(data.draw(trajectories()))))
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    assert all(isinstance(one, RecordedLog | Problem) for one in read(folder, bytes(whole)))
