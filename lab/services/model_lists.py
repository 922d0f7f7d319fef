"""The models that a server lists: searched by people, chosen by hand, some of them thousands."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed
from lab.engine.llm.endpoint import ListedModel, NoModelListError, check_model, list_models
from lab.models import Endpoint, Model, Role
from lab.services import endpoint_fields as fields
from lab.services.access import for_role
from lab.services.endpoint_settings import is_own
from lab.services.endpoints import key_for
from lab.services.errors import FieldErrorCollector
from lab.services.locks import one_at_a_time

SHOWN = 200
MOST_AT_ONCE = 500
# Servers that give no list are asked for one token of each model.
MOST_TYPED = 20
_BY_HAND = " Write the ids of its models below: each is asked for one token."
_FRESH_SECONDS = 300.0
_LIST_SECONDS = 30.0


class Found(NamedTuple):
    """What of a server's list fits a search: the first `SHOWN` of `matching`, of `total` in all.

    `problem` says why there is no list, for people.
    """

    models: list[ListedModel]
    matching: int
    total: int
    problem: str = ""


class _Kept(NamedTuple):
    address: tuple[str, str]
    at: float
    models: list[ListedModel]


class _Lists:
    """The lists fetched last, so that each letter of a search does not ask the server again."""

    def __init__(self) -> None:
        # Guards the field below: requests come on many threads.
        self._lock = threading.Lock()
        self._kept: dict[int, _Kept] = {}

    def of(self, endpoint: Endpoint, *, again: bool) -> list[ListedModel]:
        address = (endpoint.base_url, endpoint.key_variable)
        with self._lock:
            kept = self._kept.get(endpoint.pk)
        fresh = kept is not None and time.monotonic() - kept.at < _FRESH_SECONDS
        if kept is not None and fresh and kept.address == address and not again:
            return kept.models
        found = list_models(
            endpoint.base_url,
            key_for(endpoint),
            endpoint.headers,
            _LIST_SECONDS,
            key_variable=endpoint.key_variable,
        )
        # One entry an id, whatever the server repeats.
        models = list({model.id: model for model in found if model.id.strip()}.values())
        with self._lock:
            self._kept[endpoint.pk] = _Kept(address, time.monotonic(), models)
        return models


_lists = _Lists()


@for_role(Role.ADMIN)
def search(*, by: User, endpoint: Endpoint, words: str = "", again: bool = False) -> Found:
    """The models of the endpoint whose id or owner holds every word. `again` asks the server anew.

    Raises:
        AccessDeniedError: `by` is no admin.
    """
    if is_own(endpoint):
        return Found([], 0, 0, f"{endpoint.name} is the lab's own and has no list of models.")
    try:
        models = _lists.of(endpoint, again=again)
    except InvalidValueError as error:
        way_out = _BY_HAND if isinstance(error, NoModelListError) else ""
        return Found([], 0, 0, f"{error.value} {error.reason}.{way_out}")
    wanted = words.lower().split()
    matching = [model for model in models if _fits(model, wanted)]
    return Found(matching[:SHOWN], len(matching), len(models))


@for_role(Role.ADMIN)
def add(*, by: User, endpoint: Endpoint, chosen: Sequence[str], typed: str = "") -> list[Model]:
    """Make models of these ids at the endpoint, with the context window that the server states.

    `typed` are more ids, one a line, for servers that give no list. A model that is there already is returned
    as it is; a name that means another model gets the endpoint's name before it.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "chosen" or "typed": nothing chosen, too much, or an id that the server does not know.
    """
    errors = FieldErrorCollector()
    by_hand = [line.strip() for line in typed.splitlines() if line.strip()]
    _check_number(endpoint, chosen, by_hand, errors)
    errors.raise_if_any()
    listed = _listed(endpoint, chosen, errors) if chosen else {}
    asked = [_asked(endpoint, model_id, errors) for model_id in dict.fromkeys(by_hand)]
    errors.raise_if_any()
    wanted = {model.id: model for model in [*listed.values(), *filter(None, asked)]}
    with transaction.atomic():
        one_at_a_time("models")
        return [_stored(endpoint, model) for model in wanted.values()]


def connected_ids(*, endpoint: Endpoint) -> set[str]:
    """The ids of the endpoint's models that can be launched."""
    return set(Model.objects.in_use().filter(endpoint=endpoint).values_list("model_id", flat=True))


