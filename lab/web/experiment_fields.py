"""The form of a new experiment: keeps whatever was typed, and makes the data of a plan of it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.http import QueryDict

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS, as_typed
from lab.models import HarnessVersion, Model, TaskSet
from lab.services import experiment_plans, harness_pages, preflights, tasks
from lab.services.endpoints import price_is_known
from lab.services.experiment_plans import Plan
from lab.web.forms import (
    LIMIT_LABELS,
    NEVER_LIFTED,
    FailingPreflight,
    LimitField,
    beside_its_field,
    numbers_in,
    row_number,
    shown_limits,
)

LIMITS = {**LIMIT_LABELS, "max_format_errors": "Malformed replies"}
ALL, TICKED, SAMPLE = "all", "ticked", "sample"
BUDGETS = {
    "max_cost_usd": ("Cost", "dollars", "no budget"),
    "max_tokens": ("Tokens", "tokens", "no budget"),
    "max_hours": ("Time", "hours", "no budget"),
}
# Errors of a plan's fields that this form shows at another of its own.
_SHOWN_AT = {
    **{"harness": "arms", "harnesses": "arms", "models": "arms", "only": "tasks"},
    **{"task_set": "tasks", "selection": "tasks"},
}
# What a form sends once for each tick; everything else comes once.
_REPEATED = frozenset(("pair", "task", "own_arm", "own_arm_offered", "despite"))
_OWN = frozenset(
    ("name", "tasks", "sample_number", "sample_seed", "arms", "seeds", "concurrency", "max_attempts")
) | {f"budget_{name}" for name in BUDGETS}


class TextField(NamedTuple):
    """One typed field: its name in the form, what was typed, and what is wrong."""

    name: str
    label: str
    value: str
    unit: str
    placeholder: str
    error: str


class TaskTick(NamedTuple):
    slug: str
    title: str
    note: str
    ticked: bool


class PairTick(NamedTuple):
    """A cell of the table of arms."""

    value: str
    ticked: bool
    label: str


class ModelRow(NamedTuple):
    """A row of the table of arms; `note` says what it is or what is wrong with it."""

    model: Model
    name: str
    note: str
    cells: list[PairTick]


class OwnArm(NamedTuple):
    """An arm with limits of its own, such as a file can name; the form keeps or drops it whole."""

    value: str
    words: str
    kept: bool


class ExperimentForm:
    """What was typed, and what is wrong with it: `errors` maps names of fields to texts, "" to the rest."""

    def __init__(self, data: QueryDict) -> None:
        self.data = data
        self.errors: dict[str, str] = {}
        number = row_number(data.get("task_set", ""))
        self.task_set = tasks.launchable_set(number) if number else None
        if self.task_set is not None and self.task_set.pk != number:
            self.task_set = None
        pairs = [one.partition(":") for one in data.getlist("pair")]
        self._pairs = {(row_number(left), row_number(right)) for left, _, right in pairs}
        self.versions = _versions({version for version, _ in self._pairs})
        self.models = _models({model for _, model in self._pairs})
        here = {f"{version.pk}:{model.pk}" for version in self.versions for model in self.models}
        self._unknown_pairs = [text for text in data.getlist("pair") if text not in here]

    def text(self, name: str) -> str:
        return self.data.get(name, "").strip()

    @property
    def key(self) -> str:
        return self.text("idempotency_key")[:64] or uuid.uuid4().hex

    @property
    def selection(self) -> str:
        chosen = self.text("selection")
        return chosen if chosen in (TICKED, SAMPLE) else ALL

    @property
    def cloned_from(self) -> int:
        return row_number(self.data.get("cloned_from", ""))

    @property
    def despite(self) -> list[int]:
        return numbers_in(self.data.getlist("despite"))

    # ---- what stands in the form ---------------------------------------------------------------------------

    @property
    def task_sets(self) -> list[TaskSet]:
        """The newest version of each set, and the one that is chosen."""
        newest = tasks.newest_sets()
        chosen = self.task_set
        return newest if chosen is None or chosen in newest else [chosen, *newest]

    @property
    def task_ticks(self) -> list[TaskTick]:
        if self.task_set is None:
            return []
        ticked = set(self.data.getlist("task"))
        rows = self.task_set.tasks.order_by("position").values_list("slug", "title", "difficulty", "trait")
        return [
            TaskTick(slug, title, ", ".join(filter(None, (difficulty, trait))), slug in ticked)
            for slug, title, difficulty, trait in rows
        ]

    @property
    def rows(self) -> list[ModelRow]:
        newest = {model.pk for model in Model.objects.in_use()}
        return [
            ModelRow(
                model, model.name, _note(model, newest), [self._cell(one, model) for one in self.versions]
            )
            for model in self.models
        ]

    def _cell(self, version: HarnessVersion, model: Model) -> PairTick:
        ticked = (version.pk, model.pk) in self._pairs
        return PairTick(f"{version.pk}:{model.pk}", ticked, f"{version} with {model.name}")

    @property
    def own_arms(self) -> list[OwnArm]:
        kept = set(self.data.getlist("own_arm"))
        offered = dict.fromkeys([*self.data.getlist("own_arm_offered"), *self.data.getlist("own_arm")])
        return [OwnArm(text, _own_words(text), text in kept) for text in offered]

    def field(self, name: str, label: str, unit: str = "", placeholder: str = "") -> TextField:
        return TextField(name, label, self.data.get(name, ""), unit, placeholder, self.errors.get(name, ""))

    @property
    def name_field(self) -> TextField:
        return self.field("name", "Name", placeholder="the experiment's number")

    @property
    def sample_fields(self) -> list[TextField]:
        count = self.task_set.tasks.count() if self.task_set else 0
        return [
            self.field("sample_number", "Number", f"of {count}"),
            self.field("sample_seed", "Seed of the choice", placeholder="0"),
        ]

    @property
    def whole_fields(self) -> list[TextField]:
        """What holds for each task, and for the queue."""
        return [
            self.field("seeds", "Seeds", "repeats", "1, or a list: 3 4"),
            self.field("concurrency", "At once", "runs", "the lab's slots"),
            self.field("max_attempts", "Attempts", "a run", "3"),
        ]

    @property
    def budget_fields(self) -> list[TextField]:
        return [
            self.field(f"budget_{name}", label, unit, placeholder)
            for name, (label, unit, placeholder) in BUDGETS.items()
        ]

    @property
    def limit_fields(self) -> list[LimitField]:
        chosen = {version for version, _ in self._pairs}
        shown = [
            shown_limits(version.config)
            for version in self.versions
            if version.pk in chosen or (not chosen and not version.source)
        ]
        fields = []
        for limit, label in LIMITS.items():
            own = list(dict.fromkeys(one.get(limit, "no limit") for one in shown))
            error = self.errors.get(f"limit_{limit}")
            fields.append(
                LimitField(
                    limit=limit,
                    name=f"limit_{limit}",
                    label=label,
                    unit=UNITS[limit],
                    value=self.data.get(f"limit_{limit}", ""),
                    placeholder=own[0] if len(own) == 1 else "each its own",
                    none=bool(self.data.get(f"limit_{limit}_none")),
                    can_be_lifted=limit not in NEVER_LIFTED,
                    errors=[error] if error else [],
                )
            )
        return fields

    @property
    def failing(self) -> list[FailingPreflight]:
        """Failing preflights of the chosen models, once launching has asked for a confirmation."""
        if "despite" not in self.errors:
            return []
        chosen = {model for _, model in self._pairs}
        found = preflights.failing([model for model in self.models if model.pk in chosen])
        return [
            FailingPreflight(
                one.pk, one.model_id, one.model.name, preflights.failing_titles(one), one.pk in self.despite
            )
            for one in found
        ]

    # ---- the plan it means ---------------------------------------------------------------------------------

    def raw(self) -> dict[str, Any]:
        """The data of a plan; what this form alone can know is wrong is in `errors` afterwards."""
        self._look_for_doubled()
        data: dict[str, Any] = {"name": self.text("name"), "tasks": self._tasks(), **self._arms()}
        if self.text("seeds"):
            parts = re.split(r"[\s,;]+", self.text("seeds"))
            data["seeds"] = parts if len(parts) > 1 else parts[0]
        data["limits"] = self._limits()
        typed = {name: self.text(f"budget_{name}") for name in BUDGETS}
        data["budgets"] = {name: text for name, text in typed.items() if text}
        for name in ("concurrency", "max_attempts"):
            if self.text(name):
                data[name] = self.text(name)
        return data

    def plan(self) -> Plan:
        """The plan that the form means.

        Raises:
            FieldErrors: as `experiment_plans.checked`; what the form itself found stands in `errors`.
        """
        return experiment_plans.checked(self.raw())

    def _look_for_doubled(self) -> None:
        """A field that holds one value and came twice says nothing: neither is taken."""
        for name, values in self.data.lists():
            if len(values) < 2 or name in _REPEATED:
                continue
            field = name.removesuffix("_none") if name.startswith("limit_") else _SHOWN_AT.get(name, name)
            given = " and ".join(f"“{as_typed(value)}”" for value in values[:2])
            known = field in _OWN or field.removeprefix("limit_") in LIMITS
            where = "" if known else f"{as_typed(name)}: "
            self.errors.setdefault(
                field if known else "", f"{where}{given} are both given; send the field once"
            )

    def _tasks(self) -> dict[str, Any]:
        asked = self.text("selection")
        if asked not in ("", ALL, TICKED, SAMPLE):
            ways = f"{ALL}, {SAMPLE} or {TICKED}"
            self.errors.setdefault("tasks", f"selection “{as_typed(asked)}” is not known; choose {ways}")
        if self.task_set is None:
            self.errors["tasks"] = "no task set is chosen; choose one"
            return {"set": ""}
        pinned = {"set": self.task_set.name, "version": self.task_set.version, "digest": self.task_set.digest}
        if self.selection == TICKED:
            if not self.data.getlist("task"):
                self.errors["tasks"] = "no task is ticked; tick at least one, or choose all tasks"
                return pinned
            return {**pinned, "only": self.data.getlist("task")}
        if self.selection == SAMPLE:
            seed = {"seed": self.text("sample_seed")} if self.text("sample_seed") else {}
            return {**pinned, "sample": {"number": self.text("sample_number"), **seed}}
        return pinned

    def _arms(self) -> dict[str, Any]:
        """Harnesses and models where every pair of them is ticked, else the pairs one by one."""
        ticked = [
            (version, model)
            for version in self.versions
            for model in self.models
            if (version.pk, model.pk) in self._pairs
        ]
        own = [arm for text in self.data.getlist("own_arm") if (arm := _own_arm(text))]
        names = [(f"{one.harness.name}@{one.version}", f"{two.name}@{two.version}") for one, two in ticked]
        harnesses = list(dict.fromkeys(harness for harness, _ in names))
        models = list(dict.fromkeys(model for _, model in names))
        if self._unknown_pairs:
            which = f"“{as_typed(self._unknown_pairs[0])}” is no pair of a harness and a model of this lab"
            self.errors.setdefault("arms", f"{which}; leave it out and tick pairs of the table")
        elif not names and not own:
            self.errors["arms"] = "nothing is ticked; tick at least one pair of harness and model"
        if not own and names and len(names) == len(harnesses) * len(models):
            return {"harnesses": harnesses, "models": models}
        return {"arms": [*({"harness": one, "model": two} for one, two in names), *own]}

    def _limits(self) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        for name in LIMITS:
            typed, none = self.text(f"limit_{name}"), bool(self.data.get(f"limit_{name}_none"))
            if typed and none:
                given = f"“{as_typed(typed)}” and “no limit” are both given"
                self.errors[f"limit_{name}"] = f"{given}; write a number or tick no limit, not both"
            elif none:
                limits[name] = None
            elif typed:
                limits[name] = typed
        return limits

    def take_errors(self, errors: Mapping[str, str]) -> None:
        """Put a plan's errors beside the fields they name; the rest stands on top."""
        for name, text in errors.items():
            field = _SHOWN_AT.get(name, name)
            if f"limit_{name}" in (f"limit_{limit}" for limit in LIMITS):
                field = f"limit_{name}"
            elif field not in _OWN and field not in ("despite", "isolation"):
                field = ""
            plain = re.sub(r"^[\w.\[\]]+: ", "", text)
            self.errors.setdefault(field, beside_its_field("", plain))

    @property
    def listed_errors(self) -> list[tuple[str, str, str]]:
        """(id of the field, its label, text), in the order of the form."""
        labels = {"": "", "tasks": "Tasks", "arms": "Arms", "isolation": "Isolation", "name": "Name"}
        labels |= {"despite": "Failing preflight"}
        for field in (*self.sample_fields, *self.whole_fields, *self.budget_fields):
            labels[field.name] = field.label
        labels |= {f"limit_{name}": label for name, label in LIMITS.items()}
        return [
            (f"id_{name}" if name else "", label, self.errors[name])
            for name, label in labels.items()
            if name in self.errors
        ]


