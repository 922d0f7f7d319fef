"""Makes a trajectory from a run's log, of the lab's own or imported: what exports are given.

It is the inverse of `to_events`: an imported trajectory comes back as it was read. What a log does not tell
apart does not: a time equal to that of the event before from one that is not recorded, an aside from what is
kept of the item before it where both have the same name. What the lab's own logs hold and a trajectory has no
place for (sandboxes, changed files, controls) is counted in its notes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lab.engine import events
from lab.engine.errors import ExitReason
from lab.engine.events import Event, Record
from lab.engine.formats.from_event_turns import OpenTurn, Times, own_price, read_kept
from lab.engine.formats.reading import count, dollars, mapping, seconds, text, without
from lab.engine.formats.to_events import NO_PATCH
from lab.engine.formats.trajectory import (
    Aside,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Rewritten,
    Totals,
    Trajectory,
)
from lab.engine.harnesses.conversation import Conversation
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

LAB_FORMAT = "trajectory-lab"
# What the lab puts after the names of recorded programs and models.
IMPORTED = " (imported)"


def from_events(records: Iterable[Record], *, attempt: int | None = None) -> Trajectory:
    """The trajectory of one attempt, by default of the newest that has begun; the others are noted.

    `records` are those of one run, oldest first; they are read once. A log without such an attempt gives a
    trajectory without steps.
    """
    reader: _Reader | None = None
    others: dict[int, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, events.AttemptStarted):
            others[record.attempt] = ""
            if attempt in (None, record.attempt):
                reader = _Reader(record.attempt, event, record)
            continue
        if isinstance(event, events.AttemptEnded):
            others[record.attempt] = event.exit_reason
        if reader is not None and record.attempt == reader.attempt:
            reader.take(record)
    if reader is None:
        return _nothing("no attempt of this run has begun" if attempt is None else f"no attempt {attempt}")
    others.pop(reader.attempt)
    return reader.trajectory(others)


def _nothing(why: str) -> Trajectory:
    origin = Origin(format=LAB_FORMAT, file="", sha256="")
    note = Note(kind="missing", field="attempts", detail=why)
    return Trajectory(
        origin=origin, harness=HarnessUsed(name=""), partial=True, steps_recorded=False, notes=(note,)
    )


class _Reader:
    """Takes the records of one attempt after its first."""

    def __init__(self, attempt: int, started: events.AttemptStarted, record: Record) -> None:
        self.attempt = attempt
        self._started = started
        self._times = Times(record.at)
        self._begun_at = record.at
        self._conversation = Conversation()
        self._conversation.apply(started)
        self._imported: events.TrajectoryImported | None = None
        self._items: list[Item | OpenTurn] = []
        self._asked: events.ModelCallStarted | None = None
        self._patch: events.PatchCaptured | None = None
        self._gradings: list[Grading] = []
        self._task_kept: JSONObject = {}
        self._end: events.AttemptEnded | None = None
        self._unplaced: Counter[str] = Counter()

    def take(self, record: Record) -> None:
        event = record.event
        self._times.now = record.at
        self._conversation.apply(event)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        elif event.kind not in _SAID_ELSEWHERE:
            self._unplaced[event.kind] += 1
        self._times.before = record.at

    # The handlers of events, in the order in which a log has them.

    def trajectory_imported(self, event: events.TrajectoryImported) -> None:
        self._imported = event
        self._times.recorded = event.times

    def model_call_started(self, event: events.ModelCallStarted) -> None:
        self._asked = event
        self._times.ask()

    def model_call_finished(self, event: events.ModelCallFinished) -> None:
        self._asked = None
        self._items.append(OpenTurn(event, self._times, own=self._imported is None))

    def model_call_failed(self, event: events.ModelCallFailed) -> None:
        self._asked = None
        kept: JSONObject = {}
        if self._imported is None:
            said = {"retry_in_seconds": event.retry_in, "partial": event.partial, "raw": event.raw}
            kept = {name: value for name, value in said.items() if value not in (None, "")}
        self._items.append(
            FailedRequest(
                error=event.error,
                message=event.message,
                status=event.status,
                usage=event.usage,
                cost_reported=event.cost.reported,
                priced=own_price(event.cost),
                at=self._times.moment(),
                seconds=event.seconds,
                kept=kept,
            )
        )

    def model_call_interrupted(self, event: events.ModelCallInterrupted) -> None:
        self._asked = None
        self._items.append(
            FailedRequest(
                error="interrupted",
                message=event.reason,
                usage=event.usage,
                cost_reported=event.cost.reported,
                priced=own_price(event.cost),
                at=self._times.moment(),
                seconds=event.seconds,
                kept={"partial": event.partial} if event.partial else {},
            )
        )

    def tool_call_started(self, event: events.ToolCallStarted) -> None:
        if (turn := self._turn()) is not None:
            turn.call_started(event, self._times)

    def tool_call_finished(self, event: events.ToolCallFinished) -> None:
        if (turn := self._turn()) is not None:
            turn.call_finished(event, self._times)

    def tool_call_interrupted(self, event: events.ToolCallInterrupted) -> None:
        if (turn := self._turn()) is not None:
            turn.call_interrupted(event)

    def _turn(self) -> OpenTurn | None:
        """The turn that calls belong to: the newest."""
        return next((one for one in reversed(self._items) if isinstance(one, OpenTurn)), None)

    def harness_message(self, event: events.HarnessMessage) -> None:
        reason = "" if event.reason == "notice" else event.reason
        kept = {"detail": event.detail} if event.detail else {}
        self._items.append(Message(message=event.message, reason=reason, at=self._times.moment(), kept=kept))

    def message_sent(self, event: events.MessageSent) -> None:
        kept = {"person": event.person} if event.person else {}
        self._items.append(Message(message=event.message, by="person", at=self._times.moment(), kept=kept))

    def history_rewritten(self, event: events.HistoryRewritten) -> None:
        self._items.append(
            Rewritten(
                reason=event.reason,
                messages=tuple(self._conversation.messages),
                at=self._times.moment(),
            )
        )

    def source_kept(self, event: events.SourceKept) -> None:
        kept = read_kept(event.kept)
        last = self._items[-1] if self._items else None
        if event.about == "task_record":
            self._task_kept = kept
        elif event.about == "grading" and self._gradings:
            self._gradings[-1] = dataclasses.replace(self._gradings[-1], kept=kept)
        elif isinstance(last, OpenTurn) and last.keep(event, kept):
            return
        elif event.about == "message" and _is_whole_message(last, kept):
            self._items.append(Message(message=kept, at=self._times.moment()))
        elif (item := _with_kept(last, event.about, kept)) is not None:
            self._items[-1] = item
        else:
            self._items.append(Aside(name=event.about, kept=kept, at=self._times.moment()))

    def patch_captured(self, event: events.PatchCaptured) -> None:
        self._patch = event

    def verification_finished(self, event: events.VerificationFinished) -> None:
        known = event.outcome in set(Outcome)
        self._gradings.append(
            Grading(
                rule=event.rule,
                # A word of a newer lab decides nothing here.
                outcome=Outcome(event.outcome) if known else Outcome.UNPARSED,
                tests=tuple(event.tests),
                rewards=event.rewards,
                detail=event.detail,
                log=event.log,
                seconds=event.seconds,
                at=self._times.moment(),
                kept={} if known else {"outcome": event.outcome},
            )
        )

    def attempt_ended(self, event: events.AttemptEnded) -> None:
        self._end = event
        self._times.ended = self._times.now

    # What comes of it.

    def trajectory(self, others: Mapping[int, str]) -> Trajectory:
        started, imported, end, patch = self._started, self._imported, self._end, self._patch
        kept = read_kept(imported.kept) if imported is not None else {}
        task_kept = self._task_kept if imported is not None else without(started.task, *_OF_TASK)
        return Trajectory(
            origin=self._origin(),
            harness=_harness(started.harness, imported=imported is not None),
            model=_model(started.model, started.parameters, imported=imported is not None),
            instance_id=text(started.task.get("id")),
            statement=text(started.task.get("statement")),
            task_kept=task_kept,
            seed=started.seed,
            opening=tuple(started.messages),
            tools=tuple(tool for tool in started.parameters.get("tools") or () if isinstance(tool, dict)),
            items=tuple(item.built() if isinstance(item, OpenTurn) else item for item in self._items),
            exit_reason=_exit_reason(end, patch),
            native_reason=(end.native_reason if end else "") or (patch.native_reason if patch else ""),
            error=end.error if end else "",
            final_message=patch.final_message if patch else "",
            patch=None if patch is None or patch.left_out == [NO_PATCH] else patch.patch,
            started_at=self._begun_at if self._times.any_recorded else None,
            ended_at=self._times.ended if self._times.any_recorded else None,
            totals=self._totals(),
            gradings=tuple(self._gradings),
            partial=end is None,
            steps_recorded=imported is None or imported.steps_recorded,
            limits=started.limits,
            notes=(*self._notes(), *_notes_of_attempts(self.attempt, others)),
            kept=kept,
        )

    def _origin(self) -> Origin:
        imported = self._imported
        if imported is None:
            return Origin(format=LAB_FORMAT, file="", place=f"attempt {self.attempt}", sha256="")
        return Origin(
            format=imported.format, file=imported.file, place=imported.place, sha256=imported.sha256
        )

    def _totals(self) -> Totals:
        if self._imported is None:
            return Totals(seconds=self._end.agent_seconds if self._end else None)
        said = self._imported.totals
        whole = {
            name: count(said.get(name))
            for name in ("input_tokens", "output_tokens", "cached_tokens", "calls", "steps")
        }
        return Totals(cost=dollars(said.get("cost_usd")), seconds=seconds(said.get("seconds")), **whole)

    def _notes(self) -> list[Note]:
        noted = self._imported.notes if self._imported else []
        notes = [Note(kind=note.kind, field=note.field, detail=note.detail) for note in noted]
        for kind, number in sorted(self._unplaced.items()):
            detail = f"{number} of the log's events are of this kind, which a trajectory has no place for"
            notes.append(Note(kind="lost", field=kind, detail=detail))
        return notes


def _exit_reason(end: events.AttemptEnded | None, patch: events.PatchCaptured | None) -> ExitReason | None:
    said = (end.exit_reason if end else "") or (patch.exit_reason if patch else "")
    return ExitReason(said) if said in set(ExitReason) else None


def _is_whole_message(last: Item | OpenTurn | None, kept: JSONObject) -> bool:
    """A message that stands where the log has no event for one, or what is kept of the message before it."""
    return "role" in kept or not isinstance(last, Message) or bool(last.kept)


def _with_kept(item: Item | OpenTurn | None, about: str, kept: JSONObject) -> Item | None:
    """The item with what is kept of it, where that is what the event is about and it keeps nothing yet."""
    if isinstance(item, FailedRequest) and about == "model_call" and not item.kept:
        return dataclasses.replace(item, kept=kept)
    if isinstance(item, Message) and about == "message" and not item.kept:
        return dataclasses.replace(item, kept=kept)
    if isinstance(item, Rewritten) and about == "rewriting" and not item.kept:
        return dataclasses.replace(item, kept=kept)
    return None


def _harness(facts: JSONObject, *, imported: bool) -> HarnessUsed:
    """Of an imported one the names as recorded, not those that the lab gave its rows."""
    config = mapping(facts.get("config"))
    name, version = text(facts.get("name")), facts.get("version")
    if imported:
        name, version = name.removesuffix(IMPORTED), facts.get("recorded_version") or text(version)
    return HarnessUsed(
        name=name,
        version="" if version is None else str(version),
        family=text(facts.get("family")) or text(config.get("family")),
        config=config,
        complete=bool(facts.get("digest")),
    )


def _model(facts: JSONObject, parameters: JSONObject, *, imported: bool) -> ModelUsed:
    name = text(facts.get("name"))
    if imported and name.endswith(IMPORTED):
        name = ""
    return ModelUsed(
        name=text(facts.get("model_id")) or name,
        provider=text(facts.get("provider")) or text(mapping(facts.get("price")).get("provider")),
        base_url=text(facts.get("base_url")),
        sampling=without(parameters, "tools", "model"),
    )


def _notes_of_attempts(attempt: int, others: Mapping[int, str]) -> Iterable[Note]:
    for number, reason in sorted(others.items()):
        ended = f"ended with {reason}" if reason else "has no recorded end"
        detail = f"attempt {number} {ended}; this is attempt {attempt}"
        yield Note(kind="lost", field="attempts", detail=detail)


_OF_TASK = ("id", "statement")
# Kinds that have no handler and whose content stands in another event or in the trajectory as a whole.
_SAID_ELSEWHERE = frozenset({"verification_started", "run_ended", "limit_reached"})
_HANDLERS: dict[type[Event], Callable[[_Reader, Any], None]] = {
    events.TrajectoryImported: _Reader.trajectory_imported,
    events.ModelCallStarted: _Reader.model_call_started,
    events.ModelCallFinished: _Reader.model_call_finished,
    events.ModelCallFailed: _Reader.model_call_failed,
    events.ModelCallInterrupted: _Reader.model_call_interrupted,
    events.ToolCallStarted: _Reader.tool_call_started,
    events.ToolCallFinished: _Reader.tool_call_finished,
    events.ToolCallInterrupted: _Reader.tool_call_interrupted,
    events.HarnessMessage: _Reader.harness_message,
    events.MessageSent: _Reader.message_sent,
    events.HistoryRewritten: _Reader.history_rewritten,
    events.SourceKept: _Reader.source_kept,
    events.PatchCaptured: _Reader.patch_captured,
    events.VerificationFinished: _Reader.verification_finished,
    events.AttemptEnded: _Reader.attempt_ended,
}
