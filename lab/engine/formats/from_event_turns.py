"""One turn of a log with its tool calls, and the times of a log that may not have recorded them."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import Literal

from lab.engine import events
from lab.engine.formats.base import parsed
from lab.engine.formats.to_events import COPIED, NO_RESULT, SUBAGENT
from lab.engine.formats.trajectory import Call, Turn
from lab.engine.harnesses.arguments import parse_arguments
from lab.engine.llm.base import Cost, JSONObject, ToolCall, Usage
from lab.engine.llm.usage import read_usage

Span = tuple[dt.datetime | None, dt.datetime | None]


class Times:
    """The clock of a log. `recorded` says what an imported file knew; the lab's own logs know every time."""

    def __init__(self, at: dt.datetime) -> None:
        self.recorded: Literal["all", "recorded", "partly", "not_recorded"] = "all"
        self.before = self.now = self.asked = self.before_asked = at
        self.ended: dt.datetime | None = None

    @property
    def any_recorded(self) -> bool:
        return self.recorded != "not_recorded"

    def ask(self) -> None:
        """A request is sent now."""
        self.asked, self.before_asked = self.now, self.before

    def moment(self) -> dt.datetime | None:
        """The time of the event that is read. One that did not move on is not known to be recorded."""
        if self.recorded == "all":
            return self.now
        return self.now if self.any_recorded and self.now > self.before else None

    def span(self, begun: dt.datetime, moved: bool, seconds: float | None, *, of_turn: bool = False) -> Span:
        """Begin and end of what ends now and began at `begun`, which `moved` on from the event before."""
        if self.recorded == "all":
            return begun, self.now
        if not self.any_recorded:
            return None, None
        # Each turn has a time then, where all of them are said to.
        sure = of_turn and self.recorded == "recorded"
        took = self.now > begun
        if seconds is None:
            return (None, self.now) if took else (begun if moved or sure else None, None)
        return (begun, self.now) if took or sure or (moved and not seconds) else (None, None)


@dataclass
class OpenCall:
    """A tool call whose end may not have been read yet."""

    started: events.ToolCallStarted
    begun: dt.datetime
    moved: bool
    finished: events.ToolCallFinished | None = None
    span: Span = (None, None)
    kept: JSONObject = field(default_factory=dict)


class OpenTurn:
    """An answer of the model and the calls that follow it in the log."""

    def __init__(self, event: events.ModelCallFinished, times: Times, *, own: bool) -> None:
        self._event = event
        self._own = own
        self._calls: dict[int, OpenCall] = {}
        self._kept: JSONObject = _kept_of_own_reply(event) if own else {}
        moved = times.asked > times.before_asked
        self._span = times.span(times.asked, moved, event.reply.seconds, of_turn=True)

    def keep(self, event: events.SourceKept, kept: JSONObject) -> bool:
        """Take what is kept of the turn or of its newest call, each once; False: it is of neither."""
        if event.about == "model_call" and not self._kept and not self._calls:
            self._kept = kept
            return True
        last = self._calls[max(self._calls)] if self._calls else None
        if event.about != "tool_call" or last is None or last.kept or last.started.call_id != event.call_id:
            return False
        last.kept = kept
        return True

    def call_started(self, event: events.ToolCallStarted, times: Times) -> None:
        # One that ran again stands in the place of the one that was broken off.
        self._calls[event.index] = OpenCall(event, times.now, times.now > times.before)

    def call_finished(self, event: events.ToolCallFinished, times: Times) -> None:
        call = self._calls.get(event.index)
        if call is not None:
            call.finished = event
            call.span = times.span(call.begun, call.moved, event.seconds)
            if self._own:
                call.kept |= _kept_of_own_result(event)

    def call_interrupted(self, event: events.ToolCallInterrupted) -> None:
        call = self._calls.get(event.index)
        if call is None:
            return
        if call.moved:
            call.span = call.begun, None
        if event.reason != NO_RESULT:
            partial = event.stdout.text if event.stdout else ""
            call.kept |= {"interrupted": event.reason} | ({"partial_output": partial} if partial else {})

    def built(self) -> Turn:
        event, reply = self._event, self._event.reply
        copied = event.cost.basis == "replay" and event.cost.note == COPIED
        agents = [note.removeprefix(SUBAGENT) for note in event.notes if note.startswith(SUBAGENT)]
        return Turn(
            message=event.message,
            reasoning=reply.reasoning,
            calls=tuple(self._built_calls()),
            finish_reason=reply.finish_reason,
            model=reply.model,
            response_id=reply.response_id,
            usage=_usage_of_copied(reply.usage) if copied else reply.usage,
            cost_reported=event.cost.reported,
            priced=None if copied else own_price(event.cost),
            started_at=self._span[0],
            ended_at=self._span[1],
            seconds=reply.seconds,
            first_token_seconds=reply.first_token_seconds,
            agent=agents[0] if agents and not self._own else "",
            copied=copied,
            kept=self._kept,
        )

    def _built_calls(self) -> list[Call]:
        announced = self._event.reply.tool_calls
        calls = []
        for index, call in sorted(self._calls.items()):
            same = announced[index - 1] if index <= len(announced) else None
            if same is not None and same.id != call.started.call_id:
                same = None
            calls.append(_built_call(call, synthesised=same.synthesised_id if same else not announced))
        if self._own:
            # Calls that the harness did not take: of a reply that was cut, or beyond the one it runs.
            done = set(self._calls)
            calls += [_not_run(one) for index, one in enumerate(announced, 1) if index not in done]
        return calls


