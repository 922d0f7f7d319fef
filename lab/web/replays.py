"""Replaying recorded runs: the same turns of the model, with another harness, sandbox or verification."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods

from lab.models import Arm, HarnessVersion, Model, Role, Run
from lab.services import replays, runs
from lab.services.errors import FieldErrors
from lab.services.harness_pages import can_be_launched
from lab.web.forms import MOST_DIGITS, beside_its_field
from lab.web.http import for_role, signed_in


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def run_replay(request: HttpRequest, run_id: int) -> HttpResponse:
    """Replay one run, or all of its arm."""
    run = get_object_or_404(Run.objects.for_rows(), pk=run_id)
    return _replay(request, run.arm, run)


@require_http_methods(["GET", "HEAD", "POST"])
@for_role(Role.OPERATOR)
def arm_replay(request: HttpRequest, arm_id: int) -> HttpResponse:
    """Replay every recorded run of an arm."""
    arm = get_object_or_404(Arm, pk=arm_id)
    return _replay(request, arm, None)


def _replay(request: HttpRequest, arm: Arm, run: Run | None) -> HttpResponse:
    recorded = list(replays.recorded_runs(arm).select_related("task__task_set", "arm"))
    posted = request.method == "POST"
    unrecorded = replays.unrecorded(run) if run is not None else ""
    whole_arm = run is None or request.POST.get("scope", "arm" if unrecorded and not posted else "") == "arm"
    sent = request.POST if posted else request.GET
    on_difference = sent.get("on_difference", "stop")
    wanted = sent.get("harness_version", "" if posted else str(arm.harness_version_id))
    version = _version(wanted)
    errors: dict[str, str] = {}
    if posted:
        chosen = recorded if whole_arm or run is None else [run]
        try:
            experiment = _launch(request, chosen, version, on_difference)
        except FieldErrors as error:
            errors = error.errors
        else:
            only = list(experiment.runs.values_list("pk", flat=True)[:2])
            return redirect("run", only[0]) if len(only) == 1 else redirect("experiment", experiment.pk)
    context: dict[str, Any] = {
        "place": "experiments",
        "arm": arm,
        "run": run,
        "recorded": len(recorded),
        "unrecorded": unrecorded,
        "whole_arm": whole_arm,
        "choices": [(value, words, value == on_difference) for value, words in Model.OnDifference.choices],
        "versions": [(one, replays.what_parts(arm.harness_version, one)) for one in _versions(arm)],
        "chosen_version": version.pk if version else None,
        "errors": {name: beside_its_field(name, text) for name, text in errors.items()},
        "key": request.POST.get("key", "")[:64] or uuid.uuid4().hex,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if errors else HTTPStatus.OK
    return render(request, "replays/form.html", context, status=status)


def _launch(
    request: HttpRequest, chosen: list[Run], version: HarnessVersion | None, on_difference: str
) -> Any:
    if version is None:
        raise FieldErrors({"harness": "harness: this version is not known any more; choose another one"})
    if not can_be_launched(version):
        text = f"harness: the content of {version} is unknown, or not readable here; choose another one"
        raise FieldErrors({"harness": text})
    return runs.launch_replay(
        by=signed_in(request),
        runs=chosen,
        harness_version=version,
        on_difference=on_difference[:40],
        key=request.POST.get("key", "")[:64],
    )


def _version(text: str) -> HarnessVersion | None:
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        return None
    return HarnessVersion.objects.select_related("harness").filter(pk=int(text)).first()


def _versions(arm: Arm) -> list[HarnessVersion]:
    """The one that was used, and the newest of each harness."""
    newest = [version for version in HarnessVersion.objects.newest() if version.pk != arm.harness_version_id]
    return [one for one in (arm.harness_version, *newest) if can_be_launched(one)]


urlpatterns = [
    path("runs/<int:run_id>/replay/", run_replay, name="run_replay"),
    path("arms/<int:arm_id>/replay/", arm_replay, name="arm_replay"),
]
