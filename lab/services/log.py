"""The event log: appended under a lease, numbered without gaps, read back thin or whole."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.engine.errors import LeaseLostError
from lab.engine.events import EVENT_ADAPTER, SCHEMA_VERSION, Record
from lab.engine.events import Event as AnyEvent
from lab.engine.llm.base import JSONObject
from lab.models import Attempt, Blob, Call, Draft, Event, Run, RunFacts, TestResult, Verification
from lab.services import blobs, budgets, doorbell, flags, tombstones
from lab.services.blobs import BodyMissingError, BodyPurgedError, blob_text
from lab.services.facts import Entry, empty_facts, fold
from lab.services.payloads import is_reference, short_text, thin, whole
from lab.services.transitions import transition

__all__ = [
    "BodyMissingError",
    "append",
    "append_thin",
    "blob_text",
    "last_time",
    "read_history",
    "read_records",
    "store_draft",
    "thin_events",
]

_ROW_TEXT_CHARACTERS = 20_000
_PHASES = {
    "paused": Run.Status.PAUSED,
    "resumed": Run.Status.RUNNING,
    "verification_started": Run.Status.VERIFYING,
    "run_ended": Run.Status.ENDED,
}


@dataclass
class ThinEvents:
    """Events ready for one transaction: rows without numbers, and the blobs their files are stored for."""

    rows: list[Event] = field(default_factory=list)
    blobs: dict[str, Blob] = field(default_factory=dict)


def thin_events(*, run_id: int, attempt: int, events: Sequence[tuple[dt.datetime, AnyEvent]]) -> ThinEvents:
    """Rows for the events, long texts stored as blob files. Done before the transaction: files are slow.

    Raises:
        OSError: the data folder is full or cannot be written.
    """
    ready = ThinEvents()

    def keep(data: bytes) -> str:
        blob = blobs.store_file(data)
        ready.blobs[blob.sha256] = blob
        return blob.sha256

    for at, event in events:
        payload = thin(event.model_dump(mode="json"), keep=keep)
        ready.rows.append(
            Event(
                run_id=run_id,
                attempt=attempt,
                schema_version=SCHEMA_VERSION,
                kind=event.kind,
                step=payload.get("step"),
                at=at,
                payload=payload,
            )
        )
    return ready


def append(
    *,
    run_id: int,
    attempt: int,
    lease_token: int | None,
    events: Sequence[AnyEvent] | Sequence[tuple[dt.datetime, AnyEvent]],
    after_seq: int | None = None,
    facts: RunFacts | None = None,
) -> int:
    """Append events to a run's log, with everything that is derived from them, in one transaction.

    `lease_token` is that of the open attempt; None is for services that write about a run nobody holds.
    `after_seq` is the last number the writer knows of. `facts` is the roll-up as it is after that number, for
    a writer that keeps it between appends; it is brought up to date in place, and not to be used again after
    an error. Returns the number of the last event.

    Raises:
        LeaseLostError: another worker child owns the attempt, it has ended, or somebody wrote since
            `after_seq`; nothing was written.
        OSError: the data folder is full or cannot be written; nothing was written.
    """
    stamped = [item if isinstance(item, tuple) else (timezone.now(), item) for item in events]
    ready = thin_events(run_id=run_id, attempt=attempt, events=stamped)
    return append_thin(
        run_id=run_id,
        attempt=attempt,
        lease_token=lease_token,
        ready=ready,
        events=[event for _, event in stamped],
        after_seq=after_seq,
        facts=facts,
    )


def append_thin(
    *,
    run_id: int,
    attempt: int,
    lease_token: int | None,
    ready: ThinEvents,
    events: Sequence[AnyEvent],
    after_seq: int | None = None,
    facts: RunFacts | None = None,
) -> int:
    """As `append`, of events that `thin_events` made rows of, perhaps before there was a run.

    Raises:
        LeaseLostError: as `append`.
    """
    with transaction.atomic():
        last = _reserve(run_id, attempt, lease_token, len(ready.rows), after_seq)
        for offset, row in enumerate(ready.rows):
            row.run_id, row.seq = run_id, last - len(ready.rows) + 1 + offset
        blobs.save_rows(list(ready.blobs.values()))
        Event.objects.bulk_create(ready.rows)
        _derive(run_id, attempt, ready.rows, facts if after_seq is not None else None)
        numbered = zip(ready.rows, events, strict=True)
        flags.note(run_id=run_id, events=((row.seq, event) for row, event in numbered))
        _move(run_id, ready.rows, held=lease_token is not None)
        if any(row.kind in _CALL_STATES for row in ready.rows):
            budgets.count_request(run_id=run_id)
        doorbell.ring()
    return last


def store_draft(
    *,
    run_id: int,
    attempt: int,
    lease_token: int,
    after_seq: int,
    step: int,
    content: str,
    reasoning: str,
    calls: str,
    characters: int,
) -> None:
    """Overwrite the text that is still streaming. Shown while `after_seq` is the run's last event.

    Raises:
        LeaseLostError: another worker child owns the attempt.
    """
    with transaction.atomic():
        if not _open_attempt(run_id, attempt, lease_token).select_for_update(no_key=True):
            raise LeaseLostError(f"run {run_id}: attempt {attempt} belongs to another worker now")
        previous = Draft.objects.filter(run_id=run_id).values_list("version", flat=True).first()
        Draft(
            run_id=run_id,
            after_seq=after_seq,
            step=step,
            version=(previous or 0) + 1,
            content=content,
            reasoning=reasoning,
            calls=calls,
            characters=characters,
        ).save(force_insert=previous is None, force_update=previous is not None)
        doorbell.ring()


def read_records(
    *, run_id: int, after: int = 0, limit: int | None = None, whole_texts: bool = True
) -> list[Record]:
    """The records after number `after`, oldest first, every text whole.

    With `whole_texts` off, a long text is its first 400 characters. A text whose body is gone reads
    "[body missing: …]".
    """
    rows = Event.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")
    return [read_row(row, whole_texts=whole_texts) for row in (rows if limit is None else rows[:limit])]


def read_history(*, run_id: int, attempt: int) -> tuple[Record, ...]:
    """All records of an attempt, for going on from them.

    Raises:
        BodyMissingError: a text is gone or no longer what it was; also where a purge changed one in its row.
    """
    rows = Event.objects.filter(run_id=run_id, attempt=attempt).order_by("seq")
    records = tuple(_record(row, lambda reference: blob_text(reference["$blob"])) for row in rows)
    changed = tombstones.changed_events(run_id=run_id)
    for record in records:
        if record.seq in changed:
            why = changed[record.seq]
            raise BodyPurgedError(f"the attempt cannot go on exactly: event {record.seq} was changed ({why})")
    return records


def last_time(*, run_id: int) -> dt.datetime:
    """The time of the run's newest event; that of its beginning before the first one."""
    newest = Event.objects.filter(run_id=run_id).order_by("-seq").values_list("at", flat=True).first()
    return newest or Run.objects.values_list("created_at", flat=True).get(pk=run_id)


