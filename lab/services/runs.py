"""Launching runs: new ones, and one again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS, Limits, as_typed, parse_limit
from lab.engine.llm.base import JSONObject, canonical_json, canonical_sha256
from lab.models import Arm, Experiment, HarnessVersion, Model, Role, Run, RunFacts, Task
from lab.services import doorbell, harness_pages, isolation, preflights, replays
from lab.services.access import for_role
from lab.services.endpoints import price_is_known
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.isolation import IsolationMissingError, consent_without_isolation
from lab.services.limits import with_model
from lab.services.messages import ring_workers
from lab.services.plan_files import DEFAULT_ATTEMPTS, MAX_SEEDS
from lab.services.tasks import RECORDED_ELSEWHERE, is_practice
from lab.services.transitions import transition

__all__ = ["FieldErrors", "consent_without_isolation", "launch", "transition"]

MAX_RUNS = 10_000


class ArmPlan(NamedTuple):
    """What an arm is made of; the limits as they hold."""

    harness_version: HarnessVersion
    model: Model
    limits: Limits


class ArmAsked(NamedTuple):
    """An arm that somebody wants; `limits` as typed, see `launch`."""

    harness_version: HarnessVersion
    model: Model
    limits: Mapping[str, str | None]


class Whole(NamedTuple):
    """What holds for an experiment as a whole: see the columns of `Experiment`."""

    budgets: Mapping[str, Any] = {}
    concurrency: int | None = None
    max_attempts: int = DEFAULT_ATTEMPTS
    plan: Mapping[str, Any] = {}
    cloned_from: Experiment | None = None

    @property
    def content(self) -> list[Any]:
        """What makes it another launch; nothing where nothing was asked."""
        cloned_from = self.cloned_from and self.cloned_from.pk
        content = [dict(self.budgets), self.concurrency, self.max_attempts, dict(self.plan), cloned_from]
        return [] if self == Whole() else content


class _Asked(NamedTuple):
    """Limits as a person wants them: numbers that tighten, as read and as typed, and limits to be lifted."""

    numbers: dict[str, int | float | Decimal]
    typed: dict[str, str]
    lifted: set[str]


@for_role(Role.OPERATOR)
def launch(
    *,
    by: User,
    tasks: Sequence[Task],
    harness_versions: Sequence[HarnessVersion] = (),
    models: Sequence[Model] = (),
    pairs: Sequence[ArmAsked] | None = None,
    seeds: int | str = 1,
    limits: Mapping[str, str | None] | None = None,
    idempotency_key: str = "",
    name: str = "",
    kind: str = Experiment.Kind.LAUNCHED,
    only: Sequence[tuple[int, Task]] | None = None,
    despite: Collection[int] = (),
    whole: Whole = Whole(),  # noqa: B008  # a tuple: nobody can change it
) -> Experiment:
    """Launch every task with every harness version and model, `seeds` times each, as one experiment.

    `pairs` names the arms instead, each with limits of its own; `only` names the seeds and tasks instead, one
    by one. A model whose newest preflight is failing is launched only when its number is in `despite`; the
    experiment keeps these numbers.

    `limits` maps the name of a limit to what a person typed: "" keeps the harness's, a number tightens it and
    never widens it, None is "no limit" and lifts it for this experiment. The same `idempotency_key` with the
    same content launches once: a second call returns the first one's experiment. With other content it is
    another launch, because a page that the browser's Back restored still carries the key it has used.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: field -> text, for "tasks", "harness", "models", "arms", "seeds", "isolation", "despite"
            and each limit.
    """
    wanted = _wanted(harness_versions, models, limits or {}) if pairs is None else list(pairs)
    key = _key_of(idempotency_key, _content(tasks, wanted, seeds, limits, [name, kind], only, whole))
    if key and (earlier := _earlier(key)):
        return earlier
    errors = FieldErrorCollector()
    cells = _cells(tasks, seeds, only, errors)
    if pairs is not None:
        harness_versions, models = [arm.harness_version for arm in wanted], _models_of(wanted)
    _choices(tasks, harness_versions, models, errors)
    _recorded(models, cells, errors)
    _isolation(tasks, models, errors)
    plans = _plans(wanted, errors, limits or {})
    failing = preflights.check_despite(models, despite, errors)
    errors.raise_if_any()
    _check_number(len(plans), len(cells))
    fields = {"name": name, "kind": kind, "task_set": tasks[0].task_set, "launched_by": by}
    fields |= {"launched_despite": failing, **whole._asdict()}
    return _launched_once(key, fields, plans, cells)


def _check_number(arms: int, cells: int) -> None:
    if arms * cells > MAX_RUNS:
        many = f"{cells} for each of {arms} arms would make more than {MAX_RUNS} runs"
        raise FieldErrors({"seeds": f"seeds: {many}; choose fewer seeds, tasks or arms"})


def planned(arms: Sequence[ArmAsked]) -> list[ArmPlan]:
    """What these arms would be made of, in their order.

    Raises:
        FieldErrors: "arms" and each limit, as for `launch`.
    """
    errors = FieldErrorCollector()
    plans = _plans(arms, errors)
    errors.raise_if_any()
    return plans


def _wanted(
    harness_versions: Sequence[HarnessVersion], models: Sequence[Model], limits: Mapping[str, str | None]
) -> list[ArmAsked]:
    return [ArmAsked(version, model, limits) for version in harness_versions for model in models]


def _content(
    tasks: Sequence[Task],
    arms: Sequence[ArmAsked],
    seeds: int | str,
    limits: Mapping[str, str | None] | None,
    named: Sequence[str],
    only: Sequence[tuple[int, Task]] | None,
    whole: Whole,
) -> list[Any]:
    """What tells one launch of a form from another."""
    return [
        sorted(task.pk for task in tasks),
        sorted([arm.harness_version.pk, arm.model.pk, _sorted(_as_asked(arm.limits))] for arm in arms),
        [*named, str(seeds).strip(), _sorted(_as_asked(limits or {}))],
        None if only is None else [(seed, task.pk) for seed, task in only],
        whole.content,
    ]


def _sorted(limits: Mapping[str, str | None]) -> list[list[str]]:
    return sorted([name, "no limit" if text is None else text] for name, text in limits.items())


def _cells(
    tasks: Sequence[Task],
    seeds: int | str,
    only: Sequence[tuple[int, Task]] | None,
    errors: FieldErrorCollector,
) -> list[tuple[int, Task]]:
    count = _seeds(seeds, errors)
    return [(seed, task) for seed in range(1, count + 1) for task in tasks] if only is None else list(only)


def _models_of(arms: Sequence[ArmAsked]) -> list[Model]:
    """Each model once, in order."""
    return list({arm.model.pk: arm.model for arm in arms}.values())


def _launched_once(
    key: str | None, fields: Mapping[str, Any], plans: Sequence[ArmPlan], cells: Sequence[tuple[int, Task]]
) -> Experiment:
    try:
        with transaction.atomic():
            experiment = Experiment.objects.create(**fields, idempotency_key=key)
            ring_workers(runs=len(_create_runs(experiment, plans, cells)))
    except IntegrityError:
        # The same form was sent twice at once, and the other one was first.
        first = _earlier(key) if key else None
        if first is None:
            raise
        return first
    return experiment


@for_role(Role.OPERATOR)
def launch_again(*, run: Run, by: User, key: str = "", despite: Collection[int] = ()) -> tuple[Run, bool]:
    """A new run with the task, harness version, model, limits and seed of `run`, an experiment of its own.

    The same `key` for the same run launches once; the second value says whether this call did. The limits are
    those of the arm, whatever people changed while `run` went on. `despite` as for `launch`.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "isolation", "models", "despite".
    """
    stored = _key_of(key, ["again", run.pk])
    if stored and (earlier := _earlier(stored)):
        return Run.objects.get(experiment=earlier), False
    arm = run.arm
    errors = FieldErrorCollector()
    _recorded([arm.model], [(run.seed, run.task)], errors)
    _isolation([run.task], [arm.model], errors)
    failing = preflights.check_despite([arm.model], despite, errors)
    errors.raise_if_any()
    fields = {"task_set": run.task.task_set, "launched_by": by, "launched_despite": failing}
    plan = ArmPlan(arm.harness_version, arm.model, Limits.model_validate(arm.limits))
    with transaction.atomic():
        experiment = Experiment.objects.create(**fields, idempotency_key=stored)
        (fresh,) = _create_runs(experiment, [plan], [(run.seed, run.task)])
        ring_workers()
    return fresh, True


@for_role(Role.OPERATOR)
def launch_replay(
    *,
    by: User,
    runs: Sequence[Run],
    harness_version: HarnessVersion,
    on_difference: str = "stop",
    key: str = "",
) -> Experiment:
    """Launch the recorded runs of one arm again, each with its own task and seed, answered by the recording.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: as for `launch`, "on_difference", and "tasks" where a run has no recorded turn.
    """
    if not runs:
        raise FieldErrors({"tasks": "tasks: no turn was recorded in any run of this arm; wait for one"})
    if reason := next(filter(None, map(replays.unrecorded, runs)), ""):
        raise FieldErrors({"tasks": f"tasks: {reason}"})
    with transaction.atomic():
        model = replays.make(by=by, arm=runs[0].arm, on_difference=on_difference)
        return launch(
            by=by,
            tasks=list({run.task_id: run.task for run in runs}.values()),
            harness_versions=[harness_version],
            models=[model],
            idempotency_key=key,
            only=[(run.seed, run.task) for run in runs],
        )


def plan_more(
    *,
    tasks: Sequence[Task],
    cells: Sequence[tuple[int, Task]],
    harness_versions: Sequence[HarnessVersion],
    models: Sequence[Model],
    limits: Mapping[str, str | None],
    despite: Collection[int],
) -> tuple[list[ArmPlan], list[int]]:
    """Look through more runs of an experiment as `launch` does: arms for them, and failing preflights.

    Raises:
        FieldErrors: as for `launch`.
    """
    errors = FieldErrorCollector()
    _choices(tasks, harness_versions, models, errors)
    _recorded(models, cells, errors)
    _isolation(tasks, models, errors)
    plans = _plans(_wanted(harness_versions, models, limits), errors)
    failing = preflights.check_despite(models, despite, errors)
    errors.raise_if_any()
    return plans, failing


def facts_of(run: Run) -> dict[str, JSONObject]:
    """What only the database knows of a run's task, harness and model: joins its attempts' first events."""
    version, model = run.arm.harness_version, run.arm.model
    return {
        "task": {"set": run.task.task_set.name, "set_version": run.task.task_set.version},
        "harness": {"version": version.version, "name": version.harness.name},
        "model": {"version": model.version, "endpoint": model.endpoint.name},
    }


def _as_asked(limits: Mapping[str, str | None]) -> dict[str, str | None]:
    stripped = {limit: text and text.strip() for limit, text in limits.items()}
    return {limit: text for limit, text in stripped.items() if text != ""}


def _key_of(idempotency_key: str, content: Sequence[Any]) -> str | None:
    """What two requests share only when key and content are the same; None where no key was sent."""
    return canonical_sha256([idempotency_key, *content]) if idempotency_key else None


def _earlier(key: str) -> Experiment | None:
    return Experiment.objects.filter(idempotency_key=key).first()


def _seeds(seeds: int | str, errors: FieldErrorCollector) -> int:
    text = str(seeds).strip()
    # Looked at before it is read: Python refuses to read thousands of digits.
    if re.fullmatch(r"0*\d{1,3}", text) and 1 <= int(text[-3:]) <= MAX_SEEDS:
        return int(text[-3:])
    errors.add(
        InvalidValueError("seeds", as_typed(text), f"is no whole number from 1 to {MAX_SEEDS}; write 1")
    )
    return 1


def _limits(typed: Mapping[str, str | None], errors: FieldErrorCollector) -> _Asked:
    """The limits a person asked for; a name that is left out keeps the harness's."""
    asked = _Asked({}, {}, set())
    for name, text in typed.items():
        if name not in UNITS:
            errors.add(InvalidValueError(name, text or "", f"is no limit; known are {', '.join(UNITS)}"))
        elif text is None and name == "max_tokens_per_turn":
            errors.add(
                InvalidValueError(
                    name, "no limit", "cannot be: a turn that never ends would be paid for ever"
                )
            )
        elif text is None:
            asked.lifted.add(name)
        elif text.strip():
            try:
                asked.numbers[name] = parse_limit(name, text)
                asked.typed[name] = as_typed(text.strip())
            except InvalidValueError as error:
                errors.add(error)
    return asked