def empty(task_set: TaskSet | None) -> QueryDict:
    """The data of a form that nobody has filled in yet."""
    data = QueryDict(mutable=True)
    data["idempotency_key"] = uuid.uuid4().hex
    data["selection"] = ALL
    if task_set is not None:
        data["task_set"] = str(task_set.pk)
    return data


def data_of(plan: Plan) -> QueryDict:
    """The data of a form that means this plan, as far as this lab knows what it names."""
    task_set = experiment_plans.known_task_set(plan)
    data = empty(task_set)
    data["name"] = plan.name
    if plan.tasks.only is not None:
        data["selection"] = TICKED
        data.setlist("task", list(plan.tasks.only))
    if plan.tasks.sample is not None:
        data["selection"] = SAMPLE
        data["sample_number"] = str(plan.tasks.sample.number)
        data["sample_seed"] = str(plan.tasks.sample.seed)
    data["seeds"] = _seeds_text(plan.seeds)
    _write_limits(data, plan)
    if plan.concurrency is not None:
        data["concurrency"] = str(plan.concurrency)
    if plan.max_attempts != experiment_plans.DEFAULT_ATTEMPTS:
        data["max_attempts"] = str(plan.max_attempts)
    for arm in experiment_plans.known_arms(plan):
        if arm.choice.limits:
            data.appendlist("own_arm", json.dumps(experiment_plans.arm_data(arm.choice)))
        elif arm.harness_version is not None and arm.model is not None:
            data.appendlist("pair", f"{arm.harness_version.pk}:{arm.model.pk}")
    return data


