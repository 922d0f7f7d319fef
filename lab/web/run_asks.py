"""What people ask of one run: buttons of its page, and two small forms, each a dialog or a page."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_POST

from lab.engine.limits import UNITS
from lab.models import Role, Run
from lab.services import controls, limits, preflights
from lab.services.errors import FieldErrors
from lab.services.facts import facts_of
from lab.web.ask_answers import done, refused
from lab.web.forms import LIMIT_LABELS, NEVER_LIFTED, beside_its_field, numbers_in, typed_amounts
from lab.web.http import for_role, is_script, signed_in


@require_POST
@for_role(Role.OPERATOR)
def ask_now(request: HttpRequest, run_id: int, control: str) -> HttpResponseBase:
    """A button that needs no more than a click; whatever came of it is said in a sentence."""
    run = get_object_or_404(Run, pk=run_id)
    by = signed_in(request)
    try:
        asked = controls.ask(run=run, by=by, control=control)
    except FieldErrors as error:
        return refused(request, "run", run_id, error.errors, field="control")
    return done(request, "run", run_id, asked.said)


@require_POST
@for_role(Role.OPERATOR)
def again(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Run it again, after a question where the newest preflight of its model is failing."""
    run = get_object_or_404(Run.objects.for_rows(), pk=run_id)
    by = signed_in(request)
    key = request.POST.get("key", "")[:64]
    # A form of one person, sent twice, is one ask; what another sends is another.
    value = {"key": f"{by.pk}:{key}", "despite": numbers_in(request.POST.getlist("despite"))}
    try:
        asked = controls.ask(run=run, by=by, control="again", value=value)
    except FieldErrors as error:
        failing = preflights.failing([run.arm.model])
        if error.errors.keys() != {"despite"} or not failing:
            return refused(request, "run", run_id, error.errors, field="control")
        shown = [(preflight, preflights.failing_titles(preflight)) for preflight in failing]
        context = {"failing": shown, "key": key}
        return _form(request, run_id, "runs/_again_form.html", "Run again", error.errors, context)
    if not is_script(request):
        messages.info(request, asked.said)
    return redirect("run", asked.run.pk)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def message(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """A message to the agent; after a mistake what was typed is still there."""
    run = get_object_or_404(Run, pk=run_id)
    text = request.POST.get("message", "")
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            asked = controls.ask(run=run, by=signed_in(request), control="message", value=text)
        except FieldErrors as error:
            errors = error.errors
        else:
            return done(request, "run", run_id, asked.said)
    context = {"text": text, "longest": controls.LONGEST_MESSAGE}
    return _form(request, run_id, "runs/_message_form.html", "Message", errors, context)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def limit(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Other limits for a run that goes on: all of them or, after a mistake in one, none."""
    run = get_object_or_404(Run.objects.for_rows(), pk=run_id)
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            said = controls.ask_limits(
                run=run, by=signed_in(request), typed=typed_amounts(request.POST, LIMIT_LABELS)
            )
        except FieldErrors as error:
            errors = error.errors
        else:
            return done(request, "run", run_id, said)
    rows = [_row(request, run, name, errors.get(name, "")) for name in LIMIT_LABELS]
    return _form(request, run_id, "runs/_limit_form.html", "Limits", errors, {"rows": rows})


@dataclass(frozen=True)
class LimitRow:
    """One limit of the form: what is used, what holds now, what was typed and what is wrong with it."""

    limit: str
    label: str
    unit: str
    used: str
    now: str
    value: str
    none: bool
    can_be_lifted: bool
    error: str


def _row(request: HttpRequest, run: Run, name: str, error: str) -> LimitRow:
    now = limits.values_in_force(run=run).get(name)
    window = run.arm.model.context_window if name == "max_context_tokens" else None
    return LimitRow(
        limit=name,
        label=LIMIT_LABELS[name],
        unit=UNITS[name],
        used=_used(run, name),
        now="no limit" if now is None else f"{float(now):,.10g}",
        value=request.POST.get(name, ""),
        none=f"{name}_none" in request.POST,
        can_be_lifted=name not in NEVER_LIFTED and window is None and now is not None,
        error=beside_its_field(name, error),
    )


def _used(run: Run, name: str) -> str:
    if name in NEVER_LIFTED:
        return ""
    facts = facts_of(run)
    if name == "max_cost_usd" and facts.cost is None and facts.calls:
        return "unknown so far"
    how = "at least " if name == "max_cost_usd" and facts.cost_unknown else ""
    if name == "max_context_tokens" and limits.context_is_estimated(run=run):
        how = "about "
    return f"{how}{limits.said(name, round(limits.used(run=run, name=name), 2))} used"


def _form(
    request: HttpRequest,
    run_id: int,
    template: str,
    title: str,
    errors: dict[str, str],
    context: dict[str, Any],
) -> HttpResponse:
    """The form as a fragment for a dialog, or as a page."""
    shown = {name: beside_its_field(name, text) for name, text in errors.items()}
    context |= {"place": "experiments", "run_id": run_id, "form": template, "title": title, "errors": shown}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if errors else HTTPStatus.OK
    return render(request, template if is_script(request) else "runs/ask.html", context, status=status)


_BUTTONS = ("pause", "resume", "cancel", "attempt")
urlpatterns = [
    *(path(f"runs/<int:run_id>/{name}", ask_now, {"control": name}, name=f"run_{name}") for name in _BUTTONS),
    path("runs/<int:run_id>/again", again, name="run_again"),
    path("runs/<int:run_id>/message", message, name="run_message"),
    path("runs/<int:run_id>/limit", limit, name="run_limit"),
]
