"""Endpoints and their models."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.models import Endpoint, Role
from lab.services import endpoint_pages, endpoint_settings, endpoints, meanwhile, preflight_shown
from lab.services.errors import FieldErrors
from lab.services.known_secrets import SHORT, too_short
from lab.web.endpoint_forms import EndpointSettingsForm
from lab.web.forms import EndpointForm
from lab.web.http import for_role, signed_in


@require_safe
@for_role(Role.VIEWER)
def endpoint_list(request: HttpRequest) -> HttpResponse:
    """Endpoints with the models that can be launched."""
    rows = endpoint_pages.endpoints_listed()
    models = [row.model for endpoint in rows for row in endpoint.models]
    context = {
        "place": "endpoints",
        "rows": rows,
        "examined": preflight_shown.outcomes(models),
        "retired": endpoint_pages.retired_endpoints(),
    }
    return render(request, "endpoints/list.html", context)


@require_safe
@for_role(Role.VIEWER)
def endpoint_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One endpoint: how it is asked, and its models."""
    endpoint = get_object_or_404(Endpoint, pk=pk)
    row = endpoint_pages.endpoint_row(endpoint)
    context = {
        "place": "endpoints",
        "row": row,
        "examined": preflight_shown.outcomes([one.model for one in row.models]),
        "retired_models": endpoint_pages.retired_models(endpoint),
        "short": too_short(endpoint),
        "short_means": SHORT,
    }
    return render(request, "endpoints/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ADMIN)
def endpoint_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Address, key, headers, limit and time-outs. A header's value is typed here and shown nowhere."""
    endpoint = get_object_or_404(Endpoint, pk=pk)
    posted = request.method == "POST"
    form = EndpointSettingsForm(request.POST) if posted else EndpointSettingsForm.of(endpoint)
    seen = request.POST.get("seen", "") if posted else endpoint_settings.stamp(endpoint)
    without = request.POST.getlist("without")
    if posted:
        try:
            endpoint_settings.change(
                by=signed_in(request),
                endpoint=endpoint,
                typed=form.typed(),
                without_headers=without,
                seen=seen,
            )
        except FieldErrors as error:
            form.take_errors(error.errors)
            if meanwhile.FIELD in error.errors:
                # What was changed is told now: the next time it may be changed back.
                endpoint.refresh_from_db()
                seen = endpoint_settings.stamp(endpoint)
        else:
            messages.success(request, f"{endpoint.name} is asked like this from the next run on.")
            return redirect("endpoint", pk)
    context = {
        "place": "endpoints",
        "endpoint": endpoint,
        "form": form,
        "seen": seen,
        "header_names": [(name, name in without) for name in endpoint.headers],
        "key_patterns": ", ".join(settings.LAB_KEY_VARIABLES),
    }
    return render(request, "endpoints/edit.html", context, status=422 if form.errors else 200)


@require_POST
@for_role(Role.ADMIN)
def endpoint_retire(request: HttpRequest, pk: int) -> HttpResponse:
    """Take an endpoint out of what can be launched, or let it come back: as the button said."""
    endpoint = get_object_or_404(Endpoint, pk=pk)
    try:
        if request.POST.get("wanted") == "restored":
            endpoint_settings.restore(by=signed_in(request), endpoint=endpoint)
            messages.success(request, f"The models of {endpoint.name} can be launched again.")
        else:
            endpoint_settings.retire(by=signed_in(request), endpoint=endpoint)
            messages.success(request, f"{endpoint.name} is retired; runs of its models stay.")
    except FieldErrors as error:
        messages.error(request, " ".join(error.errors.values()))
    return redirect("endpoint", pk)


@require_http_methods(["GET", "POST"])
@for_role(Role.ADMIN)
def endpoint_new(request: HttpRequest) -> HttpResponse:
    """Connect a model; the server is asked for its list of models before anything is stored."""
    form = EndpointForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            model = endpoints.connect(by=signed_in(request), **form.cleaned_data)
        except FieldErrors as error:
            form.take_errors(error.errors)
        else:
            messages.success(request, f"{model.name} is connected and can be chosen under Launch.")
            if names := too_short(model.endpoint):
                messages.warning(request, f"{', '.join(names)}: {SHORT}; use a longer one.")
            return redirect("model", model.pk)
    context = {"place": "endpoints", "form": form, "key_patterns": ", ".join(settings.LAB_KEY_VARIABLES)}
    return render(request, "endpoints/form.html", context, status=422 if form.errors else 200)


urlpatterns = [
    path("endpoints/", endpoint_list, name="endpoints"),
    path("endpoints/new/", endpoint_new, name="endpoint_new"),
    path("endpoints/<int:pk>/", endpoint_detail, name="endpoint"),
    path("endpoints/<int:pk>/edit/", endpoint_edit, name="endpoint_edit"),
    path("endpoints/<int:pk>/retire", endpoint_retire, name="endpoint_retire"),
]
