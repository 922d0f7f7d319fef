"""What people ask of a whole experiment: buttons of its page, and forms that work without script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods

from lab.engine.errors import InvalidValueError
from lab.engine.limits import UNITS, parse_limit
from lab.models import Experiment, HarnessVersion, Model, Preflight, Role
from lab.services import budgets, experiment_asks, harness_pages, preflights
from lab.services.errors import FieldErrors
from lab.web.ask_answers import done, refused
from lab.web.forms import LIMIT_LABELS, NEVER_LIFTED, beside_its_field, numbers_in, row_number, typed_amounts
from lab.web.http import for_role, is_script, signed_in

_NOT_CHOSEN = "nothing is chosen, or it is not known any more; choose one from the list"


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def ask(request: HttpRequest, pk: int, what: str) -> HttpResponseBase:
    """Ask it, or show the form for it; whatever came of it is said in a sentence."""
    experiment = get_object_or_404(Experiment, pk=pk)
    act = _ACTS.get(what)
    if act is None:
        raise Http404(f"Nothing of an experiment is called {what[:40]!r}.")
    form = _FORMS.get(what)
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            return done(request, "experiment", pk, act(request, experiment, signed_in(request)))
        except FieldErrors as error:
            errors = error.errors
            if form is None or set(errors) == {"experiment"}:
                return refused(request, "experiment", pk, errors, field="experiment")
    if form is None:
        return redirect("experiment", pk)
    title, context_of = form
    shown = {name: beside_its_field(name, text) for name, text in errors.items()}
    context = {
        "place": "experiments",
        "experiment": experiment,
        "what": what,
        "title": title,
        "errors": shown,
    }
    context |= context_of(request, experiment, errors)
    template = f"experiments/_ask_{what}.html" if is_script(request) else "experiments/ask.html"
    status = HTTPStatus.UNPROCESSABLE_ENTITY if errors else HTTPStatus.OK
    return render(request, template, {**context, "form": f"experiments/_ask_{what}.html"}, status=status)


@dataclass(frozen=True)
class AskedNumber:
    """One line of a form: what is used of it, what holds now, what was typed and what is wrong with it."""

    name: str
    label: str
    unit: str
    used: str
    now: str
    value: str
    none: bool
    can_be_lifted: bool
    error: str


def _pause(request: HttpRequest, experiment: Experiment, by: User) -> str:
    return experiment_asks.pause(experiment=experiment, by=by)


def _resume(request: HttpRequest, experiment: Experiment, by: User) -> str:
    return experiment_asks.resume(experiment=experiment, by=by)


def _rerun(request: HttpRequest, experiment: Experiment, by: User) -> str:
    return experiment_asks.rerun_infrastructure(experiment=experiment, by=by)


def _cancel(request: HttpRequest, experiment: Experiment, by: User) -> str:
    # Whoever sends no number was shown none.
    expected = row_number(request.POST.get("expected", ""))
    return experiment_asks.cancel(experiment=experiment, by=by, expected=expected)


def _add_seeds(request: HttpRequest, experiment: Experiment, by: User) -> str:
    seeds, despite = request.POST.get("seeds", ""), numbers_in(request.POST.getlist("despite"))
    return experiment_asks.add_seeds(experiment=experiment, by=by, seeds=seeds, despite=despite)


def _add_arm(request: HttpRequest, experiment: Experiment, by: User) -> str:
    """Raises: FieldErrors."""
    version, model = _chosen_version(request), _chosen_model(request)
    errors = {}
    if version is None:
        errors["harness"] = (
            "harness: nothing is chosen, or it is not known any more; choose one from the list"
        )
    if model is None:
        errors["models"] = f"models: {_NOT_CHOSEN}"
    limits: dict[str, str | None] = {}
    try:
        limits = typed_amounts(request.POST, LIMIT_LABELS)
    except FieldErrors as error:
        errors |= error.errors
    if version is None or model is None or errors:
        errors = {**_unread(request), **errors}
        raise FieldErrors(errors)
    return experiment_asks.add_arm(
        experiment=experiment,
        by=by,
        harness_version=version,
        model=model,
        limits=limits,
        despite=numbers_in(request.POST.getlist("despite")),
    )


def _unread(request: HttpRequest) -> dict[str, str]:
    """What is wrong with the limits by themselves."""
    errors = {}
    for name in LIMIT_LABELS:
        try:
            if text := request.POST.get(name, "").strip():
                parse_limit(name, text)
        except InvalidValueError as error:
            errors[name] = str(error)
    return errors


def _budget(request: HttpRequest, experiment: Experiment, by: User) -> str:
    """Raises: FieldErrors."""
    typed = typed_amounts(request.POST, {**budgets.LABELS, "concurrency": ""})
    if not typed and "goes_on" not in request.POST:
        raise FieldErrors({"form": "Nothing was typed; write a new budget or go back."})
    said, errors = [], dict[str, str]()
    with transaction.atomic():
        if "concurrency" in typed:
            at_once = typed.pop("concurrency")
            try:
                said.append(experiment_asks.change_concurrency(experiment=experiment, by=by, typed=at_once))
            except FieldErrors as error:
                errors |= error.errors
        try:
            goes_on = "goes_on" in request.POST
            if typed or goes_on:
                said.append(
                    experiment_asks.change_budgets(experiment=experiment, by=by, typed=typed, goes_on=goes_on)
                )
        except FieldErrors as error:
            errors |= error.errors
        if errors:
            raise FieldErrors(errors)
    return " ".join(said)


def _seeds_context(request: HttpRequest, experiment: Experiment, errors: dict[str, str]) -> dict[str, Any]:
    now = experiment_asks.seeds_of(experiment)
    arms, tasks = experiment_asks.arms_of(experiment), experiment_asks.tasks_of(experiment)
    return {
        "now": now,
        "value": request.POST.get("seeds", str(now + 1)),
        "runs_a_seed": len(arms) * len(tasks),
        "arms": len(arms),
        "tasks": len(tasks),
        **_despite(errors, [arm.model for arm in arms]),
    }


def _arm_context(request: HttpRequest, experiment: Experiment, errors: dict[str, str]) -> dict[str, Any]:
    version, model = _chosen_version(request), _chosen_model(request)
    return {
        "versions": [one.version for one in harness_pages.launchable(also=version.pk if version else 0)],
        "models": Model.objects.in_use(),
        "chosen_version": version.pk if version else None,
        "chosen_model": model.pk if model else None,
        "runs": len(experiment_asks.cells_of(experiment)),
        "rows": [
            _row(request, name, label, UNITS[name], now="the harness’s", errors=errors)
            for name, label in LIMIT_LABELS.items()
        ],
        **_despite(errors, [model] if model else []),
    }


def _budget_context(request: HttpRequest, experiment: Experiment, errors: dict[str, str]) -> dict[str, Any]:
    lines = budgets.lines(budgets.spent(experiment))
    rows = [
        _row(
            request,
            line.name,
            line.label,
            budgets.UNITS[line.name],
            used=f"{line.used} so far",
            now=line.budget or "no budget",
            lifted=bool(line.budget),
            errors=errors,
        )
        for line in lines
    ]
    at_once = experiment.concurrency
    rows.append(
        _row(
            request,
            "concurrency",
            "Runs at once",
            "runs",
            now="no limit" if at_once is None else str(at_once),
            lifted=at_once is not None,
            errors=errors,
        )
    )
    paused = experiment.state == Experiment.State.PAUSED
    ticked = "goes_on" in request.POST if request.method == "POST" else bool(experiment.paused_by_budget)
    return {"rows": rows, "paused": paused, "goes_on": ticked}


def _cancel_context(request: HttpRequest, experiment: Experiment, errors: dict[str, str]) -> dict[str, Any]:
    return {"count": experiment_asks.open_runs(experiment)}


def _row(
    request: HttpRequest,
    name: str,
    label: str,
    unit: str,
    *,
    now: str,
    errors: dict[str, str],
    used: str = "",
    lifted: bool = True,
) -> AskedNumber:
    return AskedNumber(
        name=name,
        label=label,
        unit=unit,
        used=used,
        now=now,
        value=request.POST.get(name, ""),
        none=f"{name}_none" in request.POST,
        can_be_lifted=lifted and name not in NEVER_LIFTED,
        error=beside_its_field(name, errors.get(name, "")),
    )


def _chosen_version(request: HttpRequest) -> HarnessVersion | None:
    number = row_number(request.POST.get("harness_version", request.GET.get("harness_version", "")))
    return HarnessVersion.objects.select_related("harness").filter(pk=number).first()


def _chosen_model(request: HttpRequest) -> Model | None:
    number = row_number(request.POST.get("model", request.GET.get("model", "")))
    return Model.objects.in_use().filter(pk=number).first()


def _despite(errors: dict[str, str], models: list[Model]) -> dict[str, list[tuple[Preflight, list[str]]]]:
    """What going on asks a person to confirm, once it has been asked for."""
    if "despite" not in errors:
        return {"failing": []}
    found = preflights.failing({model.pk: model for model in models}.values())
    return {"failing": [(one, preflights.failing_titles(one)) for one in found]}


_ACTS: dict[str, Callable[[HttpRequest, Experiment, User], str]] = {
    "pause": _pause,
    "resume": _resume,
    "rerun_infrastructure": _rerun,
    "add_seeds": _add_seeds,
    "add_arm": _add_arm,
    "budget": _budget,
    "cancel": _cancel,
}
_FORMS: dict[str, tuple[str, Callable[[HttpRequest, Experiment, dict[str, str]], dict[str, Any]]]] = {
    "add_seeds": ("Add seeds", _seeds_context),
    "add_arm": ("Add an arm", _arm_context),
    "budget": ("Budget", _budget_context),
    "cancel": ("Cancel", _cancel_context),
}
urlpatterns = [path("experiments/<int:pk>/ask/<str:what>/", ask, name="experiment_ask")]
