"""Attempts in Docker whose image is built first: what the log says, what is shown, how it is broken off."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.engine import registry
from lab.engine.errors import ExitReason, HandedOverError
from lab.engine.events import (
    AttemptEnded,
    Event,
    ImageReady,
    ImageRequested,
    PatchCaptured,
    Record,
    SandboxStarted,
    ToolCallFinished,
    WorkspaceChanged,
)
from lab.engine.image_wait import said
from lab.engine.runner import AttemptSpec, run_attempt
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from lab.engine.tasks.snapshot import digest_of, snapshot_files
from lab.engine.tasks.spec import Environment, TaskSpec, Verification
from lab.engine.verify.base import Outcome
from tests.docker_host import busybox_image, debian_image
from tests.engine.attempts import WatchedSink
from tests.engine.harnesses.driving import bash, calls
from tests.fakes.openai_server import FakeOpenAI, says

in_docker = pytest.mark.requires("docker", "debian image")
HIDDEN = "import unittest\nfrom core import answer\n\n\nclass Case(unittest.TestCase):\n" + (
    "    def test_answer(self):\n        self.assertEqual(answer(), 42)\n"
)
# A repository that the image has, with a commit and work beside it.
TESTBED = r"""RUN mkdir /testbed && cd /testbed && git init -q -b main . \
    && printf 'def answer():\n    return 41\n' > core.py && git add . \
    && git -c user.name=a -c user.email=a@b commit -qm first && echo later > later
