"""Harnesses: what exactly a model is shown."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS
from lab.models import HarnessVersion, Role
from lab.web.forms import LIMIT_LABELS, shown_limits
from lab.web.http import for_role


@require_safe
@for_role(Role.VIEWER)
def harness_list(request: HttpRequest) -> HttpResponse:
    versions = HarnessVersion.objects.select_related("harness")
    return render(request, "harnesses/list.html", {"place": "harnesses", "versions": versions})


@require_safe
@for_role(Role.VIEWER)
def harness_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Prompt, tools, limits and settings of one version, as they are on the wire."""
    version = get_object_or_404(HarnessVersion.objects.select_related("harness"), pk=pk)
    config = HarnessConfig.model_validate(version.config)
    limits = shown_limits(version.config)
    context = {
        "place": "harnesses",
        "version": version,
        "config": config,
        "limits": [(label, limits.get(name), UNITS[name]) for name, label in LIMIT_LABELS.items()],
        "tools": [(tool, json.dumps(tool.parameters, indent=2, ensure_ascii=False)) for tool in config.tools],
        "suggested": json.dumps(config.suggested_sampling, indent=2) if config.suggested_sampling else "",
    }
    return render(request, "harnesses/detail.html", context)
