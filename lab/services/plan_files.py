"""The plan of an experiment: what it holds, read from outside with every mistake named, written as YAML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.yaml_reading import plain_yaml
from lab.engine.limits import LARGEST, SMALLEST, UNITS, as_typed, is_amount, parse_limit, without_grouping
from lab.services.errors import FieldErrorCollector, FieldErrors

LARGEST_PLAN = 1_000_000
MAX_SEEDS = 100
MOST_ATTEMPTS = 10
# Runs of one experiment that go on together: no lab has more places.
MOST_AT_ONCE = 1000
DEFAULT_ATTEMPTS = 3
_MOST_TASKS, _MOST_ARMS = 10_000, 100


def _whole(value: Any) -> int:
    """A whole number, also as people type it. Raises: ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("is out of range")
        return value
    text = without_grouping(value) if isinstance(value, str) else ""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise ValueError("is no whole number")
    if digits != text or len(digits) > 15:
        raise ValueError("is out of range")
    return int(text)


def _amount(value: Any) -> Decimal:
    """A positive number, also as people type it. Raises: ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("is no number")
    try:
        number = Decimal(without_grouping(str(value)))
    except InvalidOperation:
        raise ValueError("is no number") from None
    if not number.is_finite() or number <= 0:
        raise ValueError("is no positive number")
    if number > LARGEST:
        raise ValueError("is more than any experiment can use")
    if not is_amount(number):
        raise ValueError(f"is less than {SMALLEST}, or has more digits than are kept")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    if "\0" in value:
        raise ValueError("holds a NUL character, which cannot be stored")
    return value


def _hours(value: Any) -> float:
    return float(_amount(value))


Text = Annotated[str, BeforeValidator(_text), Field(max_length=200)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=LARGEST)]
LimitValue = int | float | Decimal | None


class _Part(BaseModel):
    """The description of each field is the way out that its errors name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Sample(_Part):
    """Some tasks of a set, chosen by chance: the same number and seed choose the same ones."""

    number: Count = Field(description="write how many tasks to choose, such as 50")
    seed: Annotated[int, BeforeValidator(_whole), Field(ge=0, le=LARGEST)] = Field(
        default=0, description="write a whole number; another one chooses other tasks"
    )


class TaskChoice(_Part):
    """A task set, and which of its tasks: all, `only` some by name, or a sample.

    `digest` pins the content of the set; without it the version that was read last is taken.
    """

    set: Text = Field(description="write the name of a task set of this lab")
    version: Text = Field(default="", description="write the set's version in quotes, or leave it out")
    digest: Text = Field(default="", description="leave it out, or copy it from an exported plan")
    only: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MOST_TASKS)] | None = Field(
        default=None, description="write a list of the names of tasks, or leave it out for all of them"
    )
    sample: Sample | None = Field(
        default=None, description="write number and seed, as in {number: 50, seed: 1}, or leave it out"
    )

    @model_validator(mode="after")
    def _one_choice(self) -> TaskChoice:
        if self.only is not None and self.sample is not None:
            raise ValueError("only and sample are both given; keep one of them")
        return self


class ArmChoice(_Part):
    """One arm: a harness version and a model, each as name@version or as a name for its newest version.

    `limits` of its own stand in the place of the plan's.
    """

    harness: Text = Field(
        description="write the name of a harness, as in leaf-compatible or leaf-compatible@2"
    )
    model: Text = Field(description="write the name of a model, as in scripted/solver or scripted/solver@1")
    limits: dict[str, LimitValue] = Field(
        default_factory=dict, description="write limits as a mapping, as in {max_steps: 50}"
    )


class Budgets(_Part):
    """What all runs together may use; None is "no budget"."""

    max_cost_usd: Annotated[Decimal, BeforeValidator(_amount)] | None = Field(
        default=None, description="write a number of dollars such as 25, or leave it out"
    )
    max_tokens: Count | None = Field(
        default=None, description="write a whole number of tokens such as 50000000, or leave it out"
    )
    max_hours: Annotated[float, BeforeValidator(_hours)] | None = Field(
        default=None, description="write a number of hours such as 12, or leave it out"
    )


