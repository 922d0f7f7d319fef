"""The stored log of the sample lab is what this lab would record today."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.engine.events import Record, RunEnded
from lab.engine.harnesses.conversation import rebuild_inputs
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.services import isolation, sample_log, sample_recording
from lab.services.sample_log import Cell, RecordedRun, SampleLogError

# How long things took, what they were called this time, and what was measured.
VARIES = {
    *("at", "seconds", "first_token_seconds", "wall_seconds", "agent_seconds", "cpu_seconds"),
    *("peak_memory_bytes", "measured_by", "identifier", "notes", "archive", "body_sha256"),
}
VARYING_TEXT = [
    (re.compile(r"\b\d+\.\d+ ?s\b"), "… s"),
    (re.compile(r"\btmp\.\w+"), "tmp.…"),
    (re.compile(r"Python [\d.]+\w*, pytest-[\d.]+, pluggy-[\d.]+"), "Python"),
    (re.compile(r"={3,}"), "==="),
    (re.compile(r"\b0x[0-9a-f]+"), "0x…"),
]


@pytest.fixture(scope="module")
def stored() -> dict[Cell, RecordedRun]:
    return {run.cell: run.read() for run in sample_log.read().runs}


def shape(records: tuple[Record, ...]) -> list[dict[str, Any]]:
    """The records without what no two runs share."""
    return [_without(json.loads(record.to_line())) for record in records]


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        # The hash of a stream is that of its text, times included; that of a file stays.
        varies = VARIES | ({"sha256"} if "total_bytes" in value else set())
        # Which limits a sandbox holds depends on the machine's control groups.
        varies |= {"limits"} if value.get("kind") == "sandbox_started" else set()
        return {name: _without(item) for name, item in value.items() if name not in varies}
    if isinstance(value, list):
        return [_without(item) for item in value]
    if isinstance(value, str):
        for pattern, instead in VARYING_TEXT:
            value = pattern.sub(instead, value)
    return value


def test_it_was_recorded_with_the_tasks_harnesses_and_limits_of_this_lab() -> None:
    about = sample_log.read().about
    now = sample_recording.about()
    assert {name: about[name] for name in now} == now, "record anew: manage.py record_sample_lab"


def test_it_holds_every_cell_once_and_is_small(stored: dict[Cell, RecordedRun]) -> None:
    assert list(stored) == sample_recording.cells()
    assert len(stored) == sample_log.count_runs() == 4 * 2 * 6 * 2
    assert sample_log.STORED.stat().st_size < 260_000


def test_it_shows_every_way_a_run_can_come_out(stored: dict[Cell, RecordedRun]) -> None:
    ends = {run.cell: run.records[-1].event for run in stored.values()}
    outcomes = {(end.verdict, end.exit_reason) for end in ends.values() if isinstance(end, RunEnded)}
    assert outcomes >= {
        ("resolved", "agent"),
        ("unresolved", "agent"),
        ("resolved", "max_context_len"),
        ("unresolved", "max_context_len"),
    }
    kinds = [record.event for run in stored.values() for record in run.records]
    assert any(getattr(event, "exit_code", 0) == 1 for event in kinds)
    assert any(getattr(event, "malformed", "") for event in kinds)
    verdicts: dict[str, list[object]] = {}
    for cell, end in ends.items():
        verdicts.setdefault(cell.harness, []).append(getattr(end, "verdict", None))
    assert len(verdicts) == 4
    assert len({tuple(each) for each in verdicts.values()}) > 2, "the harnesses are there to be compared"


def test_the_input_of_every_model_call_can_be_rebuilt(stored: dict[Cell, RecordedRun]) -> None:
    for cell, run in stored.items():
        made = list(rebuild_inputs(run.records))
        assert made, cell
        assert [each.seq for each in made if each.sha256_actual != each.sha256_expected] == [], cell


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize(
    "cell",
    [
        Cell("leaf-compatible", "scripted/solver", "money-split", 1),
        Cell("leaf-bash-only", "scripted/solver", "topo-cycle", 1),
        Cell("leaf-bash-only", "scripted/struggler", "parse-duration", 2),
        Cell("r2e", "scripted/solver", "ledger-rounding", 2),
        Cell("mini", "scripted/solver", "slug-unicode", 1),
    ],
    ids=str,
)
def test_a_run_recorded_today_has_the_stored_events(
    cell: Cell, stored: dict[Cell, RecordedRun], tmp_path: Path
) -> None:
    (task,) = [task for task in load_task_set(practice_folder()).tasks if task.id == cell.task]
    today = sample_recording.record_cell(
        cell,
        task=task,
        provider=isolation.provider(isolation.ISOLATED),
        data_folder=tmp_path,
        chunk_seconds=0,
    )
    assert shape(today.records) == shape(stored[cell].records)


def test_what_is_written_is_read_back(stored: dict[Cell, RecordedRun], tmp_path: Path) -> None:
    some = list(stored.values())[:3]
    size = sample_log.write(tmp_path / "new" / "some.zst", about={"seeds": 1}, runs=iter(some))
    assert size == (tmp_path / "new" / "some.zst").stat().st_size
    again = sample_log.read(tmp_path / "new" / "some.zst")
    assert again.about["seeds"] == 1
    assert [run.read() for run in again.runs] == some


@pytest.mark.parametrize("content", [None, b"", b"not compressed", b"\x28\xb5\x2f\xfd\x00"])
def test_a_log_that_cannot_be_read_is_named_with_the_way_out(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "runs.zst"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SampleLogError, match=r"runs\.zst, cannot be read .*; install the lab again"):
        sample_log.read(file)
