"""Replies that look like calls no parser has read flag their run, whoever reads the log and whenever."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from lab.engine.harnesses.base import ToolDefinition
from lab.engine.llm.base import ModelConfig, Price, Reply
from lab.engine.preflight.exchange import Asking
from lab.models import LEAKED_CALLS, Flag, HarnessVersion, Run
from lab.services import flags, run_pages
from tests import builders
from tests.fakes.openai_server import FakeOpenAI, JSONObject, plain

pytestmark = pytest.mark.django_db

BASH = ToolDefinition(name="Bash", executor="bash")
LEAK = '<tool_call>{"name": "Bash", "arguments": {"command": "ls"}}</tool_call>'
JSON_LEAK = 'I look.\n```json\n{"name": "Bash", "arguments": {"command": "ls"}}\n```'


def run_with(*events: Any, protocol: str = "native", tool: ToolDefinition = BASH) -> Run:
    run = builders.run(status=Run.Status.PREPARING)
    version = run.arm.harness_version
    config = {**version.config, "protocol": protocol, "tools": [tool.model_dump(mode="json")]}
    HarnessVersion.objects.filter(pk=version.pk).update(config=config)
    builders.start(run)
    builders.append(run, *events)
    found = run_pages.find_run(run.pk)
    assert found is not None
    return found


def test_calls_in_the_text_flag_the_run_with_step_and_event() -> None:
    run = run_with(*builders.bash_step(1, "ls", "a"), builders.asked(2), builders.answered(2, content=LEAK))
    flag = Flag.objects.get(run=run)
    assert (flag.code, flag.step, flag.event_seq) == (LEAKED_CALLS, 2, run.last_seq)
    assert "markup of a template" in flag.detail
    problem = run_pages.panel(run).parser_problem
    assert problem is not None
    assert problem.steps == [(2, run.last_seq)]
    assert "parser problem?" in run_pages.row_of(run).marks
    assert [one.run_id for one in flags.flagged_runs(run.experiment_id)] == [run.pk]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"content": 'I look.\n[Bash(command="ls")]'}, "the reply holds a call in Python's form"),
        ({"content": 'Bash(command="ls")'}, "the reply holds a call in Python's form"),
        ({"reasoning": f"I look. {LEAK}"}, "the reasoning holds a call as markup of a template"),
        ({"content": '```tool_code\nBash(command="ls")\n```'}, "the reply holds a call in Python's form"),
        (
            {
                "content": "<|channel|>commentary to=functions.Bash <|constrain|>json<|message|>"
                '{"command": "ls"}<|call|>'
            },
            "the reply holds a call as markup of a template",
        ),
    ],
)
def test_calls_in_pythons_form_and_in_reasoning_alone_flag_it_too(reply: JSONObject, said: str) -> None:
    run = run_with(builders.asked(1), builders.answered(1, **reply))
    assert Flag.objects.get(run=run).detail.startswith(said)
    assert flags.rebuild(run_id=run.pk) == 1


@pytest.mark.parametrize(
    "reply",
    [
        {"content": 'Done: the shell is run by\n```python\nBash(command="ls")\n```'},
        {"content": "Done.", "reasoning": f"I could say {LEAK}, but it is done."},
        {"content": "Done: I ran `ls`.\n```bash\nls\n```"},
        {"content": 'The config is {"name": "x", "value": 3}.'},
        {"content": ""},
    ],
)
def test_answers_in_words_flag_nothing(reply: JSONObject) -> None:
    run = run_with(builders.asked(1), builders.answered(1, **reply))
    assert run_pages.panel(run).parser_problem is None
    assert run_pages.row_of(run).marks == []


@pytest.mark.parametrize(
    "text",
    [
        "The parser now reads <tool_call> blocks and <function=Bash> as well.",
        'Done. It drops `<tool_call>{"name": "Bash", "arguments": {}}</tool_call>` now.',
        'The format is <tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
        'A call is {"name": "get_weather", "arguments": {"city": "Oslo"}}.',
    ],
)
def test_text_that_speaks_of_markup_or_of_other_tools_flags_nothing(text: str) -> None:
    run = run_with(builders.asked(1), builders.answered(1, content=text))
    assert flags.parser_problem(run) is None


@pytest.mark.parametrize(
    "text",
    [
        JSON_LEAK,
        f"Done. The README shows the format:\n```xml\n{LEAK}\n```",
        f"Done. {LEAK} is read again, and tested.",
    ],
)
def test_after_parsed_calls_an_example_of_a_call_flags_nothing(text: str) -> None:
    run = run_with(*builders.bash_step(1, "ls", "a"), builders.asked(2), builders.answered(2, content=text))
    assert flags.parser_problem(run) is None
    assert flags.rebuild(run_id=run.pk) == 0


def test_a_harness_whose_calls_stand_in_the_text_is_flagged_for_nothing() -> None:
    run = run_with(builders.asked(1), builders.answered(1, content=LEAK), protocol="xml")
    assert flags.parser_problem(run) is None


def test_a_parsed_call_beside_its_own_markup_is_no_parser_problem() -> None:
    run = run_with(builders.asked(1), builders.answered(1, ("Bash", "{}"), content=LEAK))
    assert flags.parser_problem(run) is None


def test_a_call_that_the_server_dropped_is_one() -> None:
    run = run_with(builders.asked(1), builders.answered(1, content="I look.", finish_reason="tool_calls"))
    assert "sent no call" in Flag.objects.get(run=run).detail


def test_flags_are_rebuilt_from_the_log_long_replies_included() -> None:
    long = "I think. " * 2_000 + JSON_LEAK
    run = run_with(builders.asked(1), builders.answered(1, content=long))
    before = list(Flag.objects.filter(run=run).values_list("code", "event_seq", "step", "detail"))
    Flag.objects.filter(run=run).update(detail="of an older rule")
    Flag.objects.create(run=run, code=LEAKED_CALLS, event_seq=1)
    assert flags.rebuild(run_id=run.pk) == 1
    assert list(Flag.objects.filter(run=run).values_list("code", "event_seq", "step", "detail")) == before


class TestRecordedCompletions:
    """What a correct and an incorrect parser of other people's servers returned."""

    @pytest.fixture
    def folder(self) -> Path:
        folder = Path(os.environ.get("LAB_TEST_DATA", "")) / "completions"
        if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
            pytest.skip("absent data: LAB_TEST_DATA names no folder with completions")
        return folder

    def reply_to(self, completion: JSONObject) -> Reply:
        """As the lab's own client reads it."""
        with FakeOpenAI(plain(completion)) as server:
            model = ModelConfig(
                name="m", model_id="m", base_url=server.base_url, price=Price(basis="unknown")
            )
            reply = Asking(model).ask("auto", {"messages": [{"role": "user", "content": "?"}]}).reply
        assert reply is not None
        return reply

    def flagged(self, reply: Reply, *, tool: ToolDefinition = BASH) -> list[str]:
        event = builders.answered(1).model_copy(update={"reply": reply})
        run = run_with(builders.asked(1), event, tool=tool)
        return list(Flag.objects.filter(run=run).values_list("detail", flat=True))

    def test_the_correct_log_flags_nothing(self, folder: Path) -> None:
        log = json.loads((folder / "native-tool-calls.json").read_text())
        reply = self.reply_to(log["response"])
        assert reply.tool_calls[0].name == "str_replace_editor"
        assert self.flagged(reply) == []

    def test_the_leaking_log_is_flagged_for_its_empty_call_and_for_its_calls_as_text(
        self, folder: Path
    ) -> None:
        log = json.loads((folder / "calls-as-text.json").read_text())
        assert "sent no call with a name" in self.flagged(self.reply_to(log["raw_response"]))[0]
        prompt = log["messages"][0]["content"]
        text = prompt if isinstance(prompt, str) else prompt[0]["text"]
        call = re.search(r"<function=.*?</function>", text, re.DOTALL)
        assert call is not None
        name = re.search(r"<function=([\w.-]+)>", call.group())
        assert name is not None
        leaked = Reply(content=call.group(), finish_reason="stop")
        offered = BASH.model_copy(update={"name": name.group(1)})
        assert "markup of a template" in self.flagged(leaked, tool=offered)[0]
