"""Every step of a run in a line: what it did, what came of it, and the action by which it is aligned.

Reads no body: of a long text only its beginning and its hash are known, so that a long output is told by its
size. Made once a process for a run's log as far as it goes, and kept; a log that grows is read from there on.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import groupby
from operator import itemgetter, or_
from typing import Any, NamedTuple

from django.db.models import Case, ExpressionWrapper, F, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.functions import Cast
from pydantic_core import from_json

from lab.analysis.alignment import Action
from lab.engine.key_shapes import mask_key_shapes
from lab.engine.llm.base import JSONObject
from lab.models import Event, Run
from lab.render.actions import Standing, action_of
from lab.render.fold import LogEvent, StepView, group, step_of, without_repeats
from lab.render.normal_form import StoredText
from lab.render.results import edit_counts, result_words
from lab.render.steps import argument_words, step_seconds, tool_words
from lab.render.text import one_line
from lab.services import trajectories
from lab.services.payloads import is_reference


@dataclass(frozen=True, slots=True)
class StepOutline:
    """One step of the newest attempt.

    `seq` and `last_seq`: numbers of its first and last event. `kind`, `icon` as on a run's page. `tool` and
    `argument`: the first call in words, keys masked, one line of at most 240 characters; `more_calls`: how
    many calls run beside it. `result`: what came of it in a few words, such as "3 lines" ("" while pending);
    `exit_code` None: none was told. `added` and `removed`: lines of an edit. `tokens_in`, `tokens_out`,
    `context_tokens`, `cost` (dollars), `seconds`: None for unknown. `pending`: its end is not in the log yet.
    """

    seq: int
    last_seq: int
    number: int
    kind: str
    icon: str
    tool: str
    argument: str
    more_calls: int
    result: str
    exit_code: int | None
    failed: bool
    failed_test: bool
    added: int | None
    removed: int | None
    at: dt.datetime
    tokens_in: int | None
    tokens_out: int | None
    context_tokens: int | None
    cost: Decimal | None
    cost_missing: bool
    seconds: float | None
    pending: bool
    action: Action


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a run's newest attempt in order; `until` is the last number of the log that was read.

    `purges`: how often a leaked secret was taken out of the log.
    """

    run: int
    attempt: int
    until: int
    steps: tuple[StepOutline, ...]
    purges: int = 0


_ARGUMENT_CHARACTERS = 240
_TOOL_CHARACTERS = 60
_CACHE_CHARACTERS = 32_000_000
# What a step weighs beside its texts, in characters.
_STEP_CHARACTERS = 600


def outlines_of(runs: Sequence[Run]) -> list[Outline]:
    """The outline of the newest attempt of each run, in the order given; an empty log has no steps.

    Two queries for all of them, one when none has grown.
    """
    trajectories.forget_what_was_purged()
    generation = _cache.generation
    ends = _ends({run.pk for run in runs})
    readings: dict[int, _Reading] = {}
    behind: list[_Reading] = []
    for pk, (attempt, until) in ends.items():
        known = _cache.get(pk)
        if known is None or known.attempt != attempt or known.until > until:
            known = _Reading(pk, attempt)
        if known.until == until:
            readings[pk] = known
        else:
            behind.append(known)
    for reading in _grown(behind, ends):
        readings[reading.run] = reading
        _cache.put(reading, generation)
    return [readings[run.pk].outline if run.pk in readings else Outline(run.pk, 0, 0, ()) for run in runs]


def _ends(pks: set[int]) -> dict[int, tuple[int, int]]:
    """The newest attempt in each run's log and the log's last number; runs with an empty log are left out."""
    last = Event.objects.filter(run=OuterRef("pk")).order_by("-seq")
    rows = (
        Run.objects.filter(pk__in=pks)
        .annotate(newest=Subquery(last.values("attempt")[:1]), until=Subquery(last.values("seq")[:1]))
        .values_list("pk", "newest", "until")
    )
    return {pk: (attempt, until) for pk, attempt, until in rows if until is not None}


def _grown(behind: Sequence[_Reading], ends: Mapping[int, tuple[int, int]]) -> Iterator[_Reading]:
    """The readings with what has come to the logs since."""
    late: list[_Reading] = []
    for reading, events in _events_after(behind, ends):
        if reading.is_told_late(events):
            # Something came to a step after the next one had begun: what follows may read otherwise.
            late.append(_Reading(reading.run, reading.attempt))
        else:
            yield reading.with_events(events, until=ends[reading.run][1])
    if late:
        yield from _grown(late, ends)


