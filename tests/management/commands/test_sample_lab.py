"""The sample lab by command, in processes of its own that are killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.tree import ROOT

MANAGE = [sys.executable, str(ROOT / "manage.py")]
LOOK = """
import json
from lab.models import Experiment, Run
from lab.services import sample
runs = list(Run.objects.values_list("arm", "task", "seed"))
whole = [run.events.count() == run.last_seq > 0 for run in Run.objects.filter(status="ended")]
print(json.dumps({"runs": len(runs), "different": len(set(runs)), "whole": sum(whole),
                  "experiments": Experiment.objects.count()}))
"""


def environment(data: Path) -> dict[str, str]:
    return {**os.environ, "LAB_DATA_DIR": str(data)}


def manage(data: Path, *words: str) -> str:
    done = subprocess.run(
        [*MANAGE, *words], env=environment(data), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def look(data: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(manage(data, "shell", "--no-imports", "-c", LOOK).splitlines()[-1])
    return found


def bodies(data: Path) -> list[Path]:
    """Without what a killed process was just writing, which the tick removes as the leftover that it is."""
    files = (file for file in (data / "blobs").rglob("*") if file.is_file())
    return [file for file in files if not file.name.startswith(".")]


def loaded_before_the_kill(data: Path, *, wanted: int) -> None:
    """Load in a process of its own, and kill it once so many runs are there."""
    with subprocess.Popen(
        [*MANAGE, "sample_lab", "load"], env=environment(data), stdout=subprocess.DEVNULL
    ) as load:
        until = time.monotonic() + 150
        # Files tell without disturbing: a look into the database would wait for its turn.
        while len(bodies(data)) < wanted and load.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        load.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("wanted", [1, 9, 40])
def test_a_load_killed_at_any_moment_leaves_whole_runs_and_is_removed_or_completed(
    data_folder: Path, wanted: int
) -> None:
    manage(data_folder, "migrate", "-v0")
    loaded_before_the_kill(data_folder, wanted=wanted)
    found = look(data_folder)
    assert found["runs"] == found["different"] == found["whole"] < 96
    if wanted == 9:
        said = manage(data_folder, "sample_lab", "load")
        assert "96 of 96 runs" in said
        assert look(data_folder) == {"runs": 96, "different": 96, "whole": 96, "experiments": 1}
    said = manage(data_folder, "sample_lab", "remove")
    assert said.startswith("Removed ")
    assert look(data_folder) == {"runs": 0, "different": 0, "whole": 0, "experiments": 0}
    assert bodies(data_folder) == []
