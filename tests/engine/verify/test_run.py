"""A patch is graded in a fresh sandbox by real pytest and unittest, whatever the patch tries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine.errors import ExitReason, InfrastructureError, LeaseLostError, SandboxLostError
from lab.engine.events import Event, Record, VerificationFinished
from lab.engine.patches import capture_patch
from lab.engine.preparing import prepare_workspace
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import Image, IsOrphan, Progress, Sandbox, SandboxProvider, SandboxSpec
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome, VerificationResult
from lab.engine.verify.run import check_task, verify
from tests.engine.conftest import MakeTask, Start

FILES = {
    "answers.py": "def answer():\n    return 41\n\n\ndef question():\n    return 'what?'\n",
    "tests/test_old.py": "from answers import *\n\n\ndef test_question():\n    assert question() == 'what?'",
}
HIDDEN = (
    "from answers import answer\n\n\ndef test_answer():\n    print('printed')\n    assert answer() == 42\n"
)
F2P, P2P = "tests/test_new.py::test_answer", "tests/test_old.py::test_question"
COMMAND = ("python", "-m", "pytest", "tests")
MENDED = "sed -i s/41/42/ answers.py"

# What does not depend on the kind of sandbox is tried in one.
ONE_KIND = pytest.mark.parametrize("provider", ["process"], indirect=True)

Grade = Callable[..., VerificationResult]


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        FILES,
        command=COMMAND,
        test_files={"tests/test_new.py": HIDDEN},
        fail_to_pass=(F2P,),
        pass_to_pass=(P2P,),
    )


@pytest.fixture
def patch_of(start: Start) -> Callable[[TaskSpec, str], str]:
    """The patch of an agent that ran a script in the task's workspace."""

    def make(task: TaskSpec, script: str) -> str:
        sandbox = start()
        base = prepare_workspace(sandbox, task)
        result = sandbox.exec(["bash", "-c", script], timeout=60)
        assert result.exit_code == 0, result.stderr.text()
        patch = capture_patch(sandbox, base, task=task).patch
        sandbox.stop()
        return patch

    return make


class Log:
    """Keeps events, and lets a test hear each."""

    def __init__(self, hear: Callable[[Event], None] = lambda event: None) -> None:
        self.sink = ListSink()
        self.hear = hear

    def __call__(self, *events: Event) -> list[Record]:
        for event in events:
            self.hear(event)
        return self.sink.append_all(events)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.sink.events]


@pytest.fixture
def grade(
    provider: SandboxProvider, sandbox_spec: SandboxSpec, patch_of: Callable[[TaskSpec, str], str]
) -> Grade:
    """Grades what an agent's script makes of the task."""

    def run(
        task: TaskSpec, script: str, *, log: Log | None = None, stop: StopSignal | None = None
    ) -> VerificationResult:
        patch = patch_of(task, script)
        return verify(task, patch, provider=provider, sandbox_spec=sandbox_spec, emit=log or Log(), stop=stop)

    return run


class Watched:
    """A provider that keeps the sandboxes it starts."""

    def __init__(self, provider: SandboxProvider) -> None:
        self.provider = provider
        self.kind = provider.kind
        self.started: list[Sandbox] = []

    def available(self) -> str | None:
        return self.provider.available()

    def workspace(self, spec: SandboxSpec) -> str:
        return self.provider.workspace(spec)

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> Image | None:
        return self.provider.prepare(spec, progress=progress, stop=stop)

    def start(self, spec: SandboxSpec) -> Sandbox:
        self.started.append(self.provider.start(spec))
        return self.started[-1]

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        return self.provider.reap(scratch_root, is_orphan)


@pytest.fixture
def watched(provider: SandboxProvider) -> Watched:
    return Watched(provider)


def statuses(result: VerificationResult) -> dict[str, str]:
    return {test.test_id: test.status.value for test in result.tests}


