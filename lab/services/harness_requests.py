"""The request a model would get under a harness for a task, as pages show it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from lab.engine import registry
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.conversation import cap_field
from lab.engine.harnesses.first_request import first_request, prompt_facts
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.tasks.spec import DEFAULT_WORKING_DIRECTORY
from lab.models import Model, Task
from lab.services import isolation, tasks
from lab.services.endpoints import model_config
from lab.services.limits import with_model

# What stands in the request where no model was chosen.
NO_MODEL = "(the id of the model)"
# Beyond that a page says how much more there is; the whole request can be downloaded.
SHOWN_CHARACTERS = 200_000


@dataclass(frozen=True)
class ShownMessage:
    """One message of the request: its role, its text, and the estimate of its tokens."""

    role: str
    text: str
    tokens: int


@dataclass(frozen=True)
class ShownRequest:
    """The first request of an attempt. `content` are the bytes as sent; token counts are estimates.

    `parts` are name and indented JSON of what `content` holds, in its order: parameters, messages, tools.
    `cap` is the turn's cap in tokens under the name `cap_name`, None: none is sent. `workspace` is what
    prompts are told; `sandbox` says which kind it is of, and what that depends on.
    """

    content: bytes
    messages: list[ShownMessage]
    parts: list[tuple[str, str]]
    prompt_tokens: int
    tools_tokens: int
    cap: int | None
    cap_name: str
    workspace: str
    sandbox: str

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.tools_tokens


def shown_request(*, config: HarnessConfig, task: Task, model: Model | None = None) -> ShownRequest:
    """What would be sent first for this task; without a model, what does not depend on one.

    Raises:
        InvalidValueError: a prompt that cannot be rendered, or a family that this lab does not have.
    """
    kind, depends = _sandbox(task, model)
    sandbox = SandboxSpec(
        label="",
        scratch=Path(settings.LAB_DATA_DIR) / "sandboxes",
        workspace=task.environment.get("working_directory") or DEFAULT_WORKING_DIRECTORY,
    )
    facts = prompt_facts(task.statement, provider=isolation.made(kind), sandbox=sandbox)
    limits = config.limits if model is None else with_model(config.limits, model)
    if model is None:
        asked = ModelConfig(name=NO_MODEL, model_id=NO_MODEL, base_url="")
    else:
        asked = model_config(model)
    encoded = first_request(registry.family(config.family), config, facts, model=asked, limits=limits)
    body = encoded.body
    messages, tools = body["messages"], body.get("tools", [])
    name = cap_field(body)
    return ShownRequest(
        content=encoded.content,
        messages=[
            ShownMessage(message["role"], _cut(str(message["content"])), estimated_tokens([message]))
            for message in messages
        ],
        parts=_parts(body),
        prompt_tokens=estimated_tokens(messages),
        tools_tokens=estimated_tokens(tools) if tools else 0,
        cap=body.get(name),
        cap_name=name,
        workspace=facts.workspace,
        sandbox=f"{kind}{depends}",
    )


def _sandbox(task: Task, model: Model | None) -> tuple[str, str]:
    """The kind of sandbox such a run would get here, and in words where that is not settled."""
    ours = model is not None and model.lab_written and tasks.is_practice(task.task_set)
    try:
        return isolation.sandbox_kind(lab_commands_only=ours, brings_image=task.brings_image), ""
    except isolation.IsolationMissingError:
        return isolation.ISOLATED, ", which does not work here yet"


def _parts(body: JSONObject) -> list[tuple[str, str]]:
    plain = {name: value for name, value in body.items() if name not in ("messages", "tools")}
    parts: list[tuple[str, object]] = [("parameters", plain), ("messages", body["messages"])]
    if "tools" in body:
        parts.append(("tools", body["tools"]))
    return [(name, _cut(json.dumps(value, indent=2, ensure_ascii=False))) for name, value in parts]


def _cut(text: str) -> str:
    more = len(text) - SHOWN_CHARACTERS
    return text if more <= 0 else f"{text[:SHOWN_CHARACTERS]}\n… and {more:,} more characters"
