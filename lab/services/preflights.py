"""Preflights: asked for by people, examined by one worker child or command each, read beside their model.

The state is in the database. Whoever examines holds the row by a lease; one that ran out, or whose holder is
dead, ends with an error.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import JSONObject, Usage
from lab.models import HarnessVersion, Model, Preflight, Role
from lab.services import endpoints
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.messages import ring_for_preflights

# A message that was sent is taken within a moment; one that waits for so long is taken for lost.
RING_AGAIN_SECONDS = 3.0
_WAITS_OR_RUNS = (Preflight.State.QUEUED, Preflight.State.RUNNING)


class OverLimit(NamedTuple):
    """What the request that is too long would send and cost at least. None: unknown, `why` says why."""

    tokens: int | None
    dollars: Decimal | None
    why: str


@for_role(Role.OPERATOR)
def ask(*, by: User, model: Model, over_limit: bool = False) -> Preflight:
    """Queue an examination of the model. One that waits or goes on already is returned instead.

    `over_limit` asks one request more, which costs what `over_limit_cost` says.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "model" (nothing to examine, or the key is not there), "over_limit" (one goes on
            without it).
    """
    check_can_be_examined(model)
    # Also of another version: the unique constraint knows of this one alone.
    goes_on = going_on(model)
    if goes_on is not None:
        return _joined(goes_on, over_limit)
    try:
        with transaction.atomic():
            asked = Preflight.objects.create(model=model, over_limit=over_limit, asked_by=by)
            ring_for_preflights()
            return asked
    except IntegrityError:
        goes_on = going_on(model)
    if goes_on is None:
        # It has ended in between.
        return ask(by=by, model=model, over_limit=over_limit)
    return _joined(goes_on, over_limit)


def _joined(goes_on: Preflight, over_limit: bool) -> Preflight:
    if over_limit and not goes_on.over_limit:
        text = f"over_limit: preflight {goes_on.pk} goes on without it; wait for its end, or cancel it first"
        raise FieldErrors({"over_limit": text})
    return goes_on


@for_role(Role.OPERATOR)
def cancel(*, by: User, preflight: Preflight) -> None:
    """End it: at once while it waits, otherwise whoever examines hears it within a second.

    Raises:
        AccessDeniedError: `by` is no operator.
    """
    waiting = Preflight.objects.filter(pk=preflight.pk, state=Preflight.State.QUEUED)
    ended = {"state": Preflight.State.ENDED, "ended_at": timezone.now(), "cancelled_by": by}
    if not waiting.update(**ended, error=cancelled_words(by.get_username())):
        running = Preflight.objects.filter(pk=preflight.pk, state=Preflight.State.RUNNING)
        running.filter(cancelled_by=None).update(cancelled_by=by)


def cancelled_words(name: str) -> str:
    """What is stored of one that the person of this name cancelled."""
    return f"{name} cancelled it before its end"


def begin(*, model: Model, worker: str, over_limit: bool = False) -> Preflight:
    """A preflight that this process examines at once, without the queue.

    Raises:
        FieldErrors: "model" as for `ask`, or it is being examined already.
    """
    check_can_be_examined(model)
    try:
        with transaction.atomic():
            return Preflight.objects.create(
                model=model, over_limit=over_limit, state=Preflight.State.RUNNING, **_held(worker)
            )
    except IntegrityError:
        text = f"model: {model.name!r} is being examined already; wait for the end, or cancel it on its page"
        raise FieldErrors({"model": text}) from None


def claim_next(*, worker: str) -> Preflight | None:
    """Take the preflight that has waited longest; None when none waits."""
    while True:
        waiting = Preflight.objects.filter(state=Preflight.State.QUEUED).order_by("pk").first()
        if waiting is None:
            return None
        held = _held(worker)
        mine = Preflight.objects.filter(pk=waiting.pk, state=Preflight.State.QUEUED)
        if mine.update(state=Preflight.State.RUNNING, **held):
            return Preflight.objects.select_related("model__endpoint").get(pk=waiting.pk)


def held_by(preflight: Preflight) -> QuerySet[Preflight]:
    """The row as long as its holder may write about it."""
    return Preflight.objects.filter(pk=preflight.pk, worker=preflight.worker, state=Preflight.State.RUNNING)


def lease_end() -> dt.datetime:
    """Until when a lease lasts that is taken or renewed now."""
    return timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS)


def settle_abandoned(*, is_dead: Callable[[str], bool]) -> list[int]:
    """End the preflights whose holder is dead or has not renewed its lease; returns them."""
    settled = []
    for row in Preflight.objects.filter(state=Preflight.State.RUNNING):
        dead = is_dead(row.worker)
        if not dead and row.lease_until is not None and row.lease_until > timezone.now():
            continue
        why = "the worker that examined it died" if dead else "the worker that examined it does not answer"
        ended = held_by(row).filter(lease_until=row.lease_until)
        if ended.update(state=Preflight.State.ENDED, ended_at=timezone.now(), error=f"{why}; run it again"):
            settled.append(row.pk)
    return settled


def anything_goes_on() -> bool:
    """Whether one waits or runs; an idle lab need not look any further."""
    return Preflight.objects.filter(state__in=_WAITS_OR_RUNS).exists()


def waits_too_long() -> bool:
    """Whether one waits whose message was lost, or for which no worker has time."""
    since = timezone.now() - dt.timedelta(seconds=RING_AGAIN_SECONDS)
    return Preflight.objects.filter(state=Preflight.State.QUEUED, created_at__lt=since).exists()


def same_requests(models: Iterable[Model]) -> dict[int, list[int]]:
    """Model row -> the rows of all versions of it that send the same requests to the same server, itself too.

    What one preflight found holds for each of them: a version that changed the price alone is no other model
    to a server.
    """
    asked = list(models)
    alike: dict[tuple[object, ...], list[int]] = {}
    for version in Model.objects.filter(name__in={model.name for model in asked}).only("name", *_SENT):
        alike.setdefault(_sent(version), []).append(version.pk)
    return {model.pk: alike.get(_sent(model), [model.pk]) for model in asked}


# What decides how a server is asked.
_SENT = ("endpoint", "model_id", "sampling", "extra_body", "max_tokens_per_turn", "context_window")


def _sent(model: Model) -> tuple[object, ...]:
    bodies = (json.dumps(body, sort_keys=True, default=str) for body in (model.sampling, model.extra_body))
    caps = (model.max_tokens_per_turn, model.context_window)
    return (model.name, model.endpoint_id, model.model_id, *caps, *bodies)


def of_same_requests(model: Model) -> QuerySet[Preflight]:
    """All preflights that hold for this version."""
    return Preflight.objects.filter(model__in=same_requests([model])[model.pk])


def going_on(model: Model) -> Preflight | None:
    """The model's preflight that waits or runs."""
    return going_on_of([model]).get(model.pk)


