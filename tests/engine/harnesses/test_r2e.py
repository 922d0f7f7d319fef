"""R2E-Gym's agent, line by line: what is known of it, and the test that shows it here."""

from __future__ import annotations

import json
import time

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.events import (
    HarnessMessage,
    LimitReached,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.r2e import R2E
from lab.engine.llm.base import Reply
from lab.engine.sandboxes.base import Sandbox
from tests.engine.harnesses.driving import call, calls, ended
from tests.engine.harnesses.r2e_replies import (
    FACTS,
    NATIVE,
    XML,
    block,
    contents,
    gives,
    limits,
    options,
    run,
    runs,
    submits,
)
from tests.engine.harnesses.tables import Row, require_shown
from tests.fakes.openai_server import delta, says, stream

TABLE = (
    # Tools.
    Row(
        "file_editor: command, path, file_text, old_str, …, concise",
        ("test_the_four_tools_and_their_schemas",),
    ),
    Row("execute_bash: cmd, not command", ("test_the_four_tools_and_their_schemas",)),
    Row("search: search_term, path", ("test_the_four_tools_and_their_schemas",)),
    Row("finish: command submit, result", ("test_the_four_tools_and_their_schemas",)),
    Row(
        "paths of file_editor are absolute",
        ("tools.test_editors.test_paths_are_absolute_or_start_at_the_workspace",),
        differs="relative ones are taken too: a repository has no fixed place in every kind of sandbox",
    ),
    Row(
        "file_editor: 10,000 characters, a marker and a hint",
        ("tools.test_file_editor.test_an_answer_is_clipped_at_ten_thousand_characters_with_a_hint",),
    ),
    Row(
        "an edit returns a snippet of four lines around",
        ("tools.test_editors.test_an_edit_shows_four_lines_above_and_below",),
    ),
    Row(
        "view: Python files alone by default",
        ("tools.test_file_editor.test_only_python_files_are_viewed_and_listed_unless_the_harness_says_so",),
    ),
    Row(
        "view: a skeleton above 110 lines without view_range",
        ("tools.test_file_editor.test_a_file_of_a_hundred_and_ten_lines_is_whole_and_one_more_is_condensed",),
    ),
    Row(
        "create refuses existing files", ("tools.test_editors.test_create_makes_a_file_and_overwrites_none",)
    ),
    Row(
        "str_replace needs exactly one match",
        ("tools.test_editors.test_a_replacement_needs_exactly_one_match",),
    ),
    Row(
        "history for undo in a state file",
        ("tools.test_editors.test_undo_lives_in_the_repository_where_no_patch_sees_it",),
    ),
    Row(
        "a syntax check when linting",
        ("tools.test_file_editor.test_with_linting_an_edit_that_breaks_a_python_file_is_not_made",),
    ),
    Row(
        "execute_bash refuses cd, ipython, jupyter, pip, nohup",
        ("tools.test_shells.test_execute_bash_refuses_what_a_call_without_state_is_not_for",),
    ),
    Row(
        "execute_bash prints [STDOUT] and [STDERR]",
        ("tools.test_shells.test_execute_bash_has_a_section_for_each_stream",),
    ),
    Row(
        "observation: exit code first; above 80 lines 40 and 40", ("test_a_long_output_keeps_its_first_and",)
    ),
    Row(
        "search: matches by file in a directory",
        ("tools.test_search.test_a_folder_gives_the_number_of_matching_lines_by_file",),
    ),
    Row(
        "search: refuses above 100 files",
        ("tools.test_search.test_more_than_a_hundred_files_are_counted_and_not_listed",),
    ),
    Row(
        "search: grep -n in a file",
        ("tools.test_search.test_a_file_gives_numbered_lines_by_a_basic_expression",),
    ),
    # Wire formats.
    Row(
        "native calls only for models named gpt or sonnet, XML for all others",
        ("test_the_protocol_is_the_harnesses_choice",),
        differs="the protocol is a visible field of the harness; a name decides nothing",
    ),
    Row("XML: only the first block is parsed", ("test_only_the_first_block_of_a_reply",)),
    Row("XML: values are strings, stripped", ("test_values_are_texts_without_white_space_around",)),
    Row("XML: the text before is the thought", ("test_only_the_first_block_of_a_reply",)),
    Row("XML: the result is a user message", ("test_the_result_of_a_call_in_the_text_is_a_user_message",)),
    Row(
        "the system prompt documents the four functions", ("test_the_system_prompt_documents_every_function",)
    ),
    Row(
        "… and demands reasoning plus exactly one call", ("test_the_system_prompt_documents_every_function",)
    ),
    Row("native: only the first call is executed and kept", ("test_of_several_native_calls_only_the_first",)),
    # Loop.
    Row("a trailing note with the steps remaining", ("test_every_message_to_the_model_says_how_many_steps",)),
    Row("… or that the maximum is reached: submit now", ("test_beyond_the_soft_limit_the_model_is_told_to",)),
    Row("no call: a fixed reprimand, the loop goes on", ("test_a_reply_without_a_call_is_reprimanded",)),
    Row(
        "XML: condensing above 28,000 tokens",
        ("harnesses.test_r2e_whole.test_old_observations_are_condensed_above_the_limit",),
    ),
    Row(
        "… the oldest first, never the first or last message",
        ("harnesses.test_r2e_whole.test_old_observations_are_condensed_above",),
    ),
    Row(
        "… for each request anew",
        (
            "harnesses.test_r2e_whole.test_old_observations_are_condensed_above",
            "harnesses.test_r2e_whole.test_nothing_is_condensed_twice",
        ),
        differs="once condensed stays condensed: the same, since the conversation only grows; tokens are the "
        "server's count where it gives one",
    ),
    Row("native: no condensing", ("harnesses.test_r2e_whole.test_native_conversations_are_never_condensed",)),
    Row(
        "three tries of a call, 60 seconds apart on rate limits",
        (
            "llm.test_client.test_the_wait_the_server_asks_for_is_honoured",
            "llm.test_client.test_waits_grow_and_differ",
        ),
        differs="the lab's client tries again for every family alike",
    ),
    # Limits.
    Row("max_steps 40, soft", ("test_the_presets_limits", "test_beyond_the_soft_limit_the_model_is_told_to")),
    Row("max_steps_absolute 50", ("test_the_presets_limits", "test_the_absolute_limit_ends_the_run")),
    Row("max_token_limit 32768, all tokens of a response", ("test_the_tokens_of_a_response_end_the_run",)),
    Row("max_exec_time 90 s an action", ("test_the_presets_limits", "test_an_action_that_takes_too_long")),
    Row(
        "max_total_time 1200 s",
        ("test_the_presets_limits", "test_wall_time_ends_the_run"),
        differs="wall time counts from the first request and interrupts what runs",
    ),
    Row(
        "llm timeout 120 s",
        differs="time-outs of a call belong to the endpoint, the same for every harness",
    ),
    Row("temperature 0", ("test_the_presets_limits",), differs="suggested; sampling is the model's matter"),
    Row("a time-out of bash is exit -1", ("test_an_action_that_takes_too_long",)),
    # Exit reasons.
    Row("agent: finish before the soft limit", ("test_how_a_finish_is_called",)),
    Row("max_step_limit: finish exactly at it", ("test_how_a_finish_is_called",)),
    Row("agent_max_step_limit: finish after it", ("test_how_a_finish_is_called",)),
    Row(
        "any call of finish ends",
        ("tools.test_submitting.test_finish_with_another_command_submits_nothing",),
        differs="one without its required command is explained, like every other malformed call",
    ),
    Row("abs_step_limit", ("test_the_absolute_limit_ends_the_run",)),
    Row("token_limit", ("test_the_tokens_of_a_response_end_the_run",)),
    Row("traj_time_limit", ("test_wall_time_ends_the_run",)),
    # What is outside of a harness.
    Row("one JSON a line for each trajectory", differs="a run is a log of events; exports are made from it"),
    Row("grading", differs="the task decides how it is verified, whatever the harness"),
    Row(
        "the patch is the staged diff of everything",
        ("harnesses.test_r2e_whole.test_an_exhausted_limit_still_captures_and_verifies",),
        differs="the lab captures the patch in the same way for every family",
    ),
    # What every family owes.
    Row("raw output and raw arguments are kept", ("test_only_the_first_block_of_a_reply",)),
    Row(
        "a malformed call costs an explanation",
        ("test_malformed_native_arguments", "test_an_unknown_function"),
    ),
    Row("missing and double ids", ("test_missing_and_double_ids_are_made_good",)),
    Row("a reply cut by its length is never executed", ("test_a_reply_cut_by_its_length_is_never_executed",)),
    Row(
        "an exhausted limit still captures and verifies",
        ("harnesses.test_r2e_whole.test_an_exhausted_limit_still_captures",),
    ),
    Row("the context limit on an estimate is marked", ("test_without_usage_the_limit_is_held_against",)),
)


def test_every_row_has_its_test_or_the_reason_why_it_is_done_differently() -> None:
    require_shown(TABLE, __name__)


def test_the_four_tools_and_their_schemas_are_r2e_gyms() -> None:
    schemas = {tool.name: tool.parameters for tool in XML.tools}
    kinds = {
        name: {key: about["type"] for key, about in schema["properties"].items()}
        for name, schema in schemas.items()
    }
    assert kinds == {
        "file_editor": {
            "command": "string",
            "path": "string",
            "file_text": "string",
            "old_str": "string",
            "new_str": "string",
            "insert_line": "integer",
            "view_range": "array",
            "concise": "boolean",
        },
        "execute_bash": {"cmd": "string"},
        "search": {"search_term": "string", "path": "string"},
        "finish": {"command": "string", "result": "string"},
    }
    assert {name: schema["required"] for name, schema in schemas.items()} == {
        "file_editor": ["command", "path"],
        "execute_bash": ["cmd"],
        "search": ["search_term"],
        "finish": ["command"],
    }
    editing = schemas["file_editor"]["properties"]
    assert editing["command"]["enum"] == ["view", "create", "str_replace", "insert", "undo_edit"]
    assert (editing["view_range"]["minItems"], editing["view_range"]["maxItems"]) == (2, 2)
    assert schemas["finish"]["properties"]["command"]["enum"] == ["submit"]
    assert [tool.executor for tool in XML.tools] == [tool.name for tool in XML.tools]


@pytest.mark.parametrize("config", [XML, NATIVE], ids=["xml", "native"])
def test_the_preset_is_valid_in_both_protocols(config: HarnessConfig) -> None:
    assert errors(config) == []


def test_the_presets_limits_are_r2e_gyms() -> None:
    assert XML.limits.model_dump(exclude_none=True) == {
        "max_steps": 50,
        "max_context_tokens": 32_768,
        "max_total_time_sec": 1_200.0,
    }
    assert XML.options == {"soft_max_steps": 40, "condense_above_tokens": 28_000}
    assert {tool.name: tool.settings.get("timeout_sec") for tool in XML.tools}["execute_bash"] == 90
    assert XML.suggested_sampling == {"temperature": 0}


def test_the_task_prompt_holds_the_statement_and_the_repositorys_place() -> None:
    (system, task) = R2E().opening(XML, FACTS, XML.limits)
    assert (system["role"], task["role"]) == ("system", "user")
    assert "Fix the bug." in task["content"]
    assert "/workspace" in task["content"]


def test_the_system_prompt_documents_every_function_and_demands_one_call() -> None:
    system = R2E().opening(XML, FACTS, XML.limits)[0]["content"]
    for number, tool in enumerate(XML.tools, start=1):
        assert f"BEGIN FUNCTION #{number}: {tool.name} " in system
        assert tool.description.strip() in system
        for name, about in tool.parameters["properties"].items():
            needed = "required" if name in tool.parameters["required"] else "optional"
            assert f" {name} ({about['type']}, {needed}): {about['description']}" in system
    assert "reasoning stands first" in system
    assert "exactly one call" in system
    renamed = XML.tools[1].model_copy(update={"name": "shell"})
    fewer = XML.model_copy(update={"tools": (renamed, XML.tools[3])})
    system = R2E().opening(fewer, FACTS, XML.limits)[0]["content"]
    assert "BEGIN FUNCTION #1: shell " in system
    assert "execute_bash" not in system
    assert "file_editor" not in system


def test_the_protocol_is_the_harnesses_choice_whatever_the_models_name(sandbox: Sandbox) -> None:
    for model in ("gpt-5", "claude-sonnet", "qwen"):
        xml = run(sandbox, submits(), model={"model_id": model}).sent(0)
        assert {"tools", "tool_choice", "parallel_tool_calls"} & xml.keys() == set()
        native = run(sandbox, submits("native"), config=NATIVE, model={"model_id": model}).sent(0)
        assert [tool["function"]["name"] for tool in native["tools"]] == [tool.name for tool in XML.tools]
        assert native["parallel_tool_calls"] is False
        assert "BEGIN FUNCTION" not in native["messages"][0]["content"]


class TestReading:
    def test_only_the_first_block(self) -> None:
        reading = R2E().read(XML, reply_of(block("execute_bash", cmd="ls")))
        (only,) = reading.calls
        assert (only.tool, only.executor, only.parsed.arguments) == (
            "execute_bash",
            "execute_bash",
            {"cmd": "ls"},
        )

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "I am done.",
            "<function=execute_bash><parameter=cmd>ls</parameter>",
            "</function><function=",
            "<function=></function>",
            '<tool_call>{"name": "execute_bash"}</tool_call>',
        ],
    )
    def test_what_is_no_block(self, text: str) -> None:
        reading = R2E().read(XML, reply_of(text))
        assert (reading.calls, reading.problem) == ((), "no_call")
        assert reading.detail

    def test_a_value_may_hold_markup_and_an_open_one_is_left_out(self) -> None:
        text = "<function = a></function><function=search>\n<parameter = search_term> <b>&lt; </parameter>"
        (only,) = R2E().read(XML, reply_of(f"{text}<parameter=path>x</function>")).calls
        assert only.tool == "search"
        assert only.parsed.arguments == {"search_term": "<b>&lt;"}

    def test_a_text_full_of_open_markup_is_read_in_no_time(self) -> None:
        text = "<function=a>" + "<parameter=a>" * 200_000 + "</function>" + "<function=" * 200_000
        started = time.monotonic()
        (only,) = R2E().read(XML, reply_of(text)).calls
        assert only.parsed.arguments == {}
        assert time.monotonic() - started < 10


