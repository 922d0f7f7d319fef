"""Steps of harnesses whose calls stand in the text, and replies that a harness could not execute."""

from __future__ import annotations

import html
import re

import pytest

from lab.engine.events import Event, HistoryRewritten, ModelCallFinished, ToolCallFinished
from lab.render.events import Fragment, LogEvent, fragments
from lab.render.kinds import call_kind, subject_of
from lab.render.text import Excerpt, excerpt
from lab.render.written import around_call
from tests import builders
from tests.render.test_steps import records

_TAG = re.compile(r"<[^>]*>")
EXECUTE = "<function=execute_bash>\n<parameter=cmd>python -m pytest -q</parameter>\n</function>"


def step(*events: Event) -> Fragment:
    (found,) = fragments(7, [LogEvent.of(record) for record in records(*events)])
    return found


def words(fragment: Fragment) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", fragment.html)).split())


def edited(tool: str, arguments: dict[str, object], *, failed: bool = False) -> Fragment:
    ended = builders.told(1, "Execution output of [file_editor]:\nedited", failed=failed)
    return step(
        *builders.written_step(1, tool, tool, arguments, markup="<function=x></function>", ended=ended)
    )


@pytest.mark.parametrize(
    ("executor", "arguments", "kind"),
    [
        ("execute_bash", {"cmd": "python -m pytest -q"}, "test"),
        ("execute_bash", {"cmd": "grep -rn parse ."}, "read"),
        ("shell", {"command": "python repro.py"}, "shell"),
        ("file_editor", {"command": "view", "path": "/w/a.py"}, "read"),
        ("file_editor", {"command": "str_replace", "path": "/w/a.py"}, "edit"),
        ("str_replace_editor", {"command": "create", "path": "/w/a.py"}, "edit"),
        ("str_replace_editor", {"command": "insert", "path": "/w/a.py"}, "edit"),
        ("file_editor", {"command": "undo_edit", "path": "/w/a.py"}, "edit"),
        ("search", {"search_term": "parse", "path": "/w"}, "read"),
        ("finish", {"command": "submit"}, "final"),
        ("submit", {}, "final"),
    ],
)
def test_a_call_has_the_kind_of_what_it_does(executor: str, arguments: dict[str, object], kind: str) -> None:
    assert call_kind("renamed", executor, arguments) == kind


@pytest.mark.parametrize(
    ("executor", "arguments", "subject"),
    [
        ("file_editor", {"command": "view", "path": "a.py", "view_range": "[1, 40]"}, "view a.py [1, 40]"),
        ("file_editor", {"command": "view", "path": "a.py", "view_range": [1, 40]}, "view a.py [1, 40]"),
        ("search", {"search_term": "def parse", "path": "src"}, "def parse in src"),
        ("execute_bash", {"cmd": "ls"}, "ls"),
        ("finish", {"command": "submit", "result": "Mended."}, "Mended."),
    ],
)
def test_a_row_says_what_a_call_is_about(executor: str, arguments: dict[str, object], subject: str) -> None:
    assert subject_of("renamed", executor, arguments) == subject


def test_a_call_in_the_text_is_shown_as_what_it_does_and_its_markup_on_demand() -> None:
    ended = builders.printed(1, "1 failed, 3 passed in 0.1s\n", exit_code=1)
    found = step(
        *builders.written_step(
            1, "execute_bash", "execute_bash", {"cmd": "python -m pytest -q"}, markup=EXECUTE, ended=ended
        )
    )
    assert 'data-kind="test"' in found.html
    assert "exit 1 · 1 failed, 3 passed" in words(found)
    assert "I look." in words(found)
    assert "parameter=" not in html.unescape(found.html)
    assert "/runs/7/events/2/body?part=reply" in found.html
    assert "the reply as the model wrote it" in words(found)


def test_a_fenced_command_is_shown_once() -> None:
    command = "ls -la src"
    ended = builders.printed(1, "a\n")
    found = step(
        *builders.written_step(
            1,
            "bash",
            "shell",
            {"command": command},
            markup=f"```mswea_bash_command\n{command}\n```",
            raw=command,
            said="I will run ls -la src and see.",
            ended=ended,
        )
    )
    assert "I will run ls -la src and see." in words(found)
    assert "mswea_bash_command" not in found.html


