"""Experiments made of plans: a plan's names looked up, launched, and written again from an experiment."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from django.contrib.auth.models import User

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import Limits, as_typed, is_amount
from lab.models import Arm, Experiment, HarnessVersion, Model, Role, Task, TaskSet
from lab.services import harness_pages, runs
from lab.services.access import for_role
from lab.services.endpoints import price_is_known
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.limits import with_model
from lab.services.plan_files import (
    DEFAULT_ATTEMPTS,
    ArmChoice,
    Budgets,
    LimitValue,
    Plan,
    Sample,
    TaskChoice,
    arm_data,
    checked,
    dump,
    read,
)
from lab.services.runs import ArmAsked, Whole
from lab.services.tasks import RECORDED_ELSEWHERE
from lab.services.unpinned import unpinned

__all__ = ["DEFAULT_ATTEMPTS", "Plan", "Sample", "arm_data", "checked", "dump", "read", "unpinned"]

Versioned = TypeVar("Versioned", HarnessVersion, Model)
_NAMED = 8
_PINNED = re.compile(r"(.+)@(\d{1,9})")


class Resolved(NamedTuple):
    """What a plan's names stand for in this lab: its tasks in the order of their set, and its arms."""

    plan: Plan
    task_set: TaskSet
    tasks: list[Task]
    arms: list[ArmAsked]

    @property
    def models(self) -> list[Model]:
        """Each model once."""
        return list({arm.model.pk: arm.model for arm in self.arms}.values())

    @property
    def run_count(self) -> int:
        return len(self.tasks) * len(self.arms) * len(self.plan.seeds)


def resolve(plan: Plan) -> Resolved:
    """Look up what the plan names.

    Raises:
        FieldErrors: "tasks", "sample_number", "arms": what this lab does not have, and what it has.
    """
    errors = FieldErrorCollector()
    task_set = _task_set(plan.tasks, errors)
    tasks = _tasks(task_set, plan.tasks, errors) if task_set is not None else []
    arms = _arms(plan, errors)
    if task_set is None or errors.errors:
        raise FieldErrors(errors.errors)
    return Resolved(plan, task_set, tasks, arms)


class KnownArm(NamedTuple):
    """An arm of a plan with what its names stand for; None where this lab has no such thing."""

    choice: ArmChoice
    harness_version: HarnessVersion | None
    model: Model | None


def known_arms(plan: Plan) -> list[KnownArm]:
    """The arms of a plan as far as this lab knows them: for a form that shows the rest as mistakes."""
    pairs = plan.pairs
    versions = _versions({pair.harness for pair in pairs}, FieldErrorCollector())
    models = _models({pair.model for pair in pairs}, FieldErrorCollector())
    return [KnownArm(pair, versions.get(pair.harness), models.get(pair.model)) for pair in pairs]


def known_task_set(plan: Plan) -> TaskSet | None:
    """The task set that the plan names, None where this lab has none."""
    return _task_set(plan.tasks, FieldErrorCollector())


def pinned(resolved: Resolved) -> Plan:
    """The plan with every name's version, and the content of its task set, as they are now."""
    plan, task_set = resolved.plan, resolved.task_set
    where = {"set": task_set.name, "version": task_set.version, "digest": task_set.digest}
    changes: dict[str, Any] = {"tasks": plan.tasks.model_copy(update=where)}
    if plan.arms is not None:
        changes["arms"] = tuple(
            choice.model_copy(update={"harness": _harness_name(arm), "model": _model_name(arm.model)})
            for choice, arm in zip(plan.arms, resolved.arms, strict=True)
        )
    else:
        changes["harnesses"] = tuple(dict.fromkeys(_harness_name(arm) for arm in resolved.arms))
        changes["models"] = tuple(dict.fromkeys(_model_name(arm.model) for arm in resolved.arms))
    return plan.model_copy(update=changes)