def reply_of(text: str) -> Reply:
    return Reply(content=text, finish_reason="stop")


def test_only_the_first_block_of_a_reply_is_executed_and_kept(sandbox: Sandbox) -> None:
    text = (
        f"I think.\n\n{block('execute_bash', cmd='echo one')}\nthen\n{block('execute_bash', cmd='echo two')}"
    )
    driven = run(sandbox, says(text), submits())
    started = driven.events(ToolCallStarted)
    assert [event.arguments for event in started] == [
        {"cmd": "echo one"},
        {"command": "submit", "result": "Mended."},
    ]
    assert started[0].raw_arguments == block("execute_bash", cmd="echo one")
    first = driven.events(ModelCallFinished)[0]
    assert first.reply.content == text
    assert first.message == {
        "role": "assistant",
        "content": "I think.\n\n<function=execute_bash>\n  <parameter=cmd>echo one</parameter>\n</function>",
    }
    assert any("only the first" in note for note in first.notes)


def test_values_are_texts_without_white_space_around_and_tools_convert_them(sandbox: Sandbox) -> None:
    lines = "\n".join(f"line_{number} = {number}" for number in range(1, 20))
    sandbox.write("thing.py", lines.encode())
    view = gives(
        "file_editor", command="\n  view\n", path=" thing.py ", view_range=" [3, 5] ", concise="False"
    )
    driven = run(sandbox, view, submits())
    assert driven.events(ToolCallStarted)[0].arguments == {
        "command": "view",
        "path": "thing.py",
        "view_range": "[3, 5]",
        "concise": "False",
    }
    seen = driven.events(ToolCallFinished)[0].observation
    assert "line_3 = 3" in seen
    assert "line_5 = 5" in seen
    assert "line_6" not in seen


