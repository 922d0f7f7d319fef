"""Settings of an endpoint: where it is, how it is asked, and how much at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.crypto import salted_hmac

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed
from lab.models import Endpoint, Model, Role
from lab.services import endpoint_fields as fields
from lab.services import meanwhile
from lab.services.access import for_role
from lab.services.endpoints import OWN_ENDPOINTS
from lab.services.errors import FieldErrorCollector, FieldErrors
from lab.services.locks import one_at_a_time

MOST_AT_ONCE = 10_000
# A change of these may make a server unreachable, so that it is asked first.
_REACHES_IT = ("base_url", "key_variable", "headers")


@for_role(Role.ADMIN)
def change(
    *,
    by: User,
    endpoint: Endpoint,
    typed: Mapping[str, str],
    without_headers: Sequence[str] = (),
    seen: str = "",
) -> Endpoint:
    """Other settings for an endpoint, for requests from now on; runs that go on keep what they began with.

    `typed` may hold name, base_url, key_variable, headers (lines "Name: value" that are added to those there
    are, or replace those of the same name), concurrency_limit (runs; empty: no limit), connect_timeout and
    read_timeout (seconds). `without_headers` names headers to take away. What is missing stays as it is.
    A server that would be reached in another way is asked for its models first. `seen` is the `stamp` of what
    was shown before.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for each of these, and "endpoint" (it is the lab's own), "meanwhile" (a value of
            `seen` was changed since, and would be changed back).
    """
    if is_own(endpoint):
        raise FieldErrors({"endpoint": f"endpoint: {endpoint.name!r} is the lab's own and has no settings"})
    errors = FieldErrorCollector()
    values = _read(endpoint, typed, without_headers, errors)
    errors.raise_if_any()
    _check_meanwhile(seen, endpoint, values)
    if any(values.get(name, getattr(endpoint, name)) != getattr(endpoint, name) for name in _REACHES_IT):
        _ask(endpoint, values, errors)
        errors.raise_if_any()
    with transaction.atomic():
        one_at_a_time("models")
        # Again: somebody may have saved while the server was asked.
        _check_meanwhile(seen, endpoint, values)
        _check_name(endpoint, values, errors)
        errors.raise_if_any()
        for name, value in values.items():
            setattr(endpoint, name, value)
        endpoint.save(update_fields=list(values))
    return endpoint


def stamp(endpoint: Endpoint) -> str:
    """What a form holds while these settings are shown in it; `change` takes it as `seen`. It holds no value
    of a header, only whether that is another one."""
    return meanwhile.stamp(_sealed({name: getattr(endpoint, name) for name in _TYPED}))


_TYPED = (
    *("name", "base_url", "key_variable", "headers"),
    *("concurrency_limit", "connect_timeout", "read_timeout"),
)


def _sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    if "headers" not in values:
        return dict(values)
    said = json.dumps(values["headers"], sort_keys=True)
    return {**values, "headers": salted_hmac("lab.endpoint.headers", said, algorithm="sha256").hexdigest()}


def _check_meanwhile(seen: str, endpoint: Endpoint, values: Mapping[str, Any]) -> None:
    if seen:
        now = _sealed(Endpoint.objects.values(*_TYPED).get(pk=endpoint.pk))
        meanwhile.check(seen, now, _sealed(values), secret=frozenset({"headers"}))


@for_role(Role.ADMIN)
def retire(*, by: User, endpoint: Endpoint) -> None:
    """Take the endpoint and its models out of what can be launched. Runs stay, and go on if they do.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "endpoint": it is the lab's own.
    """
    if is_own(endpoint):
        raise FieldErrors({"endpoint": f"endpoint: {endpoint.name!r} is the lab's own; retire its models"})
    Endpoint.objects.filter(pk=endpoint.pk).update(retired=True)


@for_role(Role.ADMIN)
def restore(*, by: User, endpoint: Endpoint) -> None:
    """Let its models be launched again, but for those that were retired themselves.

    Raises:
        AccessDeniedError: `by` is no admin.
    """
    Endpoint.objects.filter(pk=endpoint.pk).update(retired=False)


def is_own(endpoint: Endpoint) -> bool:
    """Whether it is served by the lab itself: scripted models, and replays."""
    return endpoint.scripted or not endpoint.base_url


def _read(
    endpoint: Endpoint, typed: Mapping[str, str], without: Sequence[str], errors: FieldErrorCollector
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if "name" in typed:
        values["name"] = _name(typed["name"].strip(), errors)
    if "base_url" in typed:
        values["base_url"] = fields.base_url(typed["base_url"], errors)
    if "key_variable" in typed:
        values["key_variable"] = fields.key_variable(typed["key_variable"], errors)
    if "headers" in typed or without:
        values["headers"] = _headers(endpoint, typed.get("headers", ""), without, errors)
    if "concurrency_limit" in typed:
        values["concurrency_limit"] = fields.whole(
            "concurrency_limit",
            typed["concurrency_limit"],
            errors,
            most=MOST_AT_ONCE,
            unit="runs",
            way="8, or leave it empty for no limit",
        )
    for name in ("connect_timeout", "read_timeout"):
        if name in typed:
            values[name] = fields.seconds(name, typed[name], errors)
    return values


def _name(name: str, errors: FieldErrorCollector) -> str:
    fields.check_text("endpoint_name", name, errors, field="name")
    if not name or name in OWN_ENDPOINTS:
        reason = "is the lab's own endpoint; write another name" if name else "is empty; write a name"
        errors.add(InvalidValueError("name", name, reason))
    return name


def _headers(
    endpoint: Endpoint, text: str, without: Sequence[str], errors: FieldErrorCollector
) -> dict[str, str]:
    typed = fields.headers(text, errors)
    replaced = {name.lower() for name in [*typed, *without]}
    kept = {name: value for name, value in endpoint.headers.items() if name.lower() not in replaced}
    found = kept | typed
    if len(found) > fields.MOST_HEADERS:
        errors.say("headers", f"headers: {len(found)} are too many; keep at most {fields.MOST_HEADERS}")
    return found


def _check_name(endpoint: Endpoint, values: Mapping[str, Any], errors: FieldErrorCollector) -> None:
    name = values.get("name", endpoint.name)
    if Endpoint.objects.filter(name=name).exclude(pk=endpoint.pk).exists():
        errors.add(
            InvalidValueError("name", as_typed(name), "is another endpoint's name; write one that is free")
        )


def _ask(endpoint: Endpoint, values: Mapping[str, Any], errors: FieldErrorCollector) -> None:
    """Whether the server is there and takes the key. One that gives no list of models is asked for a token of
    one of its own, and taken at its word where there is none."""
    from lab.engine.llm.endpoint import NoModelListError, WebPageError, check_model, list_models

    variable = values.get("key_variable", endpoint.key_variable)
    base_url = values.get("base_url", endpoint.base_url)
    key = os.environ.get(variable, "") if variable else ""
    headers = values.get("headers", endpoint.headers)
    try:
        try:
            list_models(base_url, key, headers, key_variable=variable)
        except NoModelListError as no_list:
            if known := Model.objects.in_use().filter(endpoint=endpoint).first():
                check_model(base_url, known.model_id, key, headers, key_variable=variable)
            elif isinstance(no_list, WebPageError):
                # Most addresses with a web page are no API's.
                raise
    except InvalidValueError as error:
        if error.field == "model_id":
            # It answers, and takes the key; which models it has is not asked here.
            return
        field = "key_variable" if error.field == "key" else error.field
        errors.add(InvalidValueError(field, error.value, error.reason))
