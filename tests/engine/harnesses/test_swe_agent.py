"""SWE-agent, line by line: what is known of its version 1, and the test that shows it here."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.events import (
    HarnessMessage,
    HistoryRewritten,
    LimitReached,
    ModelCallFinished,
    PatchCaptured,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.conversation import check_inputs, messages_after
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.swe_agent import SWEAgent
from lab.engine.limits import Limits
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import run_attempt
from lab.engine.sandboxes.base import Sandbox
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome
from tests.engine.conftest import MakeTask
from tests.engine.continuing import Told, cuts
from tests.engine.harnesses import driving
from tests.engine.harnesses.driving import Driven, call, calls, ended
from tests.engine.harnesses.tables import Row, require_shown
from tests.fakes.openai_server import Answer, FakeOpenAI, Request, delta, says, stream

TABLE = (
    # Tools.
    Row("bash: command string", ("test_the_three_tools_and_their_schemas",)),
    Row("str_replace_editor: command enum, path, …, view_range", ("test_the_three_tools_and_their_schemas",)),
    Row("submit: no arguments", ("test_the_three_tools_and_their_schemas",)),
    Row("the first submit returns a checklist and the diff", ("test_the_first_submit_is_a_review",)),
    Row("… the second really submits", ("test_the_first_submit_is_a_review",)),
    Row(
        "bash keeps its state between calls",
        ("tools.test_shells.test_each_call_is_a_fresh_shell_in_the_workspace",),
        differs="each command has a new shell: a run goes on in another sandbox after a crash, and no shell "
        "could come along; the tool's description says so",
    ),
    Row(
        "other bundles: windowed viewer, find and search, edits by line, exit_forfeit, filemap, browser",
        differs="the default configuration offers none; tools are data and bound to the lab's executors",
    ),
    # Parsers.
    Row("function_calling by default", ("test_calls_are_native",)),
    Row(
        "the parsers action, thought_action, xml_…, json, …_bash_code_block",
        differs="those families of wire formats are r2e (XML) and mini (one fenced command)",
    ),
    Row("exactly one tool call", ("test_what_is_no_single_call",)),
    Row(
        "error codes multiple, incorrect_args, invalid_json, invalid_command, missing_arg, unexpected_arg",
        ("test_what_is_no_single_call",),
    ),
    Row(
        "error code missing",
        ("test_what_is_no_single_call",),
        differs="it has the lab's name for it in every family, no_call",
    ),
    # Submission.
    Row(
        "<<SWE_AGENT_SUBMISSION>> in the output, patch from /root/model.patch",
        ("test_the_first_submit_is_a_review",),
        differs="the submit tool ends the run as a stop rule of the harness, and the lab captures the patch: "
        "what a command prints cannot end a run by accident",
    ),
    # Limits.
    Row("execution_timeout 30 s a command", ("test_the_presets_limits",)),
    Row("total_execution_timeout 1800 s", ("test_the_presets_limits", "test_tool_calls_may_take_so_long")),
    Row(
        "max_consecutive_execution_timeouts 3",
        (
            "test_the_presets_limits",
            "test_commands_in_a_row_that_are_killed",
            "test_a_command_that_ends_begins",
        ),
    ),
    Row("install_timeout 300 s", differs="nothing is installed: executors need a shell and coreutils alone"),
    Row("max_observation_length 100,000", ("test_a_long_observation_is_cut",)),
    Row("max_requeries 3", ("test_three_failures_in_a_row",)),
    Row("… on format errors and blocked commands", ("test_what_is_no_single_call", "test_a_blocked_command")),
    Row(
        "… on errors of bash syntax",
        ("test_a_syntax_error_is_bashs_own_answer",),
        differs="bash says so itself, as the result of the call: nothing runs in the sandbox before it",
    ),
    Row(
        "the mistakes are no part of the history once the model has corrected itself",
        ("test_failed_exchanges_leave_the_conversation",),
    ),
    Row(
        "a second failure replaces the first in what is asked again",
        ("test_failed_exchanges_leave_the_conversation",),
        differs="all failures in a row stay in sight until a call is understood, so that a model does not "
        "repeat the first mistake",
    ),
    Row("per_instance_cost_limit 3.0 USD", ("test_the_presets_limits", "test_money_that_is_used_up")),
    Row("per_instance_call_limit 0", ("test_the_presets_limits", "test_a_limit_on_calls")),
    Row("total_cost_limit 0", differs="what many runs may cost is the matter of an experiment"),
    Row(
        "temperature 0.0, top_p 1.0",
        ("test_the_presets_limits",),
        differs="suggested; sampling is the model's",
    ),
    Row(
        "20 tries of a call, 10 to 120 s apart",
        differs="the lab's client tries again for every family alike (tests/engine/llm/test_client.py)",
    ),
    Row("a blocklist of interactive commands", ("test_a_blocked_command",)),
    # Exit statuses.
    Row("submitted", ("test_the_first_submit_is_a_review",)),
    Row("submitted (<status>) after autosubmission", ("test_what_was_changed_counts_as_submitted",)),
    Row("exit_forfeit", differs="its tool is not among the default ones"),
    Row("exit_total_execution_time", ("test_tool_calls_may_take_so_long",)),
    Row("exit_command_timeout", ("test_commands_in_a_row_that_are_killed",)),
    Row("exit_context", ("test_a_full_context",)),
    Row("exit_cost", ("test_money_that_is_used_up", "test_a_limit_on_calls")),
    Row("exit_format", ("test_three_failures_in_a_row",)),
    Row("exit_command", ("test_the_command_exit",)),
    Row(
        "exit_api, exit_environment_error, exit_error",
        differs="endpoint, sandbox or lab that broke are infrastructure, and another attempt is made",
    ),
    Row(
        "most errors submit the current diff",
        ("test_an_exhausted_limit_still_captures_and_verifies",),
        differs="the lab captures the patch whatever ended the run, after exit as well",
    ),
    # What every family owes.
    Row("raw output and raw arguments are kept", ("test_failed_exchanges_leave_the_conversation",)),
    Row("missing ids", ("test_missing_ids_are_made_good",)),
    Row("a reply cut by its length is never executed", ("test_a_reply_cut_by_its_length",)),
    Row("observations have a template", ("test_observations_are_worded", "test_a_silent_command")),
)

PRESET = load_preset("swe-agent")
FACTS = PromptFacts("Fix the bug.", "/workspace")
OK = call("bash", {"command": "true"})


def test_every_row_has_its_test_or_the_reason_why_it_is_done_differently() -> None:
    require_shown(TABLE, __name__)


def bash(command: str, identity: str = "") -> tuple[str, str, str]:
    return call("bash", {"command": command}, identity)


def runs(command: str, **more: Any) -> Answer:
    return calls(bash(command), **more)


SUBMIT = calls(call("submit", {}))


def run(sandbox: Sandbox, *answers: Answer, **options: Any) -> Driven:
    return driving.run(sandbox, *answers, **{"config": PRESET, **options})


def limits(**changed: object) -> Limits:
    return PRESET.limits.model_copy(update=changed)


def options(**changed: object) -> HarnessConfig:
    return PRESET.model_copy(update={"options": {**PRESET.options, **changed}})


def hasty(seconds: float) -> HarnessConfig:
    """The preset with another time-out of commands."""
    shell = PRESET.tools[0].model_copy(update={"settings": {"timeout_sec": seconds}})
    return PRESET.model_copy(update={"tools": (shell, *PRESET.tools[1:])})


@pytest.fixture
def repository(sandbox: Sandbox) -> Sandbox:
    """The sandbox with a repository of one committed file."""
    made = "git init -q . && echo one > thing.py && git add -A"
    made += " && git -c user.name=a -c user.email=a@b commit -qm a"
    assert sandbox.exec(["/bin/sh", "-c", made], timeout=60).exit_code == 0
    return sandbox


def test_the_three_tools_and_their_schemas_are_swe_agents() -> None:
    schemas = {tool.name: tool.parameters for tool in PRESET.tools}
    kinds = {
        name: {key: about["type"] for key, about in schema["properties"].items()}
        for name, schema in schemas.items()
    }
    assert kinds == {
        "bash": {"command": "string"},
        "str_replace_editor": {
            "command": "string",
            "path": "string",
            "file_text": "string",
            "old_str": "string",
            "new_str": "string",
            "insert_line": "integer",
            "view_range": "array",
        },
        "submit": {},
    }
    assert schemas["bash"]["required"] == ["command"]
    assert schemas["str_replace_editor"]["required"] == ["command", "path"]
    assert schemas["str_replace_editor"]["properties"]["command"]["enum"] == [
        "view",
        "create",
        "str_replace",
        "insert",
        "undo_edit",
    ]
    assert errors(PRESET) == []


def test_the_presets_limits_are_swe_agents() -> None:
    assert PRESET.limits.model_dump(exclude_none=True) == {
        "max_cost_usd": Decimal(3),
        "max_format_errors": 3,
        "max_total_time_sec": 10_800.0,
    }
    assert PRESET.options == {"max_consecutive_timeouts": 3, "max_execution_sec": 1800}
    assert PRESET.tools[0].settings["timeout_sec"] == 30
    assert PRESET.suggested_sampling == {"temperature": 0, "top_p": 1.0}


def test_calls_are_native_and_one_at_a_time(sandbox: Sandbox) -> None:
    body = run(sandbox, runs("true"), SUBMIT).sent(0)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["bash", "str_replace_editor", "submit"]
    assert body["parallel_tool_calls"] is False
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "Fix the bug." in body["messages"][1]["content"]


def test_the_first_submit_is_a_review_and_the_second_one_hands_in(repository: Sandbox) -> None:
    driven = run(repository, runs("echo two > thing.py"), SUBMIT)
    assert ended(driven) == ("agent", "submitted")
    changed, review, handed_in = driven.events(ToolCallFinished)
    assert [event.submitted for event in (changed, review, handed_in)] == [False, False, True]
    assert "+two" in review.observation
    assert "submit once more" in review.observation


def test_observations_are_worded_by_a_template(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("echo out; echo err >&2"), SUBMIT)
    assert driven.sent(1)["messages"][-1]["content"] == "OBSERVATION:\nout\nerr\n"
    assert driven.sent(1)["messages"][-1]["role"] == "tool"


def test_a_silent_command_is_said_to_be_one(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("true"), SUBMIT)
    assert driven.sent(1)["messages"][-1]["content"] == "The command printed nothing."


def test_a_long_observation_is_cut_at_a_hundred_thousand_characters(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("head -c 150000 /dev/zero | tr '\\0' x"), SUBMIT)
    first = driven.events(ToolCallFinished)[0]
    assert first.observation.count("x") == 100_000
    assert first.observation_dropped == 50_000
    assert "50000 characters truncated" in first.observation
    assert first.stdout is not None
    assert len(first.stdout.text) == 150_000


def broken(*wanted: tuple[str, str, str], **more: Any) -> Answer:
    return calls(*wanted, content="I try.", **more)


FAILURES = {
    "no_call": says("I try."),
    "multiple": broken(OK, bash("false")),
    "invalid_json": broken(call("bash", "{not json")),
    "incorrect_args": broken(call("bash", "[1]")),
    "invalid_command": broken(call("look_around", {})),
    "missing_arg": broken(call("str_replace_editor", {"command": "view"})),
    "unexpected_arg": broken(call("bash", {"command": "true", "cwd": "/"})),
    "blocked": broken(bash("vim thing.py")),
    "cut": broken(OK, finish="length"),
}


@pytest.mark.parametrize("code", FAILURES)
def test_what_is_no_single_call_is_asked_again_with_what_was_wrong(sandbox: Sandbox, code: str) -> None:
    driven = run(sandbox, FAILURES[code], runs("true"), SUBMIT)
    (told,) = driven.events(HarnessMessage)
    assert (told.reason, told.step) == (code, 1)
    assert told.detail
    asked_again = driven.sent(1)["messages"]
    assert asked_again[2:] == [{"role": "assistant", "content": "I try."}, told.message]
    assert told.message["role"] == "user"
    assert "exactly one function call" in told.message["content"]
    assert [event.tool for event in driven.events(ToolCallStarted)] == ["bash", "submit", "submit"]
    assert ended(driven) == ("agent", "submitted")


def test_failed_exchanges_leave_the_conversation_once_a_call_is_understood(sandbox: Sandbox) -> None:
    driven = run(sandbox, FAILURES["invalid_json"], FAILURES["no_call"], runs("echo hi"), SUBMIT)
    assert len(driven.sent(1)["messages"]) == 4
    assert len(driven.sent(2)["messages"]) == 6
    after = driven.sent(3)["messages"]
    assert [message["role"] for message in after] == ["system", "user", "assistant", "tool"]
    assert after[2]["tool_calls"][0]["function"]["name"] == "bash"
    (rewritten,) = driven.events(HistoryRewritten)
    assert (rewritten.reason, rewritten.step) == ("requeried", 4)
    assert rewritten.replaced == {2: {}, 3: {}, 4: {}, 5: {}}
    # The log keeps what was said.
    assert driven.events(ModelCallFinished)[0].reply.tool_calls[0].arguments == "{not json"
    assert len(driven.events(HarnessMessage)) == 2


def test_where_the_policy_is_to_explain_failed_exchanges_stay(sandbox: Sandbox) -> None:
    config = PRESET.model_copy(update={"malformed_calls": "explain"})
    driven = run(sandbox, FAILURES["invalid_json"], runs("true"), SUBMIT, config=config)
    assert driven.events(HistoryRewritten) == []
    assert len(driven.sent(2)["messages"]) == 6


def test_arguments_that_a_function_without_parameters_does_not_get_are_none(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(call("submit", "")))
    assert ended(driven) == ("agent", "submitted")
    assert driven.events(HarnessMessage) == []


def test_three_failures_in_a_row_end_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, says("a"), says("b"), runs("true"), says("c"), says("d"), says("e"))
    assert ended(driven) == ("format_errors", "exit_format")
    assert len(driven.events(ModelCallFinished)) == 6
    assert [event.limit for event in driven.events(LimitReached)] == ["max_format_errors"]


@pytest.mark.parametrize("command", ["vim", "less thing.py", "make test", "python", "tail -f log", "bash"])
def test_a_blocked_command_is_not_run(sandbox: Sandbox, command: str) -> None:
    driven = run(sandbox, runs(command), SUBMIT)
    (told,) = driven.events(HarnessMessage)
    assert told.reason == "blocked"
    assert command.split()[0] in told.message["content"]
    assert [event.tool for event in driven.events(ToolCallStarted)] == ["submit", "submit"]


def test_a_syntax_error_is_bashs_own_answer(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("if true; then"), SUBMIT)
    first = driven.events(ToolCallFinished)[0]
    assert first.exit_code == 2
    assert "syntax error" in first.observation


def test_commands_in_a_row_that_are_killed_for_their_time_end_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("sleep 60"), config=hasty(0.2))
    assert ended(driven) == ("max_time", "exit_command_timeout")
    assert [event.timed_out for event in driven.events(ToolCallFinished)] == [True] * 3
    assert driven.events(LimitReached) == []


def test_a_command_that_ends_begins_the_count_anew(sandbox: Sandbox) -> None:
    slow = runs("sleep 60")
    driven = run(sandbox, slow, slow, calls(call("submit", {})), slow, SUBMIT, config=hasty(0.5))
    assert ended(driven) == ("agent", "submitted")


def test_tool_calls_may_take_so_long_together(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("sleep 0.3"), config=options(max_execution_sec=0.5))
    assert ended(driven) == ("max_time", "exit_total_execution_time")
    assert 1 <= len(driven.events(ToolCallFinished)) <= 2


def test_money_that_is_used_up_ends_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("true"), spent_usd_before=Decimal("3.5"))
    assert ended(driven) == ("max_cost", "exit_cost")
    assert driven.events(ModelCallFinished) == []
    assert [event.limit for event in driven.events(LimitReached)] == ["max_cost_usd"]


def test_a_limit_on_calls_is_a_limit_on_cost(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("true"), limits=limits(max_steps=2))
    assert ended(driven) == ("max_turns", "exit_cost")


def test_a_full_context_ends_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("true", prompt=1_000), limits=limits(max_context_tokens=1_000))
    assert ended(driven) == ("max_context_len", "exit_context")


def test_the_command_exit_ends_the_run_without_running(repository: Sandbox) -> None:
    driven = run(repository, runs("echo two > thing.py"), runs(" exit\n"))
    assert ended(driven) == ("agent", "exit_command")
    assert len(driven.events(ToolCallStarted)) == 1


def test_what_was_changed_counts_as_submitted_where_an_error_ends_the_run(repository: Sandbox) -> None:
    driven = run(repository, runs("cat thing.py"), limits=limits(max_steps=1))
    assert ended(driven) == ("max_turns", "exit_cost")
    driven = run(repository, runs("echo new > another.py"), limits=limits(max_steps=1))
    assert ended(driven) == ("max_turns", "submitted (exit_cost)")


def test_a_reply_cut_by_its_length_is_never_executed_and_the_last_of_the_context_ends_it(
    sandbox: Sandbox,
) -> None:
    cut = broken(bash("touch done"), finish="length", prompt=980)
    driven = run(sandbox, cut, limits=limits(max_context_tokens=1_000))
    assert ended(driven) == ("max_context_len", "exit_context")
    assert driven.events(ToolCallStarted) == []
    assert driven.events(HarnessMessage) == []


def test_missing_ids_are_made_good(sandbox: Sandbox) -> None:
    function = {"name": "bash", "arguments": json.dumps({"command": "true"})}
    nameless = stream(
        delta(tool_calls=[{"index": 0, "type": "function", "function": function}]), delta(finish="tool_calls")
    )
    driven = run(sandbox, nameless, nameless, SUBMIT)
    ids = [event.call_id for event in driven.events(ToolCallStarted)][:2]
    assert all(ids)
    assert len(set(ids)) == 2
    messages = driven.sent(2)["messages"]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ids


# Whole attempts: continued from everywhere, captured and verified.

HIDDEN = "from thing import f\n\n\ndef test_f():\n    assert f() == 2\n"
EDIT = {"command": "str_replace", "path": "thing.py", "old_str": "return 1", "new_str": "return 2"}
REPLIES: list[Answer] = [
    calls(bash("echo looking; cat thing.py", "reply-1")),
    says("reply-2: I wonder."),
    calls(call("bash", "{broken", "reply-3"), content="reply-3"),
    calls(call("str_replace_editor", EDIT, "reply-4")),
    calls(bash("git diff", "reply-5"), bash("ls", "reply-5b"), content="reply-5"),
    calls(call("submit", {}, "reply-6")),
    calls(call("submit", {}, "reply-7")),
]


class ByMark(FakeOpenAI):
    """Answers by the last reply that is still in the conversation, by its mark: replies may have left it."""

    def take(self, request: Request) -> Answer:
        self.requests.append(request)
        said = [message for message in request.body["messages"] if message["role"] == "assistant"]
        marks = re.findall(r"reply-(\d+)", json.dumps(said))
        return REPLIES[max(map(int, marks), default=0)]


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": HIDDEN},
        fail_to_pass=("test_thing.py::test_f",),
    )


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swe-agent-data")


@pytest.fixture
def spec(task: TaskSpec, data_folder: Path) -> Iterator[AttemptSpec]:
    with ByMark() as server:
        yield AttemptSpec(
            task=task,
            harness=PRESET,
            model=ModelConfig(
                name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
            ),
            limits=PRESET.limits,
            provider=registry.provider("process"),
            data_folder=data_folder,
            label="run-7-1",
        )


def tell(spec: AttemptSpec, before: Told | None = None, cut: int = 0) -> Told:
    """Run the attempt, or continue it after the first `cut` records of what was told before."""
    history = before.records[:cut] if before else []
    sink = ListSink(first_seq=len(history) + 1)
    sink.blobs.update(before.blobs if before else {})
    spec = dataclasses.replace(spec, history=tuple(history), read_blob=sink.blobs.__getitem__)
    result = run_attempt(spec, sink, StopSignal())
    return Told(result, [*history, *sink.records], sink.blobs)


def shown(told: Told) -> list[tuple[int, str, object]]:
    """What the harness itself did to the conversation."""
    return [(event.step, event.reason, event.replaced) for event in told.of(HistoryRewritten)] + [
        (event.step, event.reason, event.detail) for event in told.of(HarnessMessage)
    ]


@pytest.mark.timeout(900)
def test_from_every_prefix_of_its_log_an_attempt_comes_to_the_same_end(spec: AttemptSpec) -> None:
    whole = tell(spec)
    assert whole.result.verdict is Outcome.RESOLVED, whole.result
    assert len(whole.of(ModelCallFinished)) == len(REPLIES)
    assert [event.step for event in whole.of(HistoryRewritten)] == [5, 7]
    for cut in cuts(whole):
        told = tell(spec, whole, cut)
        assert told.result == whole.result
        assert told.patch == whole.patch
        assert shown(told) == shown(whole)
        assert messages_after(told.records) == messages_after(whole.records)
        assert check_inputs(told.records).differing == []
        done = [(event.step, event.index) for event in told.of(ToolCallFinished)]
        assert done == [(event.step, event.index) for event in whole.of(ToolCallFinished)]


def test_an_exhausted_limit_still_captures_and_verifies(spec: AttemptSpec) -> None:
    told = tell(dataclasses.replace(spec, limits=limits(max_steps=4)))
    assert told.result.exit_reason.value == "max_turns"
    assert told.result.verdict is Outcome.RESOLVED
    (captured,) = told.of(PatchCaptured)
    assert captured.native_reason == "submitted (exit_cost)"
    assert "return 2" in captured.patch


def test_the_prompts_name_statement_and_place() -> None:
    system, task = SWEAgent().opening(PRESET, FACTS, PRESET.limits)
    assert system["content"].count(".") == 1
    assert "Fix the bug." in task["content"]
    assert "/workspace" in task["content"]


def test_the_command_line_runs_it(tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    lab = [sys.executable, "-m", "lab.engine", "--data-folder", str(tmp_path / "data")]
    # The struggler's second plan has a malformed call.
    asked = [
        "--task",
        "parse-duration",
        "--harness",
        "swe-agent",
        "--model",
        "scripted/struggler",
        "--seed",
        "2",
    ]
    done = subprocess.run(
        [*lab, *asked, "--sandbox", "process", "--out", str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "verdict: resolved" in done.stdout
    assert '"requeried"' in out.read_text()
    checked = subprocess.run(
        [*lab, "--rebuild-inputs", str(out)], capture_output=True, text=True, timeout=300
    )
    assert checked.returncode == 0, checked.stdout