@for_role(Role.OPERATOR)
def launch(
    *,
    by: User,
    plan: Plan,
    key: str = "",
    despite: Collection[int] = (),
    cloned_from: Experiment | None = None,
) -> Experiment:
    """Launch what the plan says; the same `key` with the same plan launches once.

    `despite` adds to the failing preflights that the plan goes on in spite of. The experiment keeps the plan
    with the versions that its names stood for.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: as `resolve` and `runs.launch`, and "budget_max_cost_usd".
    """
    resolved = resolve(plan)
    errors = FieldErrorCollector()
    _check_budgets(resolved, errors)
    try:
        runs.planned(resolved.arms)
    except FieldErrors as error:
        errors.errors |= error.errors
    errors.raise_if_any()
    whole = Whole(
        budgets=budgets_data(plan.budgets),
        concurrency=plan.concurrency,
        max_attempts=plan.max_attempts,
        plan=pinned(resolved).as_data(),
        cloned_from=cloned_from,
    )
    return runs.launch(
        by=by,
        tasks=resolved.tasks,
        pairs=resolved.arms,
        only=[(seed, task) for seed in plan.seeds for task in resolved.tasks],
        idempotency_key=key,
        name=plan.name,
        despite={*plan.despite, *despite},
        whole=whole,
    )


def write(experiment: Experiment) -> str:
    """The experiment's plan as YAML, with what it cannot pin in its heading; `read` gives an equal plan."""
    arms = _arms_of(experiment)
    notes = [f"It is the plan of experiment {experiment.pk}."]
    versions = {arm.harness_version for arm in arms}
    notes += sorted(
        f"{_harness_name(version)} has the digest {version.digest or 'unknown'}" for version in versions
    )
    notes += [f"Not pinned: {line}" for line in unpinned(experiment)]
    return dump(of(experiment), notes=tuple(notes))


def of(experiment: Experiment) -> Plan:
    """What to launch for the same experiment: the plan that it keeps, with what people changed since.

    An experiment that keeps none gets one from its arms, tasks and seeds.
    """
    arms = _arms_of(experiment)
    seeds = sorted(set(experiment.runs.values_list("seed", flat=True).distinct())) or [1]
    changes: dict[str, Any] = {
        "name": experiment.name,
        "seeds": tuple(seeds),
        "budgets": checked_budgets(experiment.budgets),
        "concurrency": experiment.concurrency,
        "max_attempts": experiment.max_attempts,
    }
    kept = _kept(experiment)
    if kept is not None:
        known = len(kept.pairs)
        if len(arms) > known:
            added = tuple(_choice(arm, beside=kept.limits) for arm in arms[known:])
            changes |= {"arms": (*kept.pairs, *added), "harnesses": None, "models": None}
        return kept.model_copy(update=changes)
    despite = tuple(experiment.launched_despite)
    return Plan(tasks=_tasks_of(experiment), despite=despite, **_arm_fields(arms)).model_copy(update=changes)


def chosen_by_chance(slugs: Sequence[str], sample: Sample) -> set[str]:
    """The sample's tasks among these: a larger number with the same seed keeps them and adds more."""

    def rank(slug: str) -> bytes:
        return hashlib.sha256(f"{sample.seed}:{slug}".encode()).digest()

    return set(sorted(slugs, key=rank)[: sample.number])


def budgets_data(budgets: Budgets) -> dict[str, Any]:
    """Budgets as an experiment holds them: dollars as text, those that are not set left out."""
    data = budgets.model_dump(exclude_none=True)
    if "max_cost_usd" in data:
        data["max_cost_usd"] = str(data["max_cost_usd"])
    return data


def checked_budgets(data: Mapping[str, Any]) -> Budgets:
    """Budgets as an experiment holds them, read."""
    found = {name: data[name] for name in Budgets.model_fields if data.get(name) is not None}
    # An earlier version kept some that are as good as nothing: they are no budgets of a plan.
    known = {name: value for name, value in found.items() if is_amount(Decimal(str(value)))}
    return Budgets.model_validate(known)


def unpriced(models: Iterable[Model]) -> list[Model]:
    """Those whose price nobody knows: what they cost counts in no budget."""
    return [model for model in models if not price_is_known(model)]


def dollars_can_hold(models: Collection[Model]) -> bool:
    """Whether a budget in dollars would ever be used up by these: the price of one at least is known."""
    return len(unpriced(models)) < len(models)


def _check_budgets(resolved: Resolved, errors: FieldErrorCollector) -> None:
    """A budget in dollars that nothing would ever use up is none."""
    dollars = resolved.plan.budgets.max_cost_usd
    if dollars is not None and not dollars_can_hold(resolved.models):
        cannot = "cannot hold: the price of no chosen model is known"
        way_out = "leave it empty and limit tokens or hours, or add a price on the model's page"
        errors.say("budget_max_cost_usd", f"budget_max_cost_usd: '{dollars}' {cannot}; {way_out}")