def _events_after(
    readings: Sequence[_Reading], ends: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[_Reading, list[LogEvent]]]:
    """Each reading with the events it lacks. One run's events at a time are held, of one query for all."""
    if not readings:
        return
    spans = [
        Q(run=one.run, attempt=one.attempt, seq__gt=one.until, seq__lte=ends[one.run][1]) for one in readings
    ]
    text = Case(
        When(kind__in=_READERS, then=Cast("payload", TextField())),
        default=Value(""),
        output_field=TextField(),
    )
    beside = Q(kind__in=("sandbox_started", _PURGED))
    # The spans alone would have SQLite read each by itself and then sort everything.
    in_order = Q(run__in=[one.run for one in readings], seq__gt=min(one.until for one in readings))
    found = Event.objects.filter(in_order, reduce(or_, spans), Q(step__isnull=False) | beside)
    # As the database gives it: what its field does besides takes as long as all the rest of a row.
    at_as_stored = ExpressionWrapper(F("at"), output_field=TextField())
    rows = found.order_by("run", "seq").values_list(
        "run", "seq", "attempt", "step", "kind", at_as_stored, text
    )
    left = {one.run: one for one in readings}
    for run, of_run in groupby(rows.iterator(), key=itemgetter(0)):
        yield (
            left.pop(run),
            [
                LogEvent(seq, attempt, step, kind, _moment(at), _read(kind, payload))
                for _, seq, attempt, step, kind, at, payload in of_run
            ],
        )
    yield from ((one, []) for one in left.values())


def _moment(stored: dt.datetime) -> dt.datetime:
    """A moment as a database gives it: SQLite in UTC without saying so."""
    return stored if stored.tzinfo else stored.replace(tzinfo=dt.UTC)


def _read(kind: str, text: str) -> JSONObject:
    """What an outline needs of a payload: a page's own reading takes ten times as long."""
    reader = _READERS.get(kind)
    if reader is None:
        return {}
    try:
        return reader(from_json(text))
    except ValueError:
        # The quicker decoder takes no half of a surrogate pair, which a model may well write.
        return reader(json.loads(text))


def _reply_read(payload: JSONObject) -> JSONObject:
    reply = payload.get("reply") or {}
    usage = reply.get("usage") or {}
    message = {"message": payload.get("message")}
    return {
        "reply": {
            "content": _text(reply.get("content")),
            "tool_calls": reply.get("tool_calls"),
            "finish_reason": reply.get("finish_reason"),
            "seconds": reply.get("seconds"),
            "usage": {name: usage.get(name) for name in ("input_total", "output_total")},
        },
        "joined_calls": without_repeats("model_call_finished", message)["joined_calls"],
        "cost": payload.get("cost"),
        "context_tokens": payload.get("context_tokens"),
    }


def _call_read(payload: JSONObject) -> JSONObject:
    read = {name: payload.get(name) for name in _CALL}
    try:
        read["arguments"] = _texts(payload.get("arguments") or {})
    except RecursionError:
        # A model may nest them deeper than a page can say.
        read["arguments"] = {}
    if read["malformed"]:
        read["raw_arguments"] = _text(payload.get("raw_arguments"))
    return read


def _end_read(payload: JSONObject) -> JSONObject:
    read = {name: payload.get(name) for name in _END}
    for name in ("stdout", "stderr"):
        stream = payload.get(name)
        read[name] = {"text": _output(stream.get("text"))} if isinstance(stream, dict) else None
    read["observation"] = _output(payload.get("observation"))
    return read


def _others_read(*names: str) -> Callable[[JSONObject], JSONObject]:
    return lambda payload: {name: _text(payload.get(name)) for name in names}


_CALL = ("index", "call_id", "tool", "executor", "malformed", "again")
_END = ("index", "failed", "submitted", "exit_code", "timed_out", "out_of_memory", "seconds")
_PURGED = "secret_purged"
# By kind; of other events only that they belong to their step.
_READERS: dict[str, Callable[[JSONObject], JSONObject]] = {
    "model_call_finished": _reply_read,
    "model_call_failed": _others_read("error", "message", "retry_in", "cost"),
    "model_call_interrupted": _others_read("cost"),
    "tool_call_started": _call_read,
    "tool_call_finished": _end_read,
    "tool_call_interrupted": _end_read,
    "workspace_changed": _others_read("index", "changes"),
    "harness_message": _others_read("reason", "detail"),
    "sandbox_started": _others_read("purpose", "workspace"),
}


def _output(value: Any) -> Any:
    """What was printed, never shown: of a long one only its hash and size."""
    if not isinstance(value, dict):
        return value
    return StoredText("", value.get("characters"), None, value.get("bytes"), sha256=str(value.get("$blob")))


def _text(value: Any) -> Any:
    return _texts(value) if is_reference(value) else value


def _texts(value: Any) -> Any:
    """The value with what is known of each long text in place of its reference."""
    if isinstance(value, list):
        return [_texts(item) if isinstance(item, dict | list) else item for item in value]
    if is_reference(value):
        preview = mask_key_shapes(str(value.get("preview", "")), growing=True)
        characters, size = value.get("characters"), value.get("bytes")
        return StoredText(preview, characters, None, size, sha256=str(value["$blob"]))
    return {
        name: _texts(item) if isinstance(item, dict | list) else item
        for name, item in value.get("$plain", value).items()
    }