def read_row(row: Event, *, whole_texts: bool = True) -> Record:
    """The record that a row holds."""
    return _record(row, _text_or_mark if whole_texts else short_text)


def whole_payload(payload: JSONObject) -> JSONObject:
    """What a row's event holds, as JSON, every text whole; one whose body is gone as in `read_records`."""
    return whole(payload, text_of=_text_or_mark)


def _record(row: Event, text_of: Callable[[JSONObject], str]) -> Record:
    payload = whole(row.payload, text_of=text_of)
    return Record(
        seq=row.seq,
        attempt=row.attempt,
        at=row.at,
        schema_version=row.schema_version,
        event=EVENT_ADAPTER.validate_python(payload),
    )


def _text(value: object) -> str:
    """A text of a thin payload for a row of its own: whole, from a very long one the end."""
    if is_reference(value) and isinstance(value, dict):
        return _text_or_mark(value)[-_ROW_TEXT_CHARACTERS:]
    return short_text(value)


def _text_or_mark(reference: JSONObject) -> str:
    try:
        return blob_text(reference["$blob"])
    except BodyMissingError as error:
        return f"[{error}]"


def _open_attempt(run_id: int, attempt: int, lease_token: int) -> QuerySet[Attempt]:
    return Attempt.objects.filter(run_id=run_id, n=attempt, lease_token=lease_token, ended_at=None)


# What happens several times a second for each run is one statement, and is not composed anew each time.
_RESERVE = f"""
UPDATE {Run._meta.db_table} SET last_seq = %s
WHERE id = %s AND last_seq = %s AND EXISTS (
    SELECT 1 FROM {Attempt._meta.db_table}
    WHERE run_id = %s AND n = %s AND lease_token = %s AND ended_at IS NULL
)
"""  # noqa: S608 (the names of tables, nothing from outside)


def _reserve(run_id: int, attempt: int, lease_token: int | None, count: int, after_seq: int | None) -> int:
    """Take the next `count` numbers. Locking the run's row orders writers on every database."""
    held = _open_attempt(run_id, attempt, lease_token or 0)
    if lease_token is not None and after_seq is not None:
        with connection.cursor() as cursor:
            cursor.execute(_RESERVE, [after_seq + count, run_id, after_seq, run_id, attempt, lease_token])
            reserved = bool(cursor.rowcount)
        if reserved and (connection.vendor == "sqlite" or held.exists()):
            return after_seq + count
    # A writer that knows less, or one that must be told why it may not write.
    last = Run.objects.locked().filter(pk=run_id).values_list("last_seq", flat=True).first()
    if last is None or (lease_token is not None and not held.exists()):
        raise LeaseLostError(f"run {run_id}: attempt {attempt} belongs to another worker now, or has ended")
    if after_seq is not None and after_seq != last:
        raise LeaseLostError(f"run {run_id}: its log ends at {last}, not at {after_seq}: somebody else wrote")
    Run.objects.filter(pk=run_id).update(last_seq=last + count)
    return last + count


