"""Reading a run's log for people: windows of it, what is new in it, and bodies one by one.

Nothing here reads a whole run. Long texts come as excerpts; fragments are rendered once a process and kept.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Max, Min

from lab.engine.key_shapes import mask_key_shapes, masked_beginning
from lab.engine.llm.base import JSONObject
from lab.models import Event, Run
from lab.render.events import Fragment, LogEvent, MapStep, fragment
from lab.render.fold import UNREAD_ICON, without_repeats
from lab.render.kinds import ICONS, Kind, call_kind, icon_of
from lab.render.normal_form import StoredText
from lab.render.text import Excerpt, count_lines
from lab.services import blobs, tombstones
from lab.services.payloads import is_reference, short_text

WINDOW_STEPS = 50
_WINDOW_EVENTS = 400
_BEFORE_PERMALINK = 10
# What a fragment shows of a text is less; the rest of the excerpt is for counting words and for short diffs.
_EXCERPT_CHARACTERS = 8_000
# Of what was printed no more than 3,000 characters are shown at first.
_OUTPUT_CHARACTERS = 4_000
_OUTPUTS = frozenset({"text", "observation"})
_TAIL_CHARACTERS = 2_000
# A body up to this size is read whole, so that its lines can be counted; of a larger one only the head.
_COUNTED_BYTES = 1_000_000
_CACHE_CHARACTERS = 16_000_000

# Bodies that fragments show, by kind. Other long texts stay at the preview that their row holds.
_SHOWN: dict[str, frozenset[str]] = {
    "model_call_finished": frozenset({"content", "reasoning"}),
    "model_call_failed": frozenset({"partial", "raw"}),
    "model_call_interrupted": frozenset({"partial"}),
    "tool_call_started": frozenset(
        {"content", "file_text", "command", "cmd", "old_string", "new_string", "old_str", "new_str", "result"}
    ),
    "tool_call_finished": frozenset({"text", "observation"}),
    "tool_call_interrupted": frozenset({"text"}),
    "message_sent": frozenset({"content"}),
    "harness_message": frozenset({"content"}),
}


class Window(NamedTuple):
    """A stretch of a run's log, oldest first. `first_seq` and `last_seq` are 0 for an empty one."""

    fragments: list[Fragment]
    first_seq: int
    last_seq: int
    more_before: bool
    more_after: bool


class Batch(NamedTuple):
    """What is new after number `after` up to `last`: each touched step whole, in order.

    `purged`: earlier events read otherwise now, because a leaked secret was taken out of them.
    """

    after: int
    last: int
    fragments: list[Fragment]
    purged: bool = False


class _Row(NamedTuple):
    seq: int
    attempt: int
    step: int | None


def window(
    *,
    run_id: int,
    at: int | None = None,
    before: int | None = None,
    after: int | None = None,
    from_end: bool = False,
    steps: int = WINDOW_STEPS,
    last_seq: int | None = None,
    blind: bool = False,
) -> Window:
    """About `steps` steps: around number `at`, before or after a number, else from the start or the end.

    Costs the same however long the run is. `last_seq` is the run's last number where the caller knows it.
    `blind`: fragments without what betrays the run's arm.
    """
    forget_what_was_purged()
    if at is not None:
        rows = _backward(run_id, at + 1, _BEFORE_PERMALINK)
        start = rows[0].seq if rows else 1
        rows = _forward(run_id, start - 1, steps)
    elif before is not None:
        rows = _backward(run_id, before, steps)
    elif from_end:
        rows = _backward(run_id, None, steps)
    else:
        rows = _forward(run_id, after or 0, steps)
    if not rows:
        return Window([], 0, 0, more_before=False, more_after=False)
    first, last = rows[0].seq, rows[-1].seq
    if last_seq is None:
        last_seq = Run.objects.filter(pk=run_id).values_list("last_seq", flat=True).first() or 0
    more_after = last < last_seq
    fragments = _fragments(run_id, rows, blind=blind)
    return Window(fragments, first, last, more_before=first > 1, more_after=more_after)


