"""Where an attempt stands after some of its records: what a worker child needs to go on with it.

A fold, without any effect. The runner uses it to continue; whoever settles an abandoned attempt uses it to
mark what was in flight.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from lab.engine.errors import ExitOrigin, ExitReason, InfrastructureError
from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    AttemptStarted,
    ControlAsked,
    Event,
    HarnessMessage,
    HistoryRewritten,
    LimitChanged,
    LimitReached,
    MessageSent,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    Paused,
    Record,
    Resumed,
    SandboxStarted,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
    VerificationFinished,
    WorkspaceChanged,
)
from lab.engine.harnesses.conversation import Conversation
from lab.engine.limits import Limits
from lab.engine.llm.base import canonical_sha256
from lab.engine.steering import Ask, Control

LIMIT_REASONS: dict[str, ExitReason] = {
    "max_steps": ExitReason.MAX_TURNS,
    "max_context_tokens": ExitReason.MAX_CONTEXT_LEN,
    "max_tokens_per_turn": ExitReason.MAX_TOKENS_PER_TURN,
    "max_total_time_sec": ExitReason.MAX_TIME,
    "max_tokens_total": ExitReason.MAX_TOKENS_TOTAL,
    "max_cost_usd": ExitReason.MAX_COST,
    "max_format_errors": ExitReason.FORMAT_ERRORS,
}

InFlight = ModelCallStarted | ToolCallStarted


@dataclass
class Standing:
    """Where an attempt stands. Everything is empty for one that has not begun.

    `step` is that of the last model call, `requests` its tries so far, `asks_again` whether the last try was
    interrupted; `reply` is the step's answer once it came, until the harness or a person says something. Of
    that answer's tool calls, `finished_calls` are done (indices from 1), and `interrupted_call` was broken
    off (0: none). `in_flight` is a request or a tool call that nothing says the end of. `changes` are the
    stored changes of the workspace, oldest first; what a call changed before it ran again is not among them.

    `ended` is why the agent stopped, where the log says so before its patch; `limit_is_said` whether the
    event of that limit is there. `failure` is the last try of the step when it failed.

    `asks` are a person's wishes without an effect yet, `heard` the numbers of all wishes; `is_paused`,
    `is_cancelled` as they were asked for. `agent_seconds` is the wall time used, `seconds` the attempt's
    whole time; what nobody worked in counts in neither. `fruitless` counts the continuations after a death
    since the attempt last got further.
    """

    started: AttemptStarted | None = None
    step: int = 0
    requests: int = 0
    asks_again: bool = False
    reply: ModelCallFinished | None = None
    failure: ModelCallFailed | None = None
    finished_calls: set[int] = field(default_factory=set)
    interrupted_call: int = 0
    in_flight: InFlight | None = None
    changes: list[WorkspaceChanged] = field(default_factory=list)
    has_had_sandbox: bool = False
    image: str = ""
    ended: ExitReason | None = None
    limit_is_said: bool = False
    patch: PatchCaptured | None = None
    verification: VerificationFinished | None = None
    end: AttemptEnded | None = None
    continuations: int = 0
    fruitless: int = 0
    asks: list[Ask] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    is_paused: bool = False
    is_cancelled: bool = False
    agent_seconds: float = 0.0
    seconds: float = 0.0

    def interrupted(self, reason: str) -> list[Event]:
        """The event that ends what is in flight, outcome and cost unknown; empty when nothing is."""
        return interrupted(self.in_flight, reason)


def interrupted(call: InFlight | None, reason: str) -> list[Event]:
    """The event that ends `call`, outcome and cost unknown; empty for None."""
    if isinstance(call, ModelCallStarted):
        return [ModelCallInterrupted(step=call.step, request=call.request, reason=reason)]
    if isinstance(call, ToolCallStarted):
        return [ToolCallInterrupted(step=call.step, index=call.index, call_id=call.call_id, reason=reason)]
    return []


def in_flight_after(call: InFlight | None, event: Event) -> InFlight | None:
    """What is in flight after `event`, where it was `call` before."""
    if isinstance(event, InFlight):
        return event
    return None if isinstance(event, _ENDS_CALL) else call


def where_it_stands(records: Iterable[Record]) -> Standing:
    """The standing of an attempt after its records, oldest first, all of one attempt."""
    fold = _Fold()
    for record in records:
        fold.take(record)
    return fold.finish()


def limits_after(limits: Limits, events: Iterable[Event]) -> Limits:
    """The limits with every change among the events put over them, oldest first.

    Raises:
        InvalidValueError: a change that is none, which the engine never writes.
    """
    for event in events:
        if isinstance(event, LimitChanged):
            limits = limits.changed(event.limit, event.after)
    return limits


def require_same_input(records: Sequence[Record]) -> None:
    """Check that the last request can be rebuilt from the records: the next one is made from the same.

    Raises:
        InfrastructureError: it differs from what was sent.
    """
    last = max(
        (at for at, record in enumerate(records) if isinstance(record.event, ModelCallStarted)), default=None
    )
    if last is None:
        return
    conversation = Conversation()
    for record in records[:last]:
        conversation.apply(record.event)
    sent = cast(ModelCallStarted, records[last].event)
    if canonical_sha256(conversation.body(sent.max_tokens)) != sent.body_sha256:
        raise InfrastructureError(
            f"the conversation cannot be rebuilt from the log: the input of step {sent.step} (event "
            f"{records[last].seq}) is not what was sent"
        )


# What only a worker child writes while it holds the attempt. Time up to such an event was worked in.
_WORK = (
    AttemptStarted
    | SandboxStarted
    | ModelCallStarted
    | ModelCallFinished
    | ModelCallFailed
    | ToolCallStarted
    | ToolCallFinished
    | WorkspaceChanged
    | HarnessMessage
    | HistoryRewritten
    | MessageSent
    | LimitReached
    | PatchCaptured
    | VerificationFinished
)
_BEGINS_WORK = ModelCallStarted | ToolCallStarted
_ENDS_CALL = (
    ModelCallFinished | ModelCallFailed | ModelCallInterrupted | ToolCallFinished | ToolCallInterrupted
)


class _Times:
    """Adds up the time that somebody worked in.

    Services write about a run nobody holds, too: an interval counts once an event of a worker child follows.
    """

    def __init__(self) -> None:
        self.agent = self.all = 0.0
        self._previous: dt.datetime | None = None
        self._unsure_agent = self._unsure = 0.0
        self._agent_works = self._paused = False

    def take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, AttemptContinued):
            # The agent's clock goes on with its next call, once the sandbox is there again.
            self._previous, self._agent_works = record.at, False
            self._unsure_agent = self._unsure = 0.0
            return
        if self._previous is not None:
            passed = max(0.0, (record.at - self._previous).total_seconds())
            self._unsure += passed
            if self._agent_works and not self._paused:
                self._unsure_agent += passed
        self._previous = record.at
        self._note(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, Paused | Resumed):
            self._paused = isinstance(event, Paused)
        if isinstance(event, ModelCallInterrupted | ToolCallInterrupted):
            # Only who broke it off knows how long it took.
            self._settle(certain=event.seconds is not None)
        elif isinstance(event, _WORK):
            self._settle(certain=True)
        if isinstance(event, _BEGINS_WORK):
            self._agent_works = True
        elif isinstance(event, PatchCaptured):
            self._agent_works = False

    def _settle(self, *, certain: bool) -> None:
        if certain:
            self.agent += self._unsure_agent
            self.all += self._unsure
        self._unsure_agent = self._unsure = 0.0


class _Fold:
    """Takes records one by one into a standing."""

    def __init__(self) -> None:
        self.standing = Standing()
        self._times = _Times()
        self._furthest_step = 0

    def take(self, record: Record) -> None:
        self._times.take(record)
        handler = _HANDLERS.get(type(record.event))
        if handler is not None:
            handler(self, record.event)

    def finish(self) -> Standing:
        standing = self.standing
        standing.agent_seconds, standing.seconds = self._times.agent, self._times.all
        if standing.interrupted_call and standing.ended is None:
            self._undo(standing.step, standing.interrupted_call)
        return standing

    def _undo(self, step: int, index: int) -> None:
        """A call that runs again begins on the workspace from before it."""
        standing = self.standing
        standing.changes = [
            change for change in standing.changes if (change.step, change.index) != (step, index)
        ]

    def attempt_started(self, event: AttemptStarted) -> None:
        self.standing.started = event

    def attempt_continued(self, event: AttemptContinued) -> None:
        self.standing.continuations += 1
        if not event.orderly:
            self.standing.fruitless += 1

    def sandbox_started(self, event: SandboxStarted) -> None:
        if event.purpose == "agent":
            self.standing.has_had_sandbox = True
            self.standing.image = event.image.identifier if event.image is not None else ""

    def model_call_started(self, event: ModelCallStarted) -> None:
        standing = self.standing
        standing.step, standing.requests = event.step, event.request
        standing.reply = standing.failure = None
        standing.asks_again = False
        standing.finished_calls, standing.interrupted_call = set(), 0
        standing.in_flight = event

    def model_call_finished(self, event: ModelCallFinished) -> None:
        self.standing.in_flight, self.standing.reply = None, event
        if event.step > self._furthest_step:
            self._furthest_step = event.step
            self.standing.fruitless = 0

    def model_call_failed(self, event: ModelCallFailed) -> None:
        self.standing.in_flight, self.standing.failure = None, event

    def model_call_interrupted(self, event: ModelCallInterrupted) -> None:
        self.standing.in_flight, self.standing.asks_again = None, True
        self._broken_off(event.reason)

    def tool_call_started(self, event: ToolCallStarted) -> None:
        if event.again:
            self._undo(event.step, event.index)
        self.standing.in_flight, self.standing.interrupted_call = event, 0

    def tool_call_finished(self, event: ToolCallFinished) -> None:
        self.standing.in_flight = None
        self.standing.finished_calls.add(event.index)

    def tool_call_interrupted(self, event: ToolCallInterrupted) -> None:
        self.standing.in_flight, self.standing.interrupted_call = None, event.index
        self._broken_off(event.reason)

    def _broken_off(self, reason: str) -> None:
        """A limit or a person's cancel that broke something off has ended the agent; a death has not."""
        if reason in set(ExitReason) and ExitReason(reason).origin is not ExitOrigin.INFRASTRUCTURE:
            self.standing.ended = ExitReason(reason)

    def workspace_changed(self, event: WorkspaceChanged) -> None:
        self.standing.changes.append(event)

    def limit_reached(self, event: LimitReached) -> None:
        self.standing.ended = LIMIT_REASONS.get(event.limit, self.standing.ended)
        self.standing.limit_is_said = True

    def patch_captured(self, event: PatchCaptured) -> None:
        self.standing.patch, self.standing.fruitless = event, 0

    def verification_finished(self, event: VerificationFinished) -> None:
        self.standing.verification, self.standing.fruitless = event, 0

    def attempt_ended(self, event: AttemptEnded) -> None:
        self.standing.end = event

    def control_asked(self, event: ControlAsked) -> None:
        if event.ask:
            self.standing.heard.add(event.ask)
        if event.control == "cancel":
            self.standing.is_cancelled = True
        elif event.control in get_args(Control):
            control = cast(Control, event.control)
            self.standing.asks.append(Ask(control, event.person, event.ask, event.value))

    def paused(self, event: Paused) -> None:
        self.standing.is_paused = True
        self._pause_settled(event.ask)

    def resumed(self, event: Resumed) -> None:
        self.standing.is_paused = False
        self._pause_settled(event.ask)

    def _pause_settled(self, number: int) -> None:
        """What was asked before this had its effect, or had none because it was so already."""
        self.standing.asks = [
            ask
            for ask in self.standing.asks
            if ask.control not in ("pause", "resume") or (number and ask.number > number)
        ]

    def limit_changed(self, event: LimitChanged) -> None:
        self._had_effect("limit", event.ask)

    def harness_message(self, event: HarnessMessage) -> None:
        # The harness has answered the reply: the next request is due.
        self.standing.reply = None

    def message_sent(self, event: MessageSent) -> None:
        # The agent is spoken to and has not answered: the next request is due.
        self.standing.reply = None
        self._had_effect("message", event.ask)

    def _had_effect(self, control: Control, number: int) -> None:
        for at, ask in enumerate(self.standing.asks):
            if ask.control == control and ask.number == number:
                del self.standing.asks[at]
                return


_HANDLERS: dict[type, Callable[[_Fold, Any], None]] = {
    AttemptStarted: _Fold.attempt_started,
    AttemptContinued: _Fold.attempt_continued,
    SandboxStarted: _Fold.sandbox_started,
    ModelCallStarted: _Fold.model_call_started,
    ModelCallFinished: _Fold.model_call_finished,
    ModelCallFailed: _Fold.model_call_failed,
    ModelCallInterrupted: _Fold.model_call_interrupted,
    ToolCallStarted: _Fold.tool_call_started,
    ToolCallFinished: _Fold.tool_call_finished,
    ToolCallInterrupted: _Fold.tool_call_interrupted,
    WorkspaceChanged: _Fold.workspace_changed,
    LimitReached: _Fold.limit_reached,
    PatchCaptured: _Fold.patch_captured,
    VerificationFinished: _Fold.verification_finished,
    AttemptEnded: _Fold.attempt_ended,
    ControlAsked: _Fold.control_asked,
    Paused: _Fold.paused,
    Resumed: _Fold.resumed,
    LimitChanged: _Fold.limit_changed,
    HarnessMessage: _Fold.harness_message,
    MessageSent: _Fold.message_sent,
}
