"""A run's log folded into steps: which events belong together, and what a step shows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from lab.engine.events import Record
from lab.render.kinds import FINALS, ICONS, Kind, call_kind, icon_of
from lab.render.text import words_of

Payload = Mapping[str, Any]
# Nearly all are of the first class, which is seen ten times as fast as an abstract one.
_OBJECTS = (dict, Mapping)
_LISTS = (list, Sequence)
_CUT = frozenset({"length", "max_tokens", "max_new_tokens"})
# A step whose reply could not be executed.
UNREAD_ICON = "warning"
StepState = Literal["answering", "waiting", "running", "done", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event as pages read it. Long texts of the payload are excerpts: an event is kilobytes at most."""

    seq: int
    attempt: int
    step: int | None
    kind: str
    at: dt.datetime
    payload: Payload

    @classmethod
    def of(cls, record: Record) -> LogEvent:
        """The event of a whole record."""
        payload = without_repeats(record.event.kind, record.event.model_dump(mode="json"))
        return cls(record.seq, record.attempt, payload.get("step"), record.event.kind, record.at, payload)


# What joins the conversation repeats what stands beside it.
_REPEATED: dict[str, tuple[str, ...]] = {
    "model_call_finished": ("message",),
    "tool_call_finished": ("message",),
    "attempt_started": ("parameters",),
}


def without_repeats(kind: str, payload: Payload) -> dict[str, Any]:
    """The payload without what repeats what stands beside it.

    Of a reply stays how many calls joined the conversation with it, as `joined_calls`; None: it did not join.
    """
    kept = {name: value for name, value in payload.items() if name not in _REPEATED.get(kind, ())}
    if kind == "model_call_finished":
        message = payload.get("message")
        message = message.get("$plain", message) if isinstance(message, Mapping) else {}
        kept["joined_calls"] = len(message.get("tool_calls") or ()) if message else None
    return kept


@dataclass(slots=True)
class CallView:
    """One tool call: how it started, how it ended (None while it runs), what it changed.

    `before` are earlier tries at the same call, which the end of their worker interrupted.
    """

    started: LogEvent
    ended: LogEvent | None = None
    changes: list[Payload] = field(default_factory=list)
    before: list[CallView] = field(default_factory=list)
    arguments: Payload = field(init=False)
    kind: Kind = field(init=False)
    icon: str = field(init=False)

    def __post_init__(self) -> None:
        arguments = self.started.payload.get("arguments")
        self.arguments = arguments if isinstance(arguments, _OBJECTS) else {}
        self.kind = call_kind(self.tool, self.executor, self.arguments)
        self.icon = icon_of(self.kind, self.tool, self.executor, self.arguments)

    @property
    def tool(self) -> str:
        return str(self.started.payload.get("tool") or "tool")

    @property
    def executor(self) -> str:
        return str(self.started.payload.get("executor") or "")

    @property
    def malformed(self) -> bool:
        return bool(self.started.payload.get("malformed"))

    @property
    def result(self) -> Payload:
        """What its end says, empty while it runs."""
        return self.ended.payload if self.ended is not None else {}

    @property
    def interrupted(self) -> bool:
        return self.ended is not None and self.ended.kind == "tool_call_interrupted"

    @property
    def submitted(self) -> bool:
        """Whether this call ended the agent's work."""
        return bool(self.result.get("submitted"))

    @property
    def handed_back(self) -> bool:
        """Whether this is a call that hands in, and was answered instead: with a review, or an error."""
        name = (self.executor or self.tool).lower()
        return self.ended is not None and name in FINALS and not self.submitted and not self.interrupted

    def end(self, event: LogEvent) -> None:
        """Take in how the call ended; whether it handed in the work is known only now."""
        self.ended = event
        if self.submitted:
            self.kind, self.icon = "final", ICONS["final"]
        elif self.handed_back:
            self.kind, self.icon = "read", ICONS["read"]