def _task_set(choice: TaskChoice, errors: FieldErrorCollector) -> TaskSet | None:
    sets = TaskSet.objects.exclude(digest=RECORDED_ELSEWHERE)
    if choice.digest:
        found = sets.filter(digest=choice.digest, name=choice.set).first()
        missing = f"{choice.set!r} with the digest {as_typed(choice.digest)!r} is not in this lab"
        way_out = "bring it with `manage.py check_tasks FOLDER`, or leave the digest out for the newest"
    else:
        named = sets.filter(name=choice.set)
        versioned = named.filter(version=choice.version) if choice.version else named
        found = versioned.order_by("-pk").first()
        missing = f"{' '.join(filter(None, [choice.set, choice.version]))!r} is not in this lab"
        known = dict.fromkeys(str(one) for one in sets.order_by("-pk")[:_NAMED])
        way_out = (
            f"choose one of {', '.join(known) or 'none'}, or bring it with `manage.py check_tasks FOLDER`"
        )
    if found is None:
        errors.say("tasks", f"tasks: {missing}; {way_out}")
    return found


def _tasks(task_set: TaskSet, choice: TaskChoice, errors: FieldErrorCollector) -> list[Task]:
    tasks = list(task_set.tasks.select_related("task_set").order_by("position"))
    slugs = [task.slug for task in tasks]
    if choice.sample is not None:
        if choice.sample.number > len(slugs):
            many = f"is more than the {len(slugs)} tasks of {task_set}; write {len(slugs)} or less"
            errors.say("sample_number", f"sample_number: '{choice.sample.number}' {many}")
        wanted = chosen_by_chance(slugs, choice.sample)
        return [task for task in tasks if task.slug in wanted]
    if choice.only is None:
        return tasks
    unknown = [slug for slug in dict.fromkeys(choice.only) if slug not in set(slugs)]
    if unknown:
        missing = f"{_listed([repr(slug) for slug in unknown])}: not in {task_set}"
        errors.say("tasks", f"tasks: {missing}; leave them out, or choose among {_listed(slugs)}")
    return [task for task in tasks if task.slug in set(choice.only)]


def _arms(plan: Plan, errors: FieldErrorCollector) -> list[ArmAsked]:
    pairs = plan.pairs
    versions = _versions({pair.harness for pair in pairs}, errors)
    models = _models({pair.model for pair in pairs}, errors)
    return [
        ArmAsked(versions[pair.harness], models[pair.model], _typed({**plan.limits, **pair.limits}))
        for pair in pairs
        if pair.harness in versions and pair.model in models
    ]


def _versions(names: Collection[str], errors: FieldErrorCollector) -> dict[str, HarnessVersion]:
    """Each name, with or without a version, and what it stands for."""
    bare = {name for text in names for name in _possible(text)}
    rows = HarnessVersion.objects.filter(harness__name__in=bare).select_related("harness")
    found: dict[str, HarnessVersion] = {}
    by_name: dict[str, list[HarnessVersion]] = {}
    for row in rows.order_by("version"):
        by_name.setdefault(row.harness.name, []).append(row)
    for text in sorted(names):
        version = _among(text, by_name)
        if version is None:
            known = [str(one.version.harness) for one in harness_pages.launchable()]
            errors.say("arms", f"arms: harness {as_typed(text)!r} {_not_here(text, by_name, known)}")
        elif not harness_pages.can_be_launched(version):
            errors.say("arms", f"arms: what {version} is was not recorded; choose another harness")
        else:
            found[text] = version
    return found


def _models(names: Collection[str], errors: FieldErrorCollector) -> dict[str, Model]:
    bare = {name for text in names for name in _possible(text)}
    by_name: dict[str, list[Model]] = {}
    for row in Model.objects.filter(name__in=bare).select_related("endpoint").order_by("version"):
        by_name.setdefault(row.name, []).append(row)
    found: dict[str, Model] = {}
    for text in sorted(names):
        model = _among(text, by_name)
        if model is None:
            known = list(Model.objects.in_use().values_list("name", flat=True))
            errors.say("arms", f"arms: model {as_typed(text)!r} {_not_here(text, by_name, known)}")
        else:
            found[text] = model
    return found


