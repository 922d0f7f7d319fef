"""A harness: the interface between model and sandbox, as immutable data, and the protocol of its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from lab.engine.errors import ExitReason
from lab.engine.events import Event
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Reply, canonical_sha256
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import Sandbox
from lab.engine.sinks import Emit
from lab.engine.stop import StopSignal

if TYPE_CHECKING:
    from lab.engine.checkpoint import Checkpoint
    from lab.engine.harnesses.clock import WallClock
    from lab.engine.harnesses.conversation import Conversation
    from lab.engine.harnesses.spending import Spending
    from lab.engine.llm.client import ModelClient
    from lab.engine.resume import Standing


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


class Changed(Protocol):
    """Called after each executed tool call, interrupted ones too: events of what it changed in the workspace.

    They belong into one group with the event of the call's end: a log that holds one without the other could
    not be continued.
    """

    def __call__(self, *, step: int, index: int, call_id: str) -> Sequence[Event]:
        """Raises: SandboxLostError, InfrastructureError: what changed cannot be known."""


class Follow(Protocol):
    """Lets a fold take in the events of the log that the attempt is continued from, then each new one."""

    def __call__(self, apply: Callable[[Event], None]) -> None: ...


@dataclass
class Session:
    """What a family is given to drive one attempt.

    `emit` appends events and takes them into `conversation`, from which every request body comes, and into
    `spending`. `stop` hears cancel and wall time alike; `clock` starts with the first model call. `redactor`
    is applied to all text that comes out of the sandbox. `checkpoint` is asked between two events, before
    each tool call and each request, and holds the `limits`. `standing` says where the loop begins: an attempt
    that is continued begins in the middle. What a family counts, it folds from the events it follows.
    """

    config: HarnessConfig
    model: ModelConfig
    client: ModelClient
    sandbox: Sandbox
    emit: Emit
    follow: Follow
    stop: StopSignal
    clock: WallClock
    conversation: Conversation
    redactor: Redactor
    checkpoint: Checkpoint
    changed: Changed
    spending: Spending
    standing: Standing

    @property
    def limits(self) -> Limits:
        """The limits that hold now; people change them while the attempt runs."""
        return self.checkpoint.limits


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

    def person_message(self, config: HarnessConfig, text: str) -> JSONObject:
        """What a person wrote to the agent, as it joins the conversation between two steps."""

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end, from where `session.standing` says; nothing that was done is done again.

        Raises:
            AttemptStoppedError, InfrastructureError: as `errors` says.
        """
