"""A started sandbox of each kind, in a scratch folder its unprivileged user can walk through."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.engine.sandboxes.base import SandboxLimits, SandboxProvider, SandboxSpec
from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
from lab.engine.sandboxes.local import LocalSandbox
from lab.engine.sandboxes.process import ProcessProvider

PROVIDERS: dict[str, Callable[[], SandboxProvider]] = {
    "process": ProcessProvider,
    "bubblewrap": BubblewrapProvider,
}
Start = Callable[..., LocalSandbox]


@pytest.fixture(params=["process", pytest.param("bubblewrap", marks=pytest.mark.requires("bubblewrap"))])
def provider(request: pytest.FixtureRequest) -> SandboxProvider:
    return PROVIDERS[request.param]()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Not pytest's own folder, which only its owner may enter: then commands would have to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="lab-sandboxes-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(provider: SandboxProvider, scratch: Path) -> Iterator[Start]:
    """Start sandboxes that are stopped after the test: start(label=…, environment=…, limits=…, …)."""
    started: list[LocalSandbox] = []

    def starting(label: str = "test", limits: SandboxLimits | None = None, **fields: object) -> LocalSandbox:
        spec = SandboxSpec(
            label=label, scratch=scratch / "scratch", limits=limits or SandboxLimits(), **fields
        )  # type: ignore[arg-type]
        sandbox = provider.start(spec)
        assert isinstance(sandbox, LocalSandbox)
        started.append(sandbox)
        return sandbox

    yield starting
    for sandbox in started:
        sandbox.stop()


@pytest.fixture
def sandbox(start: Start) -> LocalSandbox:
    return start()


def processes_naming(text: str) -> list[int]:
    """Processes of this machine whose command line holds `text`, zombies left out."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                words = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in words:
                found.append(int(path.name))
    return found


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """True as soon as the condition holds; False when it did not within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