def _write_limits(data: QueryDict, plan: Plan) -> None:
    for name, value in plan.limits.items():
        if value is None:
            data[f"limit_{name}_none"] = "on"
        else:
            data[f"limit_{name}"] = _number(value)
    for name in BUDGETS:
        if (amount := getattr(plan.budgets, name)) is not None:
            data[f"budget_{name}"] = _number(amount)


def _seeds_text(seeds: tuple[int, ...]) -> str:
    counted = seeds == tuple(range(1, len(seeds) + 1))
    return str(len(seeds)) if counted else ", ".join(map(str, seeds))


def _number(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _versions(also: set[int]) -> list[HarnessVersion]:
    """What can be launched, and older versions that are ticked, beside the newest of their harness."""
    newest = [one.version for one in harness_pages.launchable()]
    older = HarnessVersion.objects.filter(pk__in=also - {version.pk for version in newest})
    found = [*newest, *older.select_related("harness")]
    order = {harness: index for index, harness in enumerate(dict.fromkeys(one.harness_id for one in found))}
    return sorted(found, key=lambda version: (order[version.harness_id], -version.version))


def _models(also: set[int]) -> list[Model]:
    """Models in use, and ticked ones that are not any more or are older versions."""
    newest = list(Model.objects.in_use())
    older = Model.objects.filter(pk__in=also - {model.pk for model in newest}).select_related("endpoint")
    return [*newest, *older.order_by("name", "-version")]


def _note(model: Model, newest: set[int]) -> str:
    if model.retired or model.endpoint.retired:
        return "retired"
    if model.scripted:
        return "scripted, no intelligence"
    older = f"older, v{model.version}" if model.pk not in newest else ""
    price = "" if price_is_known(model) else "price unknown"
    return ", ".join(filter(None, [as_typed(model.endpoint.name), older, price]))


def _own_arm(text: str) -> dict[str, Any] | None:
    try:
        arm = json.loads(text)
    except ValueError:
        return None
    return arm if isinstance(arm, dict) else None


def _own_words(text: str) -> str:
    arm = _own_arm(text) or {}
    limits = arm.get("limits") if isinstance(arm.get("limits"), dict) else {}
    said = ", ".join(
        f"{LIMITS.get(name, name).lower()} {'no limit' if value is None else value}"
        for name, value in (limits or {}).items()
    )
    return f"{arm.get('harness', '?')} with {arm.get('model', '?')}: {said}"


def own_limits(version: HarnessVersion) -> dict[str, Any]:
    """The limits that a harness version sets itself."""
    return HarnessConfig.model_validate(version.config).limits.model_dump()
