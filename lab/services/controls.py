"""What people ask of one run: pause, resume, cancel, another limit, a message, another attempt, run again.

A run that a worker holds is told by its lease thread, which reads the `Control` rows and writes what was
asked into the log. For a run that nobody holds it is written here. Whoever asks holds the run's row
meanwhile: of two people who ask for the same at once one is first, and the other is told who.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from lab.engine.errors import ExitOrigin, ExitReason, InvalidValueError
from lab.engine.events import AttemptEnded, ControlAsked, Paused, Resumed, RunEnded
from lab.engine.events import Event as AnyEvent
from lab.engine.redact import Redactor, storable
from lab.engine.verify.base import Outcome
from lab.models import Attempt, Control, Event, Experiment, Role, Run
from lab.services import budgets, doorbell, limits, log, runs
from lab.services.access import for_role
from lab.services.errors import FieldErrors
from lab.services.facts import facts_of
from lab.services.known_secrets import known_secrets
from lab.services.messages import ring_workers
from lab.services.transitions import transition

Kind = Control.Kind
LONGEST_MESSAGE = 32_000
# A form sent twice carries the same words within this time.
DOUBLE_SECONDS = 10
_EFFECTS = {Kind.LIMIT: "limit_changed", Kind.MESSAGE: "message_sent"}
# A patch lies near the log's end: only that is searched.
_NEAR_THE_END = 100


class Asked(NamedTuple):
    """What came of it. `run` is the run that was asked, of `again` the new one.

    `new` is False when the same was asked before; `said` tells a person in one sentence what holds now, and
    who asked first.
    """

    run: Run
    new: bool
    said: str


@for_role(Role.OPERATOR)
def ask(*, run: Run, by: User, control: str, value: Any = None) -> Asked:
    """Ask for something once; asking again for what holds already changes nothing and says who asked.

    `control` and `value`: `pause`, `resume`, `cancel`, `attempt` (another one, after an infrastructure
    error): None. `limit`: {"limit": name, "after": what was typed, or None for "no limit"}. `message`: the
    text, for the agent's next model call. `again` (the same task, harness version, model, limits and seed as
    a new experiment): None, or {"key": …, "despite": […]}, a key that makes a form sent twice one launch and
    the numbers of failing preflights that `runs.launch_again` asks to confirm; or the key alone.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "control" when the run's state does not allow it; the name of the limit, "limit" or
            "message" for a value that cannot be used; "isolation" and "despite" as for `launch`. Nothing was
            changed.
    """
    handler = _HANDLERS.get(control)
    if handler is None:
        known = ", ".join(_HANDLERS)
        raise FieldErrors({"control": f"control: {control!r} is unknown; choose one of {known}"})
    with transaction.atomic():
        current = Run.objects.locked().for_rows().get(pk=run.pk)
        if is_followed(current):
            raise FieldErrors({"control": f"control: run {run.pk} is run by another program: ask it there"})
        return handler(current, by, value)


@for_role(Role.OPERATOR)
def ask_limits(*, run: Run, by: User, typed: Mapping[str, str | None]) -> str:
    """As `ask` with "limit", for several at once: all of them or, when one cannot be used, none.

    `typed` maps the name of a limit to what was typed, None for "no limit". Returns what holds now, in words.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: as for `ask`; every mistake at once. "control" when nothing was typed.
    """
    if not typed:
        raise FieldErrors({"control": "control: nothing was typed; write a new limit or go back"})
    said: list[str] = []
    errors: dict[str, str] = {}
    with transaction.atomic():
        for name, text in typed.items():
            try:
                said.append(
                    ask(run=run, by=by, control=Kind.LIMIT, value={"limit": name, "after": text}).said
                )
            except FieldErrors as error:
                errors |= error.errors
        if errors:
            raise FieldErrors(errors)
    return " ".join(said)


def cancel(*, run: Run, person: User) -> bool:
    """As `ask` with "cancel", for whoever has asked to cancel all of an experiment; False if it changes
    nothing.

    `run` was read under its lock in the transaction that is open.
    """
    return not is_followed(run) and _cancel(run, person, None).new


def standing_pause(run: Run) -> Control | None:
    """The pause that holds, or will after the current event; None when the run goes on."""
    kinds = (Kind.PAUSE, Kind.RESUME, Kind.ATTEMPT)
    last = Control.objects.filter(run=run, kind__in=kinds).select_related("asked_by").last()
    if last is None or last.kind != Kind.PAUSE or run.status == Run.Status.ENDED:
        return None
    return last if run.status == Run.Status.PAUSED or _may_take_effect(last, _newest_attempt(run)) else None


def waiting(run: Run) -> list[Control]:
    """Messages and limits that were asked for and have had no effect yet, oldest first."""
    asked = Control.objects.filter(run=run, kind__in=_EFFECTS).select_related("asked_by")
    attempt = _newest_attempt(run) if (found := list(asked)) else None
    found = [control for control in found if _may_take_effect(control, attempt)]
    if not found:
        return []
    effects = Event.objects.filter(run=run, kind__in=_EFFECTS.values())
    done = set(effects.values_list("payload__ask", flat=True))
    return [control for control in found if control.pk not in done]


def _may_take_effect(control: Control, attempt: Attempt | None) -> bool:
    """Whether a worker will still do it: what an attempt has heard and had no time for is over with it."""
    if control.seen_at is None:
        return True
    return attempt is not None and attempt.ended_at is None and control.seen_at >= attempt.started_at


def is_followed(run: Run) -> bool:
    """Whether its log only grows by what another program records, so that nobody here can do as asked."""
    return run.status != Run.Status.ENDED and run.experiment.kind == Experiment.Kind.IMPORTED


def agent_has_ended(run: Run) -> bool:
    """Whether there is no agent any more that could be told something."""
    if run.status in (Run.Status.VERIFYING, Run.Status.ENDED):
        return True
    attempt = _newest_attempt(run)
    if attempt is None or attempt.ended_at is not None:
        return False
    near = Event.objects.filter(run=run, attempt=attempt.n, seq__gt=run.last_seq - _NEAR_THE_END)
    return near.filter(kind="patch_captured").exists()


def may_have_another_attempt(run: Run) -> bool:
    """Whether the run ended by infrastructure, so that trying once more makes sense."""
    if run.status != Run.Status.ENDED or run.experiment.kind != Experiment.Kind.LAUNCHED:
        return False
    verdict = facts_of(run).verdict
    if verdict:
        return verdict == Outcome.INFRASTRUCTURE
    return run.exit_reason in INFRASTRUCTURE


def may_run_again(run: Run) -> bool:
    """Whether the lab knows everything that a new run with the same settings needs."""
    return run.status == Run.Status.ENDED and run.experiment.kind != Experiment.Kind.IMPORTED


INFRASTRUCTURE = {reason.value for reason in ExitReason if reason.origin is ExitOrigin.INFRASTRUCTURE}


def _pause(run: Run, by: User, value: Any) -> Asked:
    _refuse_once_agent_ended(run, "paused")
    if standing := standing_pause(run):
        return Asked(run, False, f"{_who(standing, by)} asked to pause run {run.pk} already.")
    control = _row(run, by, Kind.PAUSE)
    if not _is_queued(run):
        return Asked(run, True, f"Run {run.pk} pauses after the current event.")
    transition(run_id=run.pk, to=Run.Status.PAUSED, only_from=Run.Status.QUEUED)
    _write(run, control, Paused(person=by.get_username(), ask=control.pk))
    return Asked(run, True, f"Run {run.pk} is paused; nobody starts it until it is resumed.")


def _resume(run: Run, by: User, value: Any) -> Asked:
    _refuse_once_agent_ended(run, "resumed")
    unheld = run.status == Run.Status.PAUSED and not _is_held(run)
    if not unheld and standing_pause(run) is None:
        last = Control.objects.filter(run=run, kind=Kind.RESUME).select_related("asked_by").last()
        words = f"{_who(last, by)} resumed run {run.pk} already." if last else f"Run {run.pk} is not paused."
        return Asked(run, False, words)
    control = _row(run, by, Kind.RESUME)
    if unheld:
        transition(run_id=run.pk, to=Run.Status.QUEUED, only_from=Run.Status.PAUSED)
        _write(run, control, Resumed(person=by.get_username(), ask=control.pk))
        ring_workers()
    return Asked(run, True, f"Run {run.pk} goes on{_until(run)}.")


def _cancel(run: Run, by: User, value: Any) -> Asked:
    if run.status == Run.Status.ENDED:
        return Asked(run, False, f"Run {run.pk} has ended already: {_ended_how(run)}.")
    if run.cancel_asked:
        first = Control.objects.filter(run=run, kind=Kind.CANCEL).select_related("asked_by").last()
        return Asked(run, False, f"{_who(first, by)} cancelled run {run.pk} already.")
    Run.objects.filter(pk=run.pk).update(cancel_asked=True)
    control = _row(run, by, Kind.CANCEL)
    if not _is_held(run):
        _write(run, control, *_ending_unheld(run, by))
        return Asked(run, True, f"Run {run.pk} is cancelled.")
    return Asked(run, True, f"Run {run.pk} is being cancelled.")


def _limit(run: Run, by: User, value: Any) -> Asked:
    name, typed = _limit_asked(value)
    _refuse_once_agent_ended(run, "given another limit")
    try:
        after = limits.wanted(run=run, name=name, typed=typed)
    except InvalidValueError as error:
        raise FieldErrors({error.field: str(error)}) from error
    now = getattr(limits.in_force(run=run), name)
    earlier = [row for row in waiting(run) if row.value.get("limit") == name]
    stored = str(after) if isinstance(after, Decimal) else after
    words = limits.said(name, after)
    if earlier:
        if earlier[-1].value.get("after") == stored:
            return Asked(run, False, f"{_who(earlier[-1], by)} asked for {words} already.")
    elif now == after:
        return Asked(run, False, f"The limit is {words} already.")
    _row(run, by, Kind.LIMIT, {"limit": name, "after": stored})
    return Asked(run, True, f"{words[:1].upper()}{words[1:]} from the agent's next event on.")


def _limit_asked(value: Any) -> tuple[str, str | None]:
    if not isinstance(value, dict) or not isinstance(value.get("limit"), str) or "after" not in value:
        raise FieldErrors({"limit": 'limit: write {"limit": its name, "after": a number or null}'})
    after = value["after"]
    return value["limit"], None if after is None else str(after)


def _message(run: Run, by: User, value: Any) -> Asked:
    text = _message_text(value)
    _refuse_once_agent_ended(run, "sent a message")
    earlier = Control.objects.filter(run=run, kind=Kind.MESSAGE, asked_by=by).last()
    if earlier is not None and earlier.value.get("text") == text:
        age = (timezone.now() - earlier.asked_at).total_seconds()
        if earlier.seen_at is None or age < DOUBLE_SECONDS:
            return Asked(run, False, "You have sent these words already.")
    _row(run, by, Kind.MESSAGE, {"text": text})
    return Asked(run, True, "The message joins the conversation before the next model call.")


def _message_text(value: Any) -> str:
    text = value.replace("\r\n", "\n").strip() if isinstance(value, str) else ""
    if not text:
        raise FieldErrors({"message": "message: is empty; write what the agent should know"})
    if len(text) > LONGEST_MESSAGE:
        size = f"has {len(text):,} characters and may have {LONGEST_MESSAGE:,}"
        raise FieldErrors({"message": f"message: {size}; shorten it"})
    return Redactor(known_secrets()).text(storable(text))


def _attempt(run: Run, by: User, value: Any) -> Asked:
    if run.experiment.state == Experiment.State.CANCELLED and run.experiment.ended_at is None:
        why = f"the experiment of run {run.pk} is being cancelled; wait for the end of that"
        raise FieldErrors({"control": f"control: {why}"})
    if run.status != Run.Status.ENDED:
        last = Control.objects.filter(run=run, kind=Kind.ATTEMPT).select_related("asked_by").last()
        if last is not None and not run.attempts.filter(started_at__gt=last.asked_at, ended_at__isnull=False):
            return Asked(run, False, f"{_who(last, by)} asked for another attempt already.")
        raise FieldErrors({"control": f"control: run {run.pk} goes on and needs no other attempt"})
    if run.experiment.kind != Experiment.Kind.LAUNCHED:
        why = f"run {run.pk} was recorded elsewhere and gets no other attempt; launch one here"
        raise FieldErrors({"control": f"control: {why}"})
    if not may_have_another_attempt(run):
        how = f"run {run.pk} ended by itself ({_ended_how(run)})"
        way_out = "another attempt is for runs that infrastructure ended; run it again instead, as a new run"
        raise FieldErrors({"control": f"control: {how}; {way_out}"})
    control = _row(run, by, Kind.ATTEMPT)
    _write(run, control)
    _reopen(run)
    return Asked(run, True, f"Run {run.pk} is queued for another attempt{_until(run)}.")


def _reopen(run: Run) -> None:
    # Whoever ends the experiment's last run meanwhile must see that this one goes on: an experiment that
    # has ended starts nothing.
    experiment = Experiment.objects.select_for_update().get(pk=run.experiment_id)
    transition(run_id=run.pk, to=Run.Status.QUEUED, only_from=Run.Status.ENDED)
    Run.objects.filter(pk=run.pk).update(ended_at=None, exit_reason="", cancel_asked=False)
    if experiment.ended_at is not None:
        budgets.go_on(experiment)
        budgets.enforce(experiment_id=experiment.pk)
    ring_workers()


def _again(run: Run, by: User, value: Any) -> Asked:
    if run.experiment.kind == Experiment.Kind.IMPORTED:
        raise FieldErrors({"control": f"control: run {run.pk} was imported; the lab cannot run it again"})
    if run.status != Run.Status.ENDED:
        raise FieldErrors(
            {"control": f"control: run {run.pk} goes on; it can be run again when it has ended"}
        )
    asked = value if isinstance(value, dict) else {"key": value}
    despite = asked.get("despite")
    fresh, new = runs.launch_again(
        run=run,
        by=by,
        key=str(asked.get("key") or ""),
        despite=despite if isinstance(despite, list) else (),
    )
    if new:
        _write(run, _row(run, by, Kind.AGAIN, {"run": fresh.pk}))
    return Asked(fresh, new, f"Run {fresh.pk} has the settings of run {run.pk}.")


_HANDLERS: dict[str, Callable[[Run, User, Any], Asked]] = {
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "limit": _limit,
    "message": _message,
    "attempt": _attempt,
    "again": _again,
}


def _refuse_once_agent_ended(run: Run, done: str) -> None:
    """Raises: FieldErrors."""
    if run.status == Run.Status.ENDED:
        why = f"run {run.pk} has ended ({_ended_how(run)}) and cannot be {done}"
    elif run.cancel_asked:
        first = Control.objects.filter(run=run, kind=Kind.CANCEL).select_related("asked_by").last()
        who = f" by {first.asked_by.get_username()}" if first else ""
        why = f"run {run.pk} is being cancelled{who} and cannot be {done}"
    elif agent_has_ended(run):
        why = f"the agent of run {run.pk} has ended, its patch is being graded; it cannot be {done} any more"
    else:
        return
    raise FieldErrors({"control": f"control: {why}"})


def _ended_how(run: Run) -> str:
    return facts_of(run).verdict or run.exit_reason or "not graded"


def _who(control: Control | None, by: User) -> str:
    if control is None:
        return "Somebody"
    return "You" if control.asked_by_id == by.pk else control.asked_by.get_username()


def _is_queued(run: Run) -> bool:
    return run.status == Run.Status.QUEUED


def _is_held(run: Run) -> bool:
    """Whether a worker child holds the run: it hears what is asked, and nobody else may write its log."""
    return Run.objects.holding_slots().filter(pk=run.pk).exists()


def _newest_attempt(run: Run) -> Attempt | None:
    return run.attempts.order_by("-n").first()


def _until(run: Run) -> str:
    experiment = Experiment.objects.get(pk=run.experiment_id)
    if experiment.state != Experiment.State.PAUSED:
        return ""
    return f" once its experiment does, which is paused: {experiment.paused_because}"


def _row(run: Run, by: User, kind: str, value: dict[str, Any] | None = None) -> Control:
    control = Control.objects.create(run=run, kind=kind, value=value or {}, asked_by=by)
    doorbell.ring()
    return control


def _write(run: Run, control: Control, *effects: AnyEvent) -> None:
    """Write down what was asked of a run that nobody holds, and what came of it."""
    attempt = _newest_attempt(run)
    asked = ControlAsked(
        control=control.kind,
        person=control.asked_by.get_username(),
        value=control.value,
        ask=control.pk,
    )
    Control.objects.filter(pk=control.pk).update(seen_at=timezone.now())
    events = [asked, *effects]
    log.append(run_id=run.pk, attempt=attempt.n if attempt else 0, lease_token=None, events=events)


def _ending_unheld(run: Run, by: User) -> list[AnyEvent]:
    """How a run ends that is cancelled while nobody holds it: without a patch, its changes are in the log."""
    cancelled = ExitReason.CANCELLED.value
    attempt = _newest_attempt(run)
    if attempt is None or attempt.ended_at is not None:
        return [RunEnded(exit_reason=cancelled)]
    facts = facts_of(run)
    ended = AttemptEnded(
        exit_reason=cancelled,
        error="cancelled while no worker held the run: no patch was made, its changes are in the log",
        steps=facts.steps,
        wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
    )
    return [ended, RunEnded(exit_reason=cancelled)]
