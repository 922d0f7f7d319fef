"""Native tool calls of a reply, executed one by one, with the events of their begin, end and effects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lab.engine import registry
from lab.engine.errors import AttemptStoppedError, ExitReason, InfrastructureError, SandboxLostError
from lab.engine.events import Event, ToolCallFinished, ToolCallInterrupted, ToolCallStarted
from lab.engine.harnesses.arguments import ParsedArguments, parse_arguments
from lab.engine.harnesses.base import Session
from lab.engine.llm.base import Reply
from lab.engine.tools.base import ToolContext, ToolResult, execute

# What a raw text of arguments may take of the explanation sent back to the model.
_RAW_SHOWN = 2_000
# Executors that only look: nothing of the workspace can have changed through them.
_READ_ONLY = frozenset({"read", "glob"})


@dataclass(frozen=True)
class Call:
    """One tool call of a reply: its place from 1, its id in the conversation, and what it asks for."""

    index: int
    call_id: str
    tool: str
    executor: str
    raw: str
    parsed: ParsedArguments


class ToolCalls:
    """Executes the calls of one attempt's replies with the executors that its harness binds to the tools."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.executors = {tool.name: tool.executor for tool in session.config.tools}
        self.context = ToolContext(
            sandbox=session.sandbox,
            stop=session.stop,
            redactor=session.redactor,
            limits=session.config.observation_limits,
            bash_timeout=session.config.bash_timeout_sec,
            glob_limit=session.config.glob_limit,
        )
        self._step = 0

    def of(self, reply: Reply) -> list[Call]:
        """The reply's calls in order."""
        return [
            Call(
                index=index,
                call_id=call.id,
                tool=call.name,
                executor=self.executors.get(call.name, ""),
                raw=call.arguments,
                parsed=parse_arguments(call.arguments),
            )
            for index, call in enumerate(reply.tool_calls, start=1)
        ]

    def execute(self, call: Call, *, step: int, again: bool = False) -> None:
        """Execute one call; exactly one tool message follows. `again` marks one that was interrupted before.

        Raises:
            AttemptStoppedError: the attempt's stop broke it off.
            InfrastructureError: the sandbox broke, or what the call changed cannot be known.
        """
        session = self.session
        self._step = step
        arguments, malformed = call.parsed
        executor = registry.executor(call.executor) if call.executor else None
        session.emit(
            ToolCallStarted(
                step=self._step,
                index=call.index,
                call_id=call.call_id,
                tool=call.tool,
                executor=call.executor,
                arguments=arguments,
                raw_arguments=call.raw,
                malformed=malformed,
                timeout=executor.timeout(self.context, arguments) if executor is not None else None,
                again=again,
            )
        )
        started = time.monotonic()
        if executor is None:
            self._finished(call, ToolResult(f"Unknown tool: {call.tool}", failed=True), started)
        elif malformed and session.config.malformed_arguments == "explain":
            self._finished(call, ToolResult(_explanation(call), failed=True), started)
        else:
            try:
                result = execute(executor, self.context, arguments)
            except SandboxLostError as lost:
                self._interrupted(call, ToolResult(""), started, f"sandbox lost: {lost}")
                raise
            self._executed(call, result, started)

    def _executed(self, call: Call, result: ToolResult, started: float) -> None:
        """The end of a call that ran, and what it changed: one group in the log."""
        session = self.session
        seconds = time.monotonic() - started
        changed: Sequence[Event] = ()
        try:
            if call.executor not in _READ_ONLY:
                changed = session.changed(step=self._step, index=call.index, call_id=call.call_id)
        except InfrastructureError as broken:
            self._interrupted(call, result, started, f"what it changed cannot be known: {broken}")
            raise
        if result.interrupted:
            reason = session.stop.reason or ExitReason.UNKNOWN
            self._interrupted(call, result, started, reason.value, changed)
            raise AttemptStoppedError(reason)
        self._finished(call, result, started, seconds, changed)

    def _finished(
        self,
        call: Call,
        result: ToolResult,
        started: float,
        seconds: float | None = None,
        changed: Sequence[Event] = (),
    ) -> None:
        self.session.emit(
            ToolCallFinished(
                step=self._step,
                index=call.index,
                call_id=call.call_id,
                observation=result.observation,
                observation_dropped=result.dropped,
                whole=result.whole,
                message={"role": "tool", "tool_call_id": call.call_id, "content": result.observation},
                failed=result.failed,
                exit_code=result.exit_code,
                timed_out=result.timed_out,
                out_of_memory=result.out_of_memory,
                stdout=result.stdout,
                stderr=result.stderr,
                seconds=time.monotonic() - started if seconds is None else seconds,
            ),
            *changed,
        )

    def _interrupted(
        self, call: Call, result: ToolResult, started: float, reason: str, changed: Sequence[Event] = ()
    ) -> None:
        self.session.emit(
            ToolCallInterrupted(
                step=self._step,
                index=call.index,
                call_id=call.call_id,
                reason=reason,
                stdout=result.stdout,
                stderr=result.stderr,
                seconds=time.monotonic() - started,
            ),
            *changed,
        )


def _explanation(call: Call) -> str:
    raw = call.raw if len(call.raw) <= _RAW_SHOWN else f"{call.raw[:_RAW_SHOWN]}…"
    return (
        f"The arguments of this {call.tool} call could not be parsed, so it was not executed: "
        f"{call.parsed.malformed}.\nThe arguments as received:\n{raw}\n"
        "Send the call again with one valid JSON object as arguments."
    )
