"""Tool calls of a reply, executed one by one, with the events of their begin, end and effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from lab.engine import registry
from lab.engine.errors import (
    AttemptStoppedError,
    ExitReason,
    InfrastructureError,
    InvalidValueError,
    SandboxLostError,
)
from lab.engine.events import Event, ToolCallFinished, ToolCallInterrupted, ToolCallStarted
from lab.engine.harnesses.base import Session
from lab.engine.harnesses.calls import Call
from lab.engine.harnesses.counts import LoopCounts
from lab.engine.harnesses.observations import observed
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import ToolContext, ToolResult, execute


class ToolCalls:
    """Executes the calls of one attempt's replies with the executors that its harness binds to the tools.

    `message_of` makes the message of a call's result, `explain` the text for a call that cannot be executed:
    its feedback's name and the call. `names` gives what observation templates may use beside the common
    names.
    """

    def __init__(
        self,
        session: Session,
        counts: LoopCounts,
        *,
        message_of: Callable[[Call, str], JSONObject],
        explain: Callable[[str, Call], str],
        names: Callable[[Call, ToolResult], Mapping[str, object]],
    ) -> None:
        self.session = session
        self.counts = counts
        self._message_of = message_of
        self._explain = explain
        self._names = names
        self._context = ToolContext(sandbox=session.sandbox, stop=session.stop, redactor=session.redactor)
        self._step = 0

    def execute(self, call: Call, *, step: int, again: bool = False) -> None:
        """Execute one call; exactly one message follows. `again` marks one that was interrupted before.

        Raises:
            AttemptStoppedError: the attempt's stop broke it off.
            InfrastructureError: the sandbox broke, or what the call changed cannot be known.
            InvalidValueError: the harness cannot word what it came to.
        """
        session = self.session
        self._step = step
        arguments, malformed = call.parsed
        executor = registry.executor(call.executor) if call.executor else None
        self._context.tool = session.config.tool(call.tool)
        self._context.earlier_calls = self.counts.ended_calls[call.tool]
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
                timeout=executor.timeout(self._context, arguments) if executor is not None else None,
                again=again,
            )
        )
        started = time.monotonic()
        if executor is None:
            self._finished(call, ToolResult(self._explain("unknown_tool", call), failed=True), started)
        elif malformed and session.config.malformed_calls != "as_leaf":
            self._finished(call, ToolResult(self._explain("malformed", call), failed=True), started)
        else:
            try:
                result = execute(executor, self._context, arguments)
            except SandboxLostError as lost:
                self._interrupted(call, ToolResult(""), started, f"sandbox lost: {lost}")
                raise
            self._executed(call, result, started, looks_only=executor.read_only)

    def _executed(self, call: Call, result: ToolResult, started: float, *, looks_only: bool) -> None:
        """The end of a call that ran, and what it changed: one group in the log."""
        session = self.session
        seconds = time.monotonic() - started
        changed: Sequence[Event] = ()
        try:
            if not looks_only:
                changed = session.changed(step=self._step, index=call.index, call_id=call.call_id)
        except InfrastructureError as broken:
            self._interrupted(call, result, started, f"what it changed cannot be known: {broken}")
            raise
        if result.interrupted:
            reason = session.stop.reason or ExitReason.UNKNOWN
            self._interrupted(call, result, started, reason.value, changed)
            raise AttemptStoppedError(reason)
        ends = self._submits(call, result)
        tool = self._context.tool
        if tool is not None:
            names, arguments = self._names(call, result), call.parsed.arguments
            result = observed(result, tool, arguments=arguments, seconds=seconds, names=names)
        self._finished(call, result, started, seconds, changed, submitted=ends)

    def _submits(self, call: Call, result: ToolResult) -> bool:
        """Whether a stop rule of the harness says that the agent has ended with this call."""
        stop = self.session.config.stop
        if stop.tool and call.tool == stop.tool:
            return result.submits and not result.failed
        if not stop.marker or result.exit_code != 0 or result.stdout is None:
            return False
        return first_line(result.stdout.text) == stop.marker

    def _finished(
        self,
        call: Call,
        result: ToolResult,
        started: float,
        seconds: float | None = None,
        changed: Sequence[Event] = (),
        *,
        submitted: bool = False,
    ) -> None:
        try:
            message = self._message_of(call, result.observation)
        except InvalidValueError as invalid:
            self._interrupted(call, result, started, f"the harness cannot word it: {invalid}", changed)
            raise
        self.session.emit(
            ToolCallFinished(
                step=self._step,
                index=call.index,
                call_id=call.call_id,
                observation=result.observation,
                observation_dropped=result.dropped,
                whole=result.whole,
                message=message,
                failed=result.failed,
                submitted=submitted,
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


def first_line(text: str) -> str:
    """The first line that is not blank, without the space around it."""
    return text.lstrip().partition("\n")[0].strip()
