"""An import that is killed at any moment and started again comes to exactly what an undisturbed one does."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.grown_up import PROJECT, GrownUp
from tests.services.leaf_files import trajectory, write

RUNS = 30
KILLS = 3
SECONDS = 120.0


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Runs with long texts, two of them claiming one seed, verdicts beside them, and a broken file."""
    folder = tmp_path / "given"
    for number in range(RUNS):
        document = trajectory(f"task-{number % 20}", seed=None, steps=8, says=f"{number}", text="x" * 6000)
        write(folder / f"{number:02}.json", document)
    write(folder / "60.json", trajectory("task-1", seed=1, says="claims"))
    write(folder / "61.json", trajectory("task-1", seed=1, says="claims too"))
    (folder / "62.json").write_text('{"trajectory_format": "leaf-function-calling", "messages": 3}')
    row = {"instance_id": "task-3", "seed": 1, "status": "completed", "reward": 0.0, "exit_reason": "agent"}
    (folder / "results.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def start(lab: GrownUp, given: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROJECT / "manage.py"), "import_trajectories", str(given), "--json"]
    return subprocess.Popen(
        command, env=lab.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rows(lab: GrownUp, query: str) -> list[Any]:
    with closing(sqlite3.connect(lab.folder / "lab.sqlite3", timeout=30)) as database:
        return database.execute(query).fetchall()


def everything(lab: GrownUp) -> list[Any]:
    """All that an import makes, but for times and the hours of the machine."""
    return [
        rows(lab, f"SELECT {columns} FROM {table} ORDER BY {order}")  # noqa: S608 (names of these tests' own)
        for table, columns, order in (
            ("lab_run", "id, seed, status, exit_reason, last_seq, task_id, arm_id, position", "id"),
            ("lab_event", "run_id, seq, kind, step, payload", "run_id, seq"),
            ("lab_run_facts", "run_id, steps, calls, verdict", "run_id"),
            ("lab_imported_trajectory", "run_id, identity, file, place, seed_recorded", "run_id"),
            ("lab_verification", "run_id, rule, outcome", "run_id, n"),
            ("lab_blob", "sha256, size", "sha256"),
            ("lab_experiment", "name, kind, state", "id"),
            ("lab_task", "slug, statement", "id"),
            ("lab_import", "state, done, total, found, report", "id"),
        )
    ]


def finish(lab: GrownUp, given: Path) -> Any:
    with start(lab, given) as process:
        said, complained = process.communicate(timeout=SECONDS)
    # One file cannot be read.
    assert process.returncode == 1, complained
    return json.loads(said)


def test_a_killed_import_started_again_ends_as_an_undisturbed_one(given: Path) -> None:
    undisturbed, disturbed = GrownUp(), GrownUp()
    assert undisturbed.manage("migrate", "-v0").returncode == 0
    shutil.copytree(undisturbed.folder, disturbed.folder, dirs_exist_ok=True)
    finish(undisturbed, given)
    for kill in range(1, KILLS + 1):
        # The last one long before the end, which a busy machine may reach before it kills.
        wanted = RUNS * kill // (2 * KILLS)
        with start(disturbed, given) as process:
            end = time.monotonic() + SECONDS
            while rows(disturbed, "SELECT count(*) FROM lab_run")[0][0] < wanted:
                assert process.poll() is None, "it ended before it could be killed"
                assert time.monotonic() < end
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
    told = finish(disturbed, given)
    assert told["report"]["imported"] == RUNS + 2
    assert told["report"]["renumbered_count"] == 2
    assert everything(disturbed) == everything(undisturbed)
    assert rows(disturbed, "SELECT count(*) FROM lab_import") == [(1,)]