def _built_call(call: OpenCall, *, synthesised: bool) -> Call:
    started, finished = call.started, call.finished
    output = finished.stdout.text if finished is not None and finished.stdout is not None else None
    return Call(
        id=started.call_id,
        name=started.tool,
        arguments=started.arguments,
        raw_arguments=started.raw_arguments,
        malformed=started.malformed,
        observation=finished.observation if finished else None,
        message=finished.message if finished else {},
        output=output,
        exit_code=finished.exit_code if finished else None,
        failed=finished.failed if finished else False,
        timed_out=finished.timed_out if finished else False,
        submitted=finished.submitted if finished else False,
        started_at=call.span[0],
        ended_at=call.span[1],
        seconds=finished.seconds if finished else None,
        synthesised_id=synthesised,
        kept=call.kept,
    )


def _not_run(announced: ToolCall) -> Call:
    arguments, malformed = parse_arguments(announced.arguments)
    return Call(
        id=announced.id,
        name=announced.name,
        arguments=arguments,
        raw_arguments=announced.arguments,
        malformed=malformed,
        synthesised_id=announced.synthesised_id,
        kept={"not_run": True},
    )


def _kept_of_own_reply(event: events.ModelCallFinished) -> JSONObject:
    """What only the lab's own logs say of a reply. One that did not join the conversation is whole here."""
    kept: JSONObject = {}
    if event.notes:
        kept["notes"] = list(event.notes)
    if event.unread_form:
        kept["unread_form"] = event.unread_form
    if event.reply.refusal:
        kept["refusal"] = event.reply.refusal
    if not event.message:
        kept["left_out_reply"] = event.reply.content
    return kept


def _kept_of_own_result(event: events.ToolCallFinished) -> JSONObject:
    kept: JSONObject = {}
    if event.observation_dropped:
        kept["observation_dropped_characters"] = event.observation_dropped
    if event.whole is not None:
        kept["whole_result"] = event.whole
    if event.out_of_memory:
        kept["out_of_memory"] = True
    if event.stderr is not None and event.stderr.text:
        kept["stderr"] = event.stderr.text
    for name, stream in (("stdout", event.stdout), ("stderr", event.stderr)):
        if stream is not None and (stream.truncated or stream.binary):
            kept[f"{name}_bytes"] = stream.total_bytes
            kept[f"{name}_sha256"] = stream.sha256
    return kept


def _usage_of_copied(usage: Usage) -> Usage:
    return read_usage(usage.raw) if usage.raw else Usage()


def own_price(cost: Cost) -> Cost | None:
    """The lab's own figure without what was reported beside it; None where it is not known."""
    return None if cost.amount is None else cost.model_copy(update={"reported": None})


def read_kept(written: str) -> JSONObject:
    """The object that a `kept` text of an event is; a text that is no such JSON stands under "text"."""
    if not written:
        return {}
    try:
        value = parsed(written)
    except (json.JSONDecodeError, RecursionError):
        return {"text": written}
    return value if isinstance(value, dict) else {"value": value}
