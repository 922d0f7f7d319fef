"""A workspace is set up, or taken as an image has it; both are what work is measured against."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lab.engine.errors import ExitReason, InfrastructureError
from lab.engine.events import FileChange
from lab.engine.patches import capture_patch
from lab.engine.preparing import prepare_workspace
from lab.engine.sandboxes.base import Sandbox, SandboxProvider, SandboxSpec
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import Environment, TaskSpec
from lab.engine.verify.base import Outcome
from lab.engine.verify.run import verify
from lab.engine.workspace import WorkspaceTracker, restore
from tests.engine.conftest import MakeTask, Start
from tests.engine.test_workspace import STATE, run

FILES = {
    "core.py": "def answer():\n    return 41\n",
    ".gitignore": "*.log\n",
    "kept.log": "of the snapshot\n",
}
HIDDEN = "from core import answer\n\n\ndef test_answer():\n    assert answer() == 42\n"
# As an image may have it: two commits, a branch beside them, a tracked file that git ignores, work that was
# not committed, a cache, a repository within, and hooks and line ends that must not have a say.
IN_IMAGE = r"""
export GIT_AUTHOR_DATE=2020-01-01T00:00:00+0000 GIT_COMMITTER_DATE=2020-01-01T00:00:00+0000
git init -q -b trunk .
git config user.name them; git config user.email them@localhost
mkdir tests
printf 'def answer():\n    return 41\n' > core.py
printf '*.log\n*.so\n' > .gitignore
printf '*.txt text eol=crlf\n' > .gitattributes
printf 'def test_old():\n    assert True\n' > tests/test_old.py
echo tracked > tracked.log; printf 'a\nb\n' > lines.txt
git add -f . && git commit -qm first
git checkout -qb beside && git commit -qm aside --allow-empty && git checkout -q trunk
echo second > second && git add . && git commit -qm second
echo uncommitted >> second; echo new > new; echo built > built.so
mkdir __pycache__ && echo cache > __pycache__/core.pyc
git init -q within && echo inner > within/inner && git -C within add inner
git -C within -c user.name=a -c user.email=a commit -qm inner
printf '#!/bin/sh\nexit 1\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
"""

# What does not depend on the kind of sandbox is tried in one.
ONE_KIND = pytest.mark.parametrize("provider", ["process"], indirect=True)


def with_environment(task: TaskSpec, **environment: Any) -> TaskSpec:
    return task.model_copy(update={"environment": Environment.model_validate(environment)})


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        FILES,
        command=("python", "-m", "pytest", "tests"),
        test_files={"tests/test_new.py": HIDDEN},
        fail_to_pass=("tests/test_new.py::test_answer",),
    )


@pytest.fixture
def in_image(task: TaskSpec) -> TaskSpec:
    """A task whose repository lies where `IN_IMAGE` makes it."""
    image = {"image": "their/image", "working_directory": "/workspace", "repository_in_image": True}
    grading = {"pass_to_pass": ("tests/test_old.py::test_old",)}
    return with_environment(task, **image).model_copy(
        update={
            "repository": task.repository / "nowhere",
            "repository_digest": "",
            "verification": task.verification.model_copy(update=grading),
        }
    )


class Image:
    """A provider whose sandboxes begin with the repository that an image would have."""

    kind = "with repository"

    def __init__(self, provider: SandboxProvider, script: str = IN_IMAGE) -> None:
        self._provider, self._script = provider, script
        self.sandboxes: list[Sandbox] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def start(self, spec: SandboxSpec) -> Sandbox:
        self.sandboxes.append(self._provider.start(spec))
        run(self.sandboxes[-1], self._script)
        return self.sandboxes[-1]


@pytest.fixture
def image(provider: SandboxProvider) -> Iterator[Image]:
    image = Image(provider)
    yield image
    for sandbox in image.sandboxes:
        sandbox.stop()


def told(changes: list[FileChange]) -> dict[str, str]:
    return {change.path: change.change for change in changes}


class TestInTheImage:
    def test_history_stays_and_what_was_uncommitted_is_committed_once(
        self, image: Image, sandbox_spec: SandboxSpec, in_image: TaskSpec
    ) -> None:
        sandbox = image.start(sandbox_spec)
        base = prepare_workspace(sandbox, in_image)
        assert run(sandbox, "git rev-parse HEAD trunk").decode().split() == [base.commit] * 2
        said = run(sandbox, "git log --format=%s").decode().splitlines()
        assert said == ["What the environment adds", "second", "first"]
        assert run(sandbox, "git status --porcelain --untracked-files=all") == b"?? __pycache__/core.pyc\n"
        assert run(sandbox, "git show HEAD:second") == b"second\nuncommitted\n"
        assert run(sandbox, "git config user.name; cat built.so lines.txt") == b"them\nbuilt\na\nb\n"
        assert prepare_workspace(image.start(sandbox_spec), in_image).commit == base.commit

    def test_a_clean_repository_gets_no_commit(
        self, provider: SandboxProvider, sandbox_spec: SandboxSpec, in_image: TaskSpec
    ) -> None:
        script = (
            "git init -q . && echo a > a && git add a && git -c user.name=a -c user.email=a commit -qm only"
        )
        image = Image(provider, f"{script}; git checkout -q --detach; git rev-parse HEAD > $HOME/head")
        sandbox = image.start(sandbox_spec)
        try:
            base = prepare_workspace(sandbox, in_image)
            assert base.commit == run(sandbox, "cat $HOME/head").decode().strip()
            sandbox.write("a", b"b\n")
            assert told(capture_patch(sandbox, base, task=in_image).files) == {"a": "modified"}
        finally:
            sandbox.stop()

    def test_a_folder_without_git_is_committed_as_it_is(
        self, provider: SandboxProvider, sandbox_spec: SandboxSpec, in_image: TaskSpec
    ) -> None:
        sandbox = Image(provider, "echo a > a; mkdir b; echo c > b/c").start(sandbox_spec)
        try:
            base = prepare_workspace(sandbox, in_image)
            assert run(sandbox, "git ls-files").decode().split() == ["a", "b/c"]
            run(sandbox, "rm -r .git b; echo d > d")
            assert told(capture_patch(sandbox, base, task=in_image).files) == {"b/c": "deleted", "d": "added"}
        finally:
            sandbox.stop()

    def test_an_image_without_the_folder_is_named(self, sandbox: Sandbox, in_image: TaskSpec) -> None:
        with pytest.raises(
            InfrastructureError, match=r"working_directory: .*holds nothing in the image"
        ) as caught:
            prepare_workspace(sandbox, in_image)
        assert not caught.value.retryable

    def test_a_snapshot_is_not_unpacked_over_what_the_image_has(
        self, image: Image, sandbox_spec: SandboxSpec, task: TaskSpec
    ) -> None:
        with pytest.raises(InfrastructureError, match=r"is not empty in the image.*repository_in_image"):
            prepare_workspace(image.start(sandbox_spec), task)

    def test_a_patch_holds_what_the_agent_did_and_nothing_of_before(
        self, image: Image, sandbox_spec: SandboxSpec, in_image: TaskSpec
    ) -> None:
        sandbox = image.start(sandbox_spec)
        base = prepare_workspace(sandbox, in_image)
        assert capture_patch(sandbox, base, task=in_image).patch == ""
        run(
            sandbox,
            "sed -i s/41/42/ core.py; echo more >> tracked.log; echo x > ignored.log; echo y > built.so\n"
            "printf 'a\\nB\\n' > lines.txt; echo outer >> within/inner; rm second; chmod +x new\n"
            "rm .git/hooks/*; git add core.py; git commit -qm 'One change'",
        )
        captured = capture_patch(sandbox, base, task=in_image)
        assert told(captured.files) == {
            "core.py": "modified",
            "lines.txt": "modified",
            "new": "mode",
            "second": "deleted",
            "tracked.log": "modified",
            "within/inner": "modified",
        }
        assert captured.commits == 1
        run(sandbox, "rm -rf .git")
        assert capture_patch(sandbox, base, task=in_image).patch == captured.patch

    def test_changes_are_tracked_against_the_text_in_the_image_and_restored(
        self, image: Image, sandbox_spec: SandboxSpec, in_image: TaskSpec
    ) -> None:
        sandbox = image.start(sandbox_spec)
        base = prepare_workspace(sandbox, in_image)
        tracker = WorkspaceTracker(sandbox, in_image, base)
        tracker.baseline()
        assert tracker.changes().changes == []
        run(sandbox, "touch second; sed -i s/41/42/ core.py; echo longer > built.so; rm -r within")
        delta = tracker.changes()
        assert told(delta.changes) == {
            "core.py": "modified",
            "built.so": "modified",
            "within/inner": "deleted",
        }
        (core,) = [change for change in delta.changes if change.path == "core.py"]
        assert (core.added, core.removed) == (1, 1)
        run(sandbox, "git commit -qam work --no-verify")
        archives = [one for one in (delta.archive, tracker.changes().archive) if one is not None]
        again = image.start(sandbox_spec)
        prepare_workspace(again, in_image)
        restore(again, archives, task=in_image)
        clean = "rm -rf __pycache__\n"
        assert run(again, clean + STATE) == run(sandbox, clean + STATE)
        assert run(again, "git log --format=%H") == run(sandbox, "git log --format=%H")
        patches = [capture_patch(one, base, task=in_image).patch for one in (sandbox, again)]
        assert patches[0] == patches[1] != ""

    @pytest.mark.parametrize(
        ("script", "outcome"),
        [("sed -i s/41/42/ core.py", Outcome.RESOLVED), ("true", Outcome.UNRESOLVED)],
    )
    def test_it_is_graded_there(
        self, image: Image, sandbox_spec: SandboxSpec, in_image: TaskSpec, script: str, outcome: Outcome
    ) -> None:
        sandbox = image.start(sandbox_spec)
        base = prepare_workspace(sandbox, in_image)
        run(sandbox, f"{script}; echo 'def test_old(): assert False' > tests/test_old.py")
        patch = capture_patch(sandbox, base, task=in_image).patch
        result = verify(in_image, patch, provider=image, sandbox_spec=sandbox_spec, emit=ListSink().emit)
        assert result.outcome is outcome, (result.detail, result.log)
        # What the patch made of an expected test does not count.
        assert [test.status for test in result.tests if test.group == "pass_to_pass"] == ["passed"]


class TestSettingUp:
    def test_what_it_makes_is_of_the_base_and_not_of_the_patch(
        self, sandbox: Sandbox, task: TaskSpec
    ) -> None:
        commands = ["echo made > made; echo more >> kept.log", 'test "$PWD/made" -ef made && echo x > x.log']
        task = with_environment(task, setup=commands)
        base = prepare_workspace(sandbox, task)
        assert run(sandbox, "git status --porcelain; git show HEAD:made; cat x.log") == b"made\nx\n"
        assert run(sandbox, "git log --format=%s") == b"What the environment adds\nsnapshot\n"
        assert capture_patch(sandbox, base, task=task).patch == ""
        run(sandbox, "echo changed > made; echo changed >> kept.log; echo changed > x.log")
        captured = capture_patch(sandbox, base, task=task)
        assert told(captured.files) == {"made": "modified", "kept.log": "modified"}
        assert "-made\n+changed\n" in captured.patch

    def test_commands_that_change_nothing_leave_the_snapshot_alone(
        self, start: Start, task: TaskSpec
    ) -> None:
        plain = prepare_workspace(start(), task)
        assert prepare_workspace(start(), with_environment(task, setup=["true"])).commit == plain.commit

    def test_they_run_before_a_verification_too(
        self, provider: SandboxProvider, sandbox_spec: SandboxSpec, sandbox: Sandbox, task: TaskSpec
    ) -> None:
        task = with_environment(task, setup=["sed -i s/41/40/ core.py; touch $HOME/ready"])
        base = prepare_workspace(sandbox, task)
        run(sandbox, "test -e $HOME/ready && sed -i s/40/42/ core.py")
        patch = capture_patch(sandbox, base, task=task).patch
        assert "-    return 40\n+    return 42\n" in patch
        result = verify(task, patch, provider=provider, sandbox_spec=sandbox_spec, emit=ListSink().emit)
        assert result.outcome is Outcome.RESOLVED, result.detail

    def test_one_that_fails_is_named_with_code_and_output(self, sandbox: Sandbox, task: TaskSpec) -> None:
        task = with_environment(task, setup=["true", "echo said; echo complained >&2; exit 3"])
        with pytest.raises(InfrastructureError) as caught:
            prepare_workspace(sandbox, task)
        for words in ("command 2 of 2", "exit code 3", "exit 3", "said\ncomplained"):
            assert words in str(caught.value)
        assert caught.value.retryable

    def test_one_that_is_not_there_fails_for_good(self, sandbox: Sandbox, task: TaskSpec) -> None:
        with pytest.raises(InfrastructureError, match=r"exit code 127: no-such-program") as caught:
            prepare_workspace(sandbox, with_environment(task, setup=["no-such-program"]))
        assert not caught.value.retryable

    def test_all_together_have_their_own_time(self, sandbox: Sandbox, task: TaskSpec) -> None:
        task = with_environment(task, setup=["true", "echo begun; sleep 600"], setup_timeout_sec=1)
        with pytest.raises(
            InfrastructureError, match=r"(?s)did not end; .* 1 s \(setup_timeout_sec\).*begun"
        ):
            prepare_workspace(sandbox, task)

    @ONE_KIND
    def test_stop_breaks_them_off(self, sandbox: Sandbox, task: TaskSpec) -> None:
        stop = StopSignal()
        timer = threading.Timer(1.0, stop.set, (ExitReason.CANCELLED,))
        timer.start()
        with pytest.raises(InfrastructureError, match="command 1 of 1 was broken off"):
            prepare_workspace(sandbox, with_environment(task, setup=["sleep 600"]), stop=stop)
        timer.join()

    @ONE_KIND
    def test_a_verification_whose_set_up_fails_has_no_verdict(
        self, provider: SandboxProvider, sandbox_spec: SandboxSpec, task: TaskSpec
    ) -> None:
        task = with_environment(task, setup=["echo why; exit 9"])
        result = verify(task, "", provider=provider, sandbox_spec=sandbox_spec, emit=ListSink().emit)
        assert result.outcome is Outcome.INFRASTRUCTURE
        assert "exit code 9" in result.detail
        assert "why" in result.detail
