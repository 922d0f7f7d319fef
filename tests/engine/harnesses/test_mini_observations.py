"""What a model sees of its commands in mini-swe-agent's harness."""

from __future__ import annotations

from typing import Any

import pytest

from lab.engine.events import (
    ToolCallFinished,
)
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.mini import Mini
from lab.engine.sandboxes.base import Sandbox
from tests.engine.harnesses.driving import calls
from tests.engine.harnesses.mini_replies import (
    FACTS,
    MINI,
    PRICE,
    SUBMITS,
    bash,
    gives,
    mini,
    run,
)
from tests.fakes.openai_server import says
from tests.timing import odd_seconds, sleeping


def shell(**settings: Any) -> HarnessConfig:
    """mini with other settings of its tool."""
    return mini(tools=(MINI.tools[0].model_copy(update={"settings": settings}),))


def test_a_command_that_takes_too_long_is_killed_and_is_an_exception(sandbox: Sandbox) -> None:
    assert "after 30 seconds" in Mini().opening(shell(), FACTS, MINI.limits)[1]["content"]
    seconds = odd_seconds(9)
    command = f"echo begun; sleep {seconds} & sleep {seconds}"
    driven = run(sandbox, calls(bash(command)), gives(SUBMITS, "native"), config=shell(timeout_sec=5.0))
    assert driven.sent(1)["messages"][-1]["content"] == (
        f"<exception>An error occurred while executing the command: Command '{command}' timed out after "
        "5 seconds</exception>\n<returncode>-1</returncode>\n<output>\nbegun\n</output>"
    )
    assert sleeping(seconds) == []


def test_the_observation_says_return_code_and_output(sandbox: Sandbox) -> None:
    driven = run(sandbox, calls(bash("true"), bash("printf x; exit 3")), gives(SUBMITS, "native"))
    quiet, failed = (message["content"] for message in driven.sent(1)["messages"][3:])
    assert quiet == "<returncode>0</returncode>\n<output>\n</output>"
    assert failed == "<returncode>3</returncode>\n<output>\nx</output>"


def test_a_long_output_loses_its_middle(sandbox: Sandbox) -> None:
    letters = "i=0; while [ $i -lt 5000 ]; do printf ä; i=$((i+1)); done"
    driven = run(
        sandbox,
        calls(bash(f"{letters}; head -c 4999 /dev/zero | tr '\\0' b"), bash("printf '%20001s' c | tr ' ' b")),
        gives(SUBMITS, "native"),
    )
    whole, long = (message["content"] for message in driven.sent(1)["messages"][3:])
    assert whole == f"<returncode>0</returncode>\n<output>\n{'ä' * 5000}{'b' * 4999}</output>"
    assert f"<output_head>\n{'b' * 5000}\n</output_head>" in long
    assert "<elided_chars>\n10001 characters left out\n</elided_chars>" in long
    assert f"<output_tail>\n{'b' * 4999}c\n</output_tail>" in long
    assert "<warning>" in long
    assert driven.events(ToolCallFinished)[1].stdout is not None


def test_observations_may_say_what_the_run_has_come_to(sandbox: Sandbox) -> None:
    template = "{{ n_model_calls }} {{ model_cost }} {{ elapsed_seconds < 60 }} {{ step_limit }} {{ cwd }}"
    tool = MINI.tools[0].model_copy(
        update={"observation": MINI.tools[0].observation.model_copy(update={"template": template})}
    )
    answers = [gives("true", "native"), says("hm"), gives("true", "native"), gives(SUBMITS, "native")]
    driven = run(sandbox, *answers, config=mini(tools=(tool,)), model={"price": PRICE})
    assert errors(mini(tools=(tool,))) == []
    said = [event.observation.split() for event in driven.events(ToolCallFinished)]
    assert [words[0] for words in said] == ["1", "3", "4"]
    assert [words[2:] for words in said] == [["True", "250", sandbox.facts.workspace]] * 3
    assert float(said[0][1]) == pytest.approx(0.0012)
