"""A patch holds what the agent changed against the snapshot, and applies to a fresh one."""

from __future__ import annotations

import pytest

from lab.engine import patches
from lab.engine.errors import InfrastructureError
from lab.engine.patches import CapturedPatch, InvalidPatchError, apply_patch, capture_patch
from lab.engine.preparing import Base, prepare_workspace
from lab.engine.sandboxes.base import Sandbox
from lab.engine.tasks.spec import TaskSpec
from tests.engine.conftest import MakeTask, Start

FILES = {
    "README.md": "one\ntwo\nthree\n",
    "core.py": "def answer():\n    return 41\n",
    "tool.sh": "#!/bin/sh\n",
    ".gitignore": "build/\n*.log\n",
    "tracked.log": "ignored by pattern, part of the snapshot\n",
    "windows.txt": "line\r\nline\r\n",
    ".gitattributes": "*.txt text eol=lf\n",
}
TREE = "find . -name .git -prune -o -printf '%y %P %l\\0' | sort -z; git diff --stat HEAD | cat"


def run(sandbox: Sandbox, script: str) -> bytes:
    result = sandbox.exec(["bash", "-c", script], timeout=60)
    assert result.exit_code == 0, result.stderr.text()
    return result.stdout.head


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(FILES)


@pytest.fixture
def base(sandbox: Sandbox, task: TaskSpec) -> Base:
    return prepare_workspace(sandbox, task)


def changes(captured: CapturedPatch) -> dict[str, str]:
    return {file.path: file.change for file in captured.files}