def test_the_result_of_a_call_in_the_text_is_a_user_message(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("echo hi"), submits())
    last = driven.sent(1)["messages"][-1]
    assert last.keys() == {"role", "content"}
    assert last["role"] == "user"
    assert last["content"].startswith("Exit code: 0\nExecution output of [execute_bash]:\n[STDOUT]\n\nhi\n")


def test_reasoning_is_no_part_of_the_history_in_text(sandbox: Sandbox) -> None:
    thinking = stream(
        delta(reasoning_content=block("execute_bash", cmd="rm -r .")),
        delta(content="So."),
        delta(finish="stop"),
    )
    driven = run(sandbox, thinking, submits())
    assert driven.sent(1)["messages"][2] == {"role": "assistant", "content": "So."}
    assert any("reasoning holds" in note for note in driven.events(ModelCallFinished)[0].notes)


def test_of_several_native_calls_only_the_first_is_executed_and_kept(sandbox: Sandbox) -> None:
    two = calls(
        call("execute_bash", {"cmd": "echo one"}, "call_a"),
        call("execute_bash", {"cmd": "echo two"}, "call_b"),
    )
    driven = run(sandbox, two, submits("native"), config=NATIVE)
    assert [event.call_id for event in driven.events(ToolCallStarted)][0] == "call_a"
    assert len(driven.events(ToolCallStarted)) == 2
    assistant, tool = driven.sent(1)["messages"][-2:]
    assert [one["id"] for one in assistant["tool_calls"]] == ["call_a"]
    assert (tool["role"], tool["tool_call_id"]) == ("tool", "call_a")
    assert len(driven.events(ModelCallFinished)[0].reply.tool_calls) == 2


