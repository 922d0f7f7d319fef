"""Endpoints and models: connected by admins, asked with a key that stays in the environment."""

from __future__ import annotations

import datetime as dt
import os
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import transaction

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import Cost, ModelConfig, Price, RateCard, Usage
from lab.models import Endpoint, Model, Role
from lab.services import endpoint_fields as fields
from lab.services import price_cards
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector
from lab.services.locks import one_at_a_time

SCRIPTED_ENDPOINT, REPLAY_ENDPOINT = "scripted", "replay"
# Served by the lab itself, without an address.
OWN_ENDPOINTS = frozenset({SCRIPTED_ENDPOINT, REPLAY_ENDPOINT})
Basis = Literal["table", "card", "gpu_hours", "reference", "scripted", "replay", "unknown"]
SCRIPTED_MODELS = ("scripted/solver", "scripted/struggler")


class _Asked(NamedTuple):
    base_url: str
    model_id: str
    key_variable: str
    context_window: int | None
    name: str


@transaction.atomic
def sync_scripted() -> list[Model]:
    """The endpoint of the scripted models and its models. Their server starts inside each worker child."""
    endpoint, _ = Endpoint.objects.get_or_create(name=SCRIPTED_ENDPOINT, defaults={"scripted": True})
    return [
        Model.objects.get_or_create(
            name=name, version=1, defaults={"endpoint": endpoint, "model_id": name, "price_basis": "scripted"}
        )[0]
        for name in SCRIPTED_MODELS
    ]


@for_role(Role.ADMIN)
def connect(
    *,
    by: User,
    base_url: str,
    model_id: str,
    key_variable: str = "",
    context_window: int | str | None = None,
    name: str = "",
    replace: str = "",
) -> Model:
    """Connect a model behind an OpenAI-compatible server, after asking the server for its models.

    `context_window` in tokens; empty, it is read from `/models` where that says it. A model that is connected
    already, with the same settings, is returned as it is; other settings make a new version, because a model
    is never edited once a run used it. Another server or model id under a name in use is taken only when
    `replace` is that name.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for base_url, model_id, key_variable, context_window, name; each names value and way out.
            "replace" is among them when ticking it is a way out.
    """
    errors = FieldErrorCollector()
    asked = _Asked(
        base_url=fields.base_url(base_url, errors),
        model_id=fields.model_id(model_id, errors),
        key_variable=fields.key_variable(key_variable, errors),
        context_window=fields.tokens("context_window", context_window, errors),
        name=fields.model_name(name.strip() or model_id.strip(), errors),
    )
    if not errors.errors:
        _check_name_is_free(asked, replace, errors)
    errors.raise_if_any()
    window = _ask_server(asked, errors)
    errors.raise_if_any()
    with transaction.atomic():
        one_at_a_time("models")
        # Somebody may have taken it while the server was asked.
        _check_name_is_free(asked, replace, errors)
        errors.raise_if_any()
        return _store(asked._replace(context_window=asked.context_window or window))


def key_for(endpoint: Endpoint) -> str:
    """The endpoint's key out of the environment, "" where it names none.

    Raises:
        InvalidValueError: the variable is not set, or is one that no endpoint may name.
    """
    errors = FieldErrorCollector()
    name = fields.key_variable(endpoint.key_variable, errors)
    if errors.errors:
        raise InvalidValueError(
            "key_variable",
            endpoint.key_variable,
            "cannot be used: its value is not set, "
            "or LAB_KEY_VARIABLES does not allow it; export it and start the lab again",
        )
    return os.environ.get(name, "") if name else ""


def key_is_set(*, endpoint: Endpoint) -> bool:
    """Whether the key can be had: the variable is set, or none is needed."""
    return not endpoint.key_variable or bool(os.environ.get(endpoint.key_variable))


def key_variables_in_use() -> list[str]:
    """The names of all variables that endpoints name, for redaction."""
    return list(Endpoint.objects.exclude(key_variable="").values_list("key_variable", flat=True).distinct())


def price_is_known(model: Model) -> bool:
    """Whether a call of the model made now would have a price; scripted models and replays cost nothing."""
    return model.scripted or cost_now(model, Usage(input_total=1, output_total=1)).amount is not None


def cost_now(model: Model, usage: Usage, *, cards: tuple[RateCard, ...] | None = None) -> Cost:
    """What a call of the model with this usage would cost if it were made now. `cards` as for the config."""
    # Imported late: the table is large.
    from lab.engine.pricing import price_call

    config = model_config(model, cards=cards)
    at = dt.datetime.now(dt.UTC)
    return price_call(config.price, usage, model=config.model_id, at=at, base_url=config.base_url)


