"""A harness: the interface between model and sandbox, as immutable data, and the protocol of its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from lab.engine.errors import ExitReason
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Reply, canonical_sha256
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import Sandbox
from lab.engine.sinks import Emit
from lab.engine.stop import StopSignal

if TYPE_CHECKING:
    from lab.engine.harnesses.clock import WallClock
    from lab.engine.harnesses.conversation import Conversation
    from lab.engine.harnesses.spending import Spending
    from lab.engine.llm.client import ModelClient


class ToolDefinition(BaseModel):
    """One tool as the model sees it, bound to an executor of the engine by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    executor: str
    description: str
    parameters: JSONObject

    def on_the_wire(self) -> JSONObject:
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


class HarnessConfig(BaseModel):
    """One harness version: everything that decides how a model is asked and answered. No sampling.

    `malformed_arguments`: `explain` tells the model its arguments were no JSON object and keeps the next
    request valid; `as_leaf` executes the tool with `{}`. `observation_limits` are characters by executor.
    `suggested_sampling` and `source` stand outside the digest: they change nothing of what a model sees.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    family: Literal["leaf"]
    wording: str = ""
    system_prompt: str
    task_prompt: str = "{{ task.statement }}"
    tools: tuple[ToolDefinition, ...]
    parallel_tool_calls: bool = True
    malformed_arguments: Literal["explain", "as_leaf"] = "explain"
    bash_timeout_sec: float = 120.0
    observation_limits: dict[str, int] = Field(default_factory=dict)
    glob_limit: int = 1000
    limits: Limits = Limits()
    suggested_sampling: JSONObject = Field(default_factory=dict)
    source: JSONObject = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but name, wording, suggested sampling and source."""
        return canonical_sha256(
            self.model_dump(mode="json", exclude={"name", "wording", "suggested_sampling", "source"})
        )


@dataclass
class Ending:
    """How the agent stopped: the exit reason, the family's own word, and its last words."""

    reason: ExitReason
    native_reason: str = ""
    detail: str = ""
    final_message: str = ""


class BeforeStep(Protocol):
    """Called before each model call; the place where pauses, messages and changed limits take effect."""

    def __call__(self) -> None: ...


class AfterTool(Protocol):
    """Called after each executed tool call, interrupted ones too: records what changed in the workspace."""

    def __call__(self, *, step: int, index: int, call_id: str) -> None: ...


@dataclass
class Session:
    """What a family is given to drive one attempt.

    `emit` appends an event and takes it into `conversation`, from which every request body comes, and into
    `spending`. `stop` hears cancel and wall time alike; `clock` starts with the first model call. `redactor`
    is applied to all text that comes out of the sandbox.
    """

    config: HarnessConfig
    model: ModelConfig
    client: ModelClient
    sandbox: Sandbox
    limits: Limits
    emit: Emit
    stop: StopSignal
    clock: WallClock
    conversation: Conversation
    redactor: Redactor
    before_step: BeforeStep
    after_tool: AfterTool
    spending: Spending


class Family(Protocol):
    """A harness family: pure decisions about messages, and the loop."""

    name: str

    def opening(self, config: HarnessConfig, statement: str) -> list[JSONObject]:
        """The conversation before the first model call.

        Raises:
            InvalidValueError: a prompt template that cannot be rendered.
        """

    def parameters(self, config: HarnessConfig, model: ModelConfig, limits: Limits) -> JSONObject:
        """Everything of the request body but `messages`, the same for the whole attempt."""

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """The reply as it joins the conversation."""

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end.

        Raises:
            AttemptStoppedError, InfrastructureError: as `errors` says.
        """
