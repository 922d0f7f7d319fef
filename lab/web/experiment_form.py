"""A new experiment: the form with its preview, from a template, a file or another experiment."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods, require_safe

from lab.models import Experiment, Role
from lab.services import experiment_plans, isolation, tasks
from lab.services.errors import FieldErrors
from lab.services.experiment_plans import Plan
from lab.services.plan_files import LARGEST_PLAN
from lab.web import experiment_templates
from lab.web.experiment_fields import ExperimentForm, data_of, empty
from lab.web.experiment_previews import preview_of
from lab.web.http import for_role, signed_in


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def experiment_new(request: HttpRequest) -> HttpResponse:
    """The form, empty or as `?template=` begins it; a POST does what its button's `do` says."""
    if request.method == "POST":
        return _ACTIONS.get(request.POST.get("do", ""), _launch)(request)
    key = request.GET.get("template", "")
    if key:
        begun = experiment_templates.begun(key)
        return _page(request, ExperimentForm(begun.data), notes=begun.notes, template=key)
    return _page(request, ExperimentForm(empty(tasks.current_task_set())))


@require_safe
@for_role(Role.OPERATOR)
def experiment_clone(request: HttpRequest, pk: int) -> HttpResponse:
    """The form as another experiment was made, with what cannot be the same named on top."""
    experiment = get_object_or_404(Experiment, pk=pk)
    if experiment.kind == Experiment.Kind.IMPORTED:
        return _recorded_elsewhere(request, experiment)
    plan = experiment_plans.of(experiment)
    data = data_of(plan)
    data["cloned_from"] = str(pk)
    return _page(request, ExperimentForm(data), notes=_not_here(plan))


@require_safe
@for_role(Role.VIEWER)
def experiment_yaml(request: HttpRequest, pk: int) -> HttpResponse:
    """The experiment's plan as a file for `manage.py launch` or for the form of another lab."""
    experiment = get_object_or_404(Experiment, pk=pk)
    if experiment.kind == Experiment.Kind.IMPORTED:
        return _recorded_elsewhere(request, experiment)
    return _file(experiment_plans.write(experiment), f"experiment-{pk}.yaml")


def _recorded_elsewhere(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Back to an imported experiment, with why it has no plan."""
    messages.warning(
        request,
        f"Experiment {experiment.pk} was recorded by other programs and cannot be launched again: the lab "
        "has neither its tasks nor its harnesses. Begin a new experiment with those that are here.",
    )
    return redirect("experiment", experiment.pk)


def _launch(request: HttpRequest) -> HttpResponse:
    form = ExperimentForm(request.POST)
    raw = form.raw()
    own = dict(form.errors)
    try:
        plan = experiment_plans.checked(raw)
        if not own:
            cloned_from = Experiment.objects.filter(pk=form.cloned_from).first()
            made = experiment_plans.launch(
                by=signed_in(request), plan=plan, key=form.key, despite=form.despite, cloned_from=cloned_from
            )
            return redirect("experiment", made.pk)
    except FieldErrors as error:
        form.take_errors(error.errors)
    return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY)


def _preview(request: HttpRequest) -> HttpResponse:
    """The panel alone for a script that asks for it, else the whole page."""
    form = ExperimentForm(request.POST)
    if "HX-Request" not in request.headers:
        return _page(request, form)
    return render(request, "experiments/_new_preview.html", {"preview": preview_of(form)})


def _tasks(request: HttpRequest) -> HttpResponse:
    """The tasks of the set that was chosen."""
    form = ExperimentForm(request.POST)
    if "HX-Request" not in request.headers:
        return _page(request, form)
    return render(request, "experiments/_new_tasks.html", {"form": form})


def _read_yaml(request: HttpRequest) -> HttpResponse:
    """Fill the form in from a file or a text; what the lab does not have is named beside its field."""
    text, problem = _given_text(request)
    try:
        if problem:
            raise FieldErrors({"yaml": problem})
        plan = experiment_plans.read(text)
    except FieldErrors as error:
        form = ExperimentForm(empty(tasks.current_task_set()))
        context = {"yaml": text, "yaml_errors": list(error.errors.values())}
        return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY, **context)
    form = ExperimentForm(data_of(plan))
    try:
        experiment_plans.resolve(plan)
    except FieldErrors as error:
        form.take_errors(error.errors)
        return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY, yaml=text)
    return _page(request, form, notes=["The form is filled in from the YAML; nothing is launched yet."])


def _write_yaml(request: HttpRequest) -> HttpResponse:
    """The form as a file, launched or not."""
    form = ExperimentForm(request.POST)
    raw = form.raw()
    try:
        plan = experiment_plans.checked(raw)
        if not form.errors:
            return _file(experiment_plans.dump(plan), "experiment.yaml")
    except FieldErrors as error:
        form.take_errors(error.errors)
    return _page(request, form, status=HTTPStatus.UNPROCESSABLE_ENTITY)


_ACTIONS = {
    "launch": _launch,
    "preview": _preview,
    "tasks": _tasks,
    "yaml": _read_yaml,
    "save": _write_yaml,
}


def _given_text(request: HttpRequest) -> tuple[str, str]:
    """The text of the file where there is one, else what was pasted; and what is wrong with it."""
    file = request.FILES.get("file")
    if file is None:
        return request.POST.get("yaml", ""), ""
    if (file.size or 0) > LARGEST_PLAN:
        return "", f"yaml: {file.name!r} has {file.size:,} bytes, and at most {LARGEST_PLAN:,} are read"
    try:
        return file.read().decode(), ""
    except UnicodeDecodeError:
        return "", f"yaml: {file.name!r} is no text in UTF-8; choose a YAML file"


def _not_here(plan: Plan) -> list[str]:
    """What of a plan the form cannot hold, because it is gone."""
    try:
        experiment_plans.resolve(plan)
    except FieldErrors as error:
        return list(error.errors.values())
    return []


def _page(
    request: HttpRequest,
    form: ExperimentForm,
    *,
    status: int = HTTPStatus.OK,
    **more: Any,
) -> HttpResponse:
    errors = dict(form.errors)
    preview = preview_of(ExperimentForm(form.data))
    cloned_from = Experiment.objects.filter(pk=form.cloned_from).first() if form.cloned_from else None
    context = {
        "place": "experiments",
        "form": form,
        "errors": errors,
        "preview": preview,
        "templates": experiment_templates.templates(),
        "cloned_from": cloned_from,
        "unpinned": experiment_plans.unpinned(cloned_from) if cloned_from else [],
        "isolation": isolation.isolation(),
        **more,
    }
    return render(request, "experiments/new.html", context, status=status)


def _file(text: str, name: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=headers)


urlpatterns = [
    path("experiments/new/", experiment_new, name="experiment_new"),
    path("experiments/<int:pk>/clone/", experiment_clone, name="experiment_clone"),
    path("experiments/<int:pk>/plan.yaml", experiment_yaml, name="experiment_yaml"),
]