@pytest.mark.parametrize("config", [XML, NATIVE], ids=["xml", "native"])
def test_every_message_to_the_model_says_how_many_steps_remain(
    sandbox: Sandbox, config: HarnessConfig
) -> None:
    answers = [runs("true", config.protocol), says("hm"), submits(config.protocol)]
    driven = run(sandbox, *answers, config=config)
    told = [contents(driven, number)[-1].rpartition("\n")[2] for number in range(3)]
    assert told == ["Steps Remaining: 40", "Steps Remaining: 39", "Steps Remaining: 38"]
    assert contents(driven, 2)[1].endswith("\nSteps Remaining: 40")


def test_the_steps_a_model_is_told_are_never_more_than_the_limit(sandbox: Sandbox) -> None:
    driven = run(sandbox, submits(), limits=limits(max_steps=10))
    assert contents(driven, 0)[-1].endswith("\nSteps Remaining: 10")
    driven = run(sandbox, submits(), config=options(soft_max_steps=0))
    assert "Steps" not in contents(driven, 0)[-1]


def test_beyond_the_soft_limit_the_model_is_told_to_submit_and_may_go_on(sandbox: Sandbox) -> None:
    driven = run(sandbox, *[runs("true")] * 3, submits(), config=options(soft_max_steps=2))
    told = [contents(driven, number)[-1].rpartition("\n")[2] for number in range(4)]
    assert told[:2] == ["Steps Remaining: 2", "Steps Remaining: 1"]
    assert told[2] == told[3] == "No steps remain. Hand in what you have NOW."