def model_config(
    model: Model, *, base_url: str = "", cards: tuple[RateCard, ...] | None = None
) -> ModelConfig:
    """The model as the engine takes it.

    `base_url` is that of the scripted server, if it is scripted; `cards` are the price cards of its id, where
    they have been read already.
    """
    endpoint = model.endpoint
    if cards is None:
        cards = price_cards.rate_cards(endpoint_id=model.endpoint_id, model_id=model.model_id)
    return ModelConfig(
        name=model.name,
        model_id=model.model_id,
        base_url=base_url or endpoint.base_url,
        scripted=endpoint.scripted,
        sampling=model.sampling,
        extra_body=model.extra_body,
        headers=endpoint.headers,
        max_tokens_per_turn=model.max_tokens_per_turn,
        context_window=model.context_window,
        connect_timeout=endpoint.connect_timeout,
        read_timeout=endpoint.read_timeout,
        price=Price(
            basis=price_basis(model), provider=model.price_provider, model=model.price_model, cards=cards
        ),
    )


def price_basis(model: Model) -> Basis:
    """How calls of the model are priced, as the engine names it."""
    found: Basis = Price.model_validate({"basis": model.price_basis}).basis
    return found


def _check_name_is_free(asked: _Asked, replace: str, errors: FieldErrorCollector) -> None:
    """Earlier runs are compared by the name, so it does not quietly come to mean something else."""
    there = Model.objects.in_use().filter(name=asked.name).first()
    if there is None or replace == asked.name:
        return
    if (there.model_id, there.endpoint.base_url) != (asked.model_id, asked.base_url):
        what = f"is {there.model_id} at {there.endpoint.base_url} already"
        reason = f"{what}; write another name, or tick “replace {asked.name}”"
        errors.add(InvalidValueError("name", asked.name, reason))
        errors.say("replace", f"replace: tick it, and {asked.name} stands for this model from now on")


def _ask_server(asked: _Asked, errors: FieldErrorCollector) -> int | None:
    """Whether the server is there, takes the key and knows the model; the context window it states."""
    # Imported late: the client's libraries are large, and only this form needs them in the web process.
    from lab.engine.llm.endpoint import check_model

    key = os.environ.get(asked.key_variable, "") if asked.key_variable else ""
    known = _known_endpoint(asked)
    headers = known.headers if known is not None else {}
    try:
        return check_model(
            asked.base_url, asked.model_id, key, headers, key_variable=asked.key_variable
        ).context_window
    except InvalidValueError as error:
        field = "key_variable" if error.field == "key" else error.field
        errors.add(InvalidValueError(field, error.value, error.reason))
        return None


def _store(asked: _Asked) -> Model:
    endpoint = _endpoint(asked)
    values = {
        "endpoint": endpoint,
        "model_id": asked.model_id,
        "context_window": asked.context_window,
    }
    newest = Model.objects.filter(name=asked.name).order_by("-version").first()
    if newest is not None and not newest.retired and all(getattr(newest, k) == v for k, v in values.items()):
        return newest
    if newest is None:
        return Model.objects.create(name=asked.name, **values)
    if (newest.endpoint_id, newest.model_id) == (endpoint.pk, asked.model_id):
        # Its settings were made for this very model.
        values = {name: getattr(newest, name) for name in _KEPT} | values
    return Model.objects.create(name=asked.name, version=newest.version + 1, **values)


_KEPT = ("max_tokens_per_turn", "sampling", "extra_body", "price_basis", "price_provider", "price_model")


def _known_endpoint(asked: _Asked) -> Endpoint | None:
    """The endpoint that the model would join."""
    return Endpoint.objects.filter(
        base_url=asked.base_url, key_variable=asked.key_variable, scripted=False, retired=False
    ).first()


def _endpoint(asked: _Asked) -> Endpoint:
    known = _known_endpoint(asked)
    if known is not None:
        return known
    host = urlsplit(asked.base_url).netloc
    taken = set(Endpoint.objects.filter(name__startswith=host[:90]).values_list("name", flat=True))
    taken |= OWN_ENDPOINTS
    names = (host[:90] if n == 1 else f"{host[:90]} ({n})" for n in range(1, len(taken) + 2))
    name = next(name for name in names if name not in taken)
    return Endpoint.objects.create(name=name, base_url=asked.base_url, key_variable=asked.key_variable)