def _rows(run_id: int, **bounds: int) -> Any:
    return Event.objects.filter(run_id=run_id, **bounds).values_list("seq", "attempt", "step")


def _key(row: _Row) -> tuple[int, int] | None:
    return None if row.step is None else (row.attempt, row.step)


def _forward(run_id: int, after: int, steps: int) -> list[_Row]:
    rows = [_Row(*row) for row in _rows(run_id, seq__gt=after).order_by("seq")[:_WINDOW_EVENTS]]
    kept = _cut(rows, steps, full=len(rows) == _WINDOW_EVENTS)
    if kept or not rows:
        return kept
    # One step fills the whole stretch: it is taken to its end.
    last = _rows(run_id, attempt=rows[-1].attempt, step=rows[-1].step or 0).aggregate(last=Max("seq"))["last"]
    return [_Row(*row) for row in _rows(run_id, seq__gt=after, seq__lte=last).order_by("seq")]


def _backward(run_id: int, before: int | None, steps: int) -> list[_Row]:
    bounds = {} if before is None else {"seq__lt": before}
    rows = [_Row(*row) for row in _rows(run_id, **bounds).order_by("-seq")[:_WINDOW_EVENTS]]
    kept = _cut(rows, steps, full=len(rows) == _WINDOW_EVENTS)
    if not kept and rows:
        first = _rows(run_id, attempt=rows[-1].attempt, step=rows[-1].step or 0).aggregate(first=Min("seq"))[
            "first"
        ]
        kept = [_Row(*row) for row in _rows(run_id, seq__gte=first, seq__lte=rows[0].seq).order_by("-seq")]
    return kept[::-1]


def _cut(rows: list[_Row], steps: int, *, full: bool) -> list[_Row]:
    """The rows of the first `steps` steps. A stretch cut off by its limit loses its last step."""
    seen: set[tuple[int, int]] = set()
    for index, row in enumerate(rows):
        key = _key(row)
        if key is None or key in seen:
            continue
        if len(seen) == steps:
            return rows[:index]
        seen.add(key)
    if not full:
        return rows
    last = next((key for row in reversed(rows) if (key := _key(row))), None)
    if last is None:
        return rows
    return rows[: next(index for index, row in enumerate(rows) if _key(row) == last)]


def _fragments(run_id: int, rows: Sequence[_Row], *, blind: bool = False) -> list[Fragment]:
    groups: list[list[_Row]] = []
    steps: dict[tuple[int, int], list[_Row]] = {}
    for row in rows:
        key = _key(row)
        if key is not None and key in steps:
            steps[key].append(row)
            continue
        groups.append([row])
        if key is not None:
            steps[key] = groups[-1]
    known = [_cache.get(_cache_key(run_id, group, blind=blind)) for group in groups]
    events = _events_in(run_id, [group for group, found in zip(groups, known, strict=True) if found is None])
    return [
        found or rendered(run_id, [events[row.seq] for row in group], blind=blind)
        for group, found in zip(groups, known, strict=True)
    ]


def _events_in(run_id: int, groups: list[list[_Row]]) -> dict[int, LogEvent]:
    if not groups:
        return {}
    last = max(group[-1].seq for group in groups)
    stored = Event.objects.filter(run_id=run_id, seq__gte=groups[0][0].seq, seq__lte=last).order_by("seq")
    wanted = {row.seq for group in groups for row in group}
    return {row[0]: log_event(*row) for row in stored.values_list(*_COLUMNS) if row[0] in wanted}


class _Stored:
    """A row of the log. Made readable, which is most of the work, only for a fragment that is not kept."""

    def __init__(self, row: tuple[int, int, int | None, str, dt.datetime, JSONObject]) -> None:
        self.seq, self.attempt, self.step, self.kind = row[:4]
        self._row = row

    @cached_property
    def event(self) -> LogEvent:
        return log_event(*self._row)


