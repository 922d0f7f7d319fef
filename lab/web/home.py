"""The first page: launch, what runs now, what finished, what to do next."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from lab.models import Experiment, Role, Run, TaskSet
from lab.services import isolation, lab, overview, runs, sample, tasks
from lab.services.errors import FieldErrors
from lab.web.forms import LaunchForm, row_number
from lab.web.http import for_role, signed_in


@require_safe
@for_role(Role.VIEWER)
def home(request: HttpRequest) -> HttpResponse:
    """What runs, what finished, and Launch: of the set that `?set=` names, with the harness version that
    `?harness=` names chosen."""
    fresh = not Run.objects.exists()
    task_set = tasks.launchable_set(row_number(request.GET.get("set", "")))
    form = LaunchForm(task_set=task_set, harness=row_number(request.GET.get("harness", "")))
    return render(request, "home/detail.html", _context(form, task_set, fresh=fresh))


@require_POST
@for_role(Role.OPERATOR)
def launch(request: HttpRequest) -> HttpResponse:
    """Launch and go to the run, or to the experiment of several; on a mistake the form stays filled."""
    task_set = tasks.launchable_set(row_number(request.POST.get("task_set", "")))
    form = LaunchForm(request.POST, task_set=task_set)
    if form.is_valid():
        try:
            experiment = runs.launch(
                by=signed_in(request),
                tasks=list(form.cleaned_data["tasks"]),
                harness_versions=[form.cleaned_data["harness_version"]],
                models=list(form.cleaned_data["models"]),
                seeds=form.cleaned_data["seeds"].strip() or 1,
                limits=form.limits_as_typed(),
                despite=form.despite_numbers,
                idempotency_key=form.cleaned_data["idempotency_key"],
            )
        except FieldErrors as error:
            form.take_errors(error.errors)
        else:
            return _to(experiment)
    return render(request, "home/detail.html", _context(form, task_set, fresh=False), status=422)


@require_POST
@for_role(Role.ADMIN)
def without_isolation(request: HttpRequest) -> HttpResponse:
    """An admin agrees, once for the lab, that commands run as plain processes; asked before it is stored."""
    if request.POST.get("agreed") != "yes":
        return render(request, "home/without_isolation.html", {"place": "home"})
    runs.consent_without_isolation(by=signed_in(request))
    messages.warning(
        request, "Runs without isolation are allowed from now on; each is marked “not isolated”."
    )
    return redirect("home")


def _to(experiment: Experiment) -> HttpResponse:
    first_two = list(experiment.runs.values_list("pk", flat=True)[:2])
    if len(first_two) == 1:
        return redirect("run", first_two[0])
    return redirect("experiment", experiment.pk)


# So many other task sets stand beside Launch; all of them are on their own page.
_OTHER_SETS = 3


def _context(form: LaunchForm, task_set: TaskSet | None, *, fresh: bool) -> dict[str, Any]:
    others = [other for other in tasks.newest_sets() if task_set is None or other.name != task_set.name]
    return {
        "place": "home",
        "form": form,
        "fresh": fresh,
        "task_set": task_set,
        "other_sets": others[:_OTHER_SETS],
        "more_sets": max(0, len(others) - _OTHER_SETS),
        "isolation": isolation.isolation(),
        "running": overview.running(),
        "most_running": overview.RUNNING_SHOWN,
        "slots": overview.slots(),
        "finished": overview.finished(),
        "most_finished": overview.FINISHED_SHOWN,
        "todo": overview.suggestions(task_set=tasks.current_task_set()),
        "latest": overview.latest_experiment(),
        "sample": sample.state_if_known(),
        "lab": lab.state(),
    }