_Seed = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_SEEDS)]


def _seed_list(value: Any) -> tuple[Any, ...]:
    """A number is so many repeats, counted from 1."""
    if isinstance(value, list | tuple):
        return tuple(value)
    number = _whole(value)
    if not 1 <= number <= MAX_SEEDS:
        raise ValueError(f"is not from 1 to {MAX_SEEDS}")
    return tuple(range(1, number + 1))


class Plan(_Part):
    """What an experiment is made of. Arms are all `harnesses` with all `models`, or the pairs in `arms`.

    `seeds` are repeat numbers; a file may say 3 for [1, 2, 3]. A limit that is not named is the harness's,
    None is "no limit". `despite` holds numbers of failing preflights that somebody went on in spite of.
    """

    name: Text = Field(default="", description="write a short text")
    tasks: TaskChoice = Field(description="write the task set, as in tasks: {set: practice}")
    harnesses: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MOST_ARMS)] | None = Field(
        default=None, description="write a list of harnesses, as in [leaf-compatible, mini@1]"
    )
    models: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MOST_ARMS)] | None = Field(
        default=None, description="write a list of models, as in [scripted/solver]"
    )
    arms: Annotated[tuple[ArmChoice, ...], Field(min_length=1, max_length=_MOST_ARMS)] | None = Field(
        default=None, description="write a list of pairs, as in [{harness: mini, model: scripted/solver}]"
    )
    seeds: Annotated[
        tuple[_Seed, ...], BeforeValidator(_seed_list), Field(min_length=1, max_length=MAX_SEEDS)
    ] = Field(
        default=(1,),
        description=f"write how often each task is run, 1 to {MAX_SEEDS}, or a list as in [2, 3]",
    )
    limits: dict[str, LimitValue] = Field(
        default_factory=dict, description="write limits as a mapping, as in {max_steps: 50}"
    )
    budgets: Budgets = Field(
        default=Budgets(), description="write budgets as a mapping, as in {max_cost_usd: 25}"
    )
    concurrency: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_AT_ONCE)] | None = Field(
        default=None,
        description=f"write how many runs may go on at once, 1 to {MOST_AT_ONCE:,}, or leave it out",
    )
    max_attempts: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MOST_ATTEMPTS)] = Field(
        default=DEFAULT_ATTEMPTS,
        description=f"write how many attempts a run may have that infrastructure ends, 1 to {MOST_ATTEMPTS}",
    )
    despite: tuple[Count, ...] = Field(
        default=(), description="write a list of the numbers of failing preflights"
    )

    @property
    def pairs(self) -> list[ArmChoice]:
        """The arms one by one, in order."""
        if self.arms is not None:
            return list(self.arms)
        return [
            ArmChoice(harness=harness, model=model)
            for harness in self.harnesses or ()
            for model in self.models or ()
        ]

    def as_data(self) -> dict[str, Any]:
        """The plan as plain data, fields in their order and those at their defaults left out.

        `checked` makes an equal plan of it.
        """
        data: dict[str, Any] = _plain(self.model_dump(exclude_defaults=True))
        if self.seeds == tuple(range(1, len(self.seeds) + 1)):
            data["seeds"] = len(self.seeds)
        return {name: data[name] for name in type(self).model_fields if name in data}


def read(text: str) -> Plan:
    """The plan that a YAML text describes.

    Raises:
        FieldErrors: field -> text with value and way out; "yaml" where it is no YAML, or too much of it.
    """
    errors = FieldErrorCollector()
    data: Any = None
    if len(text) > LARGEST_PLAN:
        errors.say(
            "yaml",
            f"yaml: the plan has {len(text):,} characters; at most {LARGEST_PLAN:,} are read, shorten it",
        )
    else:
        try:
            data = plain_yaml(text)
        except InvalidValueError as error:
            errors.say("yaml", f"yaml: {error}")
    errors.raise_if_any()
    if not isinstance(data, dict):
        what = "it is empty" if data is None else f"“{as_typed(str(data))}” is no mapping"
        errors.say("yaml", f"yaml: {what}; write at least tasks, harnesses and models")
    errors.raise_if_any()
    return checked(data)


