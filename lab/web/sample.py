"""The sample lab: loaded piece by piece, so that a person sees how far it is, and removed on asking once."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from lab.engine.errors import LabError
from lab.models import Role
from lab.services import sample
from lab.services.sample import SampleState
from lab.web.http import for_role, signed_in

# One request loads for so long and then says how far it is; the page, or a person, asks for the next piece.
PIECE_SECONDS = 1.0


@require_safe
@for_role(Role.VIEWER)
def sample_detail(request: HttpRequest) -> HttpResponse:
    """How much of the sample is loaded, and what can be done about it."""
    return render(request, "sample/detail.html", {"place": "home", "sample": sample.state()})


@require_POST
@for_role(Role.OPERATOR)
def load(request: HttpRequest) -> HttpResponse:
    """Load a piece of the sample; a page that asked by script goes on by itself until all of it is there."""
    by_script = request.headers.get("HX-Request") == "true"
    try:
        now = sample.load(by=signed_in(request), seconds=PIECE_SECONDS)
    except (LabError, OSError) as error:
        context = {"sample": sample.state(), "error": f"{error}"}
        if by_script:
            return render(request, "sample/_progress.html", context)
        return render(request, "sample/detail.html", {"place": "home", **context}, status=422)
    if not now.complete:
        if by_script:
            return render(request, "sample/_progress.html", {"sample": now, "goes_on": True})
        return render(request, "sample/detail.html", {"place": "home", "sample": now, "goes_on": True})
    address = _loaded(request, now)
    return HttpResponseClientRedirect(address) if by_script else redirect(address)


@require_POST
@for_role(Role.OPERATOR)
def remove(request: HttpRequest) -> HttpResponse:
    """Remove the sample, after asking once with the count."""
    if request.POST.get("agreed") != "yes":
        return render(request, "sample/confirm_remove.html", {"place": "home", "sample": sample.state()})
    try:
        removed = sample.remove(by=signed_in(request))
    except LabError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The sample lab is removed: {removed.runs} runs and what they stored.")
    return redirect("home")


def _loaded(request: HttpRequest, state: SampleState) -> str:
    if state.experiment is None:
        return reverse("home")
    messages.success(
        request,
        f"The sample lab is loaded: {state.total} recorded runs, marked “demo”. The first page removes them.",
    )
    return reverse("experiment", args=[state.experiment.pk])


urlpatterns = [
    path("sample/", sample_detail, name="sample"),
    path("sample/load/", load, name="sample_load"),
    path("sample/remove/", remove, name="sample_remove"),
]
