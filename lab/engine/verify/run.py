"""Grades a patch in a fresh sandbox: snapshot, patch, hidden tests, test command, rule.

What is protected from the patch: the hidden tests and every file that an expected test stands in are put over
whatever the patch made of them, and pytest's results are read from a file that did not exist before. A patch
can still bring configuration and plugins (conftest.py, pytest.ini, sitecustomize.py) that take part in the
test run, as in the benchmarks this follows.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import time
from typing import NamedTuple

from lab.engine.errors import (
    AttemptStoppedError,
    InfrastructureError,
    InvalidValueError,
    SandboxLostError,
)
from lab.engine.events import SandboxLost, VerificationFinished, VerificationStarted
from lab.engine.image_wait import Show, get_image, sandbox_started
from lab.engine.patches import InvalidPatchError, apply_patch
from lab.engine.preparing import prepare_workspace
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import ExecResult, ResourceUsage, Sandbox, SandboxProvider, SandboxSpec
from lab.engine.scripts import run_script
from lab.engine.sinks import Emit, ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import (
    Judgement,
    Outcome,
    TaskCheckResult,
    TestGroup,
    TestOutcome,
    TestStatus,
    VerificationResult,
)
from lab.engine.verify.junit import parse_junit
from lab.engine.verify.overlay import known_files, put_tests, test_command
from lab.engine.verify.parsers import LOG_LIMIT_CHARACTERS, PARSERS, ParsedTests, add_result, shortened
from lab.engine.verify.rules import Rule, passes, rule_named

LOG_LIMIT_BYTES = 5_000_000
REPORT_LIMIT_BYTES = 50_000_000
# The logs of all tests together; a task with thousands of tests gets less for each.
LOGS_LIMIT_CHARACTERS = 2_000_000
# Signs that the test runner itself came up; without one the command, not the patch, is to be looked at.
_STARTED = re.compile(
    r"^=+ test session starts =+$|^ImportError while loading conftest |^Fatal Python error: |^Ran \d+ test",
    re.MULTILINE,
)


class _Graded(NamedTuple):
    judgement: Judgement
    exit_code: int | None = None
    log: str = ""
    broke_off: bool = False


def verify(
    task: TaskSpec,
    patch: str,
    *,
    provider: SandboxProvider,
    sandbox_spec: SandboxSpec,
    emit: Emit,
    stop: StopSignal | None = None,
    redactor: Redactor | None = None,
    show: Show | None = None,
) -> VerificationResult:
    """Grade a patch by the task's rule in a sandbox of its own, started from `sandbox_spec` and stopped.

    Emits `verification_started`, `image_requested` and `image_ready` where its image was not there,
    `sandbox_started`, `sandbox_lost` where it broke, `verification_finished`.
    A sandbox or task material that broke is the outcome `infrastructure`, never the patch's fault; so is a
    test run that `stop` broke off. A patch that does not apply and tests that time out are `unresolved`.
    `redactor` replaces secrets in everything the tests printed. `show` is told how far an image is.

    Raises: nothing but what `emit` and `show` raise.
    """
    started = time.monotonic()
    expected = task.verification
    emit(
        VerificationStarted(
            rule=expected.rule,
            fail_to_pass=len(expected.fail_to_pass),
            pass_to_pass=len(expected.pass_to_pass),
        )
    )
    redactor = redactor or Redactor({})
    grading = _Grading(task, provider, sandbox_spec, emit, stop, redactor, show)
    graded = grading.grade(patch)
    result = VerificationResult(
        rule=expected.rule,
        outcome=graded.judgement.outcome,
        tests=graded.judgement.tests,
        detail=redactor.text(graded.judgement.detail),
        exit_code=graded.exit_code,
        log=graded.log,
        seconds=time.monotonic() - started,
        usage=grading.usage,
        broke_off=graded.broke_off,
    )
    emit(_finished(result))
    return result


def _finished(result: VerificationResult) -> VerificationFinished:
    usage = result.usage
    return VerificationFinished(
        rule=result.rule,
        outcome=result.outcome.value,
        tests=list(result.tests),
        detail=result.detail,
        exit_code=result.exit_code,
        log=result.log,
        seconds=result.seconds,
        peak_memory_bytes=usage.peak_memory_bytes if usage else None,
        cpu_seconds=usage.cpu_seconds if usage else None,
        wall_seconds=usage.wall_seconds if usage else None,
        measured_by=usage.source if usage else "",
    )


class _Grading:
    """One grading: starts its sandbox, always stops it, and turns what breaks into an outcome."""

    def __init__(
        self,
        task: TaskSpec,
        provider: SandboxProvider,
        spec: SandboxSpec,
        emit: Emit,
        stop: StopSignal | None,
        redactor: Redactor,
        show: Show | None,
    ) -> None:
        self.task = task
        self.provider = provider
        self.spec = spec
        self.emit = emit
        self.stop = stop
        self.redactor = redactor
        self.show = show
        self.usage: ResourceUsage | None = None

    def grade(self, patch: str) -> _Graded:
        try:
            rule = rule_named(self.task.verification.rule)
        except InvalidValueError as error:
            return self._without_tests(Outcome.TASK_INVALID, str(error))
        sandbox: Sandbox | None = None
        try:
            get_image(
                self.provider,
                self.spec,
                purpose="verification",
                emit=self.emit,
                show=self.show,
                stop=self.stop,
            )
            started = time.monotonic()
            sandbox = self.provider.start(self.spec)
            seconds = time.monotonic() - started
            self.emit(sandbox_started(sandbox.facts, seconds=seconds, purpose="verification"))
            return self._grade_in(sandbox, rule, patch)
        except InvalidPatchError as error:
            return self._without_tests(Outcome.UNRESOLVED, f"the patch does not apply: {error}")
        except AttemptStoppedError as stopped:
            return self._broken_off(f"the verification was {stopped.detail}")
        except SandboxLostError as error:
            if sandbox is not None:
                self.emit(SandboxLost(purpose="verification", message=self.redactor.text(str(error))))
            if error.retryable:
                return self._broken_off(str(error))
            return self._without_tests(Outcome.INFRASTRUCTURE, str(error))
        except InfrastructureError as error:
            return self._without_tests(Outcome.INFRASTRUCTURE, str(error))
        except OSError as error:
            return self._broken_off(str(error))
        finally:
            if sandbox is not None:
                self.usage = sandbox.stop()

    def _broken_off(self, detail: str) -> _Graded:
        """Nothing was found out, and what broke says nothing about the task."""
        return self._without_tests(Outcome.INFRASTRUCTURE, detail)._replace(broke_off=True)

    def _without_tests(self, outcome: Outcome, detail: str) -> _Graded:
        """No test ran: each expected one is missing."""
        verification = self.task.verification
        expected: list[tuple[TestGroup, str]] = [
            ("fail_to_pass", test_id) for test_id in verification.fail_to_pass
        ]
        expected += [("pass_to_pass", test_id) for test_id in verification.pass_to_pass]
        tests = tuple(
            TestOutcome(test_id=test_id, group=group, status=TestStatus.MISSING)
            for group, test_id in expected
        )
        return _Graded(Judgement(outcome, tests, detail))

    def _grade_in(self, sandbox: Sandbox, rule: Rule, patch: str) -> _Graded:
        prepare_workspace(sandbox, self.task, stop=self.stop, with_files=False)
        known = known_files(sandbox, self.task)
        apply_patch(sandbox, patch)
        report = f"{put_tests(sandbox, self.task, known)}/report.xml"
        ended = self._run_tests(sandbox, report)
        streams = [stream for stream in (ended.stdout, ended.stderr) if stream.total]
        log = "\n".join(self.redactor.output(stream) for stream in streams)
        if ended.interrupted:
            return self._broken_off("the test run was broken off")._replace(log=log)
        tests = self._parse(sandbox, report, log)
        if not tests and ended.exit_code in (126, 127):
            self._require_command(sandbox)
        judgement = self._judge(rule, ended, log, tests)
        return _Graded(_with_logs(judgement, tests or {}), ended.exit_code, log)

    def _run_tests(self, sandbox: Sandbox, report: str) -> ExecResult:
        options = ["-rA", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", "-o", "junit_logging=all"]
        options.append(f"--junitxml={report}")
        own = self.spec.environment.get("PYTEST_ADDOPTS", "")
        return sandbox.exec(
            test_command(self.task.verification),
            timeout=self.task.environment.verifier_timeout_sec,
            # Unbuffered, so that a run that is killed leaves what it had said.
            environment={"PYTEST_ADDOPTS": f"{own} {shlex.join(options)}".strip(), "PYTHONUNBUFFERED": "1"},
            output_limit=LOG_LIMIT_BYTES,
            stop=self.stop,
        )

    def _require_command(self, sandbox: Sandbox) -> None:
        program = test_command(self.task.verification)[0]
        if run_script(sandbox, 'command -v "$1"', program).exit_code != 0:
            raise InfrastructureError(
                f"verification.command: {program!r} cannot be run in the sandbox; "
                "give the task's environment that program, or mend the command",
                retryable=False,
            )

    def _parse(self, sandbox: Sandbox, report: str, log: str) -> ParsedTests | None:
        """The results; None when pytest wrote no whole report.

        A pytest log is not enough: whatever a test prints stands in it too.
        """
        verification = self.task.verification
        known = (*verification.fail_to_pass, *verification.pass_to_pass)
        printed = PARSERS[verification.runner](log, known=known)
        if verification.runner != "pytest":
            return printed
        try:
            written = sandbox.read(report, limit=REPORT_LIMIT_BYTES).decode("utf-8", "replace")
            tests = parse_junit(self.redactor.text(written).encode(), known=known)
        except (OSError, ValueError):
            return None
        # JUnit has no word for a test that passed although it should have failed.
        unexpected = {test_id for test_id, test in printed.items() if test.status is TestStatus.XPASS}
        for test_id in unexpected & (tests or {}).keys():
            add_result(tests or {}, test_id, TestStatus.XPASS)
        return tests

    def _judge(self, rule: Rule, ended: ExecResult, log: str, tests: ParsedTests | None) -> Judgement:
        verification = self.task.verification
        statuses = {test_id: test.status for test_id, test in (tests or {}).items()}
        judgement = rule(
            fail_to_pass=verification.fail_to_pass,
            pass_to_pass=verification.pass_to_pass,
            statuses=statuses,
            exit_code=ended.exit_code,
        )
        if judgement.outcome is Outcome.TASK_INVALID:
            return judgement
        if ended.timed_out:
            seconds = f"{self.task.environment.verifier_timeout_sec:g}"
            return judgement._replace(
                outcome=Outcome.UNRESOLVED, detail=f"the tests timed out: they did not end within {seconds} s"
            )
        if judgement.outcome is Outcome.UNPARSED and not statuses and _STARTED.search(log):
            how = "ran out of memory" if ended.out_of_memory else f"ended with exit code {ended.exit_code}"
            return judgement._replace(
                outcome=Outcome.UNRESOLVED, detail=f"the test command {how} before it had any result"
            )
        return judgement


def _with_logs(judgement: Judgement, tests: ParsedTests) -> Judgement:
    """The judgement with assertion and log of each expected test; the others keep their status alone."""
    expected = sum(test.group != "other" for test in judgement.tests)
    limit = max(1000, min(LOG_LIMIT_CHARACTERS, LOGS_LIMIT_CHARACTERS // max(1, expected)))
    return judgement._replace(tests=tuple(_with_log(test, tests, limit) for test in judgement.tests))


def _with_log(test: TestOutcome, tests: ParsedTests, limit: int) -> TestOutcome:
    found = tests.get(test.test_id)
    if found is None or test.group == "other":
        return test
    texts = {"assertion": found.assertion[:1000], "log": shortened(found.log, limit)}
    return test.model_copy(update=texts)


def check_task(task: TaskSpec, *, provider: SandboxProvider, sandbox_spec: SandboxSpec) -> TaskCheckResult:
    """Grade the task twice: without a patch F2P must fail and P2P pass, with the gold patch all must pass.

    What a task's own environment lacks is among the problems.

    Raises: InfrastructureError: a sandbox broke, so that nothing is known about the task.
    """

    def graded(patch: str, name: str, when: str) -> VerificationResult:
        spec = dataclasses.replace(sandbox_spec, label=f"{sandbox_spec.label}-{name}")
        result = verify(task, patch, provider=provider, sandbox_spec=spec, emit=ListSink().emit)
        if result.broke_off:
            raise InfrastructureError(f"{when}: {result.detail}")
        return result

    without = graded("", "empty", "without a patch")
    gold = graded(task.gold_patch, "gold", "with the gold patch")
    problems = []
    for result, when in ((without, "without a patch"), (gold, "with the gold patch")):
        problems += _problems(result, when, gold=result is gold)
    return TaskCheckResult(task.id, tuple(problems), without, gold)


def _problems(result: VerificationResult, when: str, *, gold: bool) -> list[str]:
    if result.outcome not in (Outcome.RESOLVED, Outcome.UNRESOLVED) or not result.tests:
        return [f"{when}: {result.outcome.value}: {result.detail}"]
    problems = [f"{when}: {result.detail}"] if result.detail else []
    for test in result.tests:
        wanted = gold or test.group == "pass_to_pass"
        if test.group != "other" and passes(test.group, test.status) is not wanted:
            should = "pass" if wanted else "fail"
            problems.append(f"{when}: {test.test_id} should {should} and is {test.status.value}")
    if any(test.status is TestStatus.MISSING for test in result.tests):
        problems.append(f"{when}: {_what_ran_instead(result)}")
    return problems


# So many tests that no list names stand in a problem.
_NAMED = 3


def _what_ran_instead(result: VerificationResult) -> str:
    """What helps to find out why a test that is expected did not run."""
    others = [test.test_id for test in result.tests if test.group == "other"]
    if others:
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        return (
            f"tests ran that no list names: {', '.join(others[:_NAMED])}{more}; write ids as they stand there"
        )
    last = next((line.strip() for line in reversed(result.log.splitlines()) if line.strip()), "")
    return f"the test command ended with {result.exit_code} and printed last: {last[:300] or 'nothing'}"
