"""mini, line by line: what is known of mini-swe-agent 2.4, and the test that shows it here."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lab.engine.errors import ExitReason, InvalidValueError
from lab.engine.events import (
    HarnessMessage,
    LimitReached,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.conversation import messages_after
from lab.engine.harnesses.mini import MARKER, Mini, submission
from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import Sandbox
from lab.engine.steering import Ask, Steering
from tests.engine.harnesses.driving import Driven, call, calls, ended
from tests.engine.harnesses.mini_replies import (
    FACTS,
    MINI,
    PRICE,
    SUBMITS,
    TAG,
    TEXT,
    bash,
    gives,
    limits,
    mini,
    roles,
    run,
    written,
)
from tests.engine.harnesses.tables import Row, require_shown
from tests.fakes.openai_server import Answer, plain, says

TABLE = (
    # Tool and protocol.
    Row("one tool `bash`, with `command` as required string", ("test_the_request_offers_one_shell",)),
    Row("native tool calls by default", ("test_native_calls_are_the_default",)),
    Row("several calls in a reply are run in order", ("test_several_calls_are_run_in_order",)),
    Row("in text: one fenced block tagged mswea_bash_command", ("test_a_command_stands_in_the_text",)),
    Row("the SWE-bench XML configuration: an element of that name", ("test_a_command_stands_in_the_text",)),
    Row(
        "an expression of the configuration finds the command",
        (
            "harnesses.test_fenced_calls.test_what_is_found_is_what_the_expressions_find",
            "test_the_tag_is_an_option",
        ),
        differs="a block or an element of any tag; free expressions could hang on a reply",
    ),
    Row("exactly one match is required", ("test_a_reply_that_cannot_be_read",)),
    Row(
        "model classes litellm, openrouter, portkey, requesty, their textbased ones, deterministic",
        ("test_native_calls_are_the_default", "test_a_command_stands_in_the_text"),
        differs="the lab has one client for chat completions; the protocol is a field of the harness",
    ),
    Row(
        "model classes for the Responses API",
        differs="the lab speaks chat completions alone, to every model",
    ),
    # Loop.
    Row("system_template, then instance_template; strict Jinja", ("test_the_conversation_opens",)),
    Row("query, execute, append observations, again", ("test_the_conversation_is_what_was_said",)),
    Row(
        "until a message with the role exit",
        ("test_the_marker_submits",),
        differs="the end is an event with a reason; no such message exists",
    ),
    Row("templates know task and platform facts", ("test_the_conversation_opens",)),
    Row(
        "… n_model_calls, model_cost, elapsed_seconds",
        ("harnesses.test_mini_observations.test_observations_may_say_what_the_run_has_come_to",),
    ),
    Row("… the agent's limits, the environment's cwd and timeout", ("test_prompts_know_limits_and_place",)),
    Row(
        "… the configuration of the model, and variables of the process",
        (
            "harnesses.test_import_mini.test_a_name_that_templates_cannot_have_is_refused_with_the_field_of_the_file",
        ),
        differs="a harness is the same for every model and on every machine",
    ),
    # Limits.
    Row("step_limit, 0 is none; 250 for SWE-bench", ("test_limits_are_looked_at_before_each_query",)),
    Row("cost_limit 3.0 USD", ("test_the_presets_limits", "test_limits_are_looked_at_before_each_query")),
    Row("wall_time_limit_seconds 0", ("test_the_presets_limits", "test_wall_time_ends_the_run")),
    Row("max_consecutive_format_errors 3", ("test_three_unreadable_replies_in_a_row_end_the_run",)),
    Row("… counted anew after a reply that can be read", ("test_a_readable_reply_begins_the_count_anew",)),
    Row(
        "limits of all runs together by environment variables",
        differs="what many runs may use is the matter of experiments and slots",
    ),
    Row(
        "ten tries of a call, 4 to 60 seconds apart; some errors are not tried again",
        differs="the lab's client tries again for every family alike (tests/engine/llm/test_client.py)",
    ),
    Row("a context window that is exceeded ends the run", ("test_an_overflowing_request_ends_the_run",)),
    # Format errors.
    Row("no tool call: a user message says so", ("test_a_reply_that_cannot_be_read",)),
    Row("arguments that are no JSON, an unknown tool, no command", ("test_a_reply_that_cannot_be_read",)),
    Row(
        "the sentence `error` of the answer",
        ("test_the_answer_to_an_unreadable_reply",),
        differs="the words are the lab's own, in imported templates too",
    ),
    Row("the reply itself does not join the conversation", ("test_a_reply_that_cannot_be_read",)),
    Row("one bad call among several: none is run", ("test_one_bad_call_among_several",)),
    Row("another text for finish_reason length", ("test_a_reply_cut_by_length",)),
    Row("… and for tool_calls without a call", ("test_announced_calls_that_did_not_come",)),
    Row(
        "a cut reply whose command is whole is run",
        ("test_a_reply_cut_by_length",),
        differs="a reply cut by its length is never executed, in every family",
    ),
    # Submission.
    Row(
        "the marker as first line, with return code 0",
        ("test_the_marker_submits", "test_what_does_not_submit"),
    ),
    Row("the remaining lines are the submission", ("test_the_marker_submits", "test_the_submission_is")),
    Row("commands after the submitting one are not run", ("test_nothing_runs_after_the_submission",)),
    Row(
        "SWE-bench: the diff goes into patch.txt, and is printed after the marker",
        ("test_the_marker_submits",),
        differs="the lab captures the patch itself, so the preset asks for the marker alone; an imported "
        "wording keeps its way, and what it prints is the final message",
    ),
    # Endings.
    Row("Submitted", ("test_the_marker_submits",)),
    Row("LimitsExceeded", ("test_limits_are_looked_at_before_each_query",)),
    Row("TimeExceeded", ("test_wall_time_ends_the_run",)),
    Row("RepeatedFormatError", ("test_three_unreadable_replies_in_a_row_end_the_run",)),
    Row("ContextWindowExceededError", ("test_an_overflowing_request_ends_the_run",)),
    Row(
        "names of other exceptions",
        ("test_a_broken_endpoint_is_no_ending_of_the_agent",),
        differs="endpoint or sandbox that broke are infrastructure, and another attempt is made",
    ),
    Row("FormatError on messages", ("test_a_reply_that_cannot_be_read",)),
    Row(
        "UserInterruption, UserRejection, UserNewTask on messages",
        ("test_what_a_person_writes_joins_between_two_steps",),
        differs="people steer every family alike: a message joins as one of the user; no command waits for "
        "a person's yes",
    ),
    # Commands.
    Row("a fresh shell each time", ("test_each_command_has_a_shell_of_its_own",)),
    Row("output and errors in one", ("test_each_command_has_a_shell_of_its_own",)),
    Row(
        "a time-out kills all of it", ("harnesses.test_mini_observations.test_a_command_that_takes_too_long",)
    ),
    Row("30 seconds by default", ("harnesses.test_mini_observations.test_a_command_that_takes_too_long",)),
    Row(
        "the local environment runs commands by sh",
        ("harnesses.test_import_mini.test_the_shell_is_told_from_interpreter_and_place",),
        differs="bash -c there too, as in SWE-bench's configuration",
    ),
    Row("SWE-bench: 60 seconds, bash -c", ("test_the_request_offers_one_shell",)),
    Row(
        "environments docker, singularity, swerex, bubblewrap, contree, and their settings",
        differs="where commands run is the sandbox's matter, the same for every family",
    ),
    Row(
        "SWE-bench: cwd /testbed, variables of the environment",
        ("harnesses.test_import_mini.test_what_is_not_carried_over_is_named",),
        differs="the task's sandbox has folder and variables",
    ),
    # Observations.
    Row(
        "exception, return code, output",
        (
            "harnesses.test_mini_observations.test_the_observation_says",
            "harnesses.test_mini_observations.test_a_command_that_takes_too_long",
        ),
    ),
    Row(
        "10,000 characters or more: warning, 5,000, count, 5,000",
        ("harnesses.test_mini_observations.test_a_long_output_loses_its_middle",),
    ),
    Row(
        "mini.yaml: the same as JSON",
        ("harnesses.test_import_mini.test_observations_are_those_that_the_templates_make_there",),
    ),
    Row(
        "output is held whole",
        differs="of each command some 1 MB is kept, so longer output counts fewer characters as left out",
    ),
    # Wording.
    Row("system prompt of one sentence", ("test_native_calls_are_the_default",)),
    Row("the sections of the task prompt", ("test_the_task_prompt_has_the_sections",)),
    # Files.
    Row(
        "a trajectory file for each run",
        ("harnesses.test_mini_trajectories.test_recorded_runs_are_asked_and_answered_as_they_were",),
        differs="a run is a log of events here; exports are made from it",
    ),
    Row("preds.json", differs="an export of the lab, the same for every family"),
)


def test_every_row_has_its_test_or_the_reason_why_it_is_done_differently() -> None:
    require_shown(TABLE, __name__)


class TestPreset:
    def test_it_can_be_used_in_every_protocol(self) -> None:
        for protocol in Mini.protocols:
            assert errors(mini(protocol)) == []


def test_native_calls_are_the_default_and_the_system_prompt_is_one_sentence() -> None:
    assert (MINI.protocol, Mini.protocols[0]) == ("native", "native")
    (system, _) = Mini().opening(MINI, FACTS, MINI.limits)
    assert system["content"].count(".") == 1
    assert "\n" not in system["content"]


def test_the_request_offers_one_shell_natively_and_no_tool_in_text(sandbox: Sandbox) -> None:
    body = run(sandbox, gives(SUBMITS, "native")).sent(0)
    (tool,) = body["tools"]
    assert tool["function"]["name"] == "bash"
    assert tool["function"]["parameters"]["properties"].keys() == {"command"}
    assert tool["function"]["parameters"]["properties"]["command"]["type"] == "string"
    assert tool["function"]["parameters"]["required"] == ["command"]
    assert MINI.tools[0].settings == {"timeout_sec": 60, "shell": "bash -c"}
    for protocol in TEXT:
        body = run(sandbox, gives(SUBMITS, protocol), config=mini(protocol)).sent(0)
        assert {"tools", "tool_choice", "parallel_tool_calls"} & body.keys() == set()


@pytest.mark.parametrize("protocol", Mini.protocols)
def test_the_conversation_opens_with_both_prompts_and_facts_of_the_platform(protocol: str) -> None:
    config = mini(protocol, system_prompt="{{ system }} {{ release }} {{ version }} {{ machine }}")
    system, task = Mini().opening(config, FACTS, config.limits)
    assert (system["role"], task["role"]) == ("system", "user")
    assert system["content"] == "Linux 6.1 #1 SMP x86_64"
    assert "Fix the bug." in task["content"]
    shown = {"native": SUBMITS, "fenced": written(SUBMITS), "xml": written(SUBMITS, "xml")}
    assert shown[protocol] in task["content"]
    with pytest.raises(InvalidValueError, match="system_prompt"):
        Mini().opening(mini(protocol, system_prompt="{{ nothing }}"), FACTS, config.limits)


def test_the_task_prompt_has_the_sections_that_are_usual() -> None:
    task = Mini().opening(MINI, FACTS, MINI.limits)[1]["content"]
    for section in (
        "<task>\nFix the bug.\n</task>",
        "/workspace",
        "Leave tests and configuration files as they are",
        "Write a script that shows the problem",
        "Each command gets a shell of its own",
        "at least once",
        "after 60 seconds",
        "Linux 6.1 (x86_64)",
        SUBMITS,
    ):
        assert section in task, section


def test_prompts_know_limits_and_place_and_that_nothing_was_asked_yet() -> None:
    names = "step_limit cost_limit wall_time_limit_seconds max_consecutive_format_errors cwd timeout"
    names += " n_model_calls model_cost elapsed_seconds"
    config = mini(task_prompt=" ".join(f"{{{{ {name} }}}}" for name in names.split()))
    said = Mini().opening(config, FACTS, limits(max_total_time_sec=90.0))[1]["content"]
    assert said == "250 3.0 90 3 /workspace 60 0 0.0 0"


def test_the_presets_limits_are_those_of_the_swe_bench_configuration() -> None:
    known = MINI.limits.model_dump(exclude_none=True)
    assert known == {"max_steps": 250, "max_cost_usd": Decimal(3), "max_format_errors": 3}


@pytest.mark.parametrize("protocol", Mini.protocols)
def test_the_conversation_is_what_was_said_and_done_and_nothing_else(sandbox: Sandbox, protocol: str) -> None:
    answers = [gives("echo one", protocol), gives("echo two; exit 4", protocol), gives(SUBMITS, protocol)]
    driven = run(sandbox, *answers, config=mini(protocol))
    answered = "tool" if protocol == "native" else "user"
    assert roles(driven, 2) == ["system", "user", "assistant", answered, "assistant", answered]
    messages = driven.sent(2)["messages"]
    assert messages[3]["content"] == "<returncode>0</returncode>\n<output>\none\n</output>"
    assert messages[5]["content"] == "<returncode>4</returncode>\n<output>\ntwo\n</output>"
    if protocol == "native":
        assert messages[3]["tool_call_id"] == messages[2]["tool_calls"][0]["id"]
    else:
        assert messages[2] == {
            "role": "assistant",
            "content": f"I go on.\n\n{written('echo one', protocol)}",
        }
    assert ended(driven) == ("agent", "Submitted")


@pytest.mark.parametrize("protocol", TEXT)
def test_a_command_stands_in_the_text_and_native_calls_beside_it_are_nothing(
    sandbox: Sandbox, protocol: str
) -> None:
    odd = calls(bash("touch native"), content=written("touch text", protocol), reasoning="Hm.")
    driven = run(sandbox, odd, gives(SUBMITS, protocol), config=mini(protocol))
    started = driven.events(ToolCallStarted)[0]
    assert (started.tool, started.executor, started.arguments) == ("bash", "shell", {"command": "touch text"})
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b"text\n"
    message = driven.sent(1)["messages"][2]
    assert message["reasoning_content"] == "Hm."
    assert "tool_calls" not in message


def test_the_tag_is_an_option(sandbox: Sandbox) -> None:
    config = mini("fenced", options={"tag": "bash"})
    assert written(SUBMITS, tag="bash") in Mini().opening(config, FACTS, config.limits)[1]["content"]
    driven = run(
        sandbox, says(written("echo hi", tag="bash")), says(written(SUBMITS, tag="bash")), config=config
    )
    assert "hi" in driven.sent(1)["messages"][-1]["content"]
    (problem,) = errors(mini("fenced", options={"tag": "a tag\n"}))
    assert problem.field == "options.tag"


def test_several_calls_are_run_in_order_and_each_is_answered(sandbox: Sandbox) -> None:
    many = [bash(f"echo {n} >> seen; wc -l < seen", f"x{n}") for n in range(5)]
    driven = run(sandbox, calls(*many), gives(SUBMITS, "native"))
    assert sandbox.read("seen") == b"0\n1\n2\n3\n4\n"
    answers = driven.sent(1)["messages"][3:]
    assert [message["tool_call_id"] for message in answers] == ["x0", "x1", "x2", "x3", "x4"]
    assert [f"\n{n + 1}\n" in message["content"] for n, message in enumerate(answers)] == [True] * 5


NATIVE_ERRORS: dict[str, tuple[Answer, str, str]] = {
    "no call": (says("I wonder."), "no_call", "holds no tool call"),
    "broken JSON": (calls(call("bash", '{"command": "ls')), "format_error", "not valid JSON"),
    "no object": (calls(call("bash", "[1]")), "format_error", "a JSON array"),
    "unknown tool": (calls(call("python", {"command": "1"})), "format_error", "There is no tool 'python'"),
    "no command": (calls(call("bash", {"cmd": "ls"})), "format_error", "lacks the argument command"),
    "empty": (says(""), "no_call", "holds no tool call"),
}
TEXT_ERRORS: dict[str, tuple[str, str, str]] = {
    "no command": ("I wonder.", "no_call", "it holds 0"),
    "two commands": ("{one}\n{one}", "several_calls", "it holds 2"),
    "another tag": ("```bash\nls\n```", "no_call", "it holds 0"),
}


@pytest.mark.parametrize("case", NATIVE_ERRORS)
def test_a_reply_that_cannot_be_read_is_left_out_and_answered(sandbox: Sandbox, case: str) -> None:
    answer, reason, said = NATIVE_ERRORS[case]
    driven = run(sandbox, answer, gives(SUBMITS, "native"))
    require_left_out(driven, reason, said)
    assert ended(driven) == ("agent", "Submitted")


@pytest.mark.parametrize("protocol", TEXT)
@pytest.mark.parametrize("case", TEXT_ERRORS)
def test_a_reply_that_cannot_be_read_in_text_is_left_out_and_answered(
    sandbox: Sandbox, case: str, protocol: str
) -> None:
    text, reason, said = TEXT_ERRORS[case]
    answer = says(text.replace("{one}", written("touch executed", protocol)))
    driven = run(sandbox, answer, gives(SUBMITS, protocol), config=mini(protocol))
    require_left_out(driven, reason, said)
    assert written("ls", protocol) in driven.sent(1)["messages"][-1]["content"]
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b""


def require_left_out(driven: Driven, reason: str, said: str) -> None:
    finished = driven.events(ModelCallFinished)[0]
    assert finished.message == {}
    (answered,) = driven.events(HarnessMessage)
    assert (answered.step, answered.reason) == (1, reason)
    assert said in answered.detail
    assert roles(driven, 1) == ["system", "user", "user"]
    shown = driven.sent(1)["messages"][-1]["content"]
    assert said in shown
    assert "Nothing of your reply was run" in shown


def test_one_bad_call_among_several_is_explained_and_none_is_run(sandbox: Sandbox) -> None:
    answer = calls(bash("touch executed"), call("bash", "{broken"), call("look", {"command": "x"}))
    driven = run(sandbox, answer, gives(SUBMITS, "native"))
    require_left_out(driven, "format_error", "cannot be read")
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b""
    raw = [one.arguments for one in driven.events(ModelCallFinished)[0].reply.tool_calls]
    assert raw[1] == "{broken"


@pytest.mark.parametrize("protocol", Mini.protocols)
def test_a_reply_cut_by_length_is_never_executed_and_the_model_is_told_so(
    sandbox: Sandbox, protocol: str
) -> None:
    if protocol == "native":
        cut = calls(bash("touch executed"), finish="length")
    else:
        cut = says(written("touch executed", protocol), finish="length")
    driven = run(sandbox, cut, gives(SUBMITS, protocol), config=mini(protocol))
    (answered,) = driven.events(HarnessMessage)
    assert answered.reason == "cut"
    assert "ended before it held a whole command (finish_reason=length)" in answered.message["content"]
    assert roles(driven, 1) == ["system", "user", "user"]
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b""
    assert ended(driven) == ("agent", "Submitted")


def test_announced_calls_that_did_not_come_are_told_apart_from_a_missing_call(sandbox: Sandbox) -> None:
    driven = run(sandbox, says("I look.", finish="tool_calls"), says("I look."), gives(SUBMITS, "native"))
    announced, missing = driven.events(HarnessMessage)
    assert "finish_reason=tool_calls" in announced.message["content"]
    assert "holds no tool call" in missing.message["content"]


def test_three_unreadable_replies_in_a_row_end_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, gives("echo kept > file", "native"), says("hm"))
    assert ended(driven) == ("format_errors", "RepeatedFormatError")
    assert len(driven.server.calls) == 4
    (limit,) = driven.events(LimitReached)
    assert (limit.limit, limit.used, limit.allowed) == ("max_format_errors", 3, 3)
    assert sandbox.read("file") == b"kept\n"
    # The last answer is there too, as it is where nobody is asked any more.
    assert len(driven.events(HarnessMessage)) == 3


def test_a_readable_reply_begins_the_count_anew(sandbox: Sandbox) -> None:
    answers = [
        says("hm"),
        says("hm"),
        gives("true", "native"),
        says("hm"),
        says("hm"),
        gives(SUBMITS, "native"),
    ]
    driven = run(sandbox, *answers)
    assert ended(driven) == ("agent", "Submitted")
    assert len(driven.events(HarnessMessage)) == 4


def test_a_reply_that_is_left_out_does_not_count_towards_the_context(sandbox: Sandbox) -> None:
    driven = run(
        sandbox,
        says("hm", prompt=500, completion=9_000),
        gives(SUBMITS, "native"),
        limits=limits(max_context_tokens=8_000),
    )
    assert ended(driven) == ("agent", "Submitted")


@pytest.mark.parametrize(
    ("changed", "reason", "requests"),
    [
        ({"max_steps": 2}, "max_turns", 2),
        ({"max_steps": None, "max_cost_usd": Decimal("0.002")}, "max_cost", 2),
        ({"max_steps": None, "max_cost_usd": None, "max_tokens_total": 360}, "max_tokens_total", 3),
    ],
)
def test_limits_are_looked_at_before_each_query(
    sandbox: Sandbox, changed: JSONObject, reason: str, requests: int
) -> None:
    driven = run(sandbox, gives("echo x >> seen", "native"), limits=limits(**changed), model={"price": PRICE})
    native = "" if reason == "max_tokens_total" else "LimitsExceeded"
    assert ended(driven) == (reason, native)
    assert len(driven.server.calls) == requests
    assert sandbox.read("seen") == b"x\n" * requests


def test_wall_time_ends_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, gives("sleep 60", "native"), limits=limits(max_total_time_sec=1.0))
    assert ended(driven) == ("max_time", "TimeExceeded")


def test_an_overflowing_request_ends_the_run_and_the_work_is_kept(sandbox: Sandbox) -> None:
    refused = plain({"error": {"message": "This model's maximum context length is 4096 tokens."}}, status=400)
    driven = run(sandbox, gives("echo kept > file", "native"), refused)
    assert ended(driven) == ("max_context_len", "ContextWindowExceededError")
    assert sandbox.read("file") == b"kept\n"


def test_a_broken_endpoint_is_no_ending_of_the_agent(sandbox: Sandbox) -> None:
    driven = run(sandbox, plain({"error": {"message": "no such key"}}, status=401))
    assert driven.ending is None
    assert getattr(driven.raised, "exit_reason", None) is ExitReason.LLM_QUERY_ERROR


@pytest.mark.parametrize("protocol", Mini.protocols)
def test_the_marker_submits_and_the_rest_of_the_output_is_the_final_message(
    sandbox: Sandbox, protocol: str
) -> None:
    command = f"printf 'a\\nb\\n' > patch.txt; echo; echo '  {MARKER} ' && cat patch.txt"
    driven = run(sandbox, gives(command, protocol), config=mini(protocol))
    assert ended(driven) == ("agent", "Submitted")
    assert driven.ending is not None
    assert driven.ending.final_message == "a\nb\n"
    (finished,) = driven.events(ToolCallFinished)
    assert finished.submitted
    assert len(driven.server.calls) == 1
    assert all(message["role"] != "exit" for message in messages_after(driven.records))


@pytest.mark.parametrize(
    "command", [f"{SUBMITS}; exit 1", f"echo first; {SUBMITS}", f"echo {MARKER}!", f"{SUBMITS}; kill -9 $$"]
)
def test_what_does_not_submit(sandbox: Sandbox, command: str) -> None:
    driven = run(sandbox, gives(command, "native"), gives(SUBMITS, "native"))
    assert [event.submitted for event in driven.events(ToolCallFinished)] == [False, True]
    assert MARKER in driven.sent(1)["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("output", "rest"),
    [
        (f"{MARKER}\n", ""),
        (MARKER, ""),
        (f"\n {MARKER}\ndiff\n\n+a\n", "diff\n\n+a\n"),
        (f"{MARKER}\n\n", "\n"),
    ],
)
def test_the_submission_is_what_follows_the_first_line(output: str, rest: str) -> None:
    assert submission(output) == rest


def test_nothing_runs_after_the_submission(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("touch before"), bash(SUBMITS), bash("touch after")))
    assert sandbox.exec(["ls"], timeout=10).stdout.head == b"before\n"
    assert ended(driven) == ("agent", "Submitted")


def test_each_command_has_a_shell_of_its_own_and_one_text_of_output(sandbox: Sandbox) -> None:
    first = "mkdir -p deep; cd deep; export X=1; echo out; echo err >&2; echo more"
    driven = run(
        sandbox, calls(bash(first), bash("pwd; echo ${X:-unset}; echo $0")), gives(SUBMITS, "native")
    )
    one, two = (message["content"] for message in driven.sent(1)["messages"][3:])
    assert one == "<returncode>0</returncode>\n<output>\nout\nerr\nmore\n</output>"
    assert "deep" not in two
    assert "unset" in two


def test_what_a_person_writes_joins_between_two_steps(sandbox: Sandbox) -> None:
    steering = Steering()
    steering.put(Ask("message", "ada", 1, {"text": "Look at b.py too."}))
    driven = run(sandbox, gives("true", "native"), gives(SUBMITS, "native"), steering=steering)
    assert {"role": "user", "content": "Look at b.py too."} in driven.sent(1)["messages"]
    assert ended(driven) == ("agent", "Submitted")


def test_the_answer_to_an_unreadable_reply_is_worded_by_the_harness(sandbox: Sandbox) -> None:
    words = "{{ error }}|{{ actions | length }}|{{ finish_reason }}|{{ has_tool_calls }}|{{ cut }}|{{ tag }}"
    config = mini("fenced", feedback={"format_error": words})
    assert errors(config) == []
    two = f"{written('a')}\n{written('b')}"
    driven = run(sandbox, says(two), gives(SUBMITS, "fenced"), config=config)
    assert driven.sent(1)["messages"][-1]["content"] == (
        f"The reply has to hold exactly one command, and it holds 2.|2|stop|False|False|{TAG}"
    )


def test_unreadable_replies_stay_where_the_harness_keeps_them(sandbox: Sandbox) -> None:
    config = mini("fenced", options={"keeps_unread_replies": True})
    driven = run(sandbox, says("hm"), gives(SUBMITS, "fenced"), config=config)
    assert roles(driven, 1) == ["system", "user", "assistant", "user"]
