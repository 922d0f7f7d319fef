"""Models at endpoints: their versions, settings and price cards, and lists of them to choose from."""

from __future__ import annotations

from http import HTTPStatus

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.models import Endpoint, Model, Preflight, PriceCard, Role, Run
from lab.services import (
    endpoint_pages,
    endpoints,
    meanwhile,
    model_lists,
    model_settings,
    preflight_shown,
    price_cards,
)
from lab.services.errors import FieldErrors
from lab.web.endpoint_forms import ModelSettingsForm, PriceCardForm
from lab.web.http import for_role, is_script, signed_in

_PAGE = 100


def _model(pk: int) -> Model:
    return get_object_or_404(Model.objects.select_related("endpoint", "replays__experiment"), pk=pk)


@require_safe
@for_role(Role.VIEWER)
def model_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One version of a model: what is sent with its requests, what they cost, which runs used it."""
    model = _model(pk)
    outcome = preflight_shown.outcomes([model]).get(model.pk)
    examined = (
        Preflight.objects.filter(pk=outcome.url_number).select_related("model").first() if outcome else None
    )
    context = {
        "place": "endpoints",
        "page": endpoint_pages.model_page(model),
        "model": model,
        "preflight": outcome,
        "examined_version": examined.model.version if examined else model.version,
    }
    return render(request, "models/detail.html", context)


@require_safe
@for_role(Role.VIEWER)
def model_runs(request: HttpRequest, pk: int) -> HttpResponse:
    """All runs that one version answered, newest first."""
    runs = Run.objects.filter(arm__model=pk).for_rows().order_by("-pk")
    page = Paginator(runs, _PAGE).get_page(request.GET.get("page"))
    return render(request, "models/runs.html", {"place": "endpoints", "model": _model(pk), "page": page})


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ADMIN)
def model_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Other settings; a version that was used stays as it is and gets a successor."""
    model = _model(pk)
    form = ModelSettingsForm(request.POST) if request.method == "POST" else ModelSettingsForm.of(model)
    seen = request.POST.get("seen", "") if request.method == "POST" else model_settings.stamp(model)
    if request.method == "POST":
        try:
            changed = model_settings.change(by=signed_in(request), model=model, typed=form.typed(), seen=seen)
        except FieldErrors as error:
            form.take_errors(error.errors)
            if meanwhile.FIELD in error.errors:
                # What was changed is told now: the next time it may be changed back.
                model = model_settings.newest(model)
                seen = model_settings.stamp(model)
        else:
            messages.success(request, _said_of_change(model, changed))
            return redirect("model", changed.pk)
    context = {"place": "endpoints", "model": model, "form": form, "seen": seen}
    context["used"] = model_settings.is_used(model)
    return render(request, "models/form.html", context, status=_status(form.errors))


def _said_of_change(model: Model, changed: Model) -> str:
    if changed.pk == model.pk:
        return f"{changed.name} has these settings."
    return f"{changed.name} is version {changed.version} now; earlier runs keep version {model.version}."