@dataclass(slots=True)
class StepView:
    """One model turn with its tool calls, as far as the log goes."""

    attempt: int
    number: int
    events: list[LogEvent]
    requests: list[LogEvent] = field(default_factory=list)
    failures: list[LogEvent] = field(default_factory=list)
    reply: LogEvent | None = None
    calls: list[CallView] = field(default_factory=list)
    rewritten: list[LogEvent] = field(default_factory=list)
    told: list[LogEvent] = field(default_factory=list)
    # What a harness says without finding fault, and what an imported file holds besides.
    notices: list[LogEvent] = field(default_factory=list)
    kept: list[LogEvent] = field(default_factory=list)
    state: StepState = "answering"

    @property
    def first_seq(self) -> int:
        """The number the step is called by. It stays the same as the log grows."""
        return self.events[0].seq

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(event.seq for event in self.events)

    @property
    def kind(self) -> Kind:
        if self.calls:
            return "final" if any(call.submitted for call in self.calls) else self.calls[0].kind
        answers = self.reply is not None and not self.announced_calls and not self.told
        return "final" if answers else "shell"

    @property
    def icon(self) -> str:
        if self.calls:
            return ICONS["final"] if self.kind == "final" else self.calls[0].icon
        return UNREAD_ICON if self.told else "speech"

    @property
    def answer(self) -> Payload:
        """The reply of the model, empty while there is none."""
        reply = self.reply.payload.get("reply") if self.reply else None
        return reply if isinstance(reply, _OBJECTS) else {}

    @property
    def announced_calls(self) -> Sequence[Any]:
        calls = self.answer.get("tool_calls")
        return calls if isinstance(calls, _LISTS) else ()

    @property
    def left_out(self) -> bool:
        """Whether the reply did not join the conversation."""
        return self.reply is not None and self.reply.payload.get("joined_calls", 0) is None

    @property
    def cut(self) -> bool:
        """Whether the reply was cut by its length."""
        return words_of(self.answer.get("finish_reason")) in _CUT

    @property
    def unexecuted_calls(self) -> list[tuple[int, Payload]]:
        """Native calls of the reply that the harness did not execute and never will, by their places."""
        executed = {call.started.payload.get("call_id") for call in self.calls}
        joined = self.reply.payload.get("joined_calls") if self.reply is not None else None
        is_over = self.told or self.cut or (self.calls and (joined or 0) < len(self.announced_calls))
        if self.pending or not is_over:
            return []
        return [
            (place, call)
            for place, call in enumerate(self.announced_calls)
            if isinstance(call, Mapping) and call.get("id") not in executed
        ]

    @property
    def text_call(self) -> CallView | None:
        """The call that stands in the reply's text, None when the calls came as such."""
        announced = {call.get("id") for call in self.announced_calls if isinstance(call, Mapping)}
        call = self.calls[0] if self.calls else None
        is_native = call is None or call.malformed or call.started.payload.get("call_id") in announced
        return None if is_native else call

    @property
    def pending(self) -> bool:
        return self.state in {"answering", "waiting", "running"}

    @property
    def failed(self) -> bool:
        """Whether something in it went wrong: an exit code, an error of a tool, a reply not executed."""
        results = [call.result for call in self.calls]
        return bool(self.told) or any(
            result.get("failed") or result.get("exit_code") not in (0, None) for result in results
        )

    @property
    def failed_test(self) -> bool:
        return any(
            call.kind == "test"
            and call.ended is not None
            and call.ended.payload.get("exit_code") not in (0, None)
            for call in self.calls
        )

    def cost(self) -> tuple[Decimal | None, bool]:
        """The known cost in dollars (None: no part is known) and whether some request's cost is unknown."""
        known: Decimal | None = None
        missing = False
        for event in [*self.failures, *([self.reply] if self.reply else [])]:
            amount = _decimal((event.payload.get("cost") or {}).get("amount"))
            if amount is None:
                missing = True
            else:
                known = (known or Decimal(0)) + amount
        return known, missing


def _decimal(value: object) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def group(events: Sequence[LogEvent]) -> list[list[LogEvent]]:
    """Events that are shown together, in the order of their first numbers: a step's, or one alone."""
    groups: list[list[LogEvent]] = []
    steps: dict[tuple[int, int], list[LogEvent]] = {}
    for event in events:
        key = (event.attempt, event.step) if event.step is not None else None
        if key is not None and key in steps:
            steps[key].append(event)
            continue
        fresh = [event]
        groups.append(fresh)
        if key is not None:
            steps[key] = fresh
    return groups


def step_of(events: list[LogEvent]) -> StepView:
    """The step that the events of one group tell."""
    view = StepView(events[0].attempt, events[0].step or 0, events)
    for event in events:
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(view, event)
    return view


def _request(view: StepView, event: LogEvent) -> None:
    view.requests.append(event)
    view.state = "answering"


def _reply(view: StepView, event: LogEvent) -> None:
    view.reply = event
    view.state = "done"


def _failure(view: StepView, event: LogEvent) -> None:
    view.failures.append(event)
    view.state = "waiting" if event.payload.get("retry_in") is not None else "failed"


def _request_interrupted(view: StepView, event: LogEvent) -> None:
    view.failures.append(event)
    view.state = "interrupted"


def _call_started(view: StepView, event: LogEvent) -> None:
    call = CallView(event)
    view.state = "running"
    if event.payload.get("again"):
        for at, earlier in enumerate(view.calls):
            if _same_call(earlier, event):
                call.before = [*earlier.before, earlier]
                view.calls[at] = call
                return
    view.calls.append(call)


def _call_ended(view: StepView, event: LogEvent) -> None:
    for call in reversed(view.calls):
        if call.ended is None and _same_call(call, event):
            call.end(event)
            break
    view.state = "interrupted" if event.kind == "tool_call_interrupted" else "done"


def _changed(view: StepView, event: LogEvent) -> None:
    changes = event.payload.get("changes") or []
    for call in reversed(view.calls):
        if _same_call(call, event):
            call.changes += changes
            return


def _rewritten(view: StepView, event: LogEvent) -> None:
    view.rewritten.append(event)


def _told(view: StepView, event: LogEvent) -> None:
    if event.payload.get("reason") == "notice":
        view.notices.append(event)
        return
    view.told.append(event)
    view.state = "done"


def _kept(view: StepView, event: LogEvent) -> None:
    view.kept.append(event)


def _same_call(call: CallView, event: LogEvent) -> bool:
    return call.started.payload.get("index") == event.payload.get("index")


_HANDLERS: dict[str, Callable[[StepView, LogEvent], None]] = {
    "model_call_started": _request,
    "model_call_finished": _reply,
    "model_call_failed": _failure,
    "model_call_interrupted": _request_interrupted,
    "tool_call_started": _call_started,
    "tool_call_finished": _call_ended,
    "tool_call_interrupted": _call_ended,
    "workspace_changed": _changed,
    "history_rewritten": _rewritten,
    "harness_message": _told,
    "source_kept": _kept,
}