def going_on_of(models: Iterable[Model]) -> dict[int, Preflight]:
    """Model row -> its preflight that waits or runs."""
    return _newest_by_model(models, Q(state__in=_WAITS_OR_RUNS))


def newest_ended(models: Iterable[Model]) -> dict[int, Preflight]:
    """Model row -> its newest preflight that came to a result; a model for which none holds is not in it."""
    return _newest_by_model(models, ~Q(outcome=""))


def _newest_by_model(models: Iterable[Model], which: Q) -> dict[int, Preflight]:
    alike = same_requests(models)
    everyone = {row for rows in alike.values() for row in rows}
    newest = Preflight.objects.filter(which, model__in=everyone).values("model").annotate(newest=Max("pk"))
    numbers = {int(row["model"]): int(row["newest"]) for row in newest}
    chosen = {
        model: max(numbers[row] for row in rows if row in numbers)
        for model, rows in alike.items()
        if not numbers.keys().isdisjoint(rows)
    }
    wanted = Preflight.objects.filter(pk__in=set(chosen.values())).select_related("model")
    found = {preflight.pk: preflight for preflight in wanted}
    return {model: found[number] for model, number in chosen.items() if number in found}


def numbered(numbers: Collection[int]) -> list[Preflight]:
    """The preflights with these numbers that are still there, each with its model."""
    if not numbers:
        return []
    return list(Preflight.objects.filter(pk__in=numbers).select_related("model").order_by("pk"))


