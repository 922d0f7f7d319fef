from __future__ import annotations

import os
import time
from pathlib import Path

from pytest_django.fixtures import Settings

from lab.services import blobs, leftovers


def test_what_a_killed_process_was_writing_is_removed_and_all_else_stays(
    settings: Settings, tmp_path: Path
) -> None:
    settings.LAB_DATA_DIR = tmp_path
    kept = blobs.path_of(blobs.store_file(b"whole").sha256)
    torn = [
        kept.with_name(".torn-1-aa"),
        tmp_path / "reserve.77",
        tmp_path / "queue" / "taken" / "1.runs.msg",
    ]
    waiting = tmp_path / "queue" / "messages" / "1.runs.msg"
    fresh = kept.with_name(".fresh-1-aa")
    for file in (*torn, waiting, fresh, tmp_path / "reserve"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    for file in (*torn, waiting, kept, tmp_path / "reserve"):
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    assert leftovers.remove() == 3
    assert not any(file.exists() for file in torn)
    assert all(file.exists() for file in (kept, waiting, fresh, tmp_path / "reserve"))
