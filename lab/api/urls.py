"""Addresses of the API. Who may use an operation is decided by its token, whoever is signed in on pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path

import lab
from lab.api import errors, runs
from lab.api.security import NobodyDecided
from lab.services import access

api = errors.LabAPI(
    title="Trajectory Lab",
    version=lab.__version__,
    description="Runs, their logs and their controls. Send a token: “Authorization: Bearer tlab_…”.",
    urls_namespace="api",
    # Its pages load scripts from elsewhere, which the Content-Security-Policy forbids.
    docs_url=None,
    auth=NobodyDecided(),
)
api.add_router("/runs", runs.router)
errors.register(api)
app_name = "api"


def _decided(view: Callable[..., HttpResponseBase], decision: access.Decision) -> Callable[..., Any]:
    @wraps(view)
    def decided(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return view(request, *args, **kwargs)

    vars(decided)["access"] = decision
    # A token is no cookie: no browser sends it by itself.
    vars(decided)["csrf_exempt"] = decision == access.PER_OPERATION
    return decided


def _pattern(found: URLPattern) -> URLPattern:
    open_to_all = found.name in ("openapi-json", "api-root")
    decision: access.Decision = access.EVERYONE if open_to_all else access.PER_OPERATION
    return path(str(found.pattern), _decided(found.callback, decision), name=found.name)


urlpatterns = [_pattern(found) for found in api.urls[0] if isinstance(found, URLPattern)]