def checked(raw: Mapping[str, Any]) -> Plan:
    """The plan in plain data, such as a form or a file gives it.

    Raises:
        FieldErrors: field -> text. A limit's field is its name, a budget's "budget_" and its name, a sample's
            "sample_number" and "sample_seed".
    """
    errors = FieldErrorCollector()
    data = dict(raw)
    if isinstance(data.get("limits"), Mapping):
        data["limits"] = _limits(data["limits"], "limits", errors)
    if isinstance(data.get("arms"), list | tuple):
        data["arms"] = [_with_limits(arm, index, errors) for index, arm in enumerate(data["arms"], start=1)]
    _look_at_arms(data, errors)
    try:
        plan = Plan.model_validate(data)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            errors.say(_field(found), _said(found))
        raise FieldErrors(errors.errors) from None
    errors.raise_if_any()
    _look_at_pairs(plan, errors)
    if len(set(plan.seeds)) < len(plan.seeds):
        errors.say("seeds", f"seeds: {list(plan.seeds)} names one twice; write each once")
    errors.raise_if_any()
    return plan


def arm_data(arm: ArmChoice) -> dict[str, Any]:
    """One arm as plain data, as it stands in `Plan.as_data`."""
    data: dict[str, Any] = _plain(arm.model_dump(exclude_defaults=True))
    return data


