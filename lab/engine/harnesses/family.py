"""What families share unless they say otherwise: opening, request parameters, and messages by protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel

from lab.engine.harnesses.arguments import parse_arguments
from lab.engine.harnesses.base import Feedback, HarnessConfig, PromptFacts
from lab.engine.harnesses.calls import NO_CALL, Call, Reading, native_calls
from lab.engine.harnesses.conversation import cap_field
from lab.engine.harnesses.templates import render
from lab.engine.harnesses.turns import turn_cap
from lab.engine.limits import Limits
from lab.engine.llm.base import Frozen, JSONObject, ModelConfig, Reply
from lab.engine.llm.client import complete_body

UNKNOWN_TOOL = Feedback("Unknown tool: {{ tool }}", {"tool": "Look", "tools": ["Read", "Bash"]})
MALFORMED = Feedback(
    "The arguments of this {{ tool }} call could not be parsed, so it was not executed: {{ detail }}.\n"
    "The arguments as received:\n{{ raw }}\n"
    "Send the call again with one valid JSON object as arguments.",
    {"tool": "Read", "detail": "not valid JSON", "raw": "{'file", "tools": ["Read"]},
)

NO_CALL_MADE = Feedback(
    "Your reply holds no tool call, so nothing was done. Call one of {{ tools | join(', ') }}.",
    {"detail": "", "raw": "I will look.", "finish_reason": "stop", "tools": ["Read", "Bash"]},
)


class NoOptions(Frozen):
    """A family without settings of its own."""


class CommonFamily:
    """A family of native tool calls; others override what differs."""

    name: ClassVar[str] = ""
    protocols: ClassVar[Sequence[str]] = ("native",)
    command_protocols: ClassVar[Sequence[str]] = ("fenced",)
    malformed_policies: ClassVar[Sequence[str]] = ("explain", "as_leaf")
    feedback: ClassVar[Mapping[str, Feedback]] = {
        "unknown_tool": UNKNOWN_TOOL,
        "malformed": MALFORMED,
        NO_CALL: NO_CALL_MADE,
    }
    options: ClassVar[type[BaseModel]] = NoOptions
    observation_sample: ClassVar[Mapping[str, object]] = {}

    def prompt_variables(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> JSONObject:
        """The names that prompt templates know."""
        return facts.variables(config, limits)

    def opening(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> list[JSONObject]:
        """The system message, then the task; a prompt that comes out empty is no message.

        Raises:
            InvalidValueError: a prompt template that cannot be rendered.
        """
        variables = self.prompt_variables(config, facts, limits)
        system = render("system_prompt", config.system_prompt, variables)
        task = {"role": "user", "content": render("task_prompt", config.task_prompt, variables)}
        return [{"role": "system", "content": system}, task] if system else [task]

    def parameters(self, config: HarnessConfig, model: ModelConfig, limits: Limits) -> JSONObject:
        """Everything of the request body but `messages`. Sampling and `extra_body` are the model's."""
        parameters: JSONObject = {"model": model.model_id}
        if config.protocol == "native":
            parameters |= {
                "tools": [tool.on_the_wire() for tool in config.tools],
                "tool_choice": "auto",
                "parallel_tool_calls": config.parallel_tool_calls,
            }
        parameters |= {**model.sampling, **model.extra_body}
        cap = turn_cap(model, limits)
        if cap is not None:
            # One name only: servers refuse both, and the log could not say which one counts.
            field = cap_field(parameters)
            parameters.pop("max_completion_tokens", None)
            parameters[field] = cap
        return complete_body(parameters)

    def read(self, config: HarnessConfig, reply: Reply) -> Reading:
        """All native calls in order; a reply without any has the problem `no_call`."""
        calls = native_calls(config, reply)
        return Reading(calls) if calls else Reading(problem=NO_CALL)

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """Role, content, tool calls, and reasoning under the name it came in; nothing else of the reply.

        Unless calls are executed `as_leaf`, arguments that are no JSON object become `{}`, so that the next
        request is valid.
        """
        message: JSONObject = {"role": "assistant", "content": reply.content}
        if reply.reasoning and reply.reasoning_field:
            message[reply.reasoning_field] = reply.reasoning
        if reply.tool_calls and config.protocol == "native":
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _sent_back(config, call.arguments)},
                }
                for call in reply.tool_calls
            ]
        return message

    def result_message(self, config: HarnessConfig, call: Call, observation: str) -> JSONObject:
        """A tool message for a native call, a user message for one that stood in the text."""
        if config.protocol == "native":
            return {"role": "tool", "tool_call_id": call.call_id, "content": observation}
        return {"role": "user", "content": observation}

    def person_message(self, config: HarnessConfig, text: str) -> JSONObject:
        """A user message."""
        return {"role": "user", "content": text}


def _sent_back(config: HarnessConfig, raw: str) -> str:
    return "{}" if config.malformed_calls != "as_leaf" and parse_arguments(raw).malformed else raw