def _choices(
    tasks: Sequence[Task],
    harness_versions: Sequence[HarnessVersion],
    models: Sequence[Model],
    errors: FieldErrorCollector,
) -> None:
    if not tasks:
        errors.say("tasks", "tasks: nothing is chosen; choose at least one task")
    elif len({task.task_set_id for task in tasks}) > 1:
        errors.say("tasks", "tasks: they belong to different task sets; choose tasks of one set")
    if any(task.task_set.digest == RECORDED_ELSEWHERE for task in tasks):
        errors.say("tasks", "tasks: they came with imported runs, and the lab has no repository of them")
    if not harness_versions:
        errors.say("harness", "harness: nothing is chosen; choose at least one harness")
    for version in harness_versions:
        if not harness_pages.can_be_launched(version):
            errors.say("harness", f"harness: what {version} is was not recorded; choose another harness")
    if not models:
        errors.say("models", "models: nothing is chosen; choose at least one model")
    for model in models:
        if model.retired or model.endpoint.retired:
            errors.say(
                "models", f"models: {model.name!r} is retired; choose its newer version or another model"
            )


def _recorded(
    models: Sequence[Model], cells: Sequence[tuple[int, Task]], errors: FieldErrorCollector
) -> None:
    """A replay can serve only what was recorded."""
    for model in models:
        if model.replay and (problem := replays.problem(model, cells)):
            errors.say("models", f"models: {problem}")