def dump(plan: Plan, *, notes: tuple[str, ...] = ()) -> str:
    """The plan as YAML under a heading; `notes` are lines of comment below it. `read` gives an equal plan."""
    heading = (
        "A plan of Trajectory Lab: `manage.py launch FILE` or the page New experiment runs it.",
        *notes,
    )
    lines = [f"# {line}" for note in heading for line in note.splitlines()]
    body: str = yaml.dump(
        plan.as_data(),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
    return "\n".join(lines) + "\n" + body


class _Dumper(yaml.SafeDumper):
    """Lists of their own lines, plain decimals, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def represent_decimals(self, data: float) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:float", format(Decimal(repr(data)), "f"))


_Dumper.add_representer(float, _Dumper.represent_decimals)


def _look_at_arms(data: Mapping[str, Any], errors: FieldErrorCollector) -> None:
    """Arms are given in one of two ways, and whole."""
    product = [name for name in ("harnesses", "models") if data.get(name) is not None]
    if data.get("arms") is not None and product:
        errors.say("arms", f"arms: {' and '.join(product)} are given too; keep arms, or harnesses and models")
    elif data.get("arms") is None and len(product) < 2:
        missing = " and ".join(name for name in ("harnesses", "models") if name not in product)
        errors.say("arms", f"arms: {missing} are missing; write harnesses and models, or arms with both")


def _look_at_pairs(plan: Plan, errors: FieldErrorCollector) -> None:
    """Before they are made: two lists of names multiply."""
    for field, names in (("harnesses", plan.harnesses or ()), ("models", plan.models or ())):
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            errors.say(field, f"{field}: {as_typed(twice)!r} is named twice; write each once")
    number = len(plan.harnesses or ()) * len(plan.models or ())
    if number > _MOST_ARMS:
        errors.say("arms", f"arms: {number:,} are too many; choose at most {_MOST_ARMS} pairs")


def _with_limits(arm: Any, number: int, errors: FieldErrorCollector) -> Any:
    if isinstance(arm, Mapping) and isinstance(arm.get("limits"), Mapping):
        return {**arm, "limits": _limits(arm["limits"], f"arms[{number}].limits", errors)}
    return arm


def _limits(raw: Mapping[Any, Any], place: str, errors: FieldErrorCollector) -> dict[str, LimitValue]:
    """Limits as numbers; each mistake is an error of the limit's name, with its place."""
    read_ones: dict[str, LimitValue] = {}
    for name, value in raw.items():
        if name not in UNITS:
            reason = f"is no limit; known are {', '.join(UNITS)}"
            errors.add(InvalidValueError(place, as_typed(str(name)), reason), field=str(name))
        elif value is None and name == "max_tokens_per_turn":
            reason = "cannot be: a turn that never ends would be paid for ever; write a number"
            errors.add(InvalidValueError(f"{place}.{name}", "no limit", reason), field=name)
        elif value is None:
            read_ones[name] = None
        else:
            try:
                read_ones[name] = parse_limit(name, "yes" if value is True else str(value))
            except InvalidValueError as error:
                located = InvalidValueError(f"{place}.{name}", error.value, error.reason)
                errors.add(located, field=name)
    return read_ones


def _field(found: ErrorDetails) -> str:
    place = found["loc"]
    if len(place) > 1 and place[0] == "budgets" and place[1] in Budgets.model_fields:
        return f"budget_{place[1]}"
    if place[:2] == ("tasks", "sample") and len(place) > 2:
        return f"sample_{place[2]}"
    return str(place[0]) if place else "yaml"


def _said(found: ErrorDetails) -> str:
    """The error in words: place, value, reason, way out."""
    place = [part for part in found["loc"] if part not in _INNER]
    name = "".join(_steps(place)) or "yaml"
    kind, value = found["type"], found["input"]
    parent, hint = _found_at(place)
    if kind == "missing":
        return f"{name}: it is missing; {hint}"
    if kind == "extra_forbidden":
        known = ", ".join(parent.model_fields)
        return f"{name}: {as_typed(str(place[-1]))!r} is no field here; known are {known}"
    shown = "it" if isinstance(value, Mapping | list | tuple) else repr(as_typed(str(value)))
    if kind == "too_long" and isinstance(value, str):
        most = found["ctx"]["max_length"]
        return (
            f"{name}: {shown} is too long: {len(value):,} characters, and at most {most:,} are kept; {hint}"
        )
    if kind == "value_error":
        said = str(found["ctx"]["error"]) if "ctx" in found else found["msg"]
        return f"{name}: {said}" if ";" in said else f"{name}: {shown} {said}; {hint}"
    return f"{name}: {shown} {_REASONS.get(kind, 'does not fit')}; {hint}"


_INNER = frozenset({"constrained-int", "constrained-str"})
_REASONS = {
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
    "string_too_long": "is too long",
    "too_short": "is empty",
    "too_long": "has too many entries",
    "tuple_type": "is no list",
    "dict_type": "is no mapping",
    "model_type": "is no mapping",
}


def _steps(place: list[int | str]) -> Iterator[str]:
    for index, part in enumerate(place):
        yield f"[{part + 1}]" if isinstance(part, int) else f"{'.' if index else ''}{as_typed(part)}"


def _found_at(place: list[int | str]) -> tuple[type[BaseModel], str]:
    """The part that holds the field of an error, and the way out of the field."""
    parent: type[BaseModel] = Plan
    hint = "see `manage.py launch --help`"
    for part in place:
        if isinstance(part, int):
            continue
        field = parent.model_fields.get(part)
        if field is None:
            break
        hint = field.description or hint
        inner = _PARTS.get((parent, part))
        if inner is None or part == place[-1]:
            break
        parent = inner
    return parent, hint


_PARTS: dict[tuple[type[BaseModel], str], type[BaseModel]] = {
    (Plan, "tasks"): TaskChoice,
    (Plan, "arms"): ArmChoice,
    (Plan, "budgets"): Budgets,
    (TaskChoice, "sample"): Sample,
}


def _plain(value: Any) -> Any:
    """Lists, mappings, texts and numbers; a fraction that a float does not hold exactly stays text."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Decimal):
        number = float(value)
        if value == value.to_integral_value():
            return int(value)
        return number if math.isfinite(number) and Decimal(repr(number)) == value else str(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