def newest_number(model_id: int) -> int | None:
    """The number of the newest preflight that holds for the model: what a run of it relies on."""
    found = newest_ended(Model.objects.filter(pk=model_id)).get(model_id)
    return found.pk if found else None


def failing(models: Iterable[Model]) -> list[Preflight]:
    """The newest preflights of these models that say runs would be worthless, by the models' names."""
    found = {row.pk: row for row in newest_ended(models).values()}.values()
    return sorted(
        (row for row in found if row.outcome == Preflight.Outcome.FAILING), key=lambda row: row.model.name
    )


def check_despite(
    models: Iterable[Model], despite: Collection[int], errors: FieldErrorCollector
) -> list[int]:
    """The numbers of these models' failing preflights; those that are not in `despite` are an error of it."""
    found = failing(models)
    unseen = [preflight for preflight in found if preflight.pk not in despite]
    if unseen:
        said = ". ".join(
            f"The newest preflight of {preflight.model.name!r}, {preflight.pk}, is failing: "
            + "; ".join(failing_titles(preflight))
            for preflight in unseen
        )
        numbers = ", ".join(str(preflight.pk) for preflight in unseen)
        errors.say("despite", f"despite: {said}. Mend it and run it again, or launch despite {numbers}")
    return [preflight.pk for preflight in found]


def failing_titles(preflight: Preflight) -> list[str]:
    """What of its findings makes runs worthless, in words."""
    return [found["title"] for found in preflight.findings if found["severity"] == "failing"]


def wanted_windows() -> dict[str, int]:
    """The context that the newest version of each harness allows, in tokens by the harness's name.

    A harness without a limit takes what there is, and is not among them.
    """
    rows = HarnessVersion.objects.newest().values_list("harness__name", "config__limits")
    return {
        name: limits["max_context_tokens"]
        for name, limits in rows
        if isinstance(limits, dict) and limits.get("max_context_tokens")
    }


def over_limit_cost(model: Model) -> OverLimit:
    """What the over-limit request sends, one token more than fits, and its price by the model's basis."""
    newest = newest_ended([model]).get(model.pk)
    window = (newest.measured.get("context_window_tokens") if newest else None) or model.context_window
    if not window:
        return OverLimit(None, None, "how much context the server has is not known yet")
    usage = Usage(input_total=window + 1, input_uncached=window + 1, output_total=1)
    cost = endpoints.cost_now(model, usage)
    return OverLimit(window + 1, cost.amount, cost.note)


def can_be_examined(model: Model) -> bool:
    """Whether a server of somebody's stands behind it: the lab itself serves scripted and replay models."""
    return not model.scripted and model.price_basis != "replay"


def check_can_be_examined(model: Model) -> None:
    """Raises: FieldErrors: "model", for one that the lab itself serves or whose key is not there."""
    if not can_be_examined(model):
        text = f"model: {model.name!r} is served by the lab itself; there is nothing to examine"
        raise FieldErrors({"model": text})
    try:
        endpoints.key_for(model.endpoint)
    except InvalidValueError as error:
        raise FieldErrors({"model": f"model: {model.name!r} cannot be asked: {error}"}) from error


def _held(worker: str) -> JSONObject:
    return {"worker": worker, "started_at": timezone.now(), "lease_until": lease_end()}
