"""A harness: the interface between model and sandbox, as immutable data, and the protocol of its family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from pydantic import Field

from lab.engine.errors import ExitReason
from lab.engine.events import Event
from lab.engine.limits import Limits
from lab.engine.llm.base import Frozen, JSONObject, ModelConfig, Reply, canonical_sha256
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import Sandbox
from lab.engine.sinks import Emit
from lab.engine.stop import StopSignal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lab.engine.checkpoint import Checkpoint
    from lab.engine.harnesses.calls import Call, Reading
    from lab.engine.harnesses.clock import WallClock
    from lab.engine.harnesses.conversation import Conversation
    from lab.engine.harnesses.spending import Spending
    from lab.engine.llm.client import ModelClient
    from lab.engine.resume import Standing


class Truncation(Frozen):
    """How much of a tool's text the model is shown; 0 is no limit.

    `keep` is what stays of a text that is longer: its head, or its head and its tail in equal parts. Lines
    are cut first, characters then.
    """

    characters: int = Field(default=0, ge=0)
    lines: int = Field(default=0, ge=0)
    keep: Literal["head", "head_and_tail"] = "head"


class Observation(Frozen):
    """How a tool's text becomes what the model sees: it is cut, then put into the template.

    An empty template is the text itself. The others see `text` (cut), `exit_code` (-1 for a command that was
    killed), `stdout`, `stderr`, `output` (both, uncut), `timed_out`, `seconds`, `arguments`, `tool`.
    """

    template: str = ""
    truncation: Truncation = Truncation()


class ToolDefinition(Frozen):
    """One tool as the model sees it, bound to an executor of the engine by name.

    `parameters` is a JSON Schema of an object. `settings` are the executor's own.
    """

    name: str
    executor: str
    description: str = ""
    parameters: JSONObject = Field(default_factory=lambda: {"type": "object", "properties": {}})
    settings: JSONObject = Field(default_factory=dict)
    observation: Observation = Observation()

    def on_the_wire(self) -> JSONObject:
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }


class StopRules(Frozen):
    """What ends a run from the model's side: a reply without a call, a call of `tool`, or a command that
    ends well and whose output begins with the line `marker`. Empty names and False are no rule."""

    no_tool_call: bool = False
    tool: str = ""
    marker: str = ""


class HarnessConfig(Frozen):
    """One harness version: everything that decides how a model is asked and answered. No sampling.

    `protocol`: native tool calls, calls as XML in the text, or one fenced command. `malformed_calls`:
    `explain` tells the model what was wrong and keeps the next request valid, `as_leaf` executes the tool
    with `{}`, `requery` explains too and takes the failed exchange out of the conversation once a call is
    understood. `parallel_tool_calls` is what the server is asked for; what is done with several calls in a
    reply, the family says. `feedback` are the family's texts for the model, as templates; what is left out is
    the family's own. `options` are the family's settings.

    `suggested_sampling` and `source` stand outside the digest: they change nothing of what a model sees.
    """

    name: str
    family: str
    protocol: Literal["native", "xml", "fenced"] = "native"
    wording: str = ""
    system_prompt: str
    task_prompt: str = "{{ task.statement }}"
    tools: tuple[ToolDefinition, ...]
    parallel_tool_calls: bool = True
    stop: StopRules = StopRules(no_tool_call=True)
    malformed_calls: Literal["explain", "as_leaf", "requery"] = "explain"
    feedback: dict[str, str] = Field(default_factory=dict)
    options: JSONObject = Field(default_factory=dict)
    limits: Limits = Limits()
    suggested_sampling: JSONObject = Field(default_factory=dict)
    source: JSONObject = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but name, wording, suggested sampling and source.

        What is at its default is left out, so that a field which comes later changes no digest. A default
        therefore never changes its meaning.
        """
        outside = {"name", "wording", "suggested_sampling", "source"}
        return canonical_sha256(self.model_dump(mode="json", exclude=outside, exclude_defaults=True))

    def tool(self, name: str) -> ToolDefinition | None:
        """The tool that the model knows by this name."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True)
class PromptFacts:
    """What the prompts of an attempt may say: the task's statement, the folder the agent begins in as its
    commands see it, and the kernel under the sandbox."""

    statement: str
    workspace: str = "."
    system: str = ""
    release: str = ""
    version: str = ""
    machine: str = ""

    def variables(self, config: HarnessConfig, limits: Limits) -> JSONObject:
        """The names that every family's prompt templates know. `limits` are the effective ones."""
        return {
            "task": {"statement": self.statement},
            "workspace": self.workspace,
            "tools": [tool.on_the_wire()["function"] for tool in config.tools],
            "limits": limits.model_dump(mode="json"),
            "system": self.system,
            "release": self.release,
            "version": self.version,
            "machine": self.machine,
        }


@dataclass
class Ending:
    """How the agent stopped: the exit reason, the family's own word, and its last words."""

    reason: ExitReason
    native_reason: str = ""
    detail: str = ""
    final_message: str = ""


@dataclass(frozen=True)
class Feedback:
    """A text of the harness for the model: the family's template, and the names it may use with samples."""

    template: str
    sample: Mapping[str, object]


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
    """A harness family: pure decisions about messages, and the loop.

    `protocols` are those it speaks, the usual one first; in `command_protocols` a reply is one command for
    the first tool. `malformed_policies` are what it can do with malformed calls. `feedback` holds its texts
    for the model by name, `options` is the model of its own settings, `observation_sample` are the names that
    observation templates may use beside the common ones, with values.
    """

    name: ClassVar[str]
    protocols: ClassVar[Sequence[str]]
    command_protocols: ClassVar[Sequence[str]]
    malformed_policies: ClassVar[Sequence[str]]
    feedback: ClassVar[Mapping[str, Feedback]]
    options: ClassVar[type[BaseModel]]
    observation_sample: ClassVar[Mapping[str, object]]

    def prompt_variables(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> JSONObject:
        """The names that prompt templates know, with their values."""

    def opening(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> list[JSONObject]:
        """The conversation before the first model call.

        Raises:
            InvalidValueError: a prompt template that cannot be rendered.
        """

    def parameters(self, config: HarnessConfig, model: ModelConfig, limits: Limits) -> JSONObject:
        """Everything of the request body but `messages`, the same for the whole attempt."""

    def read(self, config: HarnessConfig, reply: Reply) -> Reading:
        """The calls that a reply asks for, or what is wrong with it. Pure: a later reader gets the same."""

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """The reply as it joins the conversation; empty when it does not."""

    def result_message(self, config: HarnessConfig, call: Call, observation: str) -> JSONObject:
        """The observation of one call as it joins the conversation."""

    def person_message(self, config: HarnessConfig, text: str) -> JSONObject:
        """What a person wrote to the agent, as it joins the conversation between two steps."""

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end, from where `session.standing` says; nothing that was done is done again.

        Raises:
            AttemptStoppedError, InfrastructureError: as `errors` says.
        """
