"""An image that cannot be had for now, because a registry or a daemon is away, is asked for again."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.errors import AttemptStoppedError, ExitReason, SandboxLostError
from lab.engine.events import Event, ImageReady
from lab.engine.image_wait import get_image
from lab.engine.sandboxes.base import Image, IsOrphan, Progress, Sandbox, SandboxSpec
from lab.engine.stop import StopSignal
from tests.docker_host import Daemon, Registry, busybox_image, busybox_reference
from tests.engine.attempts import WatchedSink


class _Away:
    """A provider whose registry, or `daemon`, is away for the first `tries` tries; `took` lets time pass."""

    kind = "docker"

    def __init__(
        self,
        tries: int,
        *,
        retryable: bool = True,
        daemon: bool = False,
        took: Callable[[], None] | None = None,
    ) -> None:
        self.tries, self.retryable, self.daemon, self.took = tries, retryable, daemon, took
        self.asked = 0

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> Image:
        self.asked += 1
        if progress is not None and not self.daemon:
            progress(f"pulling {spec.image}", None, None)
        if self.asked <= self.tries:
            if self.took is not None:
                self.took()
            raise SandboxLostError("the registry is away", retryable=self.retryable)
        return Image(spec.image, "sha256:here")

    def available(self) -> str | None:
        return None

    def workspace(self, spec: SandboxSpec) -> str:
        return spec.workspace

    def start(self, spec: SandboxSpec) -> Sandbox:
        raise AssertionError("no sandbox is needed to get an image")

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        raise AssertionError("no sandbox is needed to get an image")


class _Hurried(StopSignal):
    """Notes how long is waited, and does not wait."""

    def __init__(self, *, cancelled_after: float = float("inf")) -> None:
        super().__init__()
        self.waited, self._cancelled_after = 0.0, cancelled_after

    def wait(self, seconds: float) -> bool:
        self.waited += seconds
        if self.waited >= self._cancelled_after:
            self.set(ExitReason.CANCELLED)
        return self.is_set()


def _get(provider: _Away, stop: StopSignal) -> tuple[list[Event], list[str]]:
    """The events and what was shown; what it raises leaves them to nobody."""
    sink, shown = WatchedSink(), list[str]()
    spec = SandboxSpec(label="x", scratch=Path("nowhere"), image="somewhere/a:1")
    get_image(provider, spec, purpose="agent", emit=sink.emit, show=shown.append, stop=stop)
    return sink.events, shown


def test_a_registry_that_is_away_for_a_moment_costs_no_attempt() -> None:
    provider, stop = _Away(3), _Hurried()
    events, shown = _get(provider, stop)
    assert [event.kind for event in events] == ["image_requested", "image_ready"]
    assert provider.asked == 4
    assert 0 < stop.waited < 30
    assert "tried again in 4 s: the registry is away" in shown


def test_a_registry_that_stays_away_is_given_up_within_half_a_minute() -> None:
    provider, stop = _Away(1000), _Hurried()
    with pytest.raises(SandboxLostError, match="the registry is away"):
        _get(provider, stop)
    assert provider.asked > 2
    assert 10 < stop.waited < 30


def test_what_another_try_does_not_mend_is_told_at_once() -> None:
    provider, stop = _Away(1, retryable=False), _Hurried()
    with pytest.raises(SandboxLostError):
        _get(provider, stop)
    assert (provider.asked, stop.waited) == (1, 0.0)


def test_a_daemon_that_is_restarted_costs_no_attempt() -> None:
    provider, stop = _Away(3, daemon=True), _Hurried()
    assert _get(provider, stop)[0] == []
    assert provider.asked == 4


def test_a_daemon_that_hangs_is_not_asked_again_by_the_same_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    real, passed = time.monotonic, 0.0

    def hang() -> None:
        nonlocal passed
        passed += 25.0

    monkeypatch.setattr(time, "monotonic", lambda: real() + passed)
    provider, stop = _Away(1, daemon=True, took=hang), _Hurried()
    with pytest.raises(SandboxLostError):
        _get(provider, stop)
    assert (provider.asked, stop.waited) == (1, 0.0)


def test_a_cancel_does_not_wait_for_the_next_try() -> None:
    provider, stop = _Away(1000), _Hurried(cancelled_after=2.0)
    with pytest.raises(AttemptStoppedError):
        _get(provider, stop)
    assert stop.waited == 2.0


@pytest.mark.requires("docker", "docker registry")
def test_an_image_is_pulled_from_a_registry_that_comes_back_meanwhile(tmp_path: Path) -> None:
    import docker

    server, sink = Registry(), WatchedSink()
    server.start()
    reference = server.push(busybox_image(), f"test/{secrets.token_hex(4)}:1")
    server.kill()
    shown: list[str] = []

    def show(text: str) -> None:
        if "tried again" in text and "tried again" not in "".join(shown):
            server.start()
        shown.append(text)

    spec = SandboxSpec(label="x", scratch=tmp_path / "sandboxes", image=reference)
    try:
        get_image(registry.provider("docker"), spec, purpose="agent", emit=sink.emit, show=show)
        assert sink.one(ImageReady).image.reference == reference
        assert any("does not reach its registry" in text for text in shown)
    finally:
        server.remove()
        with contextlib.suppress(docker.errors.NotFound):
            docker.from_env().api.remove_image(reference)


@pytest.mark.requires("dockerd")
def test_a_real_daemon_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    from lab.engine.sandboxes.docker import DockerProvider

    daemon, sink, shown = Daemon(), WatchedSink(), list[str]()
    spec = SandboxSpec(label="x", scratch=tmp_path / "sandboxes", image=busybox_reference())

    def show(text: str) -> None:
        if not shown:
            daemon.start()
        shown.append(text)

    try:
        daemon.start()
        provider = DockerProvider(host=daemon.url)
        provider.prepare(spec)
        daemon.stop()
        get_image(provider, spec, purpose="agent", emit=sink.emit, show=show)
        assert "no Docker daemon answers" in shown[0]
        assert sink.events == []
    finally:
        daemon.remove()
