"""Endpoints and their models."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from lab.models import Model, Role
from lab.services import endpoints, preflight_shown
from lab.services.errors import FieldErrors
from lab.services.known_secrets import SHORT, too_short
from lab.web.forms import EndpointForm
from lab.web.http import for_role, signed_in


@require_safe
@for_role(Role.VIEWER)
def endpoint_list(request: HttpRequest) -> HttpResponse:
    models = list(Model.objects.in_use())
    examined = preflight_shown.outcomes(models)
    rows = [
        (
            model,
            endpoints.key_is_set(endpoint=model.endpoint),
            endpoints.price_is_known(model),
            examined.get(model.pk),
        )
        for model in models
    ]
    return render(request, "endpoints/list.html", {"place": "endpoints", "rows": rows})


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
            return redirect("endpoints")
    context = {"place": "endpoints", "form": form, "key_patterns": ", ".join(settings.LAB_KEY_VARIABLES)}
    return render(request, "endpoints/form.html", context, status=422 if form.errors else 200)