class LogReader:
    """Reads what is new in one run's log, step by step. Not for two threads at once."""

    def __init__(self, *, run_id: int, after: int) -> None:
        self.run_id = run_id
        self.position = after
        # The events of the newest step up to the position; None until they are read.
        self._open: list[_Stored] | None = None

    def read(self, *, limit: int = 200) -> Batch | None:
        """The next events, None when there are none."""
        new = Event.objects.filter(run_id=self.run_id, seq__gt=self.position).order_by("seq")
        events = [_Stored(row) for row in new.values_list(*_COLUMNS)[:limit]]
        if not events:
            return None
        forget_what_was_purged()
        purged = any(event.kind == "secret_purged" for event in events)
        touched: list[list[_Stored]] = []
        for event in events:
            touched.append(self._group(event))
        distinct = list({id(group): group for group in touched}.values())
        fragments = [self._fragment(group) for group in distinct]
        batch = Batch(self.position, events[-1].seq, fragments, purged)
        self.position = batch.last
        return batch

    def _fragment(self, group: list[_Stored]) -> Fragment:
        kept = _cache.get(_cache_key(self.run_id, group))
        return kept or rendered(self.run_id, [stored.event for stored in group])

    def _group(self, event: _Stored) -> list[_Stored]:
        if event.step is None:
            return [event]
        current = self._step_before() if self._open is None else self._open
        if current and (current[0].attempt, current[0].step) == (event.attempt, event.step):
            # A new list would be a new group for the same step within one batch.
            current.append(event)
            self._open = current
            return current
        self._open = [event]
        return self._open

    def _step_before(self) -> list[_Stored]:
        before = Event.objects.filter(run_id=self.run_id, seq__lte=self.position)
        last = before.filter(step__isnull=False).order_by("-seq").values_list("attempt", "step").first()
        if last is None:
            return []
        rows = before.filter(attempt=last[0], step=last[1]).order_by("seq")
        return [_Stored(row) for row in rows.values_list(*_COLUMNS)]


# Events never change: run, first and last number and how many say which ones they are.
_CacheKey = tuple[int, int, int, int, bool]


def _cache_key(run_id: int, events: Sequence[_Row | LogEvent | _Stored], *, blind: bool = False) -> _CacheKey:
    return (run_id, events[0].seq, events[-1].seq, len(events), blind)


class _Cache:
    """Rendered fragments by run and numbers, the least used dropped. Used by several threads."""

    def __init__(self, characters: int) -> None:
        self._limit = characters
        self._held = 0
        # Guards the two fields below: page threads and the watcher's thread render and look up.
        self._lock = threading.Lock()
        self._items: OrderedDict[_CacheKey, Fragment] = OrderedDict()

    def get(self, key: _CacheKey) -> Fragment | None:
        with self._lock:
            found = self._items.get(key)
            if found is not None:
                self._items.move_to_end(key)
            return found

    def put(self, key: _CacheKey, item: Fragment) -> None:
        with self._lock:
            old = self._items.pop(key, None)
            self._held += len(item.html) - (len(old.html) if old else 0)
            self._items[key] = item
            while self._held > self._limit and self._items:
                self._held -= len(self._items.popitem(last=False)[1].html)

    def clear(self) -> None:
        with self._lock:
            self._items.clear()
            self._held = 0


_cache = _Cache(_CACHE_CHARACTERS)
_forgetting: list[Callable[[], None]] = [_cache.clear]
_purged_at: list[float] = [0.0]


def also_forget(forget: Callable[[], None]) -> None:
    """Have `forget` called whenever what was made of events before is not to be shown again."""
    _forgetting.append(forget)


def forget_rendered() -> None:
    """Make everything anew that is made of events."""
    for forget in _forgetting:
        forget()


def forget_what_was_purged() -> None:
    """Render anew after a purge by any process: only then do events change."""
    try:
        at = tombstones.mark().stat().st_mtime
    except OSError:
        return
    if at != _purged_at[0]:
        _purged_at[0] = at
        forget_rendered()


def rendered(run_id: int, events: list[LogEvent], *, blind: bool = False) -> Fragment:
    """The fragment of one group of events, made once a process."""
    key = _cache_key(run_id, events, blind=blind)
    found = _cache.get(key)
    if found is None:
        found = fragment(run_id, list(events), blind=blind)
        _cache.put(key, found)
    return found


