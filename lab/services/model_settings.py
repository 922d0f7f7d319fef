"""Settings of models and endpoints: changed by admins, and never under a run that used them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed
from lab.models import Arm, Model, Preflight, Role
from lab.services import endpoint_fields as fields
from lab.services import meanwhile
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.locks import one_at_a_time

# What a person may choose; scripted and replay are the lab's own.
BASES = ("table", "card", "gpu_hours", "reference", "unknown")
COPIED = (
    *("endpoint", "name", "model_id", "context_window", "max_tokens_per_turn", "sampling", "extra_body"),
    *("price_basis", "price_provider", "price_model", "retired"),
)


@for_role(Role.ADMIN)
def change(*, by: User, model: Model, typed: Mapping[str, str], seen: str = "") -> Model:
    """Other settings for a model: a new version where a run or a preflight used this one, else in place.

    `typed` may hold sampling and extra_body (JSON objects), max_tokens_per_turn and context_window (tokens),
    price_basis, price_provider, price_model. What is missing stays as it is; the same settings change
    nothing. A retired model stays retired. With `seen`, the `stamp` of what was shown before, the newest
    version is changed, whichever `model` is.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for each of these, and "model" (not the newest version, or the lab's own), "meanwhile" (a
            value of `seen` was changed since, and would be changed back).
    """
    errors = FieldErrorCollector()
    values = _read(typed, errors)
    errors.raise_if_any()
    with transaction.atomic():
        one_at_a_time("models")
        if seen:
            model = newest(model)
        _check_may_change(model)
        meanwhile.check(seen, _held(model), values)
        if all(getattr(model, name) == value for name, value in values.items()):
            return model
        if not is_used(model):
            for name, value in values.items():
                setattr(model, name, value)
            model.save(update_fields=list(values))
            return model
        copied = {name: getattr(model, name) for name in COPIED}
        return Model.objects.create(version=model.version + 1, **copied | values)


def newest(model: Model) -> Model:
    """The newest version of what this is a version of."""
    versions = Model.objects.filter(name=model.name).select_related("endpoint")
    return versions.order_by("-version").first() or model


def stamp(model: Model) -> str:
    """What a form holds while the settings of this version are shown in it; `change` takes it as `seen`."""
    return meanwhile.stamp(_held(model))


def _held(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in _TYPED}


_TYPED = (
    *("sampling", "extra_body", "max_tokens_per_turn", "context_window"),
    *("price_basis", "price_provider", "price_model"),
)


@for_role(Role.ADMIN)
def retire(*, by: User, model: Model) -> None:
    """Take the model out of what can be launched. Its runs stay, and go on if they do.

    Raises:
        AccessDeniedError: `by` is no admin.
    """
    Model.objects.filter(name=model.name).update(retired=True)


@for_role(Role.ADMIN)
def restore(*, by: User, model: Model) -> None:
    """Let the newest version be launched again.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "model": its recording is gone.
    """
    last = newest(model)
    if last.replay and last.replays_id is None:
        raise FieldErrors({"model": f"model: {model.name!r} cannot come back: its recorded runs are gone"})
    Model.objects.filter(pk=last.pk).update(retired=False)


def is_used(model: Model) -> bool:
    """Whether a run or a preflight holds this version to what it is."""
    return Arm.objects.filter(model=model).exists() or Preflight.objects.filter(model=model).exists()


def _check_may_change(model: Model) -> None:
    if model.scripted or model.replay:
        raise FieldErrors({"model": f"model: {model.name!r} is the lab's own; it has no settings to change"})
    last = newest(model)
    if last.pk != model.pk:
        what = f"version {model.version} of {model.name!r} is not the newest"
        raise FieldErrors({"model": f"model: {what}; change version {last.version}"})


def _read(typed: Mapping[str, str], errors: FieldErrorCollector) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("sampling", "extra_body"):
        if name in typed:
            values[name] = fields.json_object(name, typed[name], errors)
    for name in ("max_tokens_per_turn", "context_window"):
        if name in typed:
            values[name] = fields.tokens(name, typed[name], errors)
    if "price_basis" in typed:
        values["price_basis"] = _basis(typed["price_basis"], errors)
    for name in ("price_provider", "price_model"):
        if name in typed:
            values[name] = typed[name].strip()
            fields.check_text(name, values[name], errors)
    return values


def _basis(text: str, errors: FieldErrorCollector) -> str:
    if text not in BASES:
        reason = f"is no price basis; choose one of {', '.join(BASES)}"
        errors.add(InvalidValueError("price_basis", as_typed(text), reason))
    return text
