"""A workspace is made from a snapshot, watched, and rebuilt from what was stored of its changes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.engine import registry
from lab.engine.errors import InfrastructureError
from lab.engine.events import FileChange
from lab.engine.patches import capture_patch
from lab.engine.preparing import prepare_workspace
from lab.engine.sandboxes.base import ExecResult, ResourceUsage, Sandbox, SandboxProvider, SandboxSpec
from lab.engine.tasks.spec import TaskSpec
from lab.engine.workspace import WorkspaceDelta, WorkspaceTracker, restore
from tests.engine.conftest import MakeTask, Start

FILES = {
    "README.md": "one\ntwo\nthree\n",
    "package/__init__.py": "",
    "package/core.py": "def answer():\n    return 41\n",
    ".gitignore": "build/\n",
    "build/made.txt": "an ignored file that belongs to the snapshot\n",
    "windows.txt": b"line\r\nline\r\n",
    ".gitattributes": "*.txt text eol=lf\n",
}
STATE = """
find . -name .git -prune -o -printf '%y %m %s %P %l\\0' | sort -z
find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
"""


def run(sandbox: Sandbox, script: str) -> bytes:
    result = sandbox.exec(["bash", "-c", script], timeout=60)
    assert result.exit_code == 0, result.stderr.text()
    return result.stdout.head


class WithFewPrograms:
    """A sandbox whose search path has what a script needs, but not git."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.inner = sandbox
        self.facts = sandbox.facts
        link = "for name in sh tar cat mktemp find rm mkdir id; do ln -s $(command -v $name) $HOME/few/; done"
        self.path = run(sandbox, f"mkdir $HOME/few; {link}; echo $HOME/few").decode().strip()

    def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        options["environment"] = {**options["environment"], "PATH": self.path}
        return self.inner.exec(argv, **options)

    def read(self, path: str, *, limit: int = 0) -> bytes:
        return self.inner.read(path)

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self.inner.write(path, data, mode=mode)

    def usage(self) -> ResourceUsage:
        return self.inner.usage()

    def stop(self) -> ResourceUsage:
        return self.inner.stop()


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(FILES)


@pytest.fixture(params=["listed on the host", "listed inside"])
def tracker(request: pytest.FixtureRequest, sandbox: Sandbox, task: TaskSpec) -> WorkspaceTracker:
    if request.param == "listed inside":
        sandbox.host_workspace = None
    prepare_workspace(sandbox, task)
    tracker = WorkspaceTracker(sandbox, task)
    tracker.baseline()
    return tracker


def only_change(delta: WorkspaceDelta) -> FileChange:
    assert delta.problem == ""
    (change,) = delta.changes
    return change


class TestPreparing:
    def test_every_file_is_committed_once_and_byte_by_byte(self, sandbox: Sandbox, task: TaskSpec) -> None:
        base = prepare_workspace(sandbox, task)
        assert run(sandbox, "git rev-parse HEAD").decode().strip() == base.commit
        assert run(sandbox, "git rev-list --count --all").strip() == b"1"
        assert run(sandbox, "git status --porcelain") == b""
        assert run(sandbox, "git show HEAD:windows.txt") == b"line\r\nline\r\n"
        assert b"build/made.txt" in run(sandbox, "git ls-files")

    def test_the_commit_depends_on_the_snapshot_alone(self, start: Start, task: TaskSpec) -> None:
        assert prepare_workspace(start(), task) == prepare_workspace(start(), task)

    def test_an_agent_can_commit_without_telling_git_who_it_is(
        self, sandbox: Sandbox, task: TaskSpec
    ) -> None:
        prepare_workspace(sandbox, task)
        run(sandbox, "echo more >> README.md && git commit -qam 'Add a line'")

    def test_a_missing_program_is_named(self, sandbox: Sandbox, task: TaskSpec) -> None:
        with pytest.raises(InfrastructureError, match="the sandbox has no git; install it"):
            prepare_workspace(WithFewPrograms(sandbox), task)

    def test_a_snapshot_that_is_gone_is_an_infrastructure_error(
        self, sandbox: Sandbox, task: TaskSpec
    ) -> None:
        gone = task.model_copy(update={"repository": task.repository / "nowhere"})
        with pytest.raises(InfrastructureError, match="repository: .*nowhere"):
            prepare_workspace(sandbox, gone)