_COLUMNS = ("seq", "attempt", "step", "kind", "at", "payload")


def log_event(
    seq: int,
    attempt: int,
    step: int | None,
    kind: str,
    at: dt.datetime,
    stored: JSONObject,
    *,
    printed: int = _OUTPUT_CHARACTERS,
) -> LogEvent:
    """A stored row as pages read it; of what was printed at most `printed` characters."""
    payload = without_repeats(kind, stored)
    shown = _SHOWN.get(kind, _NOTHING)
    if kind == "tool_call_started" and payload.get("malformed"):
        shown = shown | {"raw_arguments"}
    if kind == "tool_call_finished" and payload.get("stdout") and not payload.get("observation_dropped"):
        shown = frozenset({"text"})
    return LogEvent(seq, attempt, step, kind, at, _excerpts(payload, shown, printed))


_NOTHING: frozenset[str] = frozenset()


def _excerpts(value: Any, shown: frozenset[str], printed: int, name: str = "") -> Any:
    """The value with an excerpt for each reference, and everything masked that looks like a key."""
    if isinstance(value, str):
        return mask_key_shapes(value)
    if isinstance(value, list):
        return [
            _excerpts(item, shown, printed) if isinstance(item, dict | list | str) else item for item in value
        ]
    if is_reference(value):
        if name not in shown:
            return _preview(value)
        return stored_excerpt(value, characters=printed if name in _OUTPUTS else _EXCERPT_CHARACTERS)
    return {
        mask_key_shapes(key): _excerpts(item, shown, printed, key)
        if isinstance(item, dict | list | str)
        else item
        for key, item in value.get("$plain", value).items()
    }


def _preview(reference: JSONObject) -> Excerpt:
    text = mask_key_shapes(str(reference.get("preview", "")), growing=True)
    sha256 = str(reference["$blob"])
    return StoredText(text, reference.get("characters"), None, reference.get("bytes"), sha256=sha256)


def stored_excerpt(reference: JSONObject, *, characters: int = _EXCERPT_CHARACTERS) -> Excerpt:
    """The beginning of a stored text, masked. A body that is gone is said to be missing, no more."""
    size = int(reference.get("bytes") or 0)
    length = reference.get("characters")
    limit = size if size <= _COUNTED_BYTES else characters * 4
    sha256 = str(reference["$blob"])
    try:
        data = blobs.beginning_of(sha256, limit=limit)
    except blobs.BodyPurgedError as purged:
        return StoredText(f"[{purged}]", length, None, size, sha256=sha256)
    except blobs.BodyMissingError:
        return StoredText("[body missing]", length, None, size, sha256=sha256)
    text = data.decode("utf-8", "replace" if limit < size else "surrogatepass")
    beginning = masked_beginning(text, characters)
    if limit < size:
        return StoredText(beginning, length, None, size, sha256=sha256)
    # Of the tail only counts are shown.
    lines, tail = count_lines(text), text[-_TAIL_CHARACTERS:]
    return StoredText(beginning, len(text), lines, size, tail, sha256=sha256)


class Body(NamedTuple):
    """One text of an event, whole, as people are shown it. `path` is the file it is the content of, "" for
    output and words. `masked`: something that looks like a key is not shown.
    """

    text: str
    kind: str
    path: str
    masked: bool


# Part -> where it may stand in an event's payload.
_PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "stdout": (("stdout", "text"),),
    "stderr": (("stderr", "text"),),
    "content": (("reply", "content"), ("arguments", "content"), ("message", "content")),
    "reasoning": (("reply", "reasoning"),),
    "file_text": (("arguments", "file_text"),),
    "new_str": (("arguments", "new_str"),),
    "reply": (("reply", "content"),),
    "command": (("arguments", "command"),),
} | {
    name: ((name,),)
    for name in (
        *("observation", "whole", "raw_arguments", "partial", "raw", "patch", "log", "final_message", "kept"),
    )
}