def _fits(model: ListedModel, wanted: Sequence[str]) -> bool:
    text = f"{model.id} {model.owned_by}".lower()
    return all(word in text for word in wanted)


def _check_number(
    endpoint: Endpoint, chosen: Sequence[str], by_hand: Sequence[str], errors: FieldErrorCollector
) -> None:
    if is_own(endpoint):
        errors.say("chosen", f"chosen: {endpoint.name!r} is the lab's own; connect an endpoint first")
    elif not chosen and not by_hand:
        errors.say("chosen", "chosen: nothing is chosen; tick at least one model, or write its id")
    if len(chosen) > MOST_AT_ONCE:
        errors.say("chosen", f"chosen: {len(chosen):,} are too many at once; choose at most {MOST_AT_ONCE}")
    if len(by_hand) > MOST_TYPED:
        errors.say("typed", f"typed: {len(by_hand):,} are too many at once; write at most {MOST_TYPED}")


def _listed(endpoint: Endpoint, chosen: Sequence[str], errors: FieldErrorCollector) -> dict[str, ListedModel]:
    try:
        known = {model.id: model for model in _lists.of(endpoint, again=False)}
    except InvalidValueError as error:
        errors.say("chosen", f"chosen: {error.value} {error.reason}")
        return {}
    for model_id in chosen:
        if model_id not in known:
            reason = "is not in the server's list any more; fetch the list again"
            errors.add(InvalidValueError("chosen", as_typed(model_id), reason))
        else:
            _check_id("chosen", model_id, errors)
    return {model_id: known[model_id] for model_id in chosen if model_id in known}


def _asked(endpoint: Endpoint, model_id: str, errors: FieldErrorCollector) -> ListedModel | None:
    _check_id("typed", model_id, errors)
    if errors.errors:
        return None
    try:
        return check_model(
            endpoint.base_url,
            model_id,
            key_for(endpoint),
            endpoint.headers,
            key_variable=endpoint.key_variable,
        )
    except InvalidValueError as error:
        errors.add(InvalidValueError("typed", as_typed(model_id), f"cannot be used: {error}"))
        return None


def _check_id(field: str, model_id: str, errors: FieldErrorCollector) -> None:
    fields.check_text("model_id", model_id, errors, field=field)


def _stored(endpoint: Endpoint, listed: ListedModel) -> Model:
    there = Model.objects.in_use().filter(endpoint=endpoint, model_id=listed.id).first()
    if there is not None:
        return there
    name = next(name for name in _names(endpoint, listed.id) if _is_free(name, endpoint, listed.id))
    newest = Model.objects.filter(name=name).order_by("-version").first()
    return Model.objects.create(
        endpoint=endpoint,
        name=name,
        version=newest.version + 1 if newest else 1,
        model_id=listed.id,
        context_window=listed.context_window,
    )


def _names(endpoint: Endpoint, model_id: str) -> list[str]:
    long = f"{endpoint.name}/{model_id[:90]}"
    return [model_id, long, *(f"{long} ({number})" for number in range(2, 100))]


def _is_free(name: str, endpoint: Endpoint, model_id: str) -> bool:
    """Nobody's, or this very model's that was retired; never like the lab's own."""
    if name.lower().startswith((fields.SCRIPTED_PREFIX, fields.REPLAY_PREFIX)):
        return False
    return not Model.objects.filter(name=name).exclude(endpoint=endpoint, model_id=model_id).exists()
