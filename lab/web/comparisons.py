"""Runs side by side, and the pages on which one chooses them."""

from __future__ import annotations

import datetime as dt

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from lab.models import Experiment, Role
from lab.services import compared_arms, comparison_choices, comparisons, overview
from lab.services.comparison_choices import Choosing
from lab.web.http import for_role


@require_safe
@for_role(Role.VIEWER)
def comparison(request: HttpRequest) -> HttpResponse:
    """`?runs=12,15` side by side; with fewer than two, or with `choose`, the runs one may add."""
    asked = request.GET.getlist("runs")
    runs = comparison_choices.wanted(asked, choose="choose" in request.GET)
    if isinstance(runs, Choosing):
        context = {"place": "experiments", "choosing": runs}
        return render(request, "comparisons/choose.html", context, status=400 if runs.errors else 200)
    if len(asked) > 1:
        # What a form sent becomes the address that one passes on.
        return _to_runs([run.pk for run in runs])
    context = {
        "place": "experiments",
        "comparison": comparisons.compare(runs),
        "query": ",".join(str(run.pk) for run in runs),
        "may_add": len(runs) < comparisons.MOST_RUNS,
        "now": dt.datetime.now(dt.UTC),
    }
    return render(request, "comparisons/detail.html", context)


@require_safe
@for_role(Role.VIEWER)
def compare_arms(request: HttpRequest, pk: int) -> HttpResponse:
    """The runs of two or more arms of an experiment that can be held against each other."""
    experiment = get_object_or_404(Experiment, pk=pk)
    chosen = set(request.GET.getlist("arm"))
    arms = [arm for arm, _ in overview.arms_of(pk) if arm.letter in chosen]
    matches = compared_arms.matches(arms)
    if len(matches) == 1:
        return _to_runs([run.pk for run in matches[0].runs][: comparisons.MOST_RUNS])
    context = {"place": "experiments", "experiment": experiment, "arms": arms, "matches": matches}
    context["lights"] = compared_arms.lights_of_arms(arms)
    context["sandboxes"] = compared_arms.sandboxes_of_arms(arms)
    return render(request, "comparisons/arms.html", context)


def _to_runs(numbers: list[int]) -> HttpResponseRedirect:
    return redirect(f"{reverse('comparison')}?runs={','.join(str(number) for number in numbers)}")


urlpatterns = [
    path("compare/", comparison, name="comparison"),
    path("experiments/<int:pk>/compare/", compare_arms, name="compare_arms"),
]