@pytest.mark.parametrize(
    ("content", "raw", "before", "after"),
    [
        ("Look.\n\n```bash\nls\n```\nThen more.", "ls", "Look.", "Then more."),
        ("I use ls.\n~~~sh\nls\n~~~", "ls", "I use ls.", ""),
        ("<run>ls</run>", "ls", "", ""),
        (f"So:\n<tool_call>\n{EXECUTE}\n</tool_call>", EXECUTE, "So:", ""),
        (f"{EXECUTE}\nIt prints 3.", EXECUTE, "", "It prints 3."),
    ],
)
def test_what_stands_around_a_call_is_found(content: str, raw: str, before: str, after: str) -> None:
    assert around_call(content, excerpt(raw)) == (before, after)


@pytest.mark.parametrize(
    ("content", "raw"), [("I use ls.", "ls"), ("nothing", "ls"), ("", "ls"), ("x", ""), ("ls " * 200, "ls")]
)
def test_a_text_without_the_call_stays_as_it_is(content: str, raw: str) -> None:
    assert around_call(content, excerpt(raw)) is None


def test_of_a_long_call_only_its_beginning_need_be_known() -> None:
    long = f"<function=file_editor>\n<parameter=file_text>{'x = 1' * 2000}</parameter>\n</function>"
    known = Excerpt(long[:400], len(long), None, None)
    assert around_call(f"I write.\n{long}\nDone.", known) == ("I write.", "Done.")
    assert around_call(f"I write.\n{long}"[:8000], known) == ("I write.", "")


def test_an_editors_replacement_is_a_diff() -> None:
    found = edited(
        "file_editor",
        {"command": "str_replace", "path": "/w/a.py", "old_str": "a = 1\n", "new_str": "a = 2\n"},
    )
    assert 'class="line del"' in found.html
    assert "str_replace /w/a.py" in words(found)
    assert "+1 −1" in words(found)
    assert "data-keep-open" in found.html


def test_an_editors_insertion_says_where_and_what() -> None:
    found = edited(
        "str_replace_editor",
        {"command": "insert", "path": "/w/a.py", "insert_line": "12", "new_str": "import os\nimport re\n"},
    )
    assert "behind line 12" in words(found)
    assert found.html.count('class="line add"') == 2
    assert 'class="line del"' not in found.html


def test_an_editors_new_file_is_shown_with_its_lines() -> None:
    found = edited("file_editor", {"command": "create", "path": "/w/new.py", "file_text": "a = 1\nb = 2\n"})
    assert "2 lines" in words(found)
    assert "a = 1" in words(found)


def test_an_edit_that_failed_says_what_the_model_was_told() -> None:
    found = edited(
        "file_editor",
        {"command": "str_replace", "path": "a.py", "old_str": "x", "new_str": "y"},
        failed=True,
    )
    assert "Told the model" in words(found)


def test_the_call_that_hands_in_is_final() -> None:
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    ended = builders.printed(1, "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n").model_copy(
        update={"submitted": True}
    )
    found = step(
        builders.asked(1),
        builders.answered(1, ("bash", "{}"), content="All tests pass."),
        builders.called(1, "bash", {"command": command}),
        ended,
    )
    assert 'data-kind="final"' in found.html
    assert "handed in" in words(found)


def test_a_submission_that_was_answered_with_a_review_is_not_final() -> None:
    found = step(
        builders.asked(1),
        builders.answered(1, ("submit", "{}")),
        builders.called(1, "submit", {}),
        builders.told(1, "Before your work is handed in …"),
    )
    assert 'data-kind="read"' in found.html
    assert "to be reviewed first" in words(found)


def test_a_reply_without_a_call_is_shown_beside_the_reason() -> None:
    found = step(
        *builders.unread_step(
            3, "Let me see.\n```bash\nls\n```", detail="there is no <function=…> in the reply"
        )
    )
    text = words(found)
    assert "No call there is no <function=…> in the reply" in text
    assert "not understood, told the model" in text
    assert "Reply, not executed 4 lines" in text
    assert "```bash ls ```" in text
    assert "Told the model 1 line" in text
    assert "Every reply makes exactly one call." in text
    assert 'data-kind="shell"' in found.html
    assert "infrastructure" not in found.html
    assert "join the conversation" not in text