@require_POST
@for_role(Role.ADMIN)
def model_retire(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a model out of what can be launched, or let it come back: as the button said that was pressed."""
    model = _model(pk)
    try:
        if request.POST.get("wanted") == "restored":
            model_settings.restore(by=signed_in(request), model=model)
            messages.success(request, f"{model.name} can be launched again.")
        else:
            model_settings.retire(by=signed_in(request), model=model)
            messages.success(request, f"{model.name} is retired; its runs stay.")
    except FieldErrors as error:
        messages.error(request, " ".join(error.errors.values()))
    return redirect("model", pk)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ADMIN)
def price_card_new(request: HttpRequest, pk: int) -> HttpResponse:
    """A price card for the model's id at its endpoint."""
    model = _model(pk)
    form = (
        PriceCardForm(request.POST) if request.method == "POST" else PriceCardForm(initial={"basis": "card"})
    )
    if request.method == "POST":
        values = form.values()
        try:
            card = price_cards.add(
                by=signed_in(request), endpoint=model.endpoint, model_id=model.model_id, **values
            )
        except FieldErrors as error:
            form.take_errors(error.errors)
        else:
            messages.success(request, _said_of_card(model, card))
            return redirect("model", pk)
    context = {"place": "endpoints", "model": model, "form": form}
    return render(request, "models/price_card.html", context, status=_status(form.errors))


def _said_of_card(model: Model, card: PriceCard) -> str:
    said = f"The {price_cards.named(card)} is stored."
    if model.price_basis == card.basis:
        return said
    words = price_cards.BASIS_WORDS[model.price_basis]
    if endpoints.price_is_known(model):
        kind = price_cards.BASIS_WORDS[card.basis]
        return f"{said} Calls are priced by {words} still: choose {kind} under Edit."
    return f"{said} Calls go by {words} still, which gives them no price: let them go by the card."


@require_POST
@for_role(Role.ADMIN)
def model_basis(request: HttpRequest, pk: int) -> HttpResponse:
    """Another price basis and nothing else: what a card that is there is used by."""
    model = _model(pk)
    typed = {"price_basis": request.POST.get("basis", "")[:100]}
    try:
        changed = model_settings.change(by=signed_in(request), model=model, typed=typed)
    except FieldErrors as error:
        messages.error(request, " ".join(error.errors.values()))
        return redirect("model", pk)
    words = price_cards.BASIS_WORDS[changed.price_basis]
    messages.success(request, f"{_said_of_change(model, changed)} Calls are priced by {words}.")
    return redirect("model", changed.pk)


@require_POST
@for_role(Role.ADMIN)
def price_card_end(request: HttpRequest, pk: int, card_id: int) -> HttpResponse:
    """Another end of a card."""
    card = get_object_or_404(PriceCard, pk=card_id)
    try:
        price_cards.end(
            by=signed_in(request), card=card, valid_until=request.POST.get("valid_until", "")[:100]
        )
    except FieldErrors as error:
        messages.error(request, " ".join(error.errors.values()))
    else:
        messages.success(request, f"The card holds as {price_cards.named(card)}.")
    return redirect("model", pk)


@require_POST
@for_role(Role.ADMIN)
def price_card_remove(request: HttpRequest, pk: int, card_id: int) -> HttpResponse:
    """Take a card out that was a mistake."""
    card = get_object_or_404(PriceCard, pk=card_id)
    said = price_cards.named(card)
    price_cards.remove(by=signed_in(request), card=card)
    messages.success(request, f"The {said} is removed; calls that it priced keep their cost.")
    return redirect("model", pk)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.ADMIN)
def model_list(request: HttpRequest, pk: int) -> HttpResponse:
    """The models that the server lists, searched as one types, chosen by hand."""
    endpoint = get_object_or_404(Endpoint, pk=pk)
    by = signed_in(request)
    errors: dict[str, str] = {}
    chosen = request.POST.getlist("chosen")
    typed = request.POST.get("typed", "")
    if request.method == "POST":
        try:
            added = model_lists.add(by=by, endpoint=endpoint, chosen=chosen, typed=typed)
        except FieldErrors as error:
            errors = error.errors
        else:
            messages.success(request, f"{len(added)} can be chosen under Launch: {_names(added)}.")
            return redirect("endpoint", pk)
    words = (request.POST.get("q") or request.GET.get("q", ""))[:200]
    found = model_lists.search(by=by, endpoint=endpoint, words=words, again="again" in request.GET)
    context = {
        "place": "endpoints",
        "endpoint": endpoint,
        "found": found,
        "words": words,
        "chosen": chosen,
        "typed": typed,
        "errors": errors,
        "connected": model_lists.connected_ids(endpoint=endpoint),
    }
    part = is_script(request)
    template = "models/_found.html" if part else "models/list.html"
    return render(request, template, context, status=_status(errors))


def _names(models: list[Model]) -> str:
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    return ", ".join(model.name for model in models[:3]) + more


def _status(errors: object) -> int:
    return HTTPStatus.UNPROCESSABLE_ENTITY if errors else HTTPStatus.OK


urlpatterns = [
    path("endpoints/<int:pk>/models/", model_list, name="model_list"),
    path("endpoints/models/<int:pk>/", model_detail, name="model"),
    path("endpoints/models/<int:pk>/runs/", model_runs, name="model_runs"),
    path("endpoints/models/<int:pk>/edit/", model_edit, name="model_edit"),
    path("endpoints/models/<int:pk>/retire", model_retire, name="model_retire"),
    path("endpoints/models/<int:pk>/basis", model_basis, name="model_basis"),
    path("endpoints/models/<int:pk>/prices/new/", price_card_new, name="price_card_new"),
    path("endpoints/models/<int:pk>/prices/<int:card_id>/end", price_card_end, name="price_card_end"),
    path(
        "endpoints/models/<int:pk>/prices/<int:card_id>/remove", price_card_remove, name="price_card_remove"
    ),
]