@pytest.mark.parametrize(
    ("steps", "native"),
    [(2, "agent"), (3, "max_step_limit"), (4, "agent_max_step_limit"), (5, "agent_max_step_limit")],
)
def test_how_a_finish_is_called_depends_on_the_steps_that_were_left(
    sandbox: Sandbox, steps: int, native: str
) -> None:
    driven = run(sandbox, *[runs("true")] * (steps - 1), submits(), config=options(soft_max_steps=2))
    assert ended(driven) == ("agent", native)
    assert driven.ending is not None
    assert driven.ending.final_message == "Mended."
    assert [event.submitted for event in driven.events(ToolCallFinished)][-1]


def test_the_absolute_limit_ends_the_run(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("true"), limits=limits(max_steps=3), config=options(soft_max_steps=2))
    assert ended(driven) == ("max_turns", "abs_step_limit")
    assert len(driven.events(ModelCallFinished)) == 3
    assert [event.limit for event in driven.events(LimitReached)] == ["max_steps"]


def test_the_tokens_of_a_response_end_the_run_and_not_what_is_observed(sandbox: Sandbox) -> None:
    large = runs("head -c 8000 /dev/zero | tr '\\0' x", prompt=900)
    driven = run(sandbox, large, runs("true", prompt=980), submits(), limits=limits(max_context_tokens=1_000))
    assert ended(driven) == ("max_context_len", "token_limit")
    assert len(driven.events(ToolCallFinished)) == 2
    assert [event.limit for event in driven.events(LimitReached)] == ["max_context_tokens"]