def _isolation(tasks: Sequence[Task], models: Sequence[Model], errors: FieldErrorCollector) -> None:
    practice = all(is_practice(task.task_set) for task in tasks)
    try:
        isolation.check(
            tasks=tasks, lab_commands_only=practice and all(model.lab_written for model in models)
        )
    except IsolationMissingError as error:
        errors.say("isolation", str(error))


def _plans(
    arms: Sequence[ArmAsked], errors: FieldErrorCollector, limits: Mapping[str, str | None] | None = None
) -> list[ArmPlan]:
    """The arms with the limits that hold for them; says each mistake once, whatever arms share it.

    Mistakes in `limits` are said also where there is no arm.
    """
    if not arms:
        _limits(limits or {}, errors)
    plans: dict[tuple[int, int, str], ArmPlan] = {}
    read: dict[bytes, _Asked] = {}
    own: dict[int, Limits] = {}
    for version, model, typed in arms:
        if harness_pages.readable_config(version) is None:
            # `_choices` says it.
            continue
        as_text = canonical_json(_sorted(typed))
        asked = read[as_text] = read.get(as_text) or _limits(typed, errors)
        if version.pk not in own:
            own[version.pk] = HarnessConfig.model_validate(version.config).limits
        _check_not_wider(own[version.pk], version, asked, errors)
        wanted = own[version.pk].lifted(asked.lifted).tightened(asked.numbers)
        plan = ArmPlan(version, model, with_model(wanted, model))
        if plans.setdefault((version.pk, model.pk, plan.limits.digest), plan) is not plan:
            same = f"{version} with {model.name} is there twice with the same limits"
            errors.say("arms", f"arms: {same}; leave one out")
    found = list(plans.values())
    for asked in read.values():
        _check_prices(found, asked, errors)
    return found