class _Folded(NamedTuple):
    steps: tuple[StepOutline, ...]
    standing: Standing


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read of a run's log up to number `until`.

    `done` are the steps that nothing comes to any more; `open` the events from the newest step on, with what
    the steps before it left behind.
    """

    run: int
    attempt: int
    until: int = 0
    done: tuple[StepOutline, ...] = ()
    open: tuple[LogEvent, ...] = ()
    before: Standing = Standing()
    outline: Outline = Outline(0, 0, 0, ())

    def is_told_late(self, events: Sequence[LogEvent]) -> bool:
        """Whether one of the events belongs to a step that is done."""
        done = {step.number for step in self.done}
        return any(event.step in done for event in events)

    def with_events(self, events: Sequence[LogEvent], *, until: int) -> _Reading:
        """The reading once these events, which follow what was read, are read too."""
        acting = [event for event in events if event.kind != _PURGED]
        purges = self.outline.purges + len(events) - len(acting)
        groups = group([*self.open, *acting])
        newest = max((at for at, members in enumerate(groups) if members[0].step is not None), default=0)
        closed, before = _folded(groups[:newest], self.before)
        last, _ = _folded(groups[newest:], before)
        done = (*self.done, *closed)
        still_open = tuple(event for members in groups[newest:] for event in members)
        outline = Outline(self.run, self.attempt, until, (*done, *last), purges)
        return _Reading(self.run, self.attempt, until, done, still_open, before, outline)

    @property
    def characters(self) -> int:
        """About how much is held."""
        texts = sum(len(one.argument) + len(one.action.subject) for one in self.outline.steps)
        return texts + _STEP_CHARACTERS * (len(self.outline.steps) + 4 * len(self.open) + 1)


def _folded(groups: Sequence[Sequence[LogEvent]], standing: Standing) -> _Folded:
    steps: list[StepOutline] = []
    for members in groups:
        if members[0].step is None:
            standing = _in_sandbox(members[0], standing)
            continue
        view = step_of(list(members))
        action, standing = action_of(view, standing)
        steps.append(_step(view, action))
    return _Folded(tuple(steps), standing)


def _in_sandbox(event: LogEvent, standing: Standing) -> Standing:
    workspace = str(event.payload.get("workspace") or "").rstrip("/")
    if event.payload.get("purpose") == "verification" or not workspace or workspace in standing.roots:
        return standing
    return standing._replace(roots=(*standing.roots, workspace))


def _step(view: StepView, action: Action) -> StepOutline:
    usage = view.answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    cost, cost_missing = view.cost()
    added, removed = edit_counts(view)
    code = view.calls[0].result.get("exit_code") if view.calls else None
    return StepOutline(
        seq=view.first_seq,
        last_seq=view.last_seq,
        number=view.number,
        kind=view.kind,
        icon=view.icon,
        tool=one_line(tool_words(view), _TOOL_CHARACTERS),
        argument=one_line(argument_words(view), _ARGUMENT_CHARACTERS),
        more_calls=max(0, len(view.calls) - 1),
        result=result_words(view),
        exit_code=_number(code),
        failed=view.failed,
        failed_test=view.failed_test,
        added=added,
        removed=removed,
        at=view.events[0].at,
        tokens_in=_number(usage.get("input_total")),
        tokens_out=_number(usage.get("output_total")),
        context_tokens=_number(view.reply.payload.get("context_tokens")) or None if view.reply else None,
        cost=cost,
        cost_missing=cost_missing,
        seconds=step_seconds(view),
        pending=view.pending,
        action=action,
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


class _Cache:
    """Readings by run, the least used dropped. Used by several threads.

    `generation` changes when everything is forgotten: what was read before is not kept afterwards.
    """

    def __init__(self, characters: int) -> None:
        self._limit = characters
        self._held = 0
        # Guards the fields: page threads and those of sockets read and keep.
        self._lock = threading.Lock()
        self._items: OrderedDict[int, _Reading] = OrderedDict()
        self.generation = 0

    def get(self, run: int) -> _Reading | None:
        with self._lock:
            found = self._items.get(run)
            if found is not None:
                self._items.move_to_end(run)
            return found

    def put(self, reading: _Reading, generation: int) -> None:
        with self._lock:
            if generation != self.generation:
                return
            old = self._items.pop(reading.run, None)
            self._held += reading.characters - (old.characters if old else 0)
            self._items[reading.run] = reading
            while self._held > self._limit and self._items:
                self._held -= self._items.popitem(last=False)[1].characters

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._held = 0
            self.generation += 1


_cache = _Cache(_CACHE_CHARACTERS)
trajectories.also_forget(_cache.clear)