def test_a_dropped_reply_says_that_the_model_will_not_see_it_again() -> None:
    found = step(
        *builders.unread_step(
            3,
            "Two commands.",
            ("bash", '{"command": '),
            reason="format_error",
            detail="not JSON.",
            drops=True,
        )
    )
    text = words(found)
    assert "Not understood (format error), told the model: not JSON." in text
    assert "This reply did not join the conversation" in text
    assert "bash, not executed" in text
    assert '{"command":' in text
    assert "/runs/7/events/2/body?part=tool_calls.0.arguments" not in found.html, "it is shown whole"


def test_calls_that_a_harness_left_out_are_shown_and_not_executed() -> None:
    first, second = ("Bash", '{"command": "ls"}'), ("Bash", '{"command": "rm -r build"}')
    reply = builders.answered(1, first, second)
    one = {**reply.message, "tool_calls": reply.message["tool_calls"][:1]}
    events = [
        builders.asked(1),
        reply.model_copy(update={"message": one}),
        builders.called(1, "Bash", {"command": "ls"}),
        builders.printed(1, "a\n"),
    ]
    assert "Bash, not executed" in words(step(*events))
    assert "rm -r build" in words(step(*events))
    events[1] = reply
    assert "not executed" not in words(step(*events)), "the second call is still to come"


def test_an_empty_reply_is_said_to_be_empty() -> None:
    assert "The reply was empty" in words(step(*builders.unread_step(1, "")))


def test_a_cut_reply_that_is_asked_again_says_both() -> None:
    asked, reply, told = builders.unread_step(1, "I think and", reason="cut", detail="the reply was cut")
    assert isinstance(reply, ModelCallFinished)
    cut = reply.reply.model_copy(update={"finish_reason": "length"})
    found = step(asked, reply.model_copy(update={"reply": cut}), told)
    assert "Cut reply" in words(found)
    assert "cut by length, told the model" in words(found)


def test_a_condensed_history_says_which_messages_and_what_is_left() -> None:
    placeholder = {"role": "user", "content": "<Observation left out to save context>"}
    found = step(
        HistoryRewritten(
            step=9,
            reason="condensed",
            replaced={3: placeholder, 5: placeholder},
            context_tokens=27_950,
        ),
        *builders.bash_step(9, "ls", "a\n"),
    )
    text = words(found)
    assert "the harness condensed 2 messages of the conversation; about 27,950 tokens are left" in text
    assert "which messages messages 4, 6 → “<Observation left out to save context>”" in text
    assert found.id == "event-1"


def test_exchanges_that_left_the_conversation_are_named() -> None:
    found = step(
        HistoryRewritten(step=4, reason="requeried", replaced={4: {}, 5: {}}, context_tokens=900),
        *builders.bash_step(4, "ls", "a\n"),
    )
    assert "the harness took out 2 messages: replies that were not understood" in words(found)
    assert "messages 5, 6 → taken out" in words(found)


def test_a_step_keeps_its_name_while_it_grows() -> None:
    events = [
        HistoryRewritten(step=4, reason="requeried", replaced={4: {}}),
        *builders.bash_step(4, "ls", "a\n"),
    ]
    assert {step(*events[:end]).id for end in range(1, len(events) + 1)} == {"event-1"}


def output(stdout: str, observation: str, dropped: int = 0) -> ToolCallFinished:
    return builders.printed(1, stdout).model_copy(
        update={"observation": observation, "observation_dropped": dropped}
    )


def shown_output(ended: ToolCallFinished) -> str:
    return words(
        step(
            builders.asked(1),
            builders.answered(1, ("Bash", "{}")),
            builders.called(1, "Bash", {"command": "cat big"}),
            ended,
        )
    )


def test_what_is_missing_between_a_head_and_a_tail_is_said_so() -> None:
    seen = "Exit code: 0\nExecution output of [execute_bash]:\na\n[40 lines truncated]\nz"
    text = shown_output(output("line\n" * 100, seen, dropped=400))
    assert "the model did not see 400 characters in the middle · show the rest" in text


def test_what_a_wording_leaves_out_is_said_too() -> None:
    text = shown_output(output("x" * 20_000, "<output_head>\nxxx\n</output_head>"))
    assert "the model saw 32 characters instead of these 20,000 · show what it saw" in text
    assert "instead of" not in shown_output(output("a\n", "<output>\na\n</output>"))