def _derive(run_id: int, attempt: int, rows: Sequence[Event], facts: RunFacts | None) -> None:
    """Everything that is computed from events, but for the run's status."""
    facts = facts or RunFacts.objects.filter(pk=run_id).first()
    known = facts is not None
    facts = facts or empty_facts(run_id)
    before = dict(vars(facts))
    fold(facts, (Entry(row.kind, row.at, row.payload) for row in rows))
    changed = [name for name, value in vars(facts).items() if name != "_state" and before[name] != value]
    if not known:
        facts.save(force_insert=True)
    elif changed:
        facts.save(update_fields=changed)
    calls = [call for row in rows if (call := _call(row))]
    if calls:
        Call.objects.bulk_create(calls)
    for row in rows:
        derive = _DERIVED.get(row.kind)
        if derive is not None:
            derive(run_id, attempt, row)


def _move(run_id: int, rows: Sequence[Event], *, held: bool) -> None:
    """Give the run the status it has after the events; resumed while nobody holds it, it is queued."""
    for row in rows:
        if row.kind == "resumed" and not held:
            transition(run_id=run_id, to=Run.Status.QUEUED, only_from=Run.Status.PAUSED)
        elif row.kind == "sandbox_started" and row.payload["purpose"] == "agent":
            # A run that is paused meanwhile stays so.
            transition(run_id=run_id, to=Run.Status.RUNNING, only_from=Run.Status.PREPARING)
        elif row.kind in _PHASES:
            reason = row.payload.get("exit_reason", "")
            transition(run_id=run_id, to=_PHASES[row.kind], at=row.at, exit_reason=reason)


_CALL_STATES = {
    "model_call_finished": Call.State.FINISHED,
    "model_call_failed": Call.State.FAILED,
    "model_call_interrupted": Call.State.INTERRUPTED,
}


def _call(row: Event) -> Call | None:
    state = _CALL_STATES.get(row.kind)
    if state is None:
        return None
    payload = row.payload
    reply: JSONObject = payload.get("reply") or {}
    usage: JSONObject = reply.get("usage") or payload.get("usage") or {}
    cost: JSONObject = payload.get("cost") or {}
    seconds = reply.get("seconds", payload.get("seconds"))
    return Call(
        run_id=row.run_id,
        attempt=row.attempt,
        step=payload["step"],
        request=payload["request"],
        seq=row.seq,
        state=state,
        # Whatever a server calls itself.
        model=short_text(reply.get("model", ""))[:200],
        input_total=usage.get("input_total"),
        input_uncached=usage.get("input_uncached"),
        cache_read=usage.get("cache_read"),
        cache_write=usage.get("cache_write"),
        output_total=usage.get("output_total"),
        reasoning=usage.get("reasoning"),
        usage_source=usage.get("source", "absent"),
        cost=None if cost.get("amount") is None else Decimal(cost["amount"]),
        cost_basis=cost.get("basis", "unknown"),
        cost_reported=None if cost.get("reported") is None else Decimal(cost["reported"]),
        price={name: cost.get(name) for name in ("unit_prices", "matched", "note")},
        started_at=row.at - dt.timedelta(seconds=seconds or 0.0),
        first_token_seconds=reply.get("first_token_seconds"),
        seconds=seconds,
    )


def _sandbox_started(run_id: int, attempt: int, row: Event) -> None:
    if row.payload["purpose"] != "agent":
        return
    Attempt.objects.filter(run_id=run_id, n=attempt).update(sandbox=row.payload)
    Run.objects.filter(pk=run_id).update(sandbox_kind=short_text(row.payload["sandbox"])[:32])


def _verification_finished(run_id: int, attempt: int, row: Event) -> None:
    payload = row.payload
    log: Any = payload["log"]
    verification = Verification.objects.create(
        run_id=run_id,
        n=Verification.objects.filter(run_id=run_id).count() + 1,
        attempt=attempt,
        rule=short_text(payload["rule"])[:32],
        outcome=payload["outcome"],
        rewards=payload.get("rewards") or {},
        detail=_text(payload["detail"]),
        log_blob=log["$blob"] if is_reference(log) else "",
        seconds=payload["seconds"],
        at=row.at,
    )
    TestResult.objects.bulk_create(
        TestResult(
            verification=verification,
            position=position,
            test_id=short_text(test["test_id"])[:500],
            group=test["group"],
            status=test["status"],
            assertion=_text(test["assertion"]),
            log=_text(test["log"]),
        )
        for position, test in enumerate(payload["tests"], start=1)
    )


def _attempt_ended(run_id: int, attempt: int, row: Event) -> None:
    payload = row.payload
    Attempt.objects.filter(run_id=run_id, n=attempt).update(
        ended_at=row.at,
        exit_reason=payload["exit_reason"],
        native_reason=short_text(payload["native_reason"])[:200],
        peak_memory_bytes=payload.get("peak_memory_bytes"),
        cpu_seconds=payload.get("cpu_seconds"),
        wall_seconds=payload.get("wall_seconds"),
    )


def _run_ended(run_id: int, attempt: int, row: Event) -> None:
    Draft.objects.filter(run_id=run_id).delete()


_DERIVED = {
    "sandbox_started": _sandbox_started,
    "verification_finished": _verification_finished,
    "attempt_ended": _attempt_ended,
    "run_ended": _run_ended,
}
