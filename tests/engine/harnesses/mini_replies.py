"""Replies that give commands as mini-swe-agent takes them, and the harness driven with them."""

from __future__ import annotations

from typing import Any

from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.mini import MARKER
from lab.engine.harnesses.presets import load_preset
from lab.engine.limits import Limits
from lab.engine.sandboxes.base import Sandbox
from tests.engine.harnesses import driving
from tests.engine.harnesses.driving import Driven, call, calls
from tests.fakes.openai_server import Answer, says

MINI = load_preset("mini")
TAG = "mswea_bash_command"
FACTS = PromptFacts("Fix the bug.", "/workspace", "Linux", "6.1", "#1 SMP", "x86_64")
TEXT = ("fenced", "xml")


def mini(protocol: str = "native", **changed: Any) -> HarnessConfig:
    return MINI.model_copy(update={"protocol": protocol, **changed})


def bash(command: str, identity: str = "") -> tuple[str, str, str]:
    return call("bash", {"command": command}, identity)


def written(command: str, protocol: str = "fenced", tag: str = TAG) -> str:
    """A command in the text of a reply."""
    return f"```{tag}\n{command}\n```" if protocol == "fenced" else f"<{tag}>{command}</{tag}>"


def gives(command: str, protocol: str) -> Answer:
    """A reply with one command."""
    if protocol == "native":
        return calls(bash(command))
    return says(f"I go on.\n\n{written(command, protocol)}")


# Ten dollars for a million tokens: a step of 120 tokens costs 0.0012.
PRICE = {
    "basis": "card",
    "cards": [
        {"basis": "card", "rates": {"input": 10, "output": 10}, "valid_from": "2020-01-01T00:00:00Z"},
    ],
}
SUBMITS = f"echo {MARKER}"


def run(sandbox: Sandbox, *answers: Answer, **options: Any) -> Driven:
    return driving.run(sandbox, *answers, **{"config": MINI, **options})


def limits(**changed: object) -> Limits:
    return MINI.limits.model_copy(update=changed)


def roles(driven: Driven, number: int) -> list[str]:
    return [message["role"] for message in driven.sent(number)["messages"]]