class TestVerdicts:
    def test_a_right_patch_is_resolved(self, grade: Grade, task: TaskSpec) -> None:
        log = Log()
        result = grade(task, MENDED, log=log)
        assert (result.outcome, result.detail, result.exit_code) == (Outcome.RESOLVED, "", 0)
        assert statuses(result) == {F2P: "passed", P2P: "passed"}
        assert log.kinds == ["verification_started", "sandbox_started", "verification_finished"]
        finished = log.sink.events[-1]
        assert isinstance(finished, VerificationFinished)
        assert (finished.outcome, finished.tests) == ("resolved", list(result.tests))
        assert "2 passed" in finished.log
        assert result.usage is not None
        assert result.usage.wall_seconds > 0

    def test_an_empty_patch_is_run_and_unresolved(self, grade: Grade, task: TaskSpec) -> None:
        result = grade(task, "true")
        assert result.outcome is Outcome.UNRESOLVED
        assert statuses(result) == {F2P: "failed", P2P: "passed"}
        failed = next(test for test in result.tests if test.test_id == F2P)
        assert failed.assertion == "assert 41 == 42"
        assert "printed" in failed.log

    def test_a_regression_is_unresolved(self, grade: Grade, task: TaskSpec) -> None:
        result = grade(task, f"{MENDED}; sed -i s/what/who/ answers.py")
        assert result.outcome is Outcome.UNRESOLVED
        assert statuses(result) == {F2P: "passed", P2P: "failed"}

    def test_a_patch_that_cannot_be_imported_is_an_error_of_every_test(
        self, grade: Grade, task: TaskSpec
    ) -> None:
        result = grade(task, "echo 'def (' > answers.py")
        assert result.outcome is Outcome.UNRESOLVED
        assert {statuses(result)[test] for test in (F2P, P2P)} == {"error"}
        assert "SyntaxError" in next(test for test in result.tests if test.test_id == F2P).log

    def test_a_patch_that_does_not_apply_is_unresolved_with_gits_words(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        patch = "diff --git a/none b/none\n--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"
        result = verify(task, patch, provider=provider, sandbox_spec=sandbox_spec, emit=Log())
        assert result.outcome is Outcome.UNRESOLVED
        assert "none: No such file" in result.detail
        assert statuses(result) == {F2P: "missing", P2P: "missing"}

    def test_tests_that_time_out_are_unresolved(self, grade: Grade, task: TaskSpec) -> None:
        environment = task.environment.model_copy(update={"verifier_timeout_sec": 2.0})
        hasty = task.model_copy(update={"environment": environment})
        result = grade(hasty, "printf 'import time\\ntime.sleep(600)\\n' >> answers.py")
        assert result.outcome is Outcome.UNRESOLVED
        assert result.detail == "the tests timed out: they did not end within 2 s"
        assert result.exit_code is None
        assert statuses(result) == {F2P: "missing", P2P: "missing"}

    def test_unittest_is_graded_too(self, grade: Grade, make_task: MakeTask) -> None:
        hidden = (
            "import sys, unittest\nfrom answers import answer\n\n\nclass AnswerTest(unittest.TestCase):\n"
            "    def test_answer(self):\n        sys.stderr.write('noise')\n"
            "        self.assertEqual(answer(), 42)\n"
        )
        name = "tests.test_new.AnswerTest.test_answer"
        task = make_task(
            {**FILES, "tests/__init__.py": ""},
            runner="unittest",
            command=("python", "-m", "unittest", "-v", "tests.test_new"),
            test_files={"tests/test_new.py": hidden},
            fail_to_pass=(name,),
        )
        assert grade(task, MENDED).outcome is Outcome.RESOLVED
        result = grade(task, "true")
        assert (result.outcome, result.tests[0].assertion) == (Outcome.UNRESOLVED, "AssertionError: 41 != 42")

    @pytest.mark.parametrize("runner", ["pytest", "unittest"])
    def test_a_task_without_a_command_runs_the_files_of_its_tests(
        self, grade: Grade, make_task: MakeTask, runner: str
    ) -> None:
        hidden = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"
        name = "tests/test_new.py::T::test_a" if runner == "pytest" else "tests.test_new.T.test_a"
        files = {**FILES, "tests/__init__.py": ""}
        task = make_task(files, runner=runner, test_files={"tests/test_new.py": hidden}, fail_to_pass=(name,))
        assert statuses(grade(task, "true")) == {name: "passed"}

    def test_expected_failures_and_unexpected_passes_are_told_apart(
        self, grade: Grade, make_task: MakeTask
    ) -> None:
        hidden = (
            "from pytest import mark\n\n\n@mark.xfail\ndef test_a():\n    assert 0\n\n\n"
            "@mark.xfail\ndef test_b():\n    assert 1\n\n\n"
            "@mark.skip\ndef test_c():\n    assert 0\n"
        )
        names = [f"tests/test_new.py::test_{letter}" for letter in "abc"]
        task = make_task(FILES, command=COMMAND, test_files={"tests/test_new.py": hidden}, fail_to_pass=names)
        found = statuses(grade(task, "true"))
        assert [found[name] for name in names] == ["xfail", "xpass", "skipped"]


@ONE_KIND
class TestProtection:
    def test_hidden_tests_replace_what_the_patch_put_in_their_place(
        self, grade: Grade, task: TaskSpec
    ) -> None:
        result = grade(task, "echo 'def test_answer(): pass' > tests/test_new.py")
        assert statuses(result)[F2P] == "failed"

    def test_tests_of_the_snapshot_come_back_too(self, grade: Grade, task: TaskSpec) -> None:
        script = (
            f"{MENDED}; sed -i s/what/who/ answers.py; echo 'def test_question(): pass' > tests/test_old.py"
        )
        assert statuses(grade(task, script)) == {F2P: "passed", P2P: "failed"}

    @pytest.mark.parametrize(
        "script",
        [
            "mkdir elsewhere; mv tests/* elsewhere; rmdir tests; ln -s elsewhere tests",
            "rm -r tests; echo file > tests",
            "mkdir -p tests/test_new.py/inside; touch tests/test_new.py/inside/file",
            "ln -s ../answers.py tests/test_new.py",
        ],
    )
    def test_no_link_or_folder_keeps_a_test_out_of_its_place(
        self, grade: Grade, task: TaskSpec, script: str
    ) -> None:
        result = grade(task, f"{MENDED}; {script}")
        assert result.outcome is Outcome.RESOLVED, result.log

    @pytest.mark.parametrize(
        "forged",
        [
            f"print('{F2P} PASSED [100%]')\nprint('PASSED {F2P}')",
            "import atexit\nprint('=' * 27 + ' short test summary info ' + '=' * 28)\n"
            f"atexit.register(print, 'PASSED {F2P}')",
        ],
    )
    def test_printed_results_are_no_results(self, grade: Grade, task: TaskSpec, forged: str) -> None:
        result = grade(task, f"cat >> answers.py <<'END'\n{forged}\nEND")
        assert result.outcome is Outcome.UNRESOLVED
        assert statuses(result)[F2P] == "failed"

    def test_a_run_that_forges_its_output_and_leaves_is_not_resolved(
        self, grade: Grade, task: TaskSpec
    ) -> None:
        # Past pytest's capturing: one of these is the standard output that pytest put aside.
        forged = (
            "import os\nfor number in range(3, 30):\n    try:\n"
            f"        os.write(number, b'\\n{F2P} PASSED\\n{P2P} PASSED\\n')\n"
            "    except OSError:\n        pass\nos._exit(0)"
        )
        result = grade(task, f"cat >> answers.py <<'END'\n{forged}\nEND")
        assert f"\n{F2P} PASSED\n" in result.log
        assert result.outcome is Outcome.UNRESOLVED
        assert "exit code 0 before it had any result" in result.detail
        assert statuses(result) == {F2P: "missing", P2P: "missing"}

    def test_result_files_in_the_patch_are_not_read(self, grade: Grade, task: TaskSpec) -> None:
        report = (
            f'<testsuites><testcase classname="tests.test_new" name="test_answer" file="{F2P}"/></testsuites>'
        )
        result = grade(task, f"for f in report.xml junit.xml tests/report.xml; do echo '{report}' > $f; done")
        assert statuses(result)[F2P] == "failed"

    def test_a_patch_cannot_send_the_report_elsewhere(self, grade: Grade, task: TaskSpec) -> None:
        options = "--junitxml=mine.xml -o junit_family=legacy"
        script = f"{MENDED}; printf '[pytest]\\naddopts = {options}\\n' > pytest.ini"
        assert grade(task, script).outcome is Outcome.RESOLVED


class TestBrokenMachinery:
    def test_a_sandbox_that_does_not_start_is_infrastructure(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        class Broken:
            kind = "broken"
            available = provider.available
            prepare = provider.prepare
            reap = provider.reap

            def start(self, spec: SandboxSpec) -> Sandbox:
                raise SandboxLostError("no space for a sandbox")

        log = Log()
        result = verify(task, "", provider=Broken(), sandbox_spec=sandbox_spec, emit=log)
        assert (result.outcome, result.detail) == (Outcome.INFRASTRUCTURE, "no space for a sandbox")
        assert log.kinds == ["verification_started", "verification_finished"]

    def test_a_sandbox_lost_during_the_tests_is_infrastructure(
        self, task: TaskSpec, watched: Watched, sandbox_spec: SandboxSpec, patch_of: Callable[..., str]
    ) -> None:
        patch = patch_of(task, "printf 'import time\\ntime.sleep(600)\\n' >> answers.py")
        timer = threading.Timer(1.5, lambda: watched.started[0].stop())
        log = Log(lambda event: timer.start() if event.kind == "sandbox_started" else None)
        result = verify(task, patch, provider=watched, sandbox_spec=sandbox_spec, emit=log)
        assert result.outcome is Outcome.INFRASTRUCTURE
        assert "sandbox_lost" in log.kinds

    def test_a_lease_lost_to_another_worker_leaves_no_sandbox(
        self, task: TaskSpec, watched: Watched, sandbox_spec: SandboxSpec
    ) -> None:
        def lose(event: Event) -> None:
            if event.kind == "sandbox_started":
                raise LeaseLostError("another worker has it")

        with pytest.raises(LeaseLostError):
            verify(task, "", provider=watched, sandbox_spec=sandbox_spec, emit=Log(lose))
        identifier = watched.started[0].facts.identifier
        assert identifier not in {folder.name for folder in sandbox_spec.scratch.iterdir()}

    def test_a_missing_snapshot_is_infrastructure(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec, tmp_path: Path
    ) -> None:
        gone = task.model_copy(update={"repository": tmp_path / "nowhere"})
        result = verify(gone, "", provider=provider, sandbox_spec=sandbox_spec, emit=Log())
        assert result.outcome is Outcome.INFRASTRUCTURE
        assert "repository: " in result.detail

    def test_a_command_that_is_not_there_is_infrastructure(self, grade: Grade, make_task: MakeTask) -> None:
        task = make_task(FILES, command=("no-such-runner",), fail_to_pass=(F2P,))
        result = grade(task, "true")
        assert result.outcome is Outcome.INFRASTRUCTURE
        assert "verification.command: 'no-such-runner' cannot be run" in result.detail

    def test_output_that_holds_no_result_is_unparsed(self, grade: Grade, make_task: MakeTask) -> None:
        task = make_task(FILES, command=("echo", "all fine"), fail_to_pass=(F2P,))
        result = grade(task, "true")
        assert (result.outcome, result.log) == (Outcome.UNPARSED, "all fine\n")

    def test_a_cancel_breaks_the_tests_off(self, grade: Grade, task: TaskSpec) -> None:
        stop = StopSignal()
        timer = threading.Timer(1.5, stop.set, [ExitReason.CANCELLED])
        log = Log(lambda event: timer.start() if event.kind == "sandbox_started" else None)
        result = grade(task, "printf 'import time\\ntime.sleep(600)\\n' >> answers.py", log=log, stop=stop)
        assert (result.outcome, result.detail) == (Outcome.INFRASTRUCTURE, "the test run was broken off")
        assert result.seconds < 60

    def test_an_unknown_rule_makes_the_task_invalid(self, grade: Grade, make_task: MakeTask) -> None:
        task = make_task(FILES, rule="golf", command=COMMAND, fail_to_pass=(F2P,))
        result = grade(task, "true")
        assert result.outcome is Outcome.TASK_INVALID
        assert "golf" in result.detail

    def test_secrets_are_replaced_in_all_that_tests_printed(
        self,
        task: TaskSpec,
        provider: SandboxProvider,
        sandbox_spec: SandboxSpec,
        patch_of: Callable[..., str],
    ) -> None:
        result = verify(
            task,
            patch_of(task, "sed -i 's/41/\"secret-value\"/' answers.py"),
            provider=provider,
            sandbox_spec=sandbox_spec,
            emit=Log(),
            redactor=Redactor({"MY_KEY": "secret-value"}),
        )
        assert "secret-value" not in repr(result)
        assert "[redacted: MY_KEY]" in result.tests[0].assertion


@ONE_KIND
class TestChecking:
    GOLD = "diff --git a/answers.py b/answers.py\n--- a/answers.py\n+++ b/answers.py\n@@ -1,3 +1,3 @@\n"
    GOLD += " def answer():\n-    return 41\n+    return 42\n \n"

    def test_a_good_task_has_no_problems(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        checked = check_task(
            task.model_copy(update={"gold_patch": self.GOLD}), provider=provider, sandbox_spec=sandbox_spec
        )
        assert (checked.valid, checked.problems) == (True, ())
        assert checked.without_patch.outcome is Outcome.UNRESOLVED
        assert checked.with_gold.outcome is Outcome.RESOLVED

    def test_each_test_that_is_not_as_claimed_is_a_problem(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        wrong = task.verification.model_copy(
            update={"fail_to_pass": (F2P, P2P), "pass_to_pass": ("tests/x.py::y",)}
        )
        checked = check_task(
            task.model_copy(update={"verification": wrong}), provider=provider, sandbox_spec=sandbox_spec
        )
        assert not checked.valid
        said, ends = (
            [problem for problem in checked.problems if ("printed last" in problem) is last]
            for last in (False, True)
        )
        assert said == [
            f"without a patch: {P2P} should fail and is passed",
            "without a patch: tests/x.py::y should pass and is missing",
            f"with the gold patch: {F2P} should pass and is failed",
            "with the gold patch: tests/x.py::y should pass and is missing",
        ]
        assert [end.split(" printed last: ")[0] for end in ends] == [
            f"{when}: the test command ended with 1 and"
            for when in ("without a patch", "with the gold patch")
        ]
        assert all("1 failed, 1 passed in" in end for end in ends)

    def test_a_sandbox_that_breaks_says_nothing_about_the_task(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        class Breaking(Watched):
            def start(self, spec: SandboxSpec) -> Sandbox:
                if self.started:
                    raise SandboxLostError("the daemon is gone")
                return super().start(spec)

        with pytest.raises(InfrastructureError, match="with the gold patch: the daemon is gone"):
            check_task(task, provider=Breaking(provider), sandbox_spec=sandbox_spec)

    def test_what_no_other_grading_would_mend_is_a_problem_of_the_task(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        class Lacking(Watched):
            def start(self, spec: SandboxSpec) -> Sandbox:
                raise SandboxLostError("the image has no such user", retryable=False)

        checked = check_task(task, provider=Lacking(provider), sandbox_spec=sandbox_spec)
        assert checked.problems[0] == "without a patch: infrastructure: the image has no such user"

    def test_an_id_that_is_written_otherwise_than_the_runner_does_is_found(
        self, task: TaskSpec, provider: SandboxProvider, sandbox_spec: SandboxSpec
    ) -> None:
        misspelt = task.verification.model_copy(update={"fail_to_pass": ("test_answer",)})
        checked = check_task(
            task.model_copy(update={"verification": misspelt}), provider=provider, sandbox_spec=sandbox_spec
        )
        assert (
            f"without a patch: tests ran that no list names: {F2P}; write ids as they stand there"
            in checked.problems
        )
