"""Runs for programs: how one stands, its log, and what people may ask of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from lab.api.errors import UnusableError
from lab.api.security import TokenOf, person_of
from lab.engine.key_shapes import masked
from lab.models import Role, Run
from lab.services import controls, records
from lab.services.errors import FieldErrors
from lab.services.facts import facts_of

router = Router(tags=["runs"])


class Facts(Schema):
    """Sums of the log so far. null is unknown, never 0; `…_unknown` counts requests without a figure."""

    steps: int
    calls: int
    failed_calls: int
    input_uncached: int | None
    cache_read: int | None
    cache_write: int | None
    input_total: int | None
    output_total: int | None
    reasoning: int | None
    usage_unknown: int
    cost: Decimal | None = Field(description="US dollars")
    cost_unknown: int
    cost_basis: str
    context_tokens: int | None
    fail_to_pass_passed: int | None
    fail_to_pass_total: int | None
    pass_to_pass_passed: int | None
    pass_to_pass_total: int | None
    changed_files: list[Any]
    peak_memory_bytes: int | None
    agent_seconds: float | None
    continuations: int
    limits_changed: bool
    got_message: bool


class RunState(Schema):
    """One run. `verdict` is "" until it was graded, `exit_reason` "" until it has ended."""

    id: int
    experiment: int
    task: str
    harness: str
    model: str
    seed: int
    status: str
    exit_reason: str
    verdict: str
    limits: dict[str, Any] = Field(description="of the arm; null is no limit")
    last_seq: int
    created_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    facts: Facts


class LogPart(Schema):
    """Which records: after this number, at most so many."""

    after: int = Field(0, ge=0, le=2**31 - 1)
    limit: int = Field(100, ge=1, le=records.MOST_RECORDS)


class EventPage(Schema):
    """Records of the log, oldest first. Ask again with `after` = the last `seq` until it is `last_seq`."""

    events: list[dict[str, Any]]
    last_seq: int


class ControlIn(Schema):
    """What is asked. `value` is for "message" the text, for "limit" {"limit": its name, "after": the number
    or null for no limit}. "again" makes another run each time it is asked; where the newest preflight of the
    model is failing only with {"despite": [its number]}."""

    control: Literal["pause", "resume", "cancel", "limit", "message", "attempt", "again"]
    value: dict[str, str | int | float | list[int] | None] | str | None = None


class ControlOut(Schema):
    """What came of it: `run` is the run that was asked, of "again" the new one; `new` is false when the same
    was asked before."""

    run: int
    new: bool
    said: str


@router.get("/{run_id}", auth=TokenOf(Role.VIEWER), response=RunState)
def run_state(request: HttpRequest, run_id: int) -> RunState:
    """Status, verdict, limits and sums of a run."""
    run = _run(run_id)
    facts = facts_of(run)
    sums = Facts.from_orm(facts)
    sums.changed_files = masked(facts.changed_files)
    return RunState(
        id=run.pk,
        experiment=run.experiment_id,
        task=run.task.slug,
        harness=str(run.arm.harness_version),
        model=run.arm.model.name,
        seed=run.seed,
        status=run.status,
        exit_reason=run.exit_reason,
        verdict=facts.verdict,
        limits=run.arm.limits,
        last_seq=run.last_seq,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        facts=sums,
    )


@router.get("/{run_id}/events", auth=TokenOf(Role.VIEWER), response=EventPage)
def run_events(request: HttpRequest, run_id: int, part: Query[LogPart]) -> EventPage:
    """The log after number `after`. Text that looks like a key is masked; a long answer ends between two."""
    page = records.after(by=person_of(request), run=_run(run_id), seq=part.after, limit=part.limit)
    return EventPage(events=page.records, last_seq=page.last_seq)


@router.post("/{run_id}/controls", auth=TokenOf(Role.OPERATOR), response={HTTPStatus.ACCEPTED: ControlOut})
def ask(request: HttpRequest, run_id: int, body: ControlIn) -> Status[ControlOut]:
    """Ask something of a run; what does not fit its state or its limits changes nothing."""
    run = _run(run_id)
    try:
        asked = controls.ask(run=run, by=person_of(request), control=body.control, value=body.value)
    except FieldErrors as error:
        raise UnusableError(error, _values(body)) from error
    return Status(HTTPStatus.ACCEPTED, ControlOut(run=asked.run.pk, new=asked.new, said=asked.said))


def _run(run_id: int) -> Run:
    run = Run.objects.filter(pk=run_id).for_rows().first() if 0 < run_id < 2**63 else None
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    return run


def _values(body: ControlIn) -> dict[str, Any]:
    """What was sent, under each name by which an error may speak of it."""
    named = body.value if isinstance(body.value, dict) else {}
    limit = {str(named["limit"]): named.get("after")} if named.get("limit") else {}
    return {"control": body.control, body.control: body.value, **named, **limit}
