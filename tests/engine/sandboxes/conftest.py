"""A started sandbox of each kind, in a scratch folder its unprivileged user can walk through."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec
from tests.engine.sandboxes.places import PLACES, PROMISES, Place
from tests.timing import SOON

Start = Callable[..., Sandbox]
MakeSpec = Callable[..., SandboxSpec]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the suite runs in every place that promises what it is about."""
    if "place" not in metafunc.fixturenames:
        return
    asked = {name for marker in metafunc.definition.iter_markers("promises") for name in marker.args}
    if unknown := asked - PROMISES.keys():
        raise KeyError(
            f"{metafunc.definition.nodeid}: {unknown} is no promise of tests/engine/sandboxes/places.py"
        )
    chosen = [
        pytest.param(place, id=place.name, marks=[pytest.mark.requires(need) for need in place.needs])
        for place in PLACES
        if not asked & place.not_held.keys()
    ]
    metafunc.parametrize("place", chosen)


@pytest.fixture
def provider(place: Place) -> SandboxProvider:
    return place.provider()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Not pytest's own folder, which only its owner may enter: then commands would have to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="lab-sandboxes-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_spec(place: Place, scratch: Path) -> MakeSpec:
    """A specification for this place; keywords are fields of it."""

    def make(label: str = "test", limits: SandboxLimits | None = None, **fields: Any) -> SandboxSpec:
        usual = {"scratch": scratch / "scratch", "limits": limits or SandboxLimits(), **place.fields()}
        return SandboxSpec(label=label, **{**usual, **fields})

    return make


@pytest.fixture
def start(provider: SandboxProvider, make_spec: MakeSpec) -> Iterator[Start]:
    """Start sandboxes that are stopped after the test: start(label=…, environment=…, limits=…, …)."""
    started: list[Sandbox] = []

    def starting(label: str = "test", **fields: Any) -> Sandbox:
        sandbox = provider.start(make_spec(label, **fields))
        started.append(sandbox)
        return sandbox

    yield starting
    for sandbox in started:
        sandbox.stop()


@pytest.fixture
def sandbox(start: Start) -> Sandbox:
    return start()


@pytest.fixture(scope="module")
def kept() -> Iterator[dict[str, Sandbox]]:
    """The containers that tests of one module use in turn, by place."""
    sandboxes: dict[str, Sandbox] = {}
    yield sandboxes
    for sandbox in sandboxes.values():
        sandbox.stop()


@pytest.fixture
def shared(place: Place, start: Start, make_spec: MakeSpec, kept: dict[str, Sandbox]) -> Iterator[Sandbox]:
    """A sandbox for a test that does it no harm: a container takes as long to start as many such tests.

    Afterwards its processes are killed and its workspace is empty; one that does not do that is replaced.
    """
    if place.kind != "docker":
        yield start()
        return
    if place.name not in kept:
        kept[place.name] = place.provider().start(make_spec())
    yield kept[place.name]
    try:
        kept[place.name].exec(["sh", "-c", "kill -9 -1"], timeout=SOON)
        shell(kept[place.name], 'cd / && rm -rf "$OLDPWD" && mkdir "$OLDPWD"')
    except (SandboxLostError, AssertionError):
        kept.pop(place.name).stop()


def shell(sandbox: Sandbox, script: str, timeout: float = 60.0) -> str:
    """Output of a script for any POSIX shell, which must succeed."""
    result = sandbox.exec(["sh", "-c", script], timeout=timeout)
    assert result.exit_code == 0, result
    return result.stdout.text()


def everything(label: str, starter_lives: bool) -> bool:
    """For the reaper: all it finds."""
    return True


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
