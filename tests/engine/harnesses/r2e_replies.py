"""Replies that make calls as R2E-Gym's agent does, and the harness driven with them."""

from __future__ import annotations

from typing import Any

from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.r2e import R2E
from lab.engine.limits import Limits
from lab.engine.sandboxes.base import Sandbox
from tests.engine.harnesses import driving
from tests.engine.harnesses.driving import Driven, call, calls
from tests.fakes.openai_server import Answer, says

XML = load_preset("r2e")
NATIVE = XML.model_copy(update={"protocol": "native"})
FACTS = PromptFacts("Fix the bug.", "/workspace")
CONDENSED = R2E.feedback["condensed"].template


def block(name: str, **values: object) -> str:
    rows = [f"<parameter={key}>{value}</parameter>\n" for key, value in values.items()]
    return f"<function={name}>\n{''.join(rows)}</function>"


def gives(name: str, protocol: str = "xml", *, prompt: int = 100, **values: object) -> Answer:
    """A reply that makes one call."""
    if protocol == "native":
        return calls(call(name, dict(values)), prompt=prompt)
    return says(f"I go on.\n{block(name, **values)}", prompt=prompt, completion=20)


def runs(command: str, protocol: str = "xml", **more: Any) -> Answer:
    return gives("execute_bash", protocol, cmd=command, **more)


def submits(protocol: str = "xml") -> Answer:
    return gives("finish", protocol, command="submit", result="Mended.")


def run(sandbox: Sandbox, *answers: Answer, **options: Any) -> Driven:
    return driving.run(sandbox, *answers, **{"config": XML, **options})


def limits(**changed: object) -> Limits:
    return XML.limits.model_copy(update=changed)


def options(config: HarnessConfig = XML, **changed: object) -> HarnessConfig:
    return config.model_copy(update={"options": {**config.options, **changed}})


def contents(driven: Driven, number: int) -> list[str]:
    return [message["content"] for message in driven.sent(number)["messages"]]


LONG = "head -c 8000 /dev/zero | tr '\\0' x"


def growing(count: int, protocol: str = "xml") -> list[Answer]:
    """Replies with commands of long output, each counted by the server as 2,000 tokens more."""
    return [runs(LONG, protocol, prompt=2_000 * number) for number in range(1, count + 1)]
