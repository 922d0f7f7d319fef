"""The calls of a reply, whatever protocol they came in: what to execute, or what is wrong with the reply."""

from __future__ import annotations

from dataclasses import dataclass

from lab.engine.harnesses.arguments import ParsedArguments, parse_arguments
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.llm.base import Reply

# Problems every family knows; each may have more.
NO_CALL = "no_call"
CUT = "cut"


@dataclass(frozen=True)
class Call:
    """One tool call of a reply: its place from 1, its id in the conversation, and what it asks for.

    `executor` is "" for a tool the harness does not have. `raw` is what the model wrote, `parsed` what was
    understood of it.
    """

    index: int
    call_id: str
    tool: str
    executor: str
    raw: str
    parsed: ParsedArguments

    @property
    def is_understood(self) -> bool:
        return bool(self.executor) and not self.parsed.malformed


@dataclass(frozen=True)
class Reading:
    """What a reply asks for. `problem` names the feedback for one that cannot be executed, "" for none, and
    `detail` says what exactly is wrong; there are no calls then."""

    calls: tuple[Call, ...] = ()
    problem: str = ""
    detail: str = ""

    @property
    def is_format_error(self) -> bool:
        """Whether nothing of the reply was understood."""
        return bool(self.problem) or not any(call.is_understood for call in self.calls)


def native_calls(config: HarnessConfig, reply: Reply) -> tuple[Call, ...]:
    """The native tool calls of a reply, in order, bound to the harness's executors."""
    executors = {tool.name: tool.executor for tool in config.tools}
    return tuple(
        Call(
            index=index,
            call_id=call.id,
            tool=call.name,
            executor=executors.get(call.name, ""),
            raw=call.arguments,
            parsed=parse_arguments(call.arguments),
        )
        for index, call in enumerate(reply.tool_calls, start=1)
    )
