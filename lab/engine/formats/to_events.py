"""Makes the events of a run's log from an imported trajectory.

The same trajectory always gives the same events, and one that has grown gives those of before and more: that
is how a file that is still being written is followed. Times that are not recorded are those of the import.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from lab.engine import events
from lab.engine.diffs import parse_patch
from lab.engine.events import Event
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Grading,
    Item,
    Message,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Cost, JSONObject, Reply, ToolCall, Usage, clean_json

Timed = tuple[dt.datetime, Event]
# What a call costs by the lab's own prices: usage, the model's name, when it was made (None: not recorded).
Pricer = Callable[[Usage, str, dt.datetime | None], Cost]

# What an event says in words for what it has no field for; whoever reads the log back goes by them.
NO_RESULT = "the file records no result of this call"
NO_PATCH = "the file records no patch"
COPIED = "copied from an earlier trajectory"
SUBAGENT = "subagent "


@dataclass(frozen=True)
class Standing:
    """What the lab calls the parts of an imported run, for the first event of its log."""

    task: JSONObject
    harness: JSONObject
    model: JSONObject
    seed: int
    lab_version: str


def to_events(
    trajectory: Trajectory, standing: Standing, *, price: Pricer, imported_at: dt.datetime
) -> Iterator[Timed]:
    """The events in the order of the log, each with its time; `run_ended` last unless it is still written."""
    builder = _Builder(trajectory, price, imported_at)
    yield from builder.build(standing)


class _Builder:
    def __init__(self, trajectory: Trajectory, price: Pricer, imported_at: dt.datetime) -> None:
        self._trajectory = trajectory
        self._price = price
        self._now = trajectory.started_at or _first_time(trajectory) or imported_at
        self._step = 0
        self._request = 0
        self._messages = len(trajectory.opening)

    def build(self, standing: Standing) -> Iterator[Timed]:
        yield self._at(None, self._started(standing))
        yield self._at(None, self._imported())
        last = len(self._trajectory.items) - 1
        for place, item in enumerate(self._trajectory.items):
            yield from self._item(item, growing=self._trajectory.partial and place == last)
        if not self._trajectory.partial:
            yield from self._end()

    def _at(self, at: dt.datetime | None, event: Event) -> Timed:
        """Time never runs backwards in a log: what is recorded out of order keeps its place."""
        if at is not None and at > self._now:
            self._now = at
        return self._now, event

    def _started(self, standing: Standing) -> Event:
        trajectory = self._trajectory
        tools = {"tools": list(trajectory.tools)} if trajectory.tools else {}
        return events.AttemptStarted(
            task=standing.task,
            harness=standing.harness,
            model=standing.model,
            limits=clean_json(trajectory.limits),
            seed=standing.seed,
            messages=clean_json(trajectory.opening),
            parameters=clean_json({**trajectory.model.sampling, **tools}),
            lab_version=standing.lab_version,
        )

    def _imported(self) -> Event:
        trajectory = self._trajectory
        return events.TrajectoryImported(
            format=trajectory.origin.format,
            file=clean_json(trajectory.origin.file),
            place=trajectory.origin.place,
            sha256=trajectory.origin.sha256,
            times=_times(trajectory),
            steps_recorded=trajectory.steps_recorded,
            totals=_totals(trajectory.totals),
            notes=[
                events.ImportNote(kind=note.kind, field=note.field, detail=clean_json(note.detail))
                for note in trajectory.notes
            ],
            kept=_json(trajectory.kept),
        )

    def _item(self, item: Item, *, growing: bool) -> Iterator[Timed]:
        match item:
            case Turn():
                yield from self._turn(item, growing=growing)
            case Message():
                yield from self._message(item)
            case FailedRequest():
                yield from self._failure(item)
            case Rewritten():
                yield from self._rewritten(item)
            case Aside():
                yield self._at(item.at, events.SourceKept(about=item.name, kept=_json(item.kept)))

    def _turn(self, turn: Turn, *, growing: bool) -> Iterator[Timed]:
        step, request = self._next_request()
        self._request = 0
        begun = turn.started_at or _before(turn.ended_at, turn.seconds)
        yield self._at(begun, self._asked(step, request))
        reply = _reply(turn)
        asked = begun or turn.ended_at
        cost = self._cost(turn.usage, turn.model, asked, turn.cost_reported, copied=turn.copied)
        notes = [f"{SUBAGENT}{turn.agent}"] if turn.agent else []
        yield self._at(
            turn.ended_at or _after(begun, turn.seconds),
            events.ModelCallFinished(
                step=step,
                request=request,
                reply=reply,
                message=clean_json(turn.message),
                cost=cost,
                context_tokens=reply.usage.total or 0,
                context_tokens_estimated=reply.usage.total is None,
                notes=notes,
            ),
        )
        # One that could not be used may not have joined the conversation.
        self._messages += bool(turn.message)
        yield from self._kept(turn.kept, "model_call", step)
        for index, call in enumerate(turn.calls, start=1):
            last = index == len(turn.calls)
            yield from self._call(call, step, index, growing=growing and last)

    def _next_request(self) -> tuple[int, int]:
        """The numbers of the next request: failed ones belong to the step that follows them."""
        if self._request == 0:
            self._step += 1
        self._request += 1
        return self._step, self._request

    def _asked(self, step: int, request: int) -> Event:
        return events.ModelCallStarted(
            step=step, request=request, body_sha256="", message_count=self._messages
        )

    def _cost(
        self,
        usage: Usage,
        model: str,
        at: dt.datetime | None,
        reported: Decimal | None,
        *,
        copied: bool = False,
    ) -> Cost:
        if copied:
            return Cost(amount=Decimal(0), basis="replay", note=COPIED)
        cost = self._price(usage, model or self._trajectory.model.name, at)
        return cost if reported is None else cost.model_copy(update={"reported": reported})

    def _call(self, call: Call, step: int, index: int, *, growing: bool) -> Iterator[Timed]:
        begun = call.started_at or _before(call.ended_at, call.seconds)
        yield self._at(
            begun,
            events.ToolCallStarted(
                step=step,
                index=index,
                call_id=clean_json(call.id),
                tool=clean_json(call.name),
                executor="" if call.malformed else clean_json(call.name) or "unnamed",
                arguments=clean_json(call.arguments),
                raw_arguments=clean_json(call.raw_arguments),
                malformed=clean_json(call.malformed),
            ),
        )
        if call.observation is None:
            if not growing:
                yield self._at(
                    None,
                    events.ToolCallInterrupted(
                        step=step,
                        index=index,
                        call_id=clean_json(call.id),
                        reason=NO_RESULT,
                    ),
                )
        else:
            yield self._at(call.ended_at or _after(begun, call.seconds), _finished(call, step, index))
            self._messages += bool(call.message)
        yield from self._kept(call.kept, "tool_call", step, clean_json(call.id))

    def _message(self, item: Message) -> Iterator[Timed]:
        self._messages += 1
        message = clean_json(item.message)
        if item.by == "person":
            yield self._at(item.at, events.MessageSent(person="", message=message))
        elif self._step == 0 or self._request:
            yield self._at(item.at, events.SourceKept(about="message", kept=_json(item.message)))
        else:
            reason = item.reason or "notice"
            yield self._at(item.at, events.HarnessMessage(step=self._step, reason=reason, message=message))
        yield from self._kept(item.kept, "message", None if item.by == "person" else self._step or None)

    def _failure(self, item: FailedRequest) -> Iterator[Timed]:
        step, request = self._next_request()
        yield self._at(_before(item.at, item.seconds), self._asked(step, request))
        yield self._at(
            item.at,
            events.ModelCallFailed(
                step=step,
                request=request,
                error=item.error,
                message=clean_json(item.message),
                status=item.status,
                usage=_clean_usage(item.usage),
                cost=self._cost(item.usage, "", item.at, item.cost_reported),
                seconds=item.seconds,
            ),
        )
        yield from self._kept(item.kept, "model_call", step)

    def _rewritten(self, item: Rewritten) -> Iterator[Timed]:
        self._messages = len(item.messages)
        # It stands before the request of the step that follows.
        step = self._step if self._request else self._step + 1
        yield self._at(
            item.at,
            events.HistoryRewritten(
                step=step, reason=clean_json(item.reason), messages=clean_json(item.messages)
            ),
        )
        yield from self._kept(item.kept, "rewriting", step)

    def _kept(self, kept: JSONObject, about: str, step: int | None, call_id: str = "") -> Iterator[Timed]:
        if kept:
            event = events.SourceKept(step=step, about=about, call_id=call_id, kept=_json(kept))
            yield self._at(None, event)

    def _end(self) -> Iterator[Timed]:
        trajectory = self._trajectory
        reason = trajectory.exit_reason.value if trajectory.exit_reason else ""
        native = clean_json(trajectory.native_reason)
        if trajectory.patch is not None or trajectory.final_message:
            yield self._at(
                None,
                events.PatchCaptured(
                    exit_reason=reason,
                    native_reason=native,
                    patch=clean_json(trajectory.patch or ""),
                    files=_files(trajectory.patch or ""),
                    left_out=[] if trajectory.patch is not None else [NO_PATCH],
                    final_message=clean_json(trajectory.final_message),
                ),
            )
        worked = self._worked()
        for grading in trajectory.gradings:
            yield from self._grading(grading)
        yield from self._kept(trajectory.task_kept, "task_record", None)
        yield self._at(
            trajectory.ended_at,
            events.AttemptEnded(
                exit_reason=reason,
                native_reason=native,
                error=clean_json(trajectory.error),
                steps=self._step,
                wall_seconds=worked,
                agent_seconds=worked,
            ),
        )
        verdict = trajectory.gradings[-1].outcome if trajectory.gradings else None
        yield self._at(None, events.RunEnded(exit_reason=reason, verdict=verdict))

    def _worked(self) -> float | None:
        """Wall seconds of the agent: as the file says, else from its first recorded time to the last."""
        trajectory = self._trajectory
        if trajectory.totals.seconds is not None:
            return trajectory.totals.seconds
        begun = trajectory.started_at or _first_time(trajectory)
        if begun is None or _times(trajectory) == "not_recorded":
            return None
        ended = max(self._now, trajectory.ended_at or self._now)
        return (ended - begun).total_seconds() if ended > begun else None

    def _grading(self, grading: Grading) -> Iterator[Timed]:
        yield from grading_events(grading, at=lambda when, event: self._at(when, event))


def grading_events(grading: Grading, *, at: Callable[[dt.datetime | None, Event], Timed]) -> Iterator[Timed]:
    """The two events of a recorded verdict, and what else its file says; `at` gives each its time."""
    groups = [test.group for test in grading.tests]
    yield at(
        None,
        events.VerificationStarted(
            rule=grading.rule,
            fail_to_pass=groups.count("fail_to_pass"),
            pass_to_pass=groups.count("pass_to_pass"),
        ),
    )
    yield at(
        grading.at,
        events.VerificationFinished(
            rule=grading.rule,
            outcome=grading.outcome,
            tests=list(grading.tests),
            detail=clean_json(grading.detail),
            log=clean_json(grading.log),
            rewards=dict(grading.rewards),
            seconds=grading.seconds,
        ),
    )
    if grading.kept:
        yield at(None, events.SourceKept(about="grading", kept=_json(grading.kept)))


def _reply(turn: Turn) -> Reply:
    message = clean_json(turn.message)
    announced = tuple(
        ToolCall(
            id=clean_json(call.id),
            name=clean_json(call.name),
            arguments=clean_json(call.raw_arguments)
            or json.dumps(clean_json(call.arguments), ensure_ascii=False),
            synthesised_id=call.synthesised_id,
        )
        for call in turn.calls
        if message.get("tool_calls")
    )
    content = message.get("content")
    return Reply(
        content=content if isinstance(content, str) else _parts(content),
        reasoning=clean_json(turn.reasoning),
        reasoning_field="reasoning_content" if turn.reasoning else "",
        tool_calls=announced,
        finish_reason=clean_json(turn.finish_reason),
        model=clean_json(turn.model),
        response_id=clean_json(turn.response_id),
        usage=_copied_usage(turn.usage) if turn.copied else _clean_usage(turn.usage),
        first_token_seconds=turn.first_token_seconds,
        seconds=turn.seconds if turn.seconds is not None else _between(turn.started_at, turn.ended_at),
    )


def _copied_usage(usage: Usage) -> Usage:
    """Nothing was asked: its tokens are counted where the turn was copied from."""
    return Usage(input_total=0, output_total=0, source="provider", raw=clean_json(usage.raw))


def _clean_usage(usage: Usage) -> Usage:
    return usage.model_copy(update={"raw": clean_json(usage.raw)}) if usage.raw else usage


def _parts(content: Any) -> str:
    """The words of a content in parts; what is no text is named where it stood."""
    if not isinstance(content, list):
        return ""
    words = []
    for part in content:
        if isinstance(part, dict):
            text = part.get("text")
            words.append(text if isinstance(text, str) else f"[{part.get('type', 'part')}]")
    return "\n".join(words)


def _finished(call: Call, step: int, index: int) -> Event:
    output = None
    if call.output is not None and call.output != call.observation:
        output = _whole_output(clean_json(call.output))
    return events.ToolCallFinished(
        step=step,
        index=index,
        call_id=clean_json(call.id),
        observation=clean_json(call.observation),
        message=clean_json(call.message),
        failed=call.failed,
        submitted=call.submitted,
        exit_code=call.exit_code,
        timed_out=call.timed_out,
        stdout=output,
        seconds=call.seconds if call.seconds is not None else _between(call.started_at, call.ended_at),
    )


def _whole_output(text: str) -> events.StreamFacts:
    data = text.encode()
    digest = hashlib.sha256(data).hexdigest()
    return events.StreamFacts(text=text, total_bytes=len(data), sha256=digest, truncated=False)


def _files(patch: str) -> list[events.FileChange]:
    return [
        events.FileChange(path=file.path, change=file.change, added=file.added, removed=file.removed)
        for file in parse_patch(patch)
        if file.path
    ]


def _totals(totals: Totals) -> JSONObject:
    """Only what the file says; dollars as text."""
    said = {
        "cost_usd": None if totals.cost is None else str(totals.cost),
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cached_tokens": totals.cached_tokens,
        "calls": totals.calls,
        "steps": totals.steps,
        "seconds": totals.seconds,
    }
    return {name: value for name, value in said.items() if value is not None}


def _times(trajectory: Trajectory) -> Literal["recorded", "partly", "not_recorded"]:
    turns = trajectory.turns
    timed = sum(turn.started_at is not None or turn.ended_at is not None for turn in turns)
    if turns and timed == len(turns):
        return "recorded"
    return "partly" if timed or trajectory.started_at else "not_recorded"


def _first_time(trajectory: Trajectory) -> dt.datetime | None:
    for item in trajectory.items:
        at = item.started_at or item.ended_at if isinstance(item, Turn) else item.at
        if at is not None:
            return at
    return None


def _before(at: dt.datetime | None, seconds: float | None) -> dt.datetime | None:
    return None if at is None else _moved(at, -(seconds or 0.0))


def _after(at: dt.datetime | None, seconds: float | None) -> dt.datetime | None:
    return None if at is None else _moved(at, seconds or 0.0)


def _moved(at: dt.datetime, seconds: float) -> dt.datetime:
    """So much later; the same where no calendar goes so far."""
    try:
        return at + dt.timedelta(seconds=seconds)
    except OverflowError:
        return at


def _between(start: dt.datetime | None, end: dt.datetime | None) -> float | None:
    return None if start is None or end is None or end < start else (end - start).total_seconds()


def _json(value: Any) -> str:
    return json.dumps(clean_json(value), ensure_ascii=False, indent=1) if value else ""
