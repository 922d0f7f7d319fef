"""Leaf, line by line: what the specification says, and the test that shows it.

| Specification | Test |
|---|---|
| five tools, schemas as on the wire, no strict | test_presets.py, test_the_request_is_leafs_... |
| tools' semantics, truncation, errors as observations | tests/engine/tools/ |
| system and user message, nothing else is ever injected | test_the_conversation_holds_... |
| model, tools, tool_choice, temperature, cap, extra_body; no seed | test_the_request_is_leafs_... |
| no tool calls: final message, may be empty, reason agent | test_a_reply_without_a_call_... |
| whitelisted keys, raw arguments, reasoning_content when not empty | test_the_assistant_message_... |
| trap: `reasoning` is sent back under its own name | test_reasoning_goes_back_... |
| context tokens: total, else the sum, else an estimate | test_context_tokens_... |
| cut by length: calls not executed, which reason | test_a_reply_cut_by_length_... |
| calls in order, one tool message each | test_calls_are_executed_in_order_... |
| unknown tool: an observation naming it | test_unknown_tools_duplicate_ids_... |
| empty, broken, non-object arguments are `{}` | test_as_leaf_... (and explain: test_explain_...) |
| only infrastructure ends the run: tool_error | test_a_lost_sandbox_..., tests/engine/test_runner.py |
| context after the tool messages at the ceiling: max_context_len | test_the_context_ceiling_... |
| loop exhausted: max_turns | test_the_last_allowed_step_... |
| stop event: cancelled | test_cancel_... |
| max_time (ours interrupts, retry waits count) | test_wall_time_... |
| overflow texts, SGLang's and llama.cpp's too: max_context_len, error null | test_an_overflowing_... |
| any other error: llm_query_error | test_an_endpoint_that_refuses_... |
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal

import pytest

from lab.engine.errors import EndpointError, ExitReason, SandboxLostError
from lab.engine.events import (
    Event,
    LimitReached,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    Paused,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
    read_record,
)
from lab.engine.harnesses.conversation import messages_after, rebuild_inputs
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import Sandbox
from lab.engine.steering import Ask, Steering
from lab.engine.stop import StopSignal
from tests.engine.harnesses.driving import PRESET, Driven, bash, call, calls, run
from tests.fakes.openai_server import Answer, delta, plain, says, stream
from tests.timing import odd_seconds, sleeping, when

AS_LEAF = PRESET.model_copy(update={"malformed_calls": "as_leaf"})


def limits(**changed: object) -> Limits:
    return PRESET.limits.model_copy(update=changed)


def reached(driven: Driven) -> tuple[str, Decimal, Decimal]:
    (event,) = driven.events(LimitReached)
    assert driven.kinds()[-1] == "limit_reached"
    return event.limit, event.used, event.allowed


def test_the_request_is_leafs_and_nothing_more(sandbox: Sandbox) -> None:
    model = {
        "sampling": {"temperature": 0.6, "top_p": 0.95},
        "extra_body": {"top_k": 20, "chat_template_kwargs": {}},
    }
    body = run(sandbox, says("done"), model=model).sent(0)
    assert body.pop("messages")
    assert body == {
        "model": "fake",
        "tools": [tool.on_the_wire() for tool in PRESET.tools],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_completion_tokens": 8192,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "chat_template_kwargs": {},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_conversation_holds_the_prompt_the_task_and_what_was_said_and_nothing_else(
    sandbox: Sandbox,
) -> None:
    driven = run(sandbox, *[calls(bash(f"echo {n}")) for n in range(3)], says("done"))
    sent = driven.sent(3)["messages"]
    assert [message["role"] for message in sent] == ["system", "user"] + ["assistant", "tool"] * 3
    assert sent[1]["content"] == "Fix the bug."
    assert [message["content"] for message in sent if message["role"] == "tool"] == [
        f"Exit code: 0\nSTDOUT:\n{n}\n\nSTDERR:\n" for n in range(3)
    ]


@pytest.mark.parametrize("text", ["All done.", ""])
def test_a_reply_without_a_call_ends_the_run_as_the_agents_own_ending(sandbox: Sandbox, text: str) -> None:
    answer = (
        says(text)
        if text
        else stream(
            delta(finish="stop"),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}},
        )
    )
    driven = run(sandbox, answer)
    assert driven.ending is not None
    assert (driven.reason, driven.ending.native_reason) == ("agent", "agent")
    assert driven.ending.final_message == text
    assert driven.events(LimitReached) == []
    assert len(driven.server.calls) == 1


def test_the_assistant_message_has_role_content_calls_and_reasoning_only(sandbox: Sandbox) -> None:
    raw = '{ "command":   "true" }'
    driven = run(
        sandbox, calls(call("Bash", raw, "call_a"), content="I look.", reasoning="Hm."), says("done")
    )
    assert driven.sent(1)["messages"][2] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "call_a", "type": "function", "function": {"name": "Bash", "arguments": raw}}],
    }


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_under_the_name_it_came_in(sandbox: Sandbox, name: str) -> None:
    driven = run(sandbox, calls(bash("true"), reasoning="Hm.", reasoning_field=name), says("done"))
    message = driven.sent(1)["messages"][2]
    assert message[name] == "Hm."
    assert {"reasoning", "reasoning_content"} & message.keys() == {name}


def test_calls_are_executed_in_order_with_one_tool_message_each(sandbox: Sandbox) -> None:
    driven = run(
        sandbox,
        calls(
            call("Write", {"file_path": "a", "content": "1"}, "x1"),
            call("Edit", {"file_path": "a", "old_string": "1", "new_string": "2"}, "x2"),
            call("Read", {"file_path": "a"}, "x3"),
            call("Glob", {"pattern": "*"}, "x4"),
            call("Bash", {"command": "cat a"}, "x5"),
        ),
        says("done"),
    )
    tools = driven.sent(1)["messages"][3:]
    assert tools == [
        {"role": "tool", "tool_call_id": "x1", "content": "Wrote 1 bytes to a"},
        {"role": "tool", "tool_call_id": "x2", "content": "Edited a: 1 replacement"},
        {"role": "tool", "tool_call_id": "x3", "content": "a\n1. 2"},
        {"role": "tool", "tool_call_id": "x4", "content": "a"},
        {"role": "tool", "tool_call_id": "x5", "content": "Exit code: 0\nSTDOUT:\n2\nSTDERR:\n"},
    ]
    assert [event.index for event in driven.events(ToolCallStarted)] == [1, 2, 3, 4, 5]
    # Reading cannot change the workspace: only after the others is it looked at.
    assert driven.changed == [(1, 1), (1, 2), (1, 5)]


def test_a_call_is_in_the_log_before_it_runs_with_its_timeout(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("true", timeout=7)), says("done"))
    kinds = driven.kinds()
    assert kinds.index("tool_call_started") < kinds.index("tool_call_finished")
    assert driven.events(ToolCallStarted)[0].timeout == 7.0
    assert driven.events(ToolCallFinished)[0].exit_code == 0


def test_unknown_tools_duplicate_ids_and_fifty_calls_each_get_exactly_one_tool_message(
    sandbox: Sandbox,
) -> None:
    many = [call("Bash", {"command": f"echo {n}"}, "same") for n in range(48)]
    driven = run(
        sandbox,
        calls(*many, call("Nope", {}, "same"), call("bash", {"command": "ls"}, "other")),
        says("done"),
    )
    sent = driven.sent(1)["messages"]
    asked = [one["id"] for one in sent[2]["tool_calls"]]
    answered = [message["tool_call_id"] for message in sent[3:]]
    assert len(set(asked)) == 50
    assert answered == asked
    assert sent[-2]["content"] == "Unknown tool: Nope"
    assert sent[-1]["content"] == "Unknown tool: bash"
    assert "used it twice" in " ".join(driven.events(ModelCallFinished)[0].notes)
    assert driven.reason == "agent"


def test_context_tokens_are_the_servers_total_else_an_estimate_that_says_so(sandbox: Sandbox) -> None:
    driven = run(
        sandbox, calls(bash("true"), prompt=500, completion=30), calls(bash("true"), prompt=None), says("x")
    )
    counted, estimated, _ = driven.events(ModelCallFinished)
    assert (counted.context_tokens, counted.context_tokens_estimated) == (530, False)
    assert estimated.context_tokens_estimated
    sent = [*driven.sent(1)["messages"], estimated.message]
    size = len(json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode())
    assert estimated.context_tokens == -(-size // 4)


def test_absurd_counts_of_a_server_are_unknown_and_the_context_is_estimated(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("true"), prompt=10**30, completion=10**30), says("done"))
    finished, _ = driven.events(ModelCallFinished)
    assert (finished.reply.usage.total, finished.context_tokens_estimated) == (None, True)
    assert 0 < finished.context_tokens < 100_000
    assert driven.reason == "agent"


@pytest.mark.parametrize(
    ("prompt", "completion", "changed", "reason", "counted"),
    [
        (100, 8_192, {}, "max_tokens_per_turn", "max_tokens_per_turn"),
        (126_000, 6_000, {}, "max_context_len", "max_context_tokens"),
        (124_000, 8_192, {}, "max_context_len", "max_context_tokens"),
        (100, 50, {}, "max_context_len", ""),
        (None, 0, {}, "max_tokens_per_turn", ""),
        (None, 0, {"max_tokens_per_turn": None}, "max_context_len", ""),
        (100, 9_000, {"max_tokens_per_turn": None}, "max_context_len", ""),
    ],
)
def test_a_reply_cut_by_length_executes_nothing_and_names_the_limit_that_cut_it(
    sandbox: Sandbox, prompt: int | None, completion: int, changed: JSONObject, reason: str, counted: str
) -> None:
    answer = calls(
        bash("touch executed"), content="I was", finish="length", prompt=prompt, completion=completion
    )
    driven = run(sandbox, answer, limits=limits(**changed))
    assert driven.reason == reason
    assert driven.ending is not None
    assert driven.ending.final_message == "I was"
    assert driven.events(ToolCallStarted) == []
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b""
    # A limit is said to be reached only by a number that somebody counted.
    assert [event.limit for event in driven.events(LimitReached)] == ([counted] if counted else [])


def test_a_length_in_capitals_cuts_too(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("touch executed"), finish="LENGTH", completion=8_192))
    assert driven.reason == "max_tokens_per_turn"
    assert driven.events(ToolCallStarted) == []


def test_the_context_ceiling_counts_the_tool_messages_and_ends_the_run(sandbox: Sandbox) -> None:
    driven = run(
        sandbox,
        calls(bash("head -c 20000 /dev/zero | tr '\\0' x"), prompt=1000, completion=20),
        limits=limits(max_context_tokens=6_000),
    )
    assert driven.reason == "max_context_len"
    assert len(driven.server.calls) == 1
    limit, used, allowed = reached(driven)
    assert (limit, allowed) == ("max_context_tokens", 6_000)
    assert used > 6_000


def test_the_last_allowed_step_is_executed_and_then_the_run_ends(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("echo x >> seen")), limits=limits(max_steps=3))
    assert driven.reason == "max_turns"
    assert reached(driven) == ("max_steps", 3, 3)
    assert sandbox.read("seen") == b"x\nx\nx\n"
    assert len(driven.server.calls) == 3


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens.",
        "Please reduce the length of the messages.",
        "code: context_length_exceeded",
        "The context length was exceeded",
        "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
        "the request exceeds the available context size, try increasing it",
    ],
)
def test_an_overflowing_request_is_a_limit_and_the_work_is_kept(sandbox: Sandbox, text: str) -> None:
    refused = plain({"object": "error", "message": text, "type": "BadRequestError", "code": 400}, status=400)
    driven = run(sandbox, calls(bash("echo kept > file")), refused)
    assert driven.reason == "max_context_len"
    assert driven.ending is not None
    assert text in driven.ending.detail
    assert driven.events(LimitReached) == []
    assert sandbox.read("file") == b"kept\n"
    assert len(driven.server.calls) == 2


def test_an_endpoint_that_refuses_is_infrastructure_and_never_the_models_fault(sandbox: Sandbox) -> None:
    driven = run(sandbox, plain({"error": {"message": "no such key"}}, status=401))
    assert isinstance(driven.raised, EndpointError)
    assert driven.raised.exit_reason is ExitReason.LLM_QUERY_ERROR
    assert not driven.raised.retryable
    assert len(driven.server.calls) == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [('{"command": "ls', "not valid JSON"), ("", "empty"), ("[1]", "a JSON array"), ('"x"', "a JSON string")],
)
def test_explain_keeps_the_raw_text_tells_the_model_and_makes_the_next_request_valid(
    sandbox: Sandbox, raw: str, why: str
) -> None:
    driven = run(sandbox, calls(call("Bash", raw, "x1"), bash("echo good")), says("done"))
    started, good = driven.events(ToolCallStarted)
    assert (started.raw_arguments, started.arguments) == (raw, {})
    assert why in started.malformed
    assert good.malformed == ""
    finished = driven.events(ModelCallFinished)[0]
    assert finished.reply.tool_calls[0].arguments == raw
    sent = driven.sent(1)["messages"]
    for one in sent[2]["tool_calls"]:
        assert isinstance(json.loads(one["function"]["arguments"]), dict)
    told = sent[3]["content"]
    assert "could not be parsed" in told
    assert why in told
    assert raw in told
    assert driven.changed == [(1, 2)]
    assert driven.reason == "agent"


def test_as_leaf_leaves_the_raw_text_in_the_history_and_runs_the_tool_with_nothing(sandbox: Sandbox) -> None:
    raw = '{"command": "ls'
    driven = run(sandbox, calls(call("Bash", raw, "x1")), says("done"), config=AS_LEAF)
    sent = driven.sent(1)["messages"]
    assert sent[2]["tool_calls"][0]["function"]["arguments"] == raw
    assert sent[3]["content"] == "ValueError: missing required argument: command"
    (started,) = driven.events(ToolCallStarted)
    assert (started.raw_arguments, started.arguments) == (raw, {})
    assert started.malformed


def test_replies_without_one_understood_call_end_the_run_when_there_is_a_limit(sandbox: Sandbox) -> None:
    bad, good = calls(call("Bash", "{")), calls(bash("true"))
    driven = run(sandbox, bad, bad, good, bad, bad, bad, good, limits=limits(max_format_errors=3))
    assert driven.reason == "format_errors"
    assert reached(driven) == ("max_format_errors", 3, 3)
    assert len(driven.server.calls) == 6
    # Every raw reply is kept beside the reason it was not understood.
    assert len([event for event in driven.events(ToolCallStarted) if event.malformed]) == 5


def test_a_fenced_command_instead_of_a_call_is_kept_whole_and_pointed_out(sandbox: Sandbox) -> None:
    text = "I run:\n```bash\ncat a.py\n```"
    driven = run(sandbox, says(text))
    (finished,) = driven.events(ModelCallFinished)
    assert finished.reply.content == text
    assert "tool call written as text" in finished.notes[0]
    assert driven.reason == "agent"


def test_cancel_interrupts_a_streaming_reply_and_keeps_what_had_come(sandbox: Sandbox) -> None:
    stop = StopSignal()
    word = f"data: {json.dumps(delta(content='word '))}\n\n".encode()

    def words() -> Iterator[bytes]:
        yield from [word] * 50
        stop.set(ExitReason.CANCELLED)
        yield from [word] * 8000

    driven = run(sandbox, Answer(pieces=words(), pause=0.02), stop=stop)
    assert driven.reason == "cancelled"
    (interrupted,) = driven.events(ModelCallInterrupted)
    assert interrupted.reason == "cancelled"
    assert interrupted.partial.startswith("word word")
    assert interrupted.cost.amount is None


def test_cancel_interrupts_a_running_command_and_skips_the_calls_after_it(sandbox: Sandbox) -> None:
    stop = StopSignal()

    long = odd_seconds(4)
    when(lambda: sleeping(long), lambda: stop.set(ExitReason.CANCELLED))
    driven = run(sandbox, calls(bash(f"echo begun; sleep {long}"), bash("touch never")), stop=stop)
    assert driven.reason == "cancelled"
    (interrupted,) = driven.events(ToolCallInterrupted)
    assert interrupted.stdout is not None
    assert interrupted.stdout.text == "begun\n"
    assert len(driven.events(ToolCallStarted)) == 1
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b""
    # What the broken-off command did to the workspace is looked at, too.
    assert driven.changed == [(1, 1)]


def test_a_cancel_between_two_calls_of_a_reply_starts_no_further_call(sandbox: Sandbox) -> None:
    stop = StopSignal()

    def cancel(event: Event) -> None:
        if isinstance(event, ToolCallFinished):
            stop.set(ExitReason.CANCELLED)

    write = call("Write", {"file_path": "a", "content": "1"})
    driven = run(sandbox, calls(write, bash("touch never")), stop=stop, on_event=cancel)
    assert driven.reason == "cancelled"
    assert [event.tool for event in driven.events(ToolCallStarted)] == ["Write"]
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b"a\n"


def test_a_cancel_between_steps_asks_the_model_nothing_more(sandbox: Sandbox) -> None:
    stop = StopSignal()
    stop.set(ExitReason.CANCELLED)
    driven = run(sandbox, says("never"), stop=stop)
    assert driven.reason == "cancelled"
    assert driven.server.calls == []


def test_wall_time_interrupts_a_running_command(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("echo begun; sleep 60")), limits=limits(max_total_time_sec=6.0))
    assert driven.reason == "max_time"
    (interrupted,) = driven.events(ToolCallInterrupted)
    assert interrupted.reason == "max_time"
    assert interrupted.stdout is not None
    assert interrupted.stdout.text == "begun\n"
    limit, used, allowed = reached(driven)
    assert (limit, allowed) == ("max_total_time_sec", 6)
    assert used >= 1


def test_wall_time_interrupts_a_silent_model(sandbox: Sandbox) -> None:
    driven = run(sandbox, says("late", delay=60), limits=limits(max_total_time_sec=4.0))
    assert driven.reason == "max_time"
    assert [event.reason for event in driven.events(ModelCallInterrupted)] == ["max_time"]


def test_wall_time_ends_a_run_whose_endpoint_is_busy_for_ever(sandbox: Sandbox) -> None:
    busy = plain({"error": {"message": "slow down"}}, status=429)
    driven = run(sandbox, busy, limits=limits(max_total_time_sec=5.0), retry_seconds=900)
    assert driven.reason == "max_time"
    assert len(driven.events(ModelCallFailed)) >= 2
    assert driven.events(ModelCallFinished) == []
    assert reached(driven)[0] == "max_total_time_sec"


def test_a_pause_is_no_wall_time(sandbox: Sandbox) -> None:
    steering = Steering()

    def pause(event: Event) -> None:
        if isinstance(event, ToolCallStarted):
            steering.put(Ask("pause", "Ada", 1))
        if isinstance(event, Paused):
            threading.Timer(7.0, steering.put, [Ask("resume", "Ben", 2)]).start()

    driven = run(
        sandbox,
        calls(bash("true")),
        says("done"),
        limits=limits(max_total_time_sec=6.0),
        steering=steering,
        on_event=pause,
    )
    assert driven.reason == "agent"
    assert driven.kinds()[4:7] == ["tool_call_finished", "paused", "resumed"]


def test_the_token_budget_stops_the_run_within_one_step(sandbox: Sandbox) -> None:
    driven = run(
        sandbox, calls(bash("true"), prompt=400, completion=100), limits=limits(max_tokens_total=900)
    )
    assert driven.reason == "max_tokens_total"
    assert reached(driven) == ("max_tokens_total", 1_000, 900)
    assert len(driven.server.calls) == 2
    assert len(driven.events(ToolCallFinished)) == 2


GPT = {"model_id": "gpt-4o", "price": {"basis": "table", "provider": "openai", "model": "gpt-4o"}}


def test_the_money_budget_counts_earlier_attempts_and_stops_the_run_within_one_step(sandbox: Sandbox) -> None:
    answer = calls(bash("true"), prompt=100_000, completion=1_000)
    free = run(sandbox, answer, says("done"), model=GPT)
    (cost, _) = [event.cost.amount for event in free.events(ModelCallFinished)]
    assert cost is not None
    cap = cost * Decimal("1.5")
    driven = run(sandbox, answer, model=GPT, limits=limits(max_cost_usd=cap))
    assert driven.reason == "max_cost"
    assert len(driven.server.calls) == 2
    earlier = run(sandbox, answer, model=GPT, limits=limits(max_cost_usd=cap), spent_usd_before=cost)
    assert earlier.reason == "max_cost"
    assert len(earlier.server.calls) == 1
    assert reached(earlier) == ("max_cost_usd", 2 * cost, cap)


def test_an_unknown_cost_does_not_count_and_is_not_called_zero(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("true")), says("done"), limits=limits(max_cost_usd=Decimal("0.01")))
    assert driven.reason == "agent"
    assert [event.cost.amount for event in driven.events(ModelCallFinished)] == [None, None]


@pytest.mark.parametrize(
    ("limit", "model", "sent"),
    [
        (8_192, {}, {"max_completion_tokens": 8_192}),
        (8_192, {"max_tokens_per_turn": 1_000}, {"max_completion_tokens": 1_000}),
        (None, {"max_tokens_per_turn": 1_000}, {"max_completion_tokens": 1_000}),
        (8_192, {"extra_body": {"max_tokens": 500}}, {"max_tokens": 500}),
        (100, {"extra_body": {"max_tokens": 500}}, {"max_tokens": 100}),
        (8_192, {"sampling": {"max_tokens": 300, "max_completion_tokens": 900}}, {"max_tokens": 300}),
    ],
)
def test_every_request_carries_the_smallest_cap_per_turn(
    sandbox: Sandbox, limit: int | None, model: JSONObject, sent: JSONObject
) -> None:
    driven = run(
        sandbox, calls(bash("true")), says("x"), limits=limits(max_tokens_per_turn=limit), model=model
    )
    for number in (0, 1):
        body = driven.sent(number)
        assert {name: body[name] for name in ("max_tokens", "max_completion_tokens") if name in body} == sent
    assert [event.max_tokens for event in driven.events(ModelCallStarted)] == list(sent.values()) * 2
    assert all(input.sha256_actual == input.sha256_expected for input in rebuild_inputs(driven.records))


def test_without_a_cap_a_turn_may_take_what_is_left_of_the_known_context(sandbox: Sandbox) -> None:
    driven = run(
        sandbox,
        calls(bash("true"), prompt=20_000, completion=480),
        says("x"),
        limits=limits(max_tokens_per_turn=None, max_context_tokens=32_768),
    )
    first, second = (driven.sent(number)["max_completion_tokens"] for number in (0, 1))
    assert 20_000 < first < 32_768
    assert second < 32_768 - 20_480
    assert all(input.sha256_actual == input.sha256_expected for input in rebuild_inputs(driven.records))


def test_no_cap_is_sent_where_neither_limit_nor_context_is_known(sandbox: Sandbox) -> None:
    driven = run(sandbox, says("x"), limits=limits(max_tokens_per_turn=None, max_context_tokens=None))
    assert "max_completion_tokens" not in driven.sent(0)
    assert driven.events(ModelCallStarted)[0].max_tokens is None


def test_a_lost_sandbox_leaves_the_loop_and_no_model_is_asked_again(lost: Sandbox) -> None:
    def lose(event: Event) -> None:
        if isinstance(event, ToolCallStarted):
            lost.stop()

    driven = run(lost, calls(bash("true")), on_event=lose, limits=limits(max_steps=3))
    assert isinstance(driven.raised, SandboxLostError)
    assert len(driven.server.calls) == 1
    (interrupted,) = driven.events(ToolCallInterrupted)
    assert "sandbox lost" in interrupted.reason


@pytest.mark.parametrize("config", [PRESET, AS_LEAF], ids=["explain", "as_leaf"])
def test_the_input_of_every_call_of_a_whole_run_is_rebuilt_from_the_log_alone(
    sandbox: Sandbox, config
) -> None:  # type: ignore[no-untyped-def]
    driven = run(
        sandbox,
        calls(bash("echo ä; printf 'a\\0\\377b'"), reasoning="Hmm …", reasoning_field="reasoning"),
        plain({"error": {"message": "busy"}}, status=503),
        calls(call("Bash", '{"command": "ls', "x"), call("Nope", {}, "x"), reasoning="again"),
        stream(delta(content="half"), done=False, cut_after=40),
        calls(call("Write", {"file_path": "ü", "content": "\ud800 lone"}), prompt=None),
        calls(call("Read", {"file_path": "ü"}), content="\ud83d text"),
        says("done"),
        config=config,
    )
    assert driven.reason == "agent"
    # Through the written form and back, as another process would read it.
    stored = [read_record(json.loads(record.to_line().encode().decode())) for record in driven.records]
    rebuilt = list(rebuild_inputs(stored))
    assert len(rebuilt) == len(driven.server.calls) == 7
    for found, request in zip(rebuilt, driven.server.calls, strict=True):
        assert found.sha256_actual == found.sha256_expected
        assert found.body == request.body
    assert messages_after(stored)[:-1] == driven.sent(6)["messages"]
