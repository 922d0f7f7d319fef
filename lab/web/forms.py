"""Forms. They keep what was typed; what a value means is decided by the services."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from django import forms
from django.utils.text import Truncator

from lab.engine.limits import UNITS, as_typed
from lab.models import HarnessVersion, Model, Task, TaskSet
from lab.services import harness_pages, overview, preflights
from lab.services.endpoint_fields import looks_like_key
from lab.services.errors import FieldErrors

LIMIT_LABELS = {
    "max_steps": "Steps",
    "max_context_tokens": "Context",
    "max_tokens_per_turn": "Tokens a turn",
    "max_total_time_sec": "Time",
    "max_tokens_total": "Tokens in all",
    "max_cost_usd": "Cost of a run",
}
# Of a row's number: SQLite and PostgreSQL hold 64 bits.
MOST_DIGITS = 18
NOT_KNOWN = "“%(value)s” is not known any more; choose from the list"
# Every request carries a cap, or a model that never ends its turn would never be stopped.
NEVER_LIFTED = frozenset({"max_tokens_per_turn"})


# Only the type stubs know that the field is generic.
if TYPE_CHECKING:
    _ModelMultipleChoiceField = forms.ModelMultipleChoiceField[Any]
else:
    _ModelMultipleChoiceField = forms.ModelMultipleChoiceField


class RowsField(_ModelMultipleChoiceField):
    """Rows chosen by number; a number that no database can hold is an error of the field."""

    default_error_messages: ClassVar[dict[str, Any]] = {
        "invalid_choice": NOT_KNOWN,
        "invalid_pk_value": NOT_KNOWN.replace("(value)", "(pk)"),
    }

    def clean(self, value: Any) -> Any:
        for text in value if isinstance(value, list | tuple) else ():
            if len(str(text)) > MOST_DIGITS:
                shown = {"value": as_typed(str(text))}
                raise forms.ValidationError(NOT_KNOWN, code="invalid_choice", params=shown)
        return super().clean(value)


@dataclass(frozen=True)
class Choice:
    """One line of a list of choices on the launch form."""

    pk: int
    name: str
    note: str
    chosen: bool
    title: str = ""
    scripted: bool = False
    limits_json: str = "{}"
    forecast_json: str = "null"


@dataclass(frozen=True)
class LimitField:
    """One limit on the launch form: what was typed, what an empty field means, and what is wrong."""

    limit: str
    name: str
    label: str
    unit: str
    value: str
    placeholder: str
    none: bool
    can_be_lifted: bool
    errors: list[str]


def typed_amounts(fields: Mapping[str, str], names: Iterable[str]) -> dict[str, str | None]:
    """What was typed in the fields of these names, empty ones left out; None where "no limit" is ticked.

    Raises:
        FieldErrors: a number and "no limit" for the same name; every such name at once.
    """
    typed: dict[str, str | None] = {}
    errors = {}
    for name in names:
        text = fields.get(name, "").strip()
        if f"{name}_none" in fields:
            typed[name] = None
            if text:
                both = f"“{as_typed(text)}” and “no limit” are both given"
                errors[name] = f"{both}; write a number or tick no limit, not both"
        elif text:
            typed[name] = text
    if errors:
        raise FieldErrors(errors)
    return typed


def numbers_in(texts: Iterable[str]) -> list[int]:
    """Those of the texts that can be the number of a row, as numbers."""
    return [int(text) for text in texts if text.isdecimal() and len(text) <= MOST_DIGITS]


class FailingPreflight(NamedTuple):
    """What launching asks a person to confirm."""

    number: int
    model_id: int
    model: str
    titles: list[str]
    ticked: bool


class LaunchForm(forms.Form):
    """Tasks × one harness × models × seeds under limits."""

    idempotency_key = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    tasks = RowsField(queryset=Task.objects.none(), error_messages={"required": "choose at least one task"})
    harness_version = forms.ModelChoiceField(
        queryset=HarnessVersion.objects.none(),
        label="Harness",
        error_messages={
            "required": "choose a harness",
            "invalid_choice": "this harness is not known any more; choose one from the list",
        },
    )
    models = RowsField(
        queryset=Model.objects.none(), error_messages={"required": "choose at least one model"}
    )
    seeds = forms.CharField(required=False)
    # The numbers of failing preflights that were shown and are launched in spite of.
    despite = forms.CharField(label="Failing preflight", required=False)

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, task_set: TaskSet | None, harness: int = 0
    ) -> None:
        """`harness` is the number of a version to offer and choose, older than its harness's newest or not;
        of a form that was sent it is the one that was chosen there. A number of no such version is ignored.
        """
        super().__init__(data)
        wanted = harness if data is None else row_number(str(data.get("harness_version", "")))
        tasks = Task.objects.filter(task_set=task_set)
        self._tasks = list(tasks)
        self._versions = harness_pages.launchable(also=wanted)
        self._version = self._chosen_version(wanted)
        self._models = list(Model.objects.in_use())
        cast(RowsField, self.fields["tasks"]).queryset = tasks
        cast(
            "forms.ModelChoiceField[HarnessVersion]", self.fields["harness_version"]
        ).queryset = HarnessVersion.objects.filter(pk__in=[one.version.pk for one in self._versions])
        cast(RowsField, self.fields["models"]).queryset = Model.objects.in_use()
        for limit, label in LIMIT_LABELS.items():
            self.fields[f"limit_{limit}"] = forms.CharField(label=label, required=False)
            self.fields[f"limit_{limit}_none"] = forms.BooleanField(required=False)
        if data is None:
            self.initial["idempotency_key"] = uuid.uuid4().hex

    def _chosen_version(self, wanted: int) -> HarnessVersion | None:
        """The version of this number; where a page is opened without one, the first that is offered."""
        versions = [one.version for one in self._versions]
        first = versions[0] if versions and not self.is_bound else None
        return next((version for version in versions if version.pk == wanted), first)

    def _chosen(self, name: str, default: set[int]) -> set[str]:
        if not self.is_bound:
            return {str(pk) for pk in default}
        getlist = getattr(self.data, "getlist", None)
        values = getlist(name) if getlist else self.data.get(name, [])
        return {str(value) for value in values}

    @property
    def task_choices(self) -> list[Choice]:
        chosen = self._chosen("tasks", {self._tasks[0].pk} if self._tasks else set())
        return [
            Choice(
                pk=task.pk,
                name=task.slug,
                note=", ".join(filter(None, [task.difficulty, task.trait])),
                chosen=str(task.pk) in chosen,
                title=task.title,
            )
            for task in self._tasks
        ]

    @property
    def harness_choices(self) -> list[Choice]:
        return [
            Choice(
                pk=version.pk,
                name=str(version),
                note=f"older, {_tool_count(version)}" if older else _tool_count(version),
                chosen=version == self._version,
                limits_json=json.dumps(shown_limits(version.config)),
            )
            for version, older in self._versions
        ]

    @property
    def model_choices(self) -> list[Choice]:
        solver = {model.pk for model in self._models if model.name == "scripted/solver"}
        chosen = self._chosen("models", solver)
        forecasts = overview.forecasts()
        return [
            Choice(
                pk=model.pk,
                name=model.name,
                note=_what_it_is(model),
                chosen=str(model.pk) in chosen,
                scripted=model.scripted,
                forecast_json=json.dumps(forecasts[model.pk]._asdict() if model.pk in forecasts else None),
            )
            for model in self._models
        ]

    @property
    def limit_fields(self) -> list[LimitField]:
        shown = shown_limits(self._version.config) if self._version else {}
        return [
            LimitField(
                limit=limit,
                name=f"limit_{limit}",
                label=label,
                unit=UNITS[limit],
                value=str(self.data.get(f"limit_{limit}", "")),
                placeholder=shown.get(limit) or ("no limit" if self._version else ""),
                none=bool(self.data.get(f"limit_{limit}_none")),
                can_be_lifted=limit not in NEVER_LIFTED,
                errors=[str(error) for error in self.errors.get(f"limit_{limit}", [])],
            )
            for limit, label in LIMIT_LABELS.items()
        ]

    @property
    def limits_touched(self) -> bool:
        return any(field.value or field.none or field.errors for field in self.limit_fields) or bool(
            self.data.get("seeds")
        )

    def clean(self) -> None:
        super().clean()
        for limit in LIMIT_LABELS:
            typed = self.cleaned_data.get(f"limit_{limit}", "").strip()
            if typed and self.cleaned_data.get(f"limit_{limit}_none"):
                given = f"“{as_typed(typed)}” and “no limit” are both given"
                self.add_error(f"limit_{limit}", f"{given}; write a number or tick no limit, not both")

    @property
    def despite_numbers(self) -> list[int]:
        """The failing preflights whose box was ticked."""
        return numbers_in(self._chosen("despite", set()))

    @property
    def failing_preflights(self) -> list[FailingPreflight]:
        """Those of the chosen models, once launching has asked for a confirmation."""
        if not self.errors.get("despite"):
            return []
        chosen = [model for model in self._models if str(model.pk) in self._chosen("models", set())]
        return [
            FailingPreflight(
                found.pk,
                found.model_id,
                found.model.name,
                preflights.failing_titles(found),
                found.pk in self.despite_numbers,
            )
            for found in preflights.failing(chosen)
        ]

    def limits_as_typed(self) -> dict[str, str | None]:
        """What was typed for each limit: "" keeps the harness's, None is "no limit"."""
        return {
            limit: None
            if self.cleaned_data.get(f"limit_{limit}_none")
            else self.cleaned_data.get(f"limit_{limit}", "").strip()
            for limit in LIMIT_LABELS
        }

    def take_errors(self, errors: Mapping[str, str]) -> None:
        """Put a service's errors beside the fields they name; the rest stands on top."""
        renamed = {"harness": "harness_version"}
        for name, text in errors.items():
            known = (renamed.get(name, name), f"limit_{name}")
            field = next((candidate for candidate in known if candidate in self.fields), None)
            self.add_error(field, beside_its_field(name, text) if field else text)