def test_without_usage_the_limit_is_held_against_an_estimate_that_is_marked(sandbox: Sandbox) -> None:
    silent = stream(delta(content=block("execute_bash", cmd="true")), delta(finish="stop"))
    driven = run(sandbox, silent, limits=limits(max_context_tokens=100))
    assert ended(driven) == ("max_context_len", "token_limit")
    (answer,) = driven.events(ModelCallFinished)
    assert answer.context_tokens_estimated
    assert answer.context_tokens >= 100


def test_wall_time_ends_the_run_in_the_middle_of_an_action(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("sleep 60"), limits=limits(max_total_time_sec=1.0))
    assert ended(driven) == ("max_time", "traj_time_limit")


def test_an_action_that_takes_too_long_has_the_exit_code_minus_one(sandbox: Sandbox) -> None:
    hasty = XML.tools[1].model_copy(update={"settings": {"timeout_sec": 0.5}})
    config = XML.model_copy(update={"tools": (XML.tools[0], hasty, *XML.tools[2:])})
    driven = run(sandbox, runs("echo begun; sleep 60"), submits(), config=config)
    first = driven.events(ToolCallFinished)[0]
    assert first.timed_out
    assert first.observation.startswith("Exit code: -1\n")
    assert "begun" in first.observation


def test_a_long_output_keeps_its_first_and_last_forty_lines(sandbox: Sandbox) -> None:
    driven = run(sandbox, runs("seq 200; exit 3"), submits())
    first = driven.events(ToolCallFinished)[0]
    head, lines = first.observation.split("\n")[:2], first.observation.split("\n")[2:]
    assert head == ["Exit code: 3", "Execution output of [execute_bash]:"]
    assert len(lines) == 81
    assert "truncated" in lines[40]
    assert lines[39].isdigit()
    assert "200" in lines
    assert first.stdout is not None
    assert first.stdout.text == "".join(f"{number}\n" for number in range(1, 201))


