"""Readings by a judge: asked for by people, held by one worker child at a time, taken over when it is gone.

The state is in the database. Whoever reads holds the row by a lease with a number that grows with each
holder, so that one that was thought dead writes nothing more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.judge import rubric as rubrics
from lab.engine.judge.rubric import Rubric
from lab.models import GuidelineVersion, JudgeRun, Model, Role, Run
from lab.services import endpoints, preflights, taxonomies
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector
from lab.services.locks import one_at_a_time
from lab.services.messages import ring_for_judges

MOST_RUNS = 500
# A worker that dies over the same reading again and again dies of it.
MOST_HOLDERS = 4
RING_AGAIN_SECONDS = 3.0
_GOES_ON = (JudgeRun.State.QUEUED, JudgeRun.State.RUNNING)


def rubric_of(guideline: GuidelineVersion) -> Rubric:
    """What a judge is asked under a guideline version: what people are."""
    return rubrics.of_guideline(
        taxonomy=taxonomies.content_of(guideline.taxonomy_version),
        root_cause=guideline.root_cause,
        instructions=guideline.instructions,
        version=guideline.n,
    )


@for_role(Role.OPERATOR)
@transaction.atomic
def ask(
    *,
    by: User,
    model: Model,
    run_ids: Sequence[int],
    guideline: GuidelineVersion | None = None,
    rubric: Rubric | None = None,
    ring: bool = True,
) -> list[JudgeRun]:
    """Queue a reading of each run by the model: by a guideline's rubric, or by another one.

    `ring`: whether a worker is called; who does not takes the readings itself at once.

    A run that waits for or is in the same reading already is not asked for twice: that one is returned.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "runs" (none, too many, unknown, not ended), "model" (nobody to ask, no key), "rubric".
    """
    errors = FieldErrorCollector()
    _check_model(model, errors)
    wanted = _runs(run_ids, errors)
    if (guideline is None) == (rubric is None):
        errors.say("rubric", "rubric: choose a guideline or give a rubric, one of the two")
    errors.raise_if_any()
    asked = rubric_of(guideline) if guideline is not None else rubric
    if asked is None:
        raise ValueError("no rubric is left")
    one_at_a_time("judges")
    same = JudgeRun.objects.filter(
        model=model, rubric_digest=asked.digest, guideline=guideline, state__in=_GOES_ON, run__in=wanted
    )
    going_on = {row.run_id: row for row in same.select_for_update()}
    columns = {"rubric": asked.model_dump(mode="json"), "rubric_digest": asked.digest, "asked_by": by}
    new = [
        JudgeRun(run=run, model=model, guideline=guideline, **columns)
        for run in wanted
        if run.pk not in going_on
    ]
    for row in new:
        row.save()
    if ring:
        ring_for_judges()
    by_run = going_on | {row.run_id: row for row in new}
    return [by_run[run.pk] for run in wanted]


def _check_model(model: Model, errors: FieldErrorCollector) -> None:
    if not preflights.can_be_examined(model):
        errors.say(
            "model", f"model: {model.name!r} is served by the lab itself, from a script; choose a real one"
        )
        return
    try:
        endpoints.key_for(model.endpoint)
    except InvalidValueError as error:
        errors.say("model", f"model: {model.name!r} cannot be asked: {error}")


def _runs(run_ids: Sequence[int], errors: FieldErrorCollector) -> list[Run]:
    numbers = list(dict.fromkeys(run_ids))
    if not numbers:
        errors.say("runs", "runs: none are given; write their numbers, as in 12, 15-20")
    if len(numbers) > MOST_RUNS:
        errors.say("runs", f"runs: {len(numbers)} are too many at once; ask for at most {MOST_RUNS}")
        return []
    found = {run.pk: run for run in Run.objects.filter(pk__in=numbers)}
    if unknown := [number for number in numbers if number not in found]:
        errors.say("runs", f"runs: {_listed(unknown)} is no run of this lab; leave it out")
    if open_ones := [pk for pk in numbers if pk in found and found[pk].status != Run.Status.ENDED]:
        errors.say("runs", f"runs: {_listed(open_ones)} has not ended yet; wait for its end, or leave it out")
    return [found[number] for number in numbers if number in found]


def _listed(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return ", ".join(map(str, numbers[:5])) + more


@for_role(Role.OPERATOR)
def cancel(*, by: User, reading: JudgeRun) -> None:
    """End it: at once while it waits, otherwise whoever reads hears it within a second. What was paid stays.

    Raises:
        AccessDeniedError: `by` is no operator.
    """
    waiting = JudgeRun.objects.filter(pk=reading.pk, state=JudgeRun.State.QUEUED)
    words = f"{by.get_username()} cancelled it before its end"
    ended = {"state": JudgeRun.State.CANCELLED, "ended_at": timezone.now(), "cancel_asked": True}
    if not waiting.update(**ended, problem=words):
        running = JudgeRun.objects.filter(pk=reading.pk, state=JudgeRun.State.RUNNING)
        running.update(cancel_asked=True, problem=words)


def claim_next(*, only: int | None = None) -> JudgeRun | None:
    """Take the reading that has waited longest, or the one of this number; None when none waits."""
    queued = JudgeRun.objects.filter(state=JudgeRun.State.QUEUED)
    while True:
        waiting = (queued if only is None else queued.filter(pk=only)).order_by("pk").first()
        if waiting is None:
            return None
        mine = JudgeRun.objects.filter(
            pk=waiting.pk, state=JudgeRun.State.QUEUED, lease_token=waiting.lease_token
        )
        token = waiting.lease_token + 1
        if mine.update(state=JudgeRun.State.RUNNING, lease_token=token, lease_until=lease_end()):
            return (
                JudgeRun.objects.select_related(
                    "model__endpoint", "guideline__taxonomy_version__taxonomy", "run"
                )
            ).get(pk=waiting.pk)


def held_by(reading: JudgeRun) -> QuerySet[JudgeRun]:
    """The row as long as its holder may write about it."""
    return JudgeRun.objects.filter(
        pk=reading.pk, lease_token=reading.lease_token, state=JudgeRun.State.RUNNING
    )


def lease_end() -> dt.datetime:
    """Until when a lease lasts that is taken or renewed now."""
    return timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS)


def hand_back(reading: JudgeRun) -> None:
    """Another worker goes on, from the last piece that was read."""
    held_by(reading).update(state=JudgeRun.State.QUEUED, lease_until=None)
    ring_for_judges()


def settle_abandoned() -> list[int]:
    """Queue again the readings whose lease ran out, or end them after `MOST_HOLDERS` tries; returns them."""
    settled = []
    expired = Q(lease_until__lt=timezone.now()) | Q(lease_until=None)
    for row in JudgeRun.objects.filter(expired, state=JudgeRun.State.RUNNING):
        mine = held_by(row).filter(lease_until=row.lease_until)
        changes: dict[str, Any] = {"state": JudgeRun.State.QUEUED, "lease_until": None}
        if row.cancel_asked:
            changes = {"state": JudgeRun.State.CANCELLED, "ended_at": timezone.now()}
        elif row.lease_token >= MOST_HOLDERS:
            why = f"{row.lease_token} workers died or fell silent while they read; ask again once they live"
            changes = {"state": JudgeRun.State.FAILED, "ended_at": timezone.now(), "problem": why}
        if mine.update(**changes):
            settled.append(row.pk)
    return settled


def anything_goes_on() -> bool:
    """Whether one waits or runs; an idle lab need not look any further."""
    return JudgeRun.objects.filter(state__in=_GOES_ON).exists()


def waits_too_long() -> bool:
    """Whether one waits whose message was lost, or for which no worker has time."""
    since = timezone.now() - dt.timedelta(seconds=RING_AGAIN_SECONDS)
    return JudgeRun.objects.filter(state=JudgeRun.State.QUEUED, asked_at__lt=since).exists()


def waiting_count() -> int:
    return JudgeRun.objects.filter(state=JudgeRun.State.QUEUED).count()


def newest_holders() -> QuerySet[JudgeRun]:
    """Readings with what lists show of them."""
    return JudgeRun.objects.select_related("model", "guideline__guideline", "asked_by", "run__task").annotate(
        holders=F("lease_token")
    )
