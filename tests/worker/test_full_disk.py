"""A whole attempt on a disk that is full. Blobs and sandboxes lie on one of their own, of 8 MB."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from lab.models import Attempt, Event, Run
from lab.services import isolation
from lab.services.queue import Claim
from lab.worker import sink
from lab.worker.execution import Execution

pytestmark = pytest.mark.requires("root")


@pytest.fixture(autouse=True)
def _plain_processes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LAB_SANDBOX = "process"
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    isolation.look_again()
    monkeypatch.setattr(sink, "FULL_DISK_SECONDS", 0.5)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=711", "tmpfs", str(folder)], check=True)
    try:
        with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("name", ["blobs", "sandboxes"])
def test_the_run_ends_as_infrastructure_error_and_says_why(
    claim: Claim, settings: Settings, name: str
) -> None:
    with full_disk(Path(settings.LAB_DATA_DIR) / name):
        Execution(claim).run()
    run = Run.objects.get()
    said = [event.payload["error"] for event in Event.objects.filter(kind="attempt_ended")]
    assert said
    assert all("No space left on device" in text for text in said)
    assert set(Attempt.objects.values_list("exit_reason", flat=True)) == {"infrastructure_error"}
    assert Event.objects.count() == run.last_seq
    if name == "blobs":
        assert (run.status, run.exit_reason) == (Run.Status.ENDED, "infrastructure_error")
