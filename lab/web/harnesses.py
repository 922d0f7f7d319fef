"""Harnesses: what exactly a model is shown, by whom it was used, and what differs between two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_safe
from pydantic import ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS
from lab.models import HarnessVersion, Model, Role, Run, Task
from lab.services import harness_pages, harness_requests, harnesses
from lab.services.harness_differences import shown_differences
from lab.services.tasks import current_task_set
from lab.web.forms import LIMIT_LABELS, row_number, shown_limits
from lab.web.http import for_role, is_script

_PAGE = 100
HARNESS_LIMITS = {**LIMIT_LABELS, "max_format_errors": "Not understood in a row"}


@require_safe
@for_role(Role.VIEWER)
def harness_list(request: HttpRequest) -> HttpResponse:
    """The newest version of each harness, of one family where the address names one."""
    families = harness_pages.families()
    known = {counted.family for counted in families}
    word = request.GET.get("family", "")
    rows = harness_pages.listed(family=word)
    context = {
        "place": "harnesses",
        "rows": rows,
        "families": families if len(families) > 2 or word else [],
        "shown": word,
        "nothing_shown": f"No harness of the family “{word[:40]}”.",
        "presets": [row.version for row in harness_pages.listed() if row.version.harness.preset],
    }
    return render(request, "harnesses/list.html", context, status=200 if word in known or not word else 404)


@require_safe
@for_role(Role.VIEWER)
def harness_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Prompts, tools, rules, limits and settings of one version, as they are on the wire."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    config = harness_pages.readable_config(version)
    context = {
        "place": "harnesses",
        "version": version,
        "config": config,
        "raw": "" if config else json.dumps(version.config, indent=2, ensure_ascii=False),
        "versions": harness_pages.versions_of(version.harness),
        "used": harness_pages.used_by(version),
        "origin": harness_pages.origin_of(version),
        "launch_url": _launch_url(version),
        **(_shown_config(config) if config else {}),
        **request_choices(request.GET),
    }
    return render(request, "harnesses/detail.html", context)


@require_safe
@for_role(Role.VIEWER)
def harness_request(request: HttpRequest, pk: int) -> HttpResponse:
    """The first request of a run with this harness: a part of its page, the bytes themselves with `raw`."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    config = harness_pages.readable_config(version)
    choices = request_choices(request.GET)
    context = {"place": "harnesses", "version": version, **choices}
    if config is None or choices["task"] is None:
        context["not_yet"] = (
            "There is no task to ask about." if config else "This lab cannot read the harness."
        )
    else:
        try:
            shown = harness_requests.shown_request(
                config=config, task=choices["task"], model=choices["model"]
            )
        except InvalidValueError as error:
            context["why_not"] = str(error)
        else:
            if "raw" in request.GET:
                return _download(shown.content, "application/json", f"{_file_name(version)}-request.json")
            context["shown"] = shown
    is_part = "HX-Request" in request.headers or is_script(request)
    return render(request, f"harnesses/{'_request' if is_part else 'request'}.html", context)


@require_safe
@for_role(Role.VIEWER)
def harness_yaml(request: HttpRequest, pk: int) -> HttpResponse:
    """The version as a YAML file that another lab can import."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    try:
        text = harnesses.export_yaml(version=version)
    except (InvalidValueError, ValidationError):
        # Its page says that this lab cannot read it.
        return redirect("harness", pk)
    return _download(text.encode(), "application/yaml", f"{_file_name(version)}.yaml")


@require_safe
@for_role(Role.VIEWER)
def harness_runs(request: HttpRequest, pk: int) -> HttpResponse:
    """All runs that were made with one version, newest first."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    runs = Run.objects.filter(arm__harness_version=version).for_rows().order_by("-pk")
    page = Paginator(runs, _PAGE).get_page(request.GET.get("page"))
    context = {"place": "harnesses", "version": version, "page": page}
    return render(request, "harnesses/runs.html", context)


@require_safe
@for_role(Role.VIEWER)
def harness_diff(request: HttpRequest) -> HttpResponse:
    """Two versions, `?left=3&right=5`, field by field; without two of them, what one may choose."""
    versions = {version.pk: version for version in HarnessVersion.objects.select_related("harness")}
    left, right = (versions.get(row_number(request.GET.get(side, ""))) for side in ("left", "right"))
    asked = "left" in request.GET and "right" in request.GET
    context: dict[str, Any] = {"place": "harnesses", "left": left, "right": right}
    context["versions"] = list(versions.values())
    if left and right:
        found = harness_pages.difference_of(left, right)
        context["content"] = shown_differences(found.content)
        context["beside"] = shown_differences(found.beside)
        context["equal"] = found.equal
        context["used"] = [harness_pages.used_by(version) for version in (left, right)]
    return render(
        request, "harnesses/diff.html", context, status=404 if asked and not (left and right) else 200
    )


def _launch_url(version: HarnessVersion) -> str:
    """Where a run with this version is launched, "" for one that no run can be launched with."""
    can_be = harness_pages.can_be_launched(version)
    return f"{reverse('home')}?harness={version.pk}#launch" if can_be else ""


def _shown_config(config: HarnessConfig) -> dict[str, object]:
    limits = shown_limits(config.model_dump(mode="json"), HARNESS_LIMITS)
    return {
        "limits": [(label, limits.get(name), UNITS[name]) for name, label in HARNESS_LIMITS.items()],
        "tools": [
            (tool, _json(tool.parameters), _json(tool.settings) if tool.settings else "")
            for tool in config.tools
        ],
        "feedback": harness_pages.feedback_of(config),
        "options": _json(config.options) if config.options else "",
        "suggested": _json(config.suggested_sampling) if config.suggested_sampling else "",
    }


def request_choices(asked: Mapping[str, str]) -> dict[str, Any]:
    """Task and model that the request is shown for, and what else can be chosen."""
    tasks = list(Task.objects.filter(task_set=current_task_set()))
    models = list(Model.objects.in_use())
    task, model = (row_number(asked.get(name, "")) for name in ("task", "model"))
    chosen = next((one for one in tasks if one.pk == task), tasks[0] if tasks else None)
    return {
        "tasks": tasks,
        "models": models,
        "task": chosen,
        "model": next((one for one in models if one.pk == model), None),
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _file_name(version: HarnessVersion) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", version.harness.name).strip(".-")
    return f"{name or 'harness'}-v{version.version}"


def _download(content: bytes, kind: str, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type=f"{kind}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


urlpatterns = [
    path("harnesses/", harness_list, name="harnesses"),
    path("harnesses/<int:pk>/", harness_detail, name="harness"),
    path("harnesses/<int:pk>/request/", harness_request, name="harness_request"),
    path("harnesses/<int:pk>/runs/", harness_runs, name="harness_runs"),
    path("harnesses/<int:pk>/yaml/", harness_yaml, name="harness_yaml"),
    path("harnesses/diff/", harness_diff, name="harness_diff"),
]