def _possible(text: str) -> set[str]:
    """Names that the text may mean: what looks like a version can belong to the name."""
    pinned_one = _PINNED.fullmatch(text)
    return {text, pinned_one[1]} if pinned_one else {text}


def _among(text: str, by_name: Mapping[str, list[Versioned]]) -> Versioned | None:
    pinned_one = _PINNED.fullmatch(text)
    if pinned_one:
        for row in by_name.get(pinned_one[1], []):
            if row.version == int(pinned_one[2]):
                return row
    rows = by_name.get(text)
    return rows[-1] if rows else None


def _not_here(text: str, by_name: Mapping[str, Sequence[HarnessVersion | Model]], known: list[str]) -> str:
    pinned_one = _PINNED.fullmatch(text)
    rows = by_name.get(pinned_one[1], []) if pinned_one else []
    if rows:
        return f"has no such version; it has {', '.join(str(row.version) for row in rows[-_NAMED:])}"
    return f"is not known; choose one of {_listed(known)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED]) or 'none, there is none yet'}{more}"


def _typed(limits: Mapping[str, LimitValue]) -> dict[str, str | None]:
    """Limits as a person would type them: what `runs.launch` takes."""
    return {
        name: None if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
        for name, value in limits.items()
    }


def _harness_name(made: ArmAsked | HarnessVersion) -> str:
    version = made.harness_version if isinstance(made, ArmAsked) else made
    return f"{version.harness.name}@{version.version}"


def _model_name(model: Model) -> str:
    return f"{model.name}@{model.version}"


def _arms_of(experiment: Experiment) -> list[Arm]:
    """In the order in which they were made."""
    return list(experiment.arms.select_related("harness_version__harness", "model__endpoint").order_by("pk"))


def _kept(experiment: Experiment) -> Plan | None:
    try:
        return checked(experiment.plan) if experiment.plan else None
    except FieldErrors:
        # Another version of the lab wrote it; the arms say what it was.
        return None


def _choice(arm: Arm, *, beside: Mapping[str, LimitValue] | None = None) -> ArmChoice:
    """The arm with limits of its own; `beside` are limits of the whole plan that must not reach it."""
    limits = _limits_of(arm)
    if beside:
        limits = {name: arm.limits.get(name) for name in beside} | limits
    return ArmChoice(harness=_harness_name(arm.harness_version), model=_model_name(arm.model), limits=limits)


def _arm_fields(arms: Sequence[Arm]) -> dict[str, Any]:
    """Arms as a product with common limits where they are one, else one by one."""
    choices = [_choice(arm) for arm in arms]
    harnesses = tuple(dict.fromkeys(choice.harness for choice in choices))
    models = tuple(dict.fromkeys(choice.model for choice in choices))
    pairs = [(choice.harness, choice.model) for choice in choices]
    alike = all(choice.limits == choices[0].limits for choice in choices)
    if alike and choices and pairs == [(harness, model) for harness in harnesses for model in models]:
        return {"harnesses": harnesses, "models": models, "limits": choices[0].limits}
    return {"arms": tuple(choices)} if choices else {}


def _limits_of(arm: Arm) -> dict[str, LimitValue]:
    """What was asked of the arm's limits: where they are not what its harness and model set."""
    config = harness_pages.readable_config(arm.harness_version)
    try:
        has = Limits.model_validate(arm.limits)
    except ValueError:
        return {}
    own = _own(config)
    plain = with_model(own, arm.model)
    asked: dict[str, LimitValue] = {}
    for name in Limits.model_fields:
        value, usual, harness = getattr(has, name), getattr(plain, name), getattr(own, name)
        if value == usual:
            continue
        wider = harness is not None and (value is None or value > harness)
        asked[name] = None if wider else value
    return asked


def _own(config: HarnessConfig | None) -> Limits:
    return config.limits if config is not None else Limits()


def _tasks_of(experiment: Experiment) -> TaskChoice:
    task_set = experiment.task_set
    if task_set is None:
        return TaskChoice(set="unknown")
    used = list(
        Task.objects.filter(runs__experiment=experiment).order_by("position").values_list("slug", flat=True)
    )
    slugs = tuple(dict.fromkeys(used))
    only = slugs if slugs and len(slugs) < task_set.tasks.count() else None
    return TaskChoice(set=task_set.name, version=task_set.version, digest=task_set.digest, only=only)