def test_a_reply_without_a_call_is_reprimanded_and_the_loop_goes_on(sandbox: Sandbox) -> None:
    open_block = "<function=execute_bash>\n<parameter=cmd>ls"
    driven = run(sandbox, says("I am done."), says(open_block), submits())
    assert ended(driven) == ("agent", "agent")
    first, second = driven.events(HarnessMessage)
    assert (first.reason, second.reason) == ("no_call", "no_call")
    assert first.detail != second.detail
    texts = [event.message["content"].rpartition("\n")[0] for event in (first, second)]
    assert texts[0] == texts[1]
    assert [message["role"] for message in driven.sent(2)["messages"][2:]] == ["assistant", "user"] * 2
    assert contents(driven, 2)[4] == open_block


def test_an_unknown_function_is_explained(sandbox: Sandbox) -> None:
    driven = run(sandbox, gives("look_around", where="here"), submits())
    assert driven.events(ToolCallFinished)[0].failed
    assert contents(driven, 1)[-1].startswith("Unknown tool: look_around")
    assert ended(driven) == ("agent", "agent")


@pytest.mark.parametrize("raw", ["{not json", "[1]", "", '"text"'])
def test_malformed_native_arguments_are_explained_and_the_request_stays_valid(
    sandbox: Sandbox, raw: str
) -> None:
    driven = run(sandbox, calls(call("execute_bash", raw)), submits("native"), config=NATIVE)
    assistant, tool = driven.sent(1)["messages"][-2:]
    assert assistant["tool_calls"][0]["function"]["arguments"] == "{}"
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]
    assert "could not be parsed" in tool["content"]
    assert driven.events(ToolCallStarted)[0].raw_arguments == raw
    assert ended(driven) == ("agent", "agent")


def test_missing_and_double_ids_are_made_good(sandbox: Sandbox) -> None:
    function = {"name": "execute_bash", "arguments": json.dumps({"cmd": "true"})}
    nameless = stream(
        delta(tool_calls=[{"index": 0, "type": "function", "function": function}]), delta(finish="tool_calls")
    )
    driven = run(sandbox, nameless, nameless, submits("native"), config=NATIVE)
    ids = [event.call_id for event in driven.events(ToolCallStarted)]
    assert all(ids)
    assert len(set(ids)) == 3
    told = [
        message.get("tool_call_id") for message in driven.sent(2)["messages"] if message["role"] == "tool"
    ]
    assert told == ids[:2]


@pytest.mark.parametrize("config", [XML, NATIVE], ids=["xml", "native"])
def test_a_reply_cut_by_its_length_is_never_executed(sandbox: Sandbox, config: HarnessConfig) -> None:
    native = calls(call("execute_bash", {"cmd": "touch done"}), finish="length")
    cut = {"xml": says(block("execute_bash", cmd="touch done"), finish="length"), "native": native}
    driven = run(sandbox, cut[config.protocol], submits(config.protocol), config=config)
    assert [event.tool for event in driven.events(ToolCallStarted)] == ["finish"]
    (told,) = driven.events(HarnessMessage)
    assert told.reason == "cut"
    assert [message["role"] for message in driven.sent(1)["messages"][2:]] == ["assistant", "user"]
    assert "tool_calls" not in driven.sent(1)["messages"][2]
    assert ended(driven) == ("agent", "agent")


def test_a_reply_cut_by_the_last_of_the_tokens_ends_the_run(sandbox: Sandbox) -> None:
    cut = says("I think", finish="length", prompt=900, completion=100)
    driven = run(sandbox, cut, limits=limits(max_context_tokens=1_000))
    assert ended(driven) == ("max_context_len", "token_limit")
    assert driven.events(HarnessMessage) == []


def test_an_option_that_cannot_be_used_is_named() -> None:
    for changed, field in (({"soft_max_steps": -1}, "soft_max_steps"), ({"max_step": 3}, "max_step")):
        with pytest.raises(InvalidValueError, match=f"options.{field}"):
            R2E().opening(options(**changed), FACTS, XML.limits)
