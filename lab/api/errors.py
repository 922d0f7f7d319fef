"""What is wrong with a request, as JSON: `{"errors": [{"field", "value", "message"}]}` in every case."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError, ValidationErrorContext

from lab.api.security import NoTokenError
from lab.services.errors import AccessDeniedError, FieldErrors

_LONGEST_VALUE = 200


class Problem(NamedTuple):
    """`field` is "" when no single value is wrong; `message` says why, and what to do."""

    field: str
    value: Any
    message: str


class UnusableError(Exception):
    """Values that cannot be used, with the request's own values beside them."""

    def __init__(self, error: FieldErrors, values: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.problems = [Problem(name, values.get(name), text) for name, text in error.errors.items()]


class LabAPI(NinjaAPI):
    """An API whose errors say the value that was sent, which ninja leaves out."""

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        told = super().validation_error_from_error_contexts(error_contexts).errors
        whole = [
            error
            for context in error_contexts
            for error in context.pydantic_validation_error.errors(include_url=False)
        ]
        return ValidationError(
            [shown | {"input": error["input"]} for shown, error in zip(told, whole, strict=True)]
        )


def answer(problems: Iterable[Problem], status: int) -> HttpResponse:
    body = {"errors": [{**problem._asdict(), "value": _shown(problem.value)} for problem in problems]}
    # Half a surrogate pair, which JSON may hold and UTF-8 may not, is shown as it was written.
    text = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
    return HttpResponse(text, content_type="application/json", status=status)


def register(api: NinjaAPI) -> None:
    """Answer each kind of error in this shape."""

    def no_token(request: HttpRequest, error: Any) -> HttpResponse:
        refusal = answer([Problem("Authorization", None, str(error))], HTTPStatus.UNAUTHORIZED)
        refusal.headers["WWW-Authenticate"] = 'Bearer realm="trajectory-lab"'
        return refusal

    def denied(request: HttpRequest, error: Any) -> HttpResponse:
        return answer([Problem("", None, str(error))], HTTPStatus.FORBIDDEN)

    def absent(request: HttpRequest, error: Any) -> HttpResponse:
        return answer([Problem("", None, str(error) or "There is nothing at this address.")], 404)

    def unusable(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(error.problems, HTTPStatus.UNPROCESSABLE_ENTITY)

    def malformed(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(map(_problem, error.errors), HTTPStatus.UNPROCESSABLE_ENTITY)

    def http(request: HttpRequest, error: Any) -> HttpResponse:
        return answer([Problem("", None, str(error))], error.status_code)

    api.add_exception_handler(NoTokenError, no_token)
    api.add_exception_handler(AccessDeniedError, denied)
    api.add_exception_handler(Http404, absent)
    api.add_exception_handler(UnusableError, unusable)
    api.add_exception_handler(ValidationError, malformed)
    api.add_exception_handler(HttpError, http)


def _problem(error: dict[str, Any]) -> Problem:
    """One finding of pydantic: its place begins with where in the request the field was ("query", "body")."""
    place = [str(part) for part in error.get("loc", ())]
    field = ".".join(place[2:] if place[:1] == ["body"] and len(place) > 2 else place[1:]) or "body"
    value = None if error.get("type") == "missing" else error.get("input")
    return Problem(field, value, f"{field}: {error.get('msg', 'cannot be used')}")


def _shown(value: Any) -> Any:
    """The value, unless it is too long to be said again."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