"""

Make = Callable[..., AttemptSpec]


@pytest.fixture
def task(tmp_path: Path) -> Iterator[TaskSpec]:
    """A task that brings a Dockerfile, unlike every other one; its image goes after the test."""
    import docker

    folder = tmp_path / "task" / "environment"
    folder.mkdir(parents=True)
    own = secrets.token_hex(8)
    (folder / "Dockerfile").write_text(f"# {own}\nFROM {debian_image()}\n{TESTBED}")
    environment = Environment(
        build="environment",
        build_digest=digest_of(snapshot_files(folder)),
        name="",
        working_directory="/testbed",
        repository_in_image=True,
        setup=("echo ready > ready",),
        memory_mb=256,
    )
    grading = Verification(
        runner="unittest",
        command=("python3", "-m", "unittest", "-v", "test_core"),
        test_files={"test_core.py": HIDDEN},
        fail_to_pass=("test_core.Case.test_answer",),
    )
    yield TaskSpec(
        id=own, title="A task", statement="Mend it.", repository=folder.parent / "repository",
        environment=environment, verification=grading,
    )  # fmt: skip
    with contextlib.suppress(docker.errors.NotFound):
        docker.from_env().api.remove_image(
            f"trajectory-lab/{own}:{environment.build_digest[:16]}", force=True
        )


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    from lab.engine.harnesses.presets import load_preset
    from lab.engine.llm.base import ModelConfig, Price

    harness = load_preset("leaf-compatible")

    def make_spec(base_url: str = "http://127.0.0.1:9/v1", **fields: Any) -> AttemptSpec:
        return AttemptSpec(
            **{
                "task": fields.get("task") or request.getfixturevalue("task"),
                "harness": harness,
                "model": ModelConfig(
                    name="fake", model_id="fake", base_url=base_url, price=Price(basis="unknown")
                ),
                "limits": harness.limits,
                "provider": registry.provider("docker"),
                "data_folder": tmp_path / "data",
                "label": "run-3-1",
                **fields,
            }
        )

    return make_spec


@in_docker
def test_a_task_with_a_dockerfile_is_built_worked_on_and_graded(make: Make) -> None:
    sink = WatchedSink()
    with FakeOpenAI(
        calls(bash("sed -i s/41/42/ core.py; git log --oneline | wc -l")), says("done")
    ) as server:
        result = run_attempt(make(server.base_url), sink, StopSignal())
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED), result.error
    assert sink.kinds()[:4] == ["attempt_started", "image_requested", "image_ready", "sandbox_started"]
    asked, ready = sink.one(ImageRequested), sink.one(ImageReady)
    agent, grading = sink.of(SandboxStarted)
    assert (asked.purpose, asked.action) == ("agent", "build")
    assert ready.image.reference == asked.reference
    assert agent.image == grading.image == ready.image
    assert agent.limits is not None
    assert agent.limits.memory_bytes == 256 * 1024**2
    assert any("Step 2/" in text for text in sink.shown)
    # The commit of the image, and one of what was there beside it and of the set-up.
    assert "STDOUT:\n2\n" in sink.one(ToolCallFinished).observation
    assert [change.path for change in sink.one(WorkspaceChanged).changes] == ["core.py"]
    assert [file.path for file in sink.one(PatchCaptured).files] == ["core.py"]
    ended = sink.one(AttemptEnded)
    assert ended.agent_seconds is not None
    assert ended.agent_seconds < ended.wall_seconds - ready.seconds


@in_docker
def test_an_image_that_is_there_is_not_told_of(make: Make) -> None:
    registry.provider("docker").prepare(_spec_of(make()))
    sink = WatchedSink()
    with FakeOpenAI(says("done")) as server:
        run_attempt(make(server.base_url), sink, StopSignal())
    assert not sink.of(ImageRequested)
    assert not sink.of(ImageReady)


@in_docker
def test_a_cancel_breaks_the_build_off(make: Make, task: TaskSpec) -> None:
    _build_for_ever(task)
    stop = StopSignal()

    class Cancelling(WatchedSink):
        def draft(self, **draft: Any) -> None:
            super().draft(**draft)
            if draft["content"].endswith("begun"):
                stop.set(ExitReason.CANCELLED)

    sink = Cancelling()
    result = run_attempt(make(task=_as_it_is_now(task)), sink, stop)
    assert (result.exit_reason, result.retryable) == (ExitReason.CANCELLED, False)
    assert sink.kinds() == ["attempt_started", "image_requested", "attempt_ended"]


@in_docker
def test_a_worker_that_is_asked_to_end_does_not_wait_for_it(make: Make, task: TaskSpec) -> None:
    _build_for_ever(task)
    steering = Steering()

    class Closing(WatchedSink):
        def draft(self, **draft: Any) -> None:
            super().draft(**draft)
            steering.close()

    with pytest.raises(HandedOverError):
        run_attempt(make(task=_as_it_is_now(task)), Closing(), StopSignal(), steering=steering)


@in_docker
def test_a_dockerfile_that_fails_is_infrastructure_with_its_output(make: Make, task: TaskSpec) -> None:
    assert task.build_folder is not None
    (task.build_folder / "Dockerfile").write_text(f"FROM {debian_image()}\nRUN echo why; exit 4\n")
    sink = WatchedSink()
    result = run_attempt(make(task=_as_it_is_now(task)), sink, StopSignal())
    assert (result.exit_reason, result.retryable) == (ExitReason.INFRASTRUCTURE_ERROR, False)
    assert "code: 4" in result.error
    assert "why" in result.error
    assert sink.kinds() == ["attempt_started", "image_requested", "attempt_ended"]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"image": "BUSYBOX"}, ["the sandbox has no git", "install it in the task's environment"]),
        (
            {"image": "DEBIAN", "working_directory": "/nowhere", "repository_in_image": True},
            ["'/nowhere' holds nothing in the image", "name the folder"],
        ),
        ({"image": "DEBIAN", "working_directory": "/home"}, ["'/home' is not empty in the image"]),
        ({"image": "DEBIAN", "setup": ["echo why; exit 5"]}, ["exit code 5: echo why; exit 5", "why"]),
    ],
)
@in_docker
def test_an_image_that_lacks_something_is_told_with_the_way_out(
    make: Make, make_task: Callable[..., TaskSpec], environment: dict[str, Any], words: Sequence[str]
) -> None:
    names = {"BUSYBOX": busybox_image, "DEBIAN": debian_image}
    given = {**environment, "image": names[environment["image"]]()}
    task = make_task({"a": "b"}, command=("true",), fail_to_pass=("t.py::t",))
    task = task.model_copy(update={"environment": Environment.model_validate(given)})
    result = run_attempt(make(task=task), WatchedSink(), StopSignal())
    assert result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
    for word in words:
        assert word in result.error


def test_without_a_daemon_nothing_is_lost_and_the_way_out_said(
    make_task: Callable[..., TaskSpec], make: Make, tmp_path: Path
) -> None:
    from lab.engine.sandboxes.docker import DockerProvider

    task = make_task({"a": "b"}, command=("true",), fail_to_pass=("t.py::t",))
    sink, nobody = WatchedSink(), DockerProvider(host=f"unix://{tmp_path}/nobody.sock")
    result = run_attempt(make(task=task, provider=nobody), sink, StopSignal())
    assert result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
    assert "no Docker daemon answers there; install Docker" in result.error
    assert sink.kinds() == ["attempt_started", "attempt_ended"]


class _Interrupted(NamedTuple):
    """An attempt that was handed over after its first change; `server` goes on where it is."""

    records: tuple[Record, ...]
    sink: WatchedSink
    server: FakeOpenAI


@pytest.fixture
def interrupted(make: Make) -> Iterator[_Interrupted]:
    steering = Steering()
    records: list[Record] = []

    class Closing(WatchedSink):
        def append(self, event: Event) -> Record:
            records.append(super().append(event))
            if isinstance(event, WorkspaceChanged):
                steering.close()
            return records[-1]

    mend = calls(bash("sed -i s/41/42/ core.py; git commit -qam Mended; echo more >> ready"))
    with FakeOpenAI(mend, says("done")) as server:
        sink = Closing()
        with pytest.raises(HandedOverError):
            run_attempt(make(server.base_url), sink, StopSignal(), steering=steering)
        yield _Interrupted(tuple(records), sink, server)


@in_docker
def test_an_attempt_in_the_images_repository_is_continued_in_another_container(
    make: Make, interrupted: _Interrupted
) -> None:
    again = make(
        interrupted.server.base_url,
        history=interrupted.records,
        read_blob=interrupted.sink.blobs.__getitem__,
    )
    result = run_attempt(again, sink := WatchedSink(), StopSignal())
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED), result.error
    assert sink.of(SandboxStarted)[0].rebuilt
    captured = sink.one(PatchCaptured)
    assert sorted(file.path for file in captured.files) == ["core.py", "ready"]
    assert captured.commits == 1


@in_docker
def test_an_attempt_is_not_continued_in_another_image(make: Make, interrupted: _Interrupted) -> None:
    again = make(
        interrupted.server.base_url,
        history=interrupted.records,
        read_blob=interrupted.sink.blobs.__getitem__,
        provider=_Retagged(registry.provider("docker")),
    )
    result = run_attempt(again, sink := WatchedSink(), StopSignal())
    assert (result.exit_reason, result.retryable) == (ExitReason.INFRASTRUCTURE_ERROR, False)
    assert "is another one than the attempt began in" in result.error
    assert sink.kinds()[-1] == "attempt_ended"


@in_docker
def test_a_cancel_breaks_set_up_commands_off(make: Make, task: TaskSpec) -> None:
    registry.provider("docker").prepare(_spec_of(make()))
    stop = StopSignal()

    class Cancelling(WatchedSink):
        def append(self, event: Event) -> Record:
            if isinstance(event, SandboxStarted):
                threading.Timer(1.0, stop.set, (ExitReason.CANCELLED,)).start()
            return super().append(event)

    environment = task.environment.model_copy(update={"setup": ("sleep 600",)})
    sink = Cancelling()
    result = run_attempt(make(task=task.model_copy(update={"environment": environment})), sink, stop)
    assert (result.exit_reason, result.retryable) == (ExitReason.CANCELLED, False)
    assert sink.kinds() == ["attempt_started", "sandbox_started", "attempt_ended"]


class _Retagged:
    """A provider for which the image's name has come to stand for another image."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.kind = inner.kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def start(self, spec: SandboxSpec) -> Sandbox:
        sandbox: Sandbox = self._inner.start(spec)
        image = sandbox.facts.image
        assert image is not None
        sandbox.facts = sandbox.facts._replace(image=image._replace(identifier="sha256:other"))
        return sandbox


def test_progress_is_told_in_megabytes() -> None:
    assert said("pulling a", None, None) == "pulling a"
    assert said("pulling a", 1_500_000, None) == "pulling a: 1.5 MB"
    assert said("pulling a", 1_500_000, 20_000_000) == "pulling a: 1.5 of 20.0 MB"


def _spec_of(spec: AttemptSpec) -> SandboxSpec:
    from lab.engine.environments import sandbox_spec_for

    return sandbox_spec_for(spec.task, data_folder=spec.data_folder, label=spec.label, kind="docker")


def _build_for_ever(task: TaskSpec) -> None:
    assert task.build_folder is not None
    with (task.build_folder / "Dockerfile").open("a") as file:
        file.write("RUN echo begun; sleep 600\n")


def _as_it_is_now(task: TaskSpec) -> TaskSpec:
    assert task.build_folder is not None
    digest = digest_of(snapshot_files(task.build_folder))
    environment = task.environment.model_copy(update={"build_digest": digest})
    return task.model_copy(update={"environment": environment})