def row_number(text: str) -> int:
    """A row's number, 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else 0


def without_pasted_key(form: forms.Form) -> None:
    """Let the page not repeat a key that was pasted where the name of its variable belongs."""
    if looks_like_key(str(form.data.get("key_variable", ""))):
        form.data = {**{name: form.data.get(name) for name in form.data}, "key_variable": ""}


def beside_its_field(name: str, text: str) -> str:
    """An error's text where the field's label stands above it already: value, reason and way out."""
    plain = text.removeprefix(f"{name}: ")
    # What holds an apostrophe was quoted with the other sign.
    return re.sub(r"""^(?:'([^']*)'|"([^"]*)")""", r"“\1\2”", plain)


def _tool_count(version: HarnessVersion) -> str:
    count = len(version.config["tools"])
    return f"{count} tool{'' if count == 1 else 's'}"


def _what_it_is(model: Model) -> str:
    return "scripted, no intelligence" if model.scripted else Truncator(model.endpoint.name).chars(28)


def shown_limits(config: Mapping[str, Any], names: Iterable[str] = LIMIT_LABELS) -> dict[str, str]:
    """The limits a harness sets, as numbers are written; one that it does not set is left out."""
    limits = config["limits"]
    return {name: f"{float(limits[name]):,.10g}" for name in names if limits.get(name) is not None}


class EndpointForm(forms.Form):
    """A model behind any OpenAI-compatible server. The key itself is never typed here."""

    base_url = forms.CharField(
        label="Base URL",
        error_messages={"required": "write the address of the server, usually it ends in /v1"},
    )
    model_id = forms.CharField(
        label="Model id", error_messages={"required": "write the id the server knows the model by"}
    )
    key_variable = forms.CharField(label="Variable that holds the key", required=False)
    context_window = forms.CharField(label="Context window", required=False)
    name = forms.CharField(label="Name in the lab", required=False)
    # The name whose model is to be replaced, so that a tick holds for the name it stood beside.
    replace = forms.CharField(required=False)

    def clean(self) -> None:
        without_pasted_key(self)

    @property
    def replaceable(self) -> str:
        """The name beside the tick, "" while nothing would be replaced."""
        if self.errors.get("replace"):
            return str(self.data.get("name", "").strip() or self.data.get("model_id", "").strip())
        return str(self.data.get("replace", ""))

    def take_errors(self, errors: Mapping[str, str]) -> None:
        for name, text in errors.items():
            shown = name in self.fields
            self.add_error(name if shown else None, beside_its_field(name, text) if shown else text)