def _check_not_wider(
    own: Limits, version: HarnessVersion, asked: _Asked, errors: FieldErrorCollector
) -> None:
    """A number above the harness's would silently do nothing, so it is said."""
    for name, wanted in asked.numbers.items():
        allowed = getattr(own, name)
        if allowed is not None and wanted > allowed:
            # Never 1e+06: what is said can be typed.
            most = f"{float(allowed):.12g}"
            reason = f"is more than the {most} of {version}; write {most} or less, or choose “no limit”"
            errors.add(InvalidValueError(name, asked.typed[name], reason))


def _check_prices(plans: Sequence[ArmPlan], asked: _Asked, errors: FieldErrorCollector) -> None:
    """What a run costs is counted in prices; without them a cost limit would never be reached."""
    limited = {plan.model for plan in plans if plan.limits.max_cost_usd is not None}
    unknown = sorted(model.name for model in limited if not price_is_known(model))
    if not unknown:
        return
    typed = asked.typed.get("max_cost_usd")
    cannot = f"cannot hold for {', '.join(unknown)}, whose price is unknown"
    if typed is None:
        reason = f"{cannot}; choose “no limit” and limit tokens or steps, or another harness"
        errors.add(InvalidValueError("max_cost_usd", "the limit of the harness", reason))
    else:
        reason = f"{cannot}; leave it empty, or limit tokens or steps"
        errors.add(InvalidValueError("max_cost_usd", typed, reason))


