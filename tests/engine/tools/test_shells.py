"""execute_bash and shell: one command, as R2E-Gym, SWE-agent and mini-SWE-agent run it."""

from __future__ import annotations

import threading
import time

import pytest

from lab.engine import registry
from lab.engine.errors import ExitReason
from lab.engine.redact import Redactor
from lab.engine.stop import StopSignal
from lab.engine.tools.base import ToolContext
from tests.engine.tools.using import call, put

BOTH = pytest.mark.parametrize(("executor", "argument"), [("execute_bash", "cmd"), ("shell", "command")])

INTERACTIVE = {
    "exact": ["python", "python3", "bash", "/bin/bash"],
    "prefixes": ["vim", "nohup", "make", "python -m venv", "tail -f"],
}


def test_execute_bash_has_a_section_for_each_stream(context: ToolContext) -> None:
    result = call(context, "execute_bash", {"cmd": "echo out; echo err >&2"})
    assert result.observation == "[STDOUT]\n\nout\n\n[STDERR]\n\nerr\n"
    assert (result.exit_code, result.failed) == (0, False)
    quiet = call(context, "execute_bash", {"cmd": "true"})
    assert quiet.observation == "[STDOUT]\n\n\n\n[STDERR]\n\n\n"
    failed = call(context, "execute_bash", {"cmd": "echo out; exit 3"})
    assert failed.observation == "The command failed.\n\n[STDOUT]\n\nout\n\n[STDERR]\n\n\n"
    assert (failed.exit_code, failed.failed) == (3, True)


def test_execute_bash_takes_cmd_and_not_command(context: ToolContext) -> None:
    result = call(context, "execute_bash", {"command": "echo out"})
    assert result.failed
    assert "cmd" in result.observation


@pytest.mark.parametrize(
    "command",
    ["cd src && ls", "  cd src", "ipython", "jupyter lab", "pip install x", "nohup sleep 1 &", "cd"],
)
def test_execute_bash_refuses_what_a_call_without_state_is_not_for(
    context: ToolContext, command: str
) -> None:
    result = call(context, "execute_bash", {"cmd": command})
    assert result.failed
    assert command.split()[0] in result.observation
    assert (result.exit_code, result.stdout) == (1, None)


def test_what_execute_bash_refuses_is_a_setting(context: ToolContext) -> None:
    assert not call(context, "execute_bash", {"cmd": "echo one; cd /"}).failed
    assert not call(context, "execute_bash", {"cmd": "cd / && pwd"}, blocked=[]).failed
    assert call(context, "execute_bash", {"cmd": "git status"}, blocked=["git"]).exit_code == 1
    assert not call(context, "execute_bash", {"cmd": "printf x"}, blocked=["print"]).failed


def test_shell_merges_both_streams_in_their_order(context: ToolContext) -> None:
    result = call(context, "shell", {"command": "echo 1; echo 2 >&2; echo 3; exit 4"})
    assert result.observation == "1\n2\n3\n"
    assert (result.exit_code, result.failed, result.stderr) == (4, True, None)
    assert result.stdout is not None
    assert result.stdout.text == "1\n2\n3\n"


def test_shell_reads_startup_files_once_and_login_files_only_as_a_login_shell(context: ToolContext) -> None:
    put(context, "startup", "echo started\n")
    environment = f"export BASH_ENV={context.workspace}/startup"
    assert (
        call(context, "shell", {"command": f"{environment}; bash -c 'echo in'"}).observation
        == "started\nin\n"
    )
    asks = {"command": "shopt -q login_shell && echo login; true"}
    assert call(context, "shell", asks).observation == ""
    assert call(context, "shell", asks, **{"shell": "bash -lc"}).observation == "login\n"


@BOTH
def test_each_call_is_a_fresh_shell_in_the_workspace(
    context: ToolContext, executor: str, argument: str
) -> None:
    call(context, executor, {argument: "export LEFT=1; alias ll=ls; mkdir sub; builtin cd sub"})
    result = call(context, executor, {argument: 'pwd; echo "[$LEFT]"; [[ 1 == 1 ]] && echo bash'})
    assert f"{context.workspace}\n[]\nbash" in result.observation


@BOTH
def test_a_timeout_is_a_setting_and_keeps_what_was_written(
    context: ToolContext, executor: str, argument: str
) -> None:
    result = call(context, executor, {argument: "echo begun; sleep 60; echo never"}, timeout_sec=1)
    assert result.timed_out
    assert result.failed
    assert result.exit_code is None
    assert "1 seconds" in result.observation
    assert "begun" in result.observation
    assert "never" not in result.observation
    assert result.stdout is not None
    assert result.stdout.text == "begun\n"
    assert registry.executor(executor).timeout(context, {argument: "true"}) == 1


@pytest.mark.parametrize(("executor", "seconds"), [("execute_bash", 90), ("shell", 30)])
def test_the_usual_timeouts(context: ToolContext, executor: str, seconds: float) -> None:
    call(context, executor, {})
    assert registry.executor(executor).timeout(context, {}) == seconds


@BOTH
def test_a_command_that_is_none_gets_a_sentence(context: ToolContext, executor: str, argument: str) -> None:
    for given in ({}, {argument: ""}, {argument: "echo \0"}, {argument: ["echo"]}, {argument: 7}):
        result = call(context, executor, given)
        assert result.failed
        assert argument in result.observation
    assert not call(context, executor, {argument: " \n "}).timed_out


@BOTH
def test_binary_output_is_text_with_replacement(context: ToolContext, executor: str, argument: str) -> None:
    result = call(context, executor, {argument: "printf 'a\\0\\377b'"})
    assert "a\0\ufffdb" in result.observation
    assert result.stdout is not None
    assert result.stdout.binary


@BOTH
def test_a_known_secret_that_a_command_prints_does_not_come_through(
    context: ToolContext, executor: str, argument: str
) -> None:
    secret = "xyzzy-0123456789abcdef"
    context.redactor = Redactor({"MY_KEY": secret})
    result = call(context, executor, {argument: f"echo {secret}; echo {secret} >&2"})
    assert secret not in result.observation
    assert result.observation.count("[redacted: MY_KEY]") == 2


@BOTH
def test_stop_interrupts_a_running_command(context: ToolContext, executor: str, argument: str) -> None:
    context.stop = StopSignal()
    threading.Timer(0.5, lambda: context.stop.set(ExitReason.CANCELLED)).start()
    started = time.monotonic()
    result = call(context, executor, {argument: "echo begun; sleep 60"})
    assert result.interrupted
    assert time.monotonic() - started < 20
    assert result.stdout is not None
    assert result.stdout.text == "begun\n"


@pytest.mark.parametrize(
    "command",
    [
        "python",
        " python3\n",
        "vim",
        "vim a.py",
        "make",
        "make test",
        "tail -f log",
        "python -m venv x",
        "nohup x&",
    ],
)
def test_shell_refuses_what_waits_for_a_person(context: ToolContext, command: str) -> None:
    result = call(context, "shell", {"command": command}, blocked=INTERACTIVE)
    assert result.failed
    assert command.strip() in result.observation
    assert (result.exit_code, result.stdout) == (None, None)


@pytest.mark.parametrize(
    "command",
    ["python -c 'print(1)'", "echo vim", "makefile() { :; }; makefile", "tail -n 1 /dev/null", "bash -c :"],
)
def test_shell_runs_what_only_looks_like_it(context: ToolContext, command: str) -> None:
    result = call(context, "shell", {"command": command}, blocked=INTERACTIVE)
    assert result.stdout is not None
    assert not call(context, "shell", {"command": ": python"}).failed