class TestTracking:
    def test_nothing_changed_is_nothing(self, tracker: WorkspaceTracker) -> None:
        assert tracker.changes() == WorkspaceDelta([], None)

    def test_a_modified_file_counts_its_lines_against_the_text_before(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        sandbox.write("README.md", b"one\nTWO\nthree\nfour\n")
        change = only_change(tracker.changes())
        assert (change.path, change.change, change.added, change.removed) == ("README.md", "modified", 2, 1)
        assert change.sha256 == hashlib.sha256(b"one\nTWO\nthree\nfour\n").hexdigest()
        sandbox.write("README.md", b"one\nTWO\nthree\n")
        change = only_change(tracker.changes())
        assert (change.added, change.removed) == (0, 1)

    def test_a_touched_file_did_not_change(self, tracker: WorkspaceTracker, sandbox: Sandbox) -> None:
        run(sandbox, "touch README.md; cp -p package/core.py x; mv x package/core.py")
        assert tracker.changes() == WorkspaceDelta([], None)

    def test_a_change_that_keeps_size_and_time_shows_by_its_inode(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        run(sandbox, "sed s/two/TWO/ README.md > x && touch -r README.md x && mv x README.md")
        assert only_change(tracker.changes()).path == "README.md"

    def test_added_deleted_and_mode_are_told_apart(self, tracker: WorkspaceTracker, sandbox: Sandbox) -> None:
        run(sandbox, "rm README.md; chmod 755 package/core.py; printf 'a\\nb' > new; ln -s new link")
        found = {change.path: change for change in tracker.changes().changes}
        assert {path: change.change for path, change in found.items()} == {
            "README.md": "deleted",
            "link": "added",
            "new": "added",
            "package/core.py": "mode",
        }
        assert (found["README.md"].added, found["README.md"].removed) == (0, 3)
        assert (found["new"].added, found["new"].size) == (2, 3)
        assert found["link"].link == "new"
        assert found["package/core.py"].mode == 0o755

    def test_ignored_files_count_and_cached_ones_do_not(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        run(sandbox, "mkdir -p a/__pycache__ && touch a/__pycache__/x a/y.pyc build/more")
        assert only_change(tracker.changes()).path == "build/more"

    def test_commits_are_stored_and_not_listed(self, tracker: WorkspaceTracker, sandbox: Sandbox) -> None:
        sandbox.write("README.md", b"other\n")
        tracker.changes()
        run(sandbox, "git commit -qam other")
        delta = tracker.changes()
        assert delta.changes == []
        assert b".git/refs/heads/main" in (delta.archive or b"")

    def test_binary_content_has_no_lines(self, tracker: WorkspaceTracker, sandbox: Sandbox) -> None:
        sandbox.write("data", b"\0\1\n\2")
        change = only_change(tracker.changes())
        assert (change.added, change.removed, change.size) == (None, None, 4)

    @pytest.mark.parametrize("mode", ["000", "100", "200", "400"])
    def test_a_workspace_closed_by_its_owner_is_opened_and_commands_run_in_it_again(
        self, tracker: WorkspaceTracker, sandbox: Sandbox, mode: str
    ) -> None:
        run(sandbox, f"echo more >> README.md; chmod -R {mode} . || true")
        assert tracker.changes().changes != []
        run(sandbox, "chmod -R u+rwx . && rm README.md")
        assert [change.path for change in tracker.changes().changes if change.change == "deleted"] == [
            "README.md"
        ]

    @pytest.mark.requires("root")
    @pytest.mark.parametrize("where", ["listed on the host", "listed inside"])
    def test_so_it_is_where_plain_processes_run_as_another_user(self, task: TaskSpec, where: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            sandbox = registry.provider("process").start(
                SandboxSpec(label="closed", scratch=Path(folder, "s"))
            )
            try:
                sandbox.host_workspace = None if where == "listed inside" else sandbox.host_workspace
                base = prepare_workspace(sandbox, task)
                tracker = WorkspaceTracker(sandbox, task)
                tracker.baseline()
                run(sandbox, "[ $(id -u) != 0 ] && echo more >> README.md && chmod 000 .")
                assert [change.path for change in tracker.changes().changes] == ["README.md"]
                run(sandbox, "chmod -R u+rwX . && chmod 000 package .")
                assert [file.path for file in capture_patch(sandbox, base, task=task).files] == ["README.md"]
            finally:
                sandbox.stop()

    def test_everything_below_closed_is_told_and_stops_nothing(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        run(sandbox, "find . -depth -mindepth 1 -exec chmod 000 {} +; chmod 000 .")
        delta = tracker.changes()
        # Where commands run as root, modes close nothing.
        assert run(sandbox, "id -u") == b"0\n" or "could not be read: " in delta.problem
        assert {change.change for change in delta.changes} <= {"modified", "mode"}
        run(sandbox, "chmod -R u+rwX . && echo more >> README.md")
        assert "README.md" in [change.path for change in tracker.changes().changes]

    def test_folders_three_thousand_deep_are_listed(
        self, tracker: WorkspaceTracker, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        opened: list[int] = []
        real_open = os.open

        def watched_open(*arguments: Any, **options: Any) -> int:
            opened.append(real_open(*arguments, **options))
            return opened[-1]

        monkeypatch.setattr(os, "open", watched_open)
        make = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('leaf', 'w')"
        run(sandbox, f'python3 -c "{make}"')
        tracker.changes()
        run(sandbox, "echo more >> README.md")
        assert only_change(tracker.changes()).path == "README.md"
        run(sandbox, "rm -r d")
        (gone,) = tracker.changes().changes
        assert (gone.change, gone.path.count("/")) == ("deleted", 3000)
        assert max(opened) < before + 300, "the process needs descriptors for other things meanwhile"
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 10

    def test_what_is_in_a_closed_folder_is_not_taken_for_deleted(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        run(sandbox, "chmod 000 package")
        delta = tracker.changes()
        assert [change.path for change in delta.changes if change.change == "deleted"] == []
        run(sandbox, "chmod 755 package")
        assert tracker.changes().changes == []

    def test_a_link_to_a_folder_is_listed_and_never_followed(
        self, tracker: WorkspaceTracker, sandbox: Sandbox
    ) -> None:
        run(sandbox, "ln -s /etc elsewhere; mv package p; ln -s p package")
        found = {change.path: change.change for change in tracker.changes().changes}
        assert found["elsewhere"] == "added"
        assert not any(path.startswith("elsewhere/") for path in found)
        assert found["package"] == "modified" or found["package"] == "added"
        assert found["package/core.py"] == "deleted"

    def test_a_change_too_large_to_keep_is_listed_and_said(
        self, tracker: WorkspaceTracker, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lab.engine.workspace.ARCHIVE_LIMIT_BYTES", 10)
        sandbox.write("large", b"x" * 11)
        delta = tracker.changes()
        assert [(change.path, change.size) for change in delta.changes] == [("large", 11)]
        assert delta.archive is None
        assert "11 bytes changed" in delta.problem

    def test_a_find_without_printf_sees_the_same_paths(
        self, provider: SandboxProvider, sandbox_spec: SandboxSpec, task: TaskSpec, tmp_path: Path
    ) -> None:
        programs = tmp_path / "programs"
        programs.mkdir()
        portable = programs / "find"
        portable.write_text(
            '#!/bin/sh\nfor a; do [ "$a" = -printf ] && { echo "unrecognized: -printf" >&2; exit 1; }; done\n'
            'exec /usr/bin/find "$@"\n'
        )
        portable.chmod(0o755)
        spec = dataclasses.replace(
            sandbox_spec,
            path_prefix=[str(programs)],
            read_only_paths=[*sandbox_spec.read_only_paths, programs],
        )
        sandbox = provider.start(spec)
        try:
            sandbox.host_workspace = None
            prepare_workspace(sandbox, task)
            tracker = WorkspaceTracker(sandbox, task)
            tracker.baseline()
            run(sandbox, "chmod 700 README.md; printf x > $'new\\nname'; ln -s x l; rm package/core.py")
            found = {change.path: change.change for change in tracker.changes().changes}
        finally:
            sandbox.stop()
        assert found == {
            "README.md": "mode",
            "new\nname": "added",
            "l": "added",
            "package/core.py": "deleted",
        }


class TestRestoring:
    STEPS = (
        "echo four >> README.md; mkdir -m 700 empty; printf x > $'\\xff\\xfe'; printf y > 'ü\"\nname'",
        "git checkout -q -b work; git commit -qam work",
        "rm -r package; mkdir package; echo 1 > package/other; chmod 4755 package/other; ln -s x package/l",
        "rm README.md; mkdir README.md; echo in > README.md/file; printf '' > none; mkfifo pipe",
        "rm -r README.md; ln -s nowhere README.md; rm none",
        "chmod 600 windows.txt; ln windows.txt hard; touch -- -dash; chmod 750 empty",
        "rm package/l; mkdir package/l; echo deep > package/l/deep; chmod 555 package/l; rm -r build",
    )

    def changed(self, sandbox: Sandbox, tracker: WorkspaceTracker, steps: tuple[str, ...]) -> list[bytes]:
        archives = []
        for step in steps:
            run(sandbox, step)
            delta = tracker.changes()
            assert delta.problem == ""
            archives.append(delta.archive)
        return [archive for archive in archives if archive is not None]

    def test_the_archives_rebuild_the_workspace_as_it_was(
        self, sandbox: Sandbox, tracker: WorkspaceTracker, start: Start, task: TaskSpec
    ) -> None:
        archives = self.changed(sandbox, tracker, self.STEPS)
        rebuilt = start()
        prepare_workspace(rebuilt, task)
        restore(rebuilt, archives, task=task)
        assert run(rebuilt, STATE) == run(sandbox, STATE)
        assert run(rebuilt, "git log --format=%H --all") == run(sandbox, "git log --format=%H --all")
        assert run(rebuilt, "git status --porcelain") == run(sandbox, "git status --porcelain")

    def test_tracking_goes_on_from_a_rebuilt_workspace(
        self, sandbox: Sandbox, tracker: WorkspaceTracker, start: Start, task: TaskSpec
    ) -> None:
        archives = self.changed(sandbox, tracker, ("echo four >> README.md",))
        rebuilt = start()
        prepare_workspace(rebuilt, task)
        restore(rebuilt, archives, task=task)
        again = WorkspaceTracker(rebuilt, task)
        again.baseline(archives)
        assert again.changes() == WorkspaceDelta([], None)
        run(rebuilt, "echo five >> README.md")
        change = only_change(again.changes())
        assert (change.added, change.removed) == (1, 0)

    def test_the_same_change_gives_the_same_archive(self, start: Start, task: TaskSpec) -> None:
        archives = []
        for _ in range(2):
            sandbox = start()
            prepare_workspace(sandbox, task)
            tracker = WorkspaceTracker(sandbox, task)
            tracker.baseline()
            run(sandbox, "echo x > new; touch -d @1700000000 new; rm README.md")
            archives.append(tracker.changes().archive)
        assert archives[0] == archives[1] is not None

    def test_what_cannot_be_restored_is_listed(
        self, sandbox: Sandbox, tracker: WorkspaceTracker, start: Start, task: TaskSpec
    ) -> None:
        archives = self.changed(sandbox, tracker, ("echo x > new",))
        rebuilt = start()
        prepare_workspace(rebuilt, task)
        # A folder that is not empty stands where the file belongs, and tar does not remove it.
        run(rebuilt, "mkdir new; touch new/file")
        with pytest.raises(InfrastructureError, match="these paths differ: new"):
            restore(rebuilt, archives, task=task)
