"""The page of a model's preflights: what its server does with requests, and what mends it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from lab.models import Model, Preflight, Role
from lab.services import preflight_shown, preflights
from lab.services.errors import FieldErrors
from lab.web.http import for_role, signed_in

HISTORY_SHOWN = 20


@require_safe
@for_role(Role.VIEWER)
def preflight_detail(request: HttpRequest, model_id: int) -> HttpResponse:
    """The newest that holds for a model, or `?number=`; one that goes on is asked for again each second."""
    model = get_object_or_404(Model.objects.select_related("endpoint"), pk=model_id)
    part = request.headers.get("HX-Request") == "true"
    return render(
        request, "preflights/_preflight.html" if part else "preflights/detail.html", _context(request, model)
    )


@require_POST
@for_role(Role.OPERATOR)
def preflight_ask(request: HttpRequest, model_id: int) -> HttpResponse:
    """Ask for one; a mistake stands on the page."""
    model = get_object_or_404(Model.objects.select_related("endpoint"), pk=model_id)
    try:
        preflights.ask(by=signed_in(request), model=model, over_limit=request.POST.get("over_limit") == "yes")
    except FieldErrors as error:
        context = _context(request, model) | {"error": str(error)}
        return render(request, "preflights/detail.html", context, status=422)
    return redirect("preflight", model_id)


@require_POST
@for_role(Role.OPERATOR)
def preflight_cancel(request: HttpRequest, model_id: int) -> HttpResponse:
    """Cancel the one that waits or goes on."""
    model = get_object_or_404(Model, pk=model_id)
    preflight = preflights.going_on(model)
    if preflight is None:
        messages.warning(request, "It has ended already.")
    else:
        preflights.cancel(by=signed_in(request), preflight=preflight)
    return redirect("preflight", model_id)


def _context(request: HttpRequest, model: Model) -> dict[str, Any]:
    preflight = _chosen(request, model)
    history = preflights.of_same_requests(model).order_by("-pk")[:HISTORY_SHOWN]
    return {
        "place": "endpoints",
        "model": model,
        "shown": preflight_shown.shown(preflight) if preflight else None,
        "history": [preflight_shown.outcome_of(one) for one in history],
        "goes_on": preflights.going_on(model) is not None,
        "over_limit": preflight_shown.over_limit_words(preflights.over_limit_cost(model)),
        "can_be_examined": preflights.can_be_examined(model),
        "number": request.GET.get("number", ""),
    }


def _chosen(request: HttpRequest, model: Model) -> Preflight | None:
    rows = preflights.of_same_requests(model).select_related("model__endpoint", "asked_by")
    number = request.GET.get("number", "")
    if not number:
        return rows.order_by("-pk").first()
    found = rows.filter(pk=int(number)).first() if number.isdecimal() and len(number) < 10 else None
    if found is None:
        raise Http404(f"There is no preflight {number[:20]} of {model.name}.")
    return found


urlpatterns = [
    path("endpoints/models/<int:model_id>/preflight/", preflight_detail, name="preflight"),
    path("endpoints/models/<int:model_id>/preflight/ask/", preflight_ask, name="preflight_ask"),
    path("endpoints/models/<int:model_id>/preflight/cancel/", preflight_cancel, name="preflight_cancel"),
]
