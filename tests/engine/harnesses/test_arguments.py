from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.harnesses.arguments import parse_arguments, protocol_notes, unread_form
from lab.engine.llm.base import Reply, ToolCall, canonical_json


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ('{"command": "ls"', "not valid JSON"),
        ("{'command': 'ls'}", "not valid JSON"),
        ('{"timeout": NaN}', "NaN is no JSON"),
        ('{"timeout": 1e999}', "too large"),
        ("[1]", "a JSON array"),
        ('"{\\"command\\": \\"ls\\"}"', "a JSON string"),
        ("7", "a number"),
        ("null", "null"),
        ("true", "true or false"),
        ('{"a": ' * 60 + "1" + "}" * 60, "nested too deeply"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_named_and_becomes_an_empty_one(raw: str, why: str) -> None:
    parsed = parse_arguments(raw)
    assert parsed.arguments == {}
    assert why in parsed.malformed


def test_a_lone_surrogate_written_as_an_escape_does_not_reach_the_tool() -> None:
    parsed = parse_arguments('{"command": "echo \\ud800", "pair": "\\ud83d\\ude00"}')
    assert parsed.malformed == ""
    assert parsed.arguments == {"command": "echo \ufffd", "pair": "😀"}


@given(st.text())
def test_any_text_is_either_understood_or_named_malformed(raw: str) -> None:
    parsed = parse_arguments(raw)
    assert bool(parsed.malformed) or isinstance(json.loads(raw), dict)
    canonical_json(parsed.arguments)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()))
def test_every_json_object_is_understood(value: dict[str, object]) -> None:
    parsed = parse_arguments(json.dumps(value))
    assert parsed.malformed == ""
    assert parsed.arguments == value


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ("<tool_call>\n<function=Bash>\n<parameter=command>ls</parameter></function></tool_call>", "markup"),
        ("I run this:\n```bash\nls -la\n```", "fence"),
        ("```mswea_bash_command\nls\n```", "fence"),
        ('{"name": "Bash", "arguments": {"command": "ls"}}', "json"),
        ('[TOOL_CALLS]Bash[ARGS]{"command": "ls"}', "markup"),
        ("Bash(command='ls')", "python"),
    ],
)
def test_a_call_written_as_text_is_pointed_out(content: str, form: str) -> None:
    reply = Reply(content=content, finish_reason="stop")
    assert unread_form(reply, tools=["Read", "Bash"]) == form
    (note,) = protocol_notes(reply, form=form)
    assert "what looks like a tool call written as text" in note
    assert "parser" in note


@pytest.mark.parametrize(
    ("protocol", "opening", "content", "form"),
    [
        ("xml", "<function=", "I look.\n```bash\nls\n```", "fence"),
        ("xml", "<function=", '{"name": "execute_bash", "arguments": {"cmd": "ls"}}', "json"),
        ("xml", "<function=", "<function=execute_bash>\n<parameter=cmd>ls", ""),
        ("fenced", "```mswea_bash_command", "```bash\nls\n```", "fence"),
        ("fenced", "```mswea_bash_command", "<function=bash>\n<parameter=command>ls</parameter>", "markup"),
        ("fenced", "```mswea_bash_command", "  ```mswea_bash_command\nls", ""),
        ("fenced", "```mswea_bash_command", "I am done.", ""),
    ],
)
def test_a_call_in_another_form_than_the_harness_takes_is_named(
    protocol: str, opening: str, content: str, form: str
) -> None:
    reply = Reply(content=content, finish_reason="stop")
    assert unread_form(reply, protocol=protocol, opening=opening) == form
    notes = protocol_notes(reply, protocol=protocol, form=form)
    assert [("in another form" in note, "only" in note) for note in notes] == [(True, True)] * bool(form)


def test_native_calls_sent_to_a_harness_that_takes_text_are_named() -> None:
    reply = Reply(tool_calls=(ToolCall(id="1", name="bash", arguments="{}"),), finish_reason="tool_calls")
    form = unread_form(reply, protocol="fenced", opening="```mswea_bash_command")
    assert form == "native"
    (note,) = protocol_notes(reply, protocol="fenced", form=form)
    assert "in another form (native calls)" in note
    (beside,) = protocol_notes(reply, protocol="fenced", taken=1)
    assert "from the text only" in beside


def test_calls_that_a_harness_leaves_out_are_counted() -> None:
    calls = tuple(ToolCall(id=str(at), name="Bash", arguments="{}") for at in range(3))
    reply = Reply(tool_calls=calls, finish_reason="tool_calls")
    assert protocol_notes(reply, taken=3) == []
    assert protocol_notes(reply, taken=1) == ["the reply holds 3 calls; this harness takes one a reply"]


def test_an_ordinary_answer_gets_no_note() -> None:
    reply = Reply(content="Fixed `parse`.\n```python\nparse('1h')\n```", finish_reason="stop")
    assert unread_form(reply) == ""
    assert protocol_notes(reply) == []


LEAK = '<tool_call>{"name": "Bash", "arguments": {"command": "ls"}}</tool_call>'


def test_text_about_markup_is_no_call_after_calls_that_were_parsed() -> None:
    shown = Reply(content=f"The format:\n```\n{LEAK}\n```\nRun it:\n```bash\nls\n```", finish_reason="stop")
    assert unread_form(shown, tools=["Bash"], parses=True) == ""
    unread = Reply(content=f"I look.\n{LEAK}", finish_reason="stop")
    assert unread_form(unread, tools=["Bash"], parses=True) == "markup"
    mentions = Reply(reasoning="I should emit a <tool_call> block.", finish_reason="stop")
    assert protocol_notes(mentions, tools=["Bash"]) == []


def test_a_call_inside_the_reasoning_is_pointed_out() -> None:
    (note,) = protocol_notes(Reply(content="", reasoning=LEAK, finish_reason="stop"), tools=["Bash"])
    assert "reasoning" in note


def test_a_dropped_call_and_a_wrong_finish_reason_are_pointed_out() -> None:
    assert "sent none" in protocol_notes(Reply(content="x", finish_reason="tool_calls"))[0]
    call = ToolCall(id="1", name="Bash", arguments="{}")
    assert "finish reason stop" in protocol_notes(Reply(tool_calls=(call,), finish_reason="stop"))[0]


def test_an_unusual_finish_reason_is_pointed_out() -> None:
    assert "content_filter" in protocol_notes(Reply(content="x", finish_reason="content_filter"))[0]
    assert "none at all" in protocol_notes(Reply(content="x"))[0]
    assert protocol_notes(Reply(content="x", finish_reason="length")) == []
