"""Bash as the model meets it."""

from __future__ import annotations

import pytest

from lab.engine import registry
from lab.engine.errors import ExitReason, SandboxLostError
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.stop import StopSignal
from lab.engine.tools.base import ToolContext, execute
from lab.engine.tools.bash import timeout_seconds
from tests.engine.tools.conftest import Run
from tests.timing import odd_seconds, sleeping, when


def test_exit_code_and_both_streams_are_always_there(run: Run) -> None:
    result = run("bash", {"command": "echo out; echo err >&2; exit 3", "description": "say"})
    assert result.observation == "Exit code: 3\nSTDOUT:\nout\n\nSTDERR:\nerr\n"
    assert (result.exit_code, result.failed) == (3, True)
    quiet = run("bash", {"command": "true"})
    assert quiet.observation == "Exit code: 0\nSTDOUT:\n\nSTDERR:\n"
    assert not quiet.failed


def test_each_call_is_a_fresh_login_shell_in_the_workspace(context: ToolContext, run: Run) -> None:
    run("bash", {"command": "cd /; export LEFT=1; alias ll=ls; set -e"})
    result = run("bash", {"command": "pwd; echo [$LEFT]; shopt -q login_shell && echo login"})
    assert result.observation == f"Exit code: 0\nSTDOUT:\n{context.workspace}\n[]\nlogin\n\nSTDERR:\n"


def test_a_timeout_is_the_first_line_and_what_was_written_is_kept(run: Run) -> None:
    result = run("bash", {"command": "echo begun; sleep 60; echo never", "timeout": 4})
    assert result.observation == "Timed out after 4.0s\nSTDOUT:\nbegun\n\nSTDERR:\n"
    assert result.timed_out
    assert result.exit_code is None


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        ({}, 120.0),
        ({"timeout": 30}, 30.0),
        ({"timeout": "30"}, 30.0),
        ({"timeout": 1000}, 1000.0),
        ({"timeout": 1500}, 1.5),
        ({"timeout": 100_000_000}, 100_000.0),
        ({"timeout_ms": 2500}, 2.5),
        ({"timeout_ms": 500, "timeout": 9}, 0.5),
        ({"timeout": 0}, 0.1),
        ({"timeout": -4}, 0.1),
        ({"timeout": None}, 120.0),
    ],
)
def test_the_timeout_is_read_as_leaf_reads_it(arguments: dict[str, object], seconds: float) -> None:
    assert timeout_seconds(arguments, 120.0) == seconds


def test_a_long_output_is_cut_at_the_head_and_the_whole_of_it_kept(run: Run) -> None:
    result = run("bash", {"command": "head -c 40000 /dev/zero | tr '\\0' x"})
    head = "Exit code: 0\nSTDOUT:\n"
    assert result.observation.startswith(head + "x" * (30_000 - len(head)) + "\n[")
    assert result.observation.endswith(" characters truncated]")
    assert result.dropped == 40_000 + len(head) + len("\nSTDERR:\n") - 30_000
    assert result.stdout is not None
    assert result.stdout.text == "x" * 40_000


def test_binary_output_is_text_with_replacement_and_said_to_be_binary(run: Run) -> None:
    result = run("bash", {"command": "printf 'a\\0\\377b'"})
    assert result.observation == "Exit code: 0\nSTDOUT:\na\0\ufffdb\nSTDERR:\n"
    assert result.stdout is not None
    assert (result.stdout.binary, result.stdout.total_bytes) == (True, 4)


def test_a_known_secret_that_a_command_prints_does_not_come_through(context: ToolContext) -> None:
    secret = "xyzzy-0123456789abcdef"
    context.redactor = Redactor({"MY_KEY": secret})
    result = execute(registry.executor("bash"), context, {"command": f"echo {secret}; echo {secret} >&2"})
    assert secret not in result.observation
    assert "[redacted: MY_KEY]" in result.observation
    assert result.stdout is not None
    assert secret not in result.stdout.text


def test_stop_interrupts_a_running_command_and_keeps_what_it_wrote(context: ToolContext) -> None:
    stop = StopSignal()
    context.stop = stop
    long = odd_seconds(5)
    when(lambda: sleeping(long), lambda: stop.set(ExitReason.CANCELLED))
    result = execute(registry.executor("bash"), context, {"command": f"echo begun; sleep {long}"})
    assert result.interrupted
    assert result.stdout is not None
    assert result.stdout.text == "begun\n"


def test_a_lost_sandbox_is_raised_and_never_an_observation(tmp_path_factory: pytest.TempPathFactory) -> None:
    scratch = tmp_path_factory.mktemp("lost")
    sandbox = registry.provider("process").start(SandboxSpec(label="lost", scratch=scratch))
    context = ToolContext(sandbox=sandbox, stop=StopSignal())
    sandbox.stop()
    for tool, arguments in (
        ("bash", {"command": "true"}),
        ("read", {"file_path": "a"}),
        ("write", {"file_path": "a", "content": ""}),
        ("glob", {"pattern": "*"}),
    ):
        with pytest.raises(SandboxLostError):
            execute(registry.executor(tool), context, arguments)