class TestCapturing:
    def test_an_untouched_workspace_has_an_empty_patch(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        assert capture_patch(sandbox, base, task=task) == CapturedPatch("", [], 0, [])

    @pytest.mark.parametrize("provider", ["process"], indirect=True)
    @pytest.mark.parametrize(
        "how",
        [
            "true",
            "git add core.py",
            "git commit -qam 'My work'",
            "git checkout -q -b other && git commit -qam work",
            "git commit -qam work && git reset -q --soft HEAD~1",
            "git update-index --assume-unchanged core.py",
            "git config core.worktree /nowhere; git config diff.noprefix true",
            "echo 'core.py -diff' > .git/info/attributes; echo '*' > .git/info/exclude",
            "git config filter.x.clean 'tr a-z A-Z'; echo '*.py filter=x' > .git/info/attributes",
            "printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
            "printf garbage > .git/index",
            "rm -rf .git",
            "rm -rf .git; git init -q; git add core.py; git -c user.name=x -c user.email=x commit -qm mine",
            "rm -rf .git && ln -s /nowhere .git",
            "echo '*.py -diff' > ~/attributes; git config --global core.attributesFile ~/attributes",
        ],
    )
    def test_a_change_is_found_whatever_was_done_to_git(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, how: str
    ) -> None:
        run(sandbox, f"mkdir -p .git/hooks; echo '# more' >> core.py; {how}")
        captured = capture_patch(sandbox, base, task=task)
        assert changes(captured) == {"core.py": "modified"}
        assert "\n+# more\n" in captured.patch

    def test_committed_work_is_counted(self, sandbox: Sandbox, task: TaskSpec, base: Base) -> None:
        run(
            sandbox,
            "for n in 1 2; do echo $n >> core.py; git commit -qam $n; done; git checkout -q -b b HEAD~1",
        )
        captured = capture_patch(sandbox, base, task=task)
        assert captured.commits == 2
        assert [(file.added, file.removed) for file in captured.files] == [(1, 0)]

    def test_ignored_and_cached_files_stay_out_tracked_ones_do_not(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        run(
            sandbox,
            "mkdir build __pycache__; touch build/x a.log __pycache__/y.pyc; echo more >> tracked.log",
        )
        assert changes(capture_patch(sandbox, base, task=task)) == {"tracked.log": "modified"}

    def test_kinds_of_change_are_told_apart(self, sandbox: Sandbox, task: TaskSpec, base: Base) -> None:
        run(
            sandbox,
            "rm core.py; chmod +x README.md; ln -s README.md link; echo x > 'ü\"\nx'; ln -sf y tool.sh",
        )
        assert changes(capture_patch(sandbox, base, task=task)) == {
            "README.md": "mode",
            "core.py": "deleted",
            "link": "added",
            "tool.sh": "modified",
            'ü"\nx': "added",
        }

    def test_a_file_too_large_for_a_patch_is_left_out_and_said(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(patches, "FILE_LIMIT_BYTES", 1000)
        run(
            sandbox, "head -c 1001 /dev/zero > 'a core'; head -c 1000 /dev/zero > small; echo more >> core.py"
        )
        captured = capture_patch(sandbox, base, task=task)
        assert changes(captured) == {"core.py": "modified", "small": "added"}
        assert captured.left_out == ["a core is larger than 1000 bytes"]

    def test_files_of_a_nested_repository_are_part_of_the_patch(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        run(
            sandbox,
            "mkdir -p sub/deep; cd sub; git init -q; echo x > deep/file; git init -q deep; rm -rf ../.git",
        )
        assert changes(capture_patch(sandbox, base, task=task)) == {"sub/deep/file": "added"}
        assert run(sandbox, "ls -d sub/.git sub/deep/.git").split() == [b"sub/.git", b"sub/deep/.git"]

    @pytest.mark.parametrize(
        "closing",
        [
            "chmod -R 000 .",
            "chmod 100 .",
            "chmod 400 .",
            "find . -depth -exec chmod 000 {} +",
            'chmod 000 . "${TMPDIR:-/tmp}"',
        ],
    )
    def test_a_closed_workspace_does_not_stop_it(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, closing: str
    ) -> None:
        run(sandbox, f"echo '# more' >> core.py; {closing} || true")
        captured = capture_patch(sandbox, base, task=task)
        assert changes(captured)["core.py"] == "modified"
        assert "\n+# more\n" in captured.patch

    def test_a_tree_too_deep_for_git_does_not_stop_it(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        make = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('leaf', 'w')"
        run(sandbox, f"echo '# more' >> core.py; python3 -c \"{make}\"")
        assert changes(capture_patch(sandbox, base, task=task)) == {"core.py": "modified"}

    def test_closed_and_special_files_do_not_stop_it(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        run(sandbox, "mkdir closed; echo x > closed/file; chmod 000 core.py closed/file closed; mkfifo pipe")
        assert changes(capture_patch(sandbox, base, task=task)) == {"closed/file": "added"}

    def test_a_snapshot_that_is_not_the_one_begun_from_is_an_infrastructure_error(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        with pytest.raises(InfrastructureError, match="the attempt began from 0000"):
            capture_patch(sandbox, Base("0" * 40), task=task)


class TestApplying:
    CHANGES = (
        "echo more >> core.py; rm README.md",
        "printf 'caf\\xe9\\n' > latin; printf 'a\\0b' > zeros; echo é > utf8",
        "head -c 300 /dev/urandom > random",
        "printf 'line\\r\\nother\\r\\n' > windows.txt; printf end > end; : > empty",
        "printf 'a\\rb\\x0c\\n' > odd",
        "chmod +x core.py; ln -s core.py 'a link'; mkdir d; echo x > 'd/ü \"q\"\t\\'; ln -sf core.py tool.sh",
        "head -c 9000 /dev/zero | tr '\\0' x > late; printf '\\0\\n' >> late; printf '\\xff\\n' >> core.py",
        "rm core.py; mkdir core.py; echo x > core.py/inside",
        "printf 'diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n' > like-a-diff; printf 'caf\\xe9\\n' > latin",
    )

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_captured_patch_makes_the_same_files_again(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, start: Start, change: str
    ) -> None:
        run(sandbox, change)
        captured = capture_patch(sandbox, base, task=task)
        captured.patch.encode("utf-8")
        assert "\0" not in captured.patch
        fresh = start()
        prepare_workspace(fresh, task)
        apply_patch(fresh, captured.patch)
        again = capture_patch(fresh, base, task=task)
        assert again.patch == captured.patch
        assert run(fresh, TREE) == run(sandbox, TREE)
        files = "find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"
        assert run(fresh, files) == run(sandbox, files)

    def test_a_patch_that_does_not_apply_changes_nothing_and_says_why(
        self, sandbox: Sandbox, task: TaskSpec, base: Base
    ) -> None:
        patch = (
            "diff --git a/core.py b/core.py\n--- a/core.py\n+++ b/core.py\n"
            "@@ -1,2 +1,3 @@\n def answer():\n     return 41\n+# more\n"
            "diff --git a/none.py b/none.py\n--- a/none.py\n+++ b/none.py\n@@ -1 +1 @@\n-x\n+y\n"
        )
        with pytest.raises(InvalidPatchError, match=r"none\.py: No such file"):
            apply_patch(sandbox, patch)
        assert run(sandbox, "git status --porcelain") == b""

    @pytest.mark.parametrize("patch", ["not a patch\n", "diff --git a/x b/x\n"])
    def test_what_is_no_patch_is_refused(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, patch: str
    ) -> None:
        with pytest.raises(InvalidPatchError):
            apply_patch(sandbox, patch)

    @pytest.mark.parametrize("path", ["../outside", ".git/config", ".git/hooks/pre-commit"])
    def test_a_patch_reaches_neither_git_nor_outside(
        self, sandbox: Sandbox, task: TaskSpec, base: Base, path: str
    ) -> None:
        header = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        with pytest.raises(InvalidPatchError):
            apply_patch(sandbox, f"{header}@@ -0,0 +1 @@\n+x\n")

    def test_an_empty_patch_changes_nothing(self, sandbox: Sandbox, task: TaskSpec, base: Base) -> None:
        apply_patch(sandbox, " \n")
        assert run(sandbox, "git status --porcelain") == b""
