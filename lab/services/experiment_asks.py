"""What people ask of a whole experiment: pause, resume, cancel, more of it, other budgets.

Each ask locks the experiment's row, and the one who asks for what holds already is told so. A run's row is
never waited for while an experiment's is held: workers take the two the other way round.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Min, Q

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed
from lab.engine.verify.base import Outcome
from lab.models import Arm, Control, Experiment, HarnessVersion, Model, Role, Run, Task
from lab.services import budgets, controls, doorbell, runs
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.experiment_plans import dollars_can_hold, unpriced
from lab.services.messages import ring_workers
from lab.services.plan_files import MAX_SEEDS, MOST_AT_ONCE
from lab.services.runs import MAX_RUNS

if TYPE_CHECKING:
    from lab.models.experiments import RunQuerySet

State = Experiment.State
# Runs that are cancelled in one transaction: workers write between two of them.
_CHUNK = 20
# How long whoever asked waits for many runs to be cancelled; the tick goes on from there.
_CANCEL_SECONDS = 2.0
# The same for many runs that get another attempt, which whoever asked asks for again.
_RERUN_SECONDS = 10.0


class Asks(NamedTuple):
    """What an operator may ask of an experiment right now; `rerun` and `cancel` are numbers of runs."""

    pause: bool = False
    resume: bool = False
    grow: bool = False
    budget: bool = False
    rerun: int = 0
    cancel: int = 0
    cancelling: bool = False


@for_role(Role.OPERATOR)
def pause(*, experiment: Experiment, by: User) -> str:
    """Start no run of it, and let those that go on hand back their places at their next event.

    They go on from their logs when the experiment is resumed. Returns what holds now, in a sentence.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "experiment" when it has ended, or nothing here runs it.
    """
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_over(locked, "paused")
        if locked.state == State.PAUSED:
            before = locked.paused_because
            if not locked.paused_by_budget:
                return f"The experiment is paused already: {before}."
            # Now runs stop at their next event, and not only before a request.
            budgets.stop(locked, because=f"{by.get_username()} paused it, and {before}")
            return f"The experiment is paused: {locked.paused_because}."
        budgets.stop(locked, because=f"{by.get_username()} paused it")
    return "The experiment is paused: runs stop at their next event and go on from there when it is resumed."


@for_role(Role.OPERATOR)
def resume(*, experiment: Experiment, by: User) -> str:
    """Let everything go on where it stood.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "experiment" as for `pause`, and while a budget is used up.
    """
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_over(locked, "resumed")
        if locked.state == State.ACTIVE:
            return "The experiment goes on already."
        used = budgets.spent(locked)
        if used.stopping:
            way_out = "raise or lift it" if used.reached else "lift it"
            why = f"experiment: {budgets.because_stopped(used)}; {way_out}, then it goes on"
            raise FieldErrors({"experiment": why})
        _go_on(locked)
    return "The experiment goes on where it stood."


@for_role(Role.OPERATOR)
def cancel(*, experiment: Experiment, by: User, expected: int | None = None) -> str:
    """Cancel every run that has not ended; what they recorded is kept.

    `expected` is the number that whoever confirmed it was shown. Many runs take a while, and the tick goes on
    where this call ends after some seconds.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "experiment" as for `pause`; "expected" when more runs would be cancelled by now.
    """
    with transaction.atomic():
        _refuse_elsewhere(_locked(experiment))
    count = open_runs(experiment)
    if expected is not None and count > expected:
        more = f"expected: it was {expected}, and by now {_runs(count)} would be cancelled; confirm it again"
        raise FieldErrors({"expected": more})
    begun, before = _begin_cancelling(experiment, by)
    if not begun:
        if before == State.CANCELLED:
            return "The experiment is cancelled already."
        if going := open_runs(experiment):
            return f"{_runs(going)} {'are' if going != 1 else 'is'} being cancelled already."
        raise FieldErrors({"experiment": "experiment: all its runs have ended; there is nothing to cancel"})
    left = _cancel_runs(experiment, by, seconds=_CANCEL_SECONDS)
    return f"{_runs(count)} {'are' if count != 1 else 'is'} being cancelled." if left or count else ""


@for_role(Role.OPERATOR)
def add_seeds(*, experiment: Experiment, by: User, seeds: int | str, despite: Collection[int] = ()) -> str:
    """Queue more seeds of every task with every arm, so that there is each from 1 up to `seeds`.

    An experiment that has ended goes on; one that is paused stays so. `despite` as for `runs.launch`.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "seeds", "experiment", and as for `runs.launch`. Nothing was queued.
    """
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_growth(locked)
        arms, tasks = arms_of(locked), tasks_of(locked)
        now, wanted = seeds_of(locked), _seeds(seeds, locked)
        there = set(locked.runs.values_list("seed", flat=True).distinct())
        missing = [seed for seed in range(1, wanted + 1) if seed not in there]
        if not missing:
            return f"The experiment has {now} seeds already." if now != 1 else "It has 1 seed already."
        cells = [(seed, task) for seed in missing for task in tasks]
        _refuse_too_many(locked, len(cells) * len(arms))
        _, failing = runs.plan_more(
            tasks=tasks,
            cells=cells,
            harness_versions=list({arm.harness_version_id: arm.harness_version for arm in arms}.values()),
            models=list({arm.model_id: arm.model for arm in arms}.values()),
            # The arms stand with their limits as they are.
            limits={"max_cost_usd": None},
            despite={*despite, *locked.launched_despite},
        )
        return _queue(locked, arms, cells, failing)


@for_role(Role.OPERATOR)
def add_arm(
    *,
    experiment: Experiment,
    by: User,
    harness_version: HarnessVersion,
    model: Model,
    limits: Mapping[str, str | None] | None = None,
    despite: Collection[int] = (),
) -> str:
    """Queue every task and seed of the experiment with one arm more. `limits` and `despite` as for
    `runs.launch`; an arm that is there already is not added twice.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "experiment", and as for `runs.launch`. Nothing was queued.
    """
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_growth(locked)
        cells = cells_of(locked)
        _refuse_too_many(locked, len(cells))
        plans, failing = runs.plan_more(
            tasks=tasks_of(locked),
            cells=cells,
            harness_versions=[harness_version],
            models=[model],
            limits=limits or {},
            despite={*despite, *locked.launched_despite},
        )
        there = locked.arms.filter(
            harness_version=harness_version, model=model, limits_digest=plans[0].limits.digest
        ).first()
        if there is not None:
            return f"That is arm {there.letter} already; choose another harness, model or limit."
        arms = runs.create_arms(experiment=locked, plans=plans, after=locked.arms.count())
        said = f"Arm {arms[0].letter}: {_queue(locked, arms, cells, failing)}"
        return said + (_uncounted([model]) if locked.budgets.get("max_cost_usd") else "")


@for_role(Role.OPERATOR)
def rerun_infrastructure(*, experiment: Experiment, by: User) -> str:
    """Queue another attempt of each run that infrastructure ended, the experiment's own number or not.

    After some seconds it says how many are left; asking again goes on with them.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "experiment" when nothing here runs it, or it is being cancelled.
    """
    with transaction.atomic():
        _refuse_growth(_locked(experiment))
    numbers = list(infrastructure_runs(experiment).order_by("position", "pk").values_list("pk", flat=True))
    if not numbers:
        return "No run of the experiment was ended by infrastructure."
    queued, left, until = 0, 0, time.monotonic() + _RERUN_SECONDS
    for place, number in enumerate(numbers, start=1):
        # A transaction for each: whoever asks it of one run has that, and waits for the experiment's row.
        queued += _ask_attempt(Run.objects.get(pk=number), by)
        if time.monotonic() > until:
            left = len(numbers) - place
            break
    more = f" {left:,} {'is' if left == 1 else 'are'} left: ask again." if left else ""
    said = f"{_runs(queued)} {'is' if queued == 1 else 'are'} queued for another attempt."
    return f"{said}{more}{_waits(experiment)}"


@for_role(Role.OPERATOR)
def raise_budget(*, experiment: Experiment, by: User, name: str, typed: str | None) -> str:
    """As `change_budgets` for one: `typed` is a number of dollars, tokens or hours, None lifts it."""
    return change_budgets(experiment=experiment, by=by, typed={name: typed})


@for_role(Role.OPERATOR)
def change_budgets(
    *, experiment: Experiment, by: User, typed: Mapping[str, str | None], goes_on: bool = False
) -> str:
    """Give the whole experiment other budgets, wider or tighter: all of them or, when one cannot be, none.

    `typed` maps `max_cost_usd`, `max_tokens` or `max_hours` to what was typed, None for "no budget". With
    `goes_on`, an experiment that is paused is resumed as well.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: a budget's name for a value that cannot be one or is used up already; "experiment".
    """
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_over(locked, "given another budget", ended_too=False)
        used = budgets.spent(locked)
        wanted = _budgets(locked, used, typed)
        changed = {name: amount for name, amount in wanted.items() if used.budgets.get(name) != amount}
        kept = {**locked.budgets}
        for name, amount in wanted.items():
            kept[name] = None if amount is None else budgets.stored(name, amount)
        locked.budgets = {name: kept[name] for name in budgets.LABELS if kept.get(name) is not None}
        locked.save(update_fields=["budgets"])
        doorbell.ring()
        said = _budgets_said(changed)
        if changed.get("max_cost_usd") is not None:
            said += _uncounted(_models_of(locked))
        if not goes_on or locked.state != State.PAUSED:
            return said + _stands(locked)
        used = budgets.spent(locked)
        if left := used.stopping:
            way_out = "raise or lift it as well" if used.reached else "lift it"
            raise FieldErrors({left: f"{left}: {budgets.because_stopped(used)}; {way_out}"})
        _go_on(locked)
        return f"{said} The experiment goes on where it stood."


@for_role(Role.OPERATOR)
def change_concurrency(*, experiment: Experiment, by: User, typed: str | None) -> str:
    """How many of its runs may go on at once; None is as many as the lab has places.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "concurrency" for a value that is no such number; "experiment".
    """
    wanted = _concurrency(typed)
    with transaction.atomic():
        locked = _locked(experiment)
        _refuse_over(locked, "given another concurrency", ended_too=False)
        words = "as many runs at once as the lab has places" if wanted is None else f"{_runs(wanted)} at once"
        if locked.concurrency == wanted:
            return f"It is {words} already."
        Experiment.objects.filter(pk=locked.pk).update(concurrency=wanted)
        ring_workers(runs=MOST_AT_ONCE)
        doorbell.ring()
    return f"From now on {words}; what goes on is not stopped."


def go_on_cancelling(*, seconds: float = 0.3) -> None:
    """For the tick: cancel what is left of experiments whose cancelling took longer than anybody waits."""
    for experiment in Experiment.objects.filter(state=State.CANCELLED, ended_at=None).order_by("pk"):
        asked = Control.objects.filter(run__experiment=experiment, kind=Control.Kind.CANCEL)
        first = asked.select_related("asked_by").order_by("pk").first()
        if first is not None:
            _cancel_runs(experiment, first.asked_by, seconds=seconds)


def open_runs(experiment: Experiment) -> int:
    """How many runs have not ended: what cancelling would cancel."""
    return Run.objects.filter(experiment=experiment.pk).exclude(status=Run.Status.ENDED).count()


def infrastructure_runs(experiment: Experiment) -> RunQuerySet:
    """The runs that infrastructure ended, so that another attempt makes sense."""
    broke = Q(facts__verdict="", exit_reason__in=controls.INFRASTRUCTURE)
    return Run.objects.filter(
        broke | Q(facts__verdict=Outcome.INFRASTRUCTURE), experiment=experiment.pk, status=Run.Status.ENDED
    )


def arms_of(experiment: Experiment) -> list[Arm]:
    """Its arms in the order of their letters, with harness version and model."""
    found = experiment.arms.select_related("harness_version__harness", "model__endpoint")
    return sorted(found, key=lambda arm: (len(arm.letter), arm.letter))


def tasks_of(experiment: Experiment) -> list[Task]:
    """Its tasks in the order in which they were launched."""
    found = Task.objects.filter(runs__experiment=experiment.pk).annotate(place=Min("runs__position"))
    return list(found.select_related("task_set").order_by("place", "pk"))


def seeds_of(experiment: Experiment) -> int:
    """The highest seed of its runs, 0 without any."""
    return experiment.runs.aggregate(most=Max("seed"))["most"] or 0


def cells_of(experiment: Experiment) -> list[tuple[int, Task]]:
    """Every (seed, task) of its runs, in the order in which they were launched."""
    tasks = {task.pk: task for task in tasks_of(experiment)}
    rows = experiment.runs.order_by().values_list("seed", "task_id").annotate(place=Min("position"))
    return [(seed, tasks[task_id]) for seed, task_id, _ in sorted(rows, key=lambda row: (row[2], row[0]))]


def asks_of(experiment: Experiment) -> Asks:
    """What an operator may ask of it right now."""
    if experiment.kind != Experiment.Kind.LAUNCHED:
        return Asks()
    cancelling = experiment.state == State.CANCELLED and experiment.ended_at is None
    count = open_runs(experiment)
    return Asks(
        pause=experiment.state == State.ACTIVE and count > 0,
        resume=experiment.state == State.PAUSED,
        grow=not cancelling,
        budget=not cancelling,
        rerun=0 if cancelling else infrastructure_runs(experiment).count(),
        cancel=0 if cancelling else count,
        cancelling=cancelling,
    )


def _locked(experiment: Experiment) -> Experiment:
    return Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)


def _refuse(why: str) -> FieldErrors:
    return FieldErrors({"experiment": f"experiment: {why}"})


def _refuse_elsewhere(experiment: Experiment) -> None:
    """Raises: FieldErrors."""
    if experiment.kind == Experiment.Kind.IMPORTED:
        raise _refuse("it was imported, and other programs run it; ask there, or launch one here")
    if experiment.kind == Experiment.Kind.DEMO:
        raise _refuse("it is a recorded demo, and nothing runs it; launch one of your own")


def _refuse_over(experiment: Experiment, done: str, *, ended_too: bool = True) -> None:
    """Raises: FieldErrors."""
    _refuse_elsewhere(experiment)
    if experiment.state == State.CANCELLED and (ended_too or experiment.ended_at is None):
        raise _refuse(f"it is cancelled and cannot be {done}")
    if experiment.state == State.ENDED and ended_too:
        raise _refuse(f"all its runs have ended, and it cannot be {done}")


def _refuse_growth(experiment: Experiment) -> None:
    """Raises: FieldErrors."""
    _refuse_elsewhere(experiment)
    if experiment.state == State.CANCELLED and experiment.ended_at is None:
        raise _refuse("its runs are being cancelled; wait for the end of that, then ask for more")


def _refuse_too_many(experiment: Experiment, more: int) -> None:
    """Raises: FieldErrors."""
    there = experiment.runs.count()
    if not there:
        raise _refuse("it has no run to add to; launch a new one")
    if there + more > MAX_RUNS:
        raise _refuse(f"it has {_runs(there)}, and {more:,} more are above {MAX_RUNS:,}; ask for fewer")


def _go_on(experiment: Experiment) -> None:
    budgets.go_on(experiment)
    ring_workers(runs=MOST_AT_ONCE)


def _begin_cancelling(experiment: Experiment, by: User) -> tuple[bool, str]:
    """Mark it as cancelled in the transaction that cancels its first run, which says who asked.

    False when somebody else did, or when no run is open; with the state it was in.
    """
    while True:
        number = _to_cancel(experiment).values_list("pk", flat=True).first() or 0
        with transaction.atomic():
            run = Run.objects.locked().for_rows().filter(pk=number).exclude(status=Run.Status.ENDED).first()
            locked = _locked(experiment)
            if not number or locked.state in (State.CANCELLED, State.ENDED):
                return False, locked.state
            if run is None:
                continue
            before = locked.state
            locked.state, locked.clock = State.CANCELLED, budgets.stopped(locked.clock)
            locked.paused_because = locked.paused_by_budget = ""
            locked.save(update_fields=["state", "clock", "paused_because", "paused_by_budget"])
            controls.cancel(run=run, person=by)
            return True, before


def _to_cancel(experiment: Experiment) -> RunQuerySet:
    """Those that a worker is at work on first."""
    found = Run.objects.filter(experiment=experiment.pk, cancel_asked=False)
    return found.exclude(status=Run.Status.ENDED).order_by(F("started_at").asc(nulls_last=True), "pk")


def _cancel_runs(experiment: Experiment, person: User, *, seconds: float) -> int:
    """Cancel run after run for so long; returns how many are left."""
    until = time.monotonic() + seconds
    while numbers := list(_to_cancel(experiment).values_list("pk", flat=True)[:_CHUNK]):
        with transaction.atomic():
            for run in Run.objects.locked().for_rows().filter(pk__in=numbers).order_by("pk"):
                controls.cancel(run=run, person=person)
        if time.monotonic() > until:
            return _to_cancel(experiment).count()
    return 0


def _ask_attempt(run: Run, by: User) -> bool:
    try:
        return controls.ask(run=run, by=by, control="attempt").new
    except FieldErrors:
        # Somebody else was first, and it goes on already or was cancelled since.
        return False


def _seeds(typed: int | str, experiment: Experiment) -> int:
    """Up to which seed there are to be all.

    Raises:
        FieldErrors: no such number, or fewer than there are.
    """
    text, now = str(typed).strip(), seeds_of(experiment)
    # Looked at before it is read: Python refuses to read thousands of digits.
    if not re.fullmatch(r"0*\d{1,3}", text) or not 1 <= int(text[-3:]) <= MAX_SEEDS:
        beyond = re.fullmatch(r"-?\d[\d,]*", text)
        what = "out of range: seeds go" if beyond else "no whole number"
        reason = f"is {what} from {now} to {MAX_SEEDS}; write {min(now + 1, MAX_SEEDS)}"
        raise FieldErrors({"seeds": str(InvalidValueError("seeds", as_typed(text), reason))})
    if int(text[-3:]) < now:
        way_out = f"none is taken away; write {min(now + 1, MAX_SEEDS)}"
        reason = f"is less than seed {now}, which is there, and {way_out}"
        raise FieldErrors({"seeds": str(InvalidValueError("seeds", as_typed(text), reason))})
    return int(text[-3:])


def _queue(experiment: Experiment, arms: list[Arm], cells: list[tuple[int, Task]], failing: list[int]) -> str:
    last = experiment.runs.aggregate(last=Max("position"))["last"]
    queued = runs.queue_runs(experiment=experiment, arms=arms, cells=cells, after=(last or 0) + 1)
    experiment.launched_despite = sorted({*experiment.launched_despite, *failing})
    experiment.save(update_fields=["launched_despite"])
    if experiment.state in (State.ENDED, State.CANCELLED):
        budgets.go_on(experiment)
    budgets.enforce(experiment_id=experiment.pk)
    ring_workers(runs=len(queued))
    said = f"{_runs(len(queued))} {'is' if len(queued) == 1 else 'are'} queued."
    return f"{said}{_waits(experiment)}"


def _waits(experiment: Experiment) -> str:
    experiment.refresh_from_db(fields=["state", "paused_because"])
    if experiment.state != State.PAUSED:
        return ""
    return f" Nothing starts yet: {experiment.paused_because}."


def _budgets(
    experiment: Experiment, used: budgets.Spent, typed: Mapping[str, str | None]
) -> dict[str, Decimal | None]:
    """
    Raises:
        FieldErrors: every mistake at once.
    """
    errors, wanted = FieldErrorCollector(), dict[str, Decimal | None]()
    for name, text in typed.items():
        try:
            wanted[name] = (
                None if text is None and name in budgets.LABELS else budgets.parse(name, text or "")
            )
        except InvalidValueError as error:
            errors.add(error)
            continue
        amount = wanted[name]
        if amount is not None and amount <= used.used(name):
            reason = f"is not above the {used.said(name)} that it has used already; write more, or pause it"
            errors.add(InvalidValueError(name, as_typed(str(text).strip()), reason))
        new_dollars = amount is not None and name == "max_cost_usd" and name not in used.budgets
        if new_dollars and not dollars_can_hold(_models_of(experiment)):
            reason = "cannot hold: the price of no model of its arms is known; limit tokens or hours"
            errors.add(InvalidValueError(name, as_typed(str(text).strip()), reason))
    errors.raise_if_any()
    return wanted


def _models_of(experiment: Experiment) -> list[Model]:
    """The models of its arms."""
    return list(Model.objects.filter(pk__in=experiment.arms.values("model_id")).select_related("endpoint"))


def _uncounted(models: Collection[Model]) -> str:
    """Whose requests count as nothing against dollars, in a sentence; "" when all of them count."""
    names = sorted(model.name for model in unpriced(models))
    if not names:
        return ""
    return f" The price of {', '.join(names)} is unknown: what its requests cost is not counted in dollars."


def _budgets_said(changed: Mapping[str, Decimal | None]) -> str:
    if not changed:
        return "The budgets are that already."
    words = [
        f"no budget for {budgets.LABELS[name].lower()}" if amount is None else budgets.said(name, amount)
        for name, amount in changed.items()
    ]
    return f"From now on the experiment has {' and '.join(words)}."


def _stands(experiment: Experiment) -> str:
    if experiment.state != State.PAUSED:
        return ""
    return " It is still paused: resume it when it is to go on."


def _concurrency(typed: str | None) -> int | None:
    """Raises: FieldErrors."""
    if typed is None:
        return None
    text = typed.strip()
    if re.fullmatch(r"0*\d{1,4}", text) and 1 <= int(text[-4:]) <= MOST_AT_ONCE:
        return int(text[-4:])
    reason = f"is no whole number from 1 to {MOST_AT_ONCE:,}; write 4, or choose “no limit”"
    raise FieldErrors({"concurrency": str(InvalidValueError("concurrency", as_typed(text), reason))})


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