def body(*, run_id: int, seq: int, part: str) -> Body:
    """One text of an event.

    Raises:
        LookupError: the run has no such event, or the event no such part.
        BodyMissingError: the stored file is gone or damaged.
    """
    row = Event.objects.filter(run_id=run_id, seq=seq).first()
    if row is None:
        raise LookupError(f"run {run_id} has no event {seq}")
    for place in _PLACES.get(part, ()) or _message_place(part):
        value = _at(row.payload, place)
        if isinstance(value, str) or is_reference(value):
            stored = _text_or_tombstone(value)
            text = mask_key_shapes(stored)
            return Body(text, row.kind, _path_in(row.payload), masked=text != stored)
    raise LookupError(f"event {seq} of run {run_id} has no part {part!r}")


def text_of(value: Any) -> str:
    """A text of a thin payload, whole.

    Raises:
        BodyMissingError: the stored file is gone or damaged.
    """
    return blobs.blob_text(value["$blob"]) if is_reference(value) else str(value)


def _text_or_tombstone(value: Any) -> str:
    try:
        return text_of(value)
    except blobs.BodyPurgedError as purged:
        return f"[{purged}]"


def _message_place(part: str) -> tuple[tuple[str, ...], ...]:
    words = part.split(".")
    if len(words) == 3 and words[0] == "messages" and words[1].isdecimal() and words[2] == "content":
        return (tuple(words),)
    if len(words) == 3 and words[0] == "tool_calls" and words[1].isdecimal() and words[2] == "arguments":
        return (("reply", *words),)
    return ()


def _at(value: Any, place: Sequence[str]) -> Any:
    for name in place:
        if isinstance(value, dict):
            value = value.get("$plain", value).get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _path_in(payload: JSONObject) -> str:
    path = _at(payload, ("arguments", "file_path")) or _at(payload, ("arguments", "path"))
    return mask_key_shapes(short_text(path))


_MAPPED = (
    *("history_rewritten", "model_call_started", "model_call_finished", "harness_message"),
    *("tool_call_started", "tool_call_finished"),
)


def outline(*, run_id: int) -> list[MapStep]:
    """Every step of a run as the minimap shows it. Reads a few fields of each event and no body."""
    rows = (
        Event.objects.filter(run_id=run_id, kind__in=_MAPPED)
        .order_by("seq")
        .values_list(
            "seq",
            "attempt",
            "step",
            "kind",
            "payload__tool",
            "payload__executor",
            "payload__arguments__command",
            "payload__arguments__cmd",
            "payload__exit_code",
            "payload__submitted",
        )
    )
    steps: dict[tuple[int, int], _Outline] = {}
    for seq, attempt, step, kind, tool, executor, command, cmd, exit_code, submitted in rows:
        line = steps.setdefault((attempt, step or 0), _Outline(seq, step or 0))
        if kind == "model_call_finished":
            line.answered = True
        elif kind == "harness_message":
            line.told = True
        elif kind == "tool_call_started" and line.call is None:
            arguments = {"command": short_text(command), "cmd": short_text(cmd)}
            line.call = (str(tool or ""), str(executor or ""), arguments)
        elif kind == "tool_call_finished":
            line.failed = line.failed or exit_code not in (0, None)
            line.ended, line.submitted = True, line.submitted or bool(submitted)
    return [line.map_step() for line in steps.values()]


@dataclass(slots=True)
class _Outline:
    seq: int
    number: int
    answered: bool = False
    told: bool = False
    failed: bool = False
    ended: bool = False
    submitted: bool = False
    call: tuple[str, str, JSONObject] | None = None

    def map_step(self) -> MapStep:
        if self.call is None or self.submitted:
            kind: Kind = "final" if (self.answered and not self.told) or self.submitted else "shell"
            icon = UNREAD_ICON if self.told else ICONS["final"]
            return MapStep(self.seq, self.number, kind, icon, failed_test=False)
        kind = call_kind(*self.call)
        if kind == "final" and self.ended:
            # It was answered, with a review or an error, and handed in nothing.
            return MapStep(self.seq, self.number, "read", ICONS["read"], failed_test=False)
        return MapStep(self.seq, self.number, kind, icon_of(kind, *self.call), kind == "test" and self.failed)