def create_arms(*, experiment: Experiment, plans: Sequence[ArmPlan], after: int = 0) -> list[Arm]:
    """Arms of an experiment that has `after` arms already, lettered in order."""
    return [
        Arm.objects.create(
            experiment=experiment,
            harness_version=plan.harness_version,
            model=plan.model,
            limits=plan.limits.model_dump(mode="json"),
            limits_digest=plan.limits.digest,
            letter=letter_of(after + index),
        )
        for index, plan in enumerate(plans)
    ]


def queue_runs(
    *, experiment: Experiment, arms: Sequence[Arm], cells: Sequence[tuple[int, Task]], after: int = 0
) -> list[Run]:
    """Queued runs of each arm for each (seed, task), at positions from `after` on.

    Arms take turns, so that a slow hour of a server or of this machine meets all of them alike.
    """
    runs = Run.objects.bulk_create(
        Run(experiment=experiment, arm=arm, task=task, seed=seed, position=position)
        for position, (seed, task, arm) in enumerate(_interleaved(arms, cells), start=after)
    )
    RunFacts.objects.bulk_create(RunFacts(run=run) for run in runs)
    doorbell.ring()
    return runs


def _create_runs(
    experiment: Experiment, plans: Sequence[ArmPlan], cells: Sequence[tuple[int, Task]]
) -> list[Run]:
    arms = create_arms(experiment=experiment, plans=plans)
    return queue_runs(experiment=experiment, arms=arms, cells=cells)


def _interleaved(arms: Sequence[Arm], cells: Sequence[tuple[int, Task]]) -> Iterator[tuple[int, Task, Arm]]:
    for seed, task in cells:
        for arm in arms:
            yield seed, task, arm


def letter_of(index: int) -> str:
    """A, B, …, Z, AA, AB, …: the name of an arm by its place, counted from 0."""
    first, second = divmod(index, 26)
    return (chr(ord("A") + first - 1) if first else "") + chr(ord("A") + second)
