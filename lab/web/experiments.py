"""Experiments as lists of runs that grow while one watches."""

from __future__ import annotations

from typing import NamedTuple

from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from lab.models import Experiment, Role, Run
from lab.services import compared_arms, exports, flags, overview, preflights, replays
from lab.web.http import for_role

PAGE = 100
# What a list may be narrowed to: its key in the address, its word, and what it means.
_FILTERS = {
    "": ("all", Q()),
    "own": ("own", Q(kind=Experiment.Kind.LAUNCHED)),
    "imported": ("imported", Q(kind=Experiment.Kind.IMPORTED)),
    "demo": ("demo", Q(kind=Experiment.Kind.DEMO)),
}


class Filter(NamedTuple):
    """A list narrowed to something, and how much there is of it."""

    key: str
    word: str
    number: int


@require_safe
@for_role(Role.VIEWER)
def experiment_list(request: HttpRequest) -> HttpResponse:
    experiments = Experiment.objects.select_related("launched_by", "task_set").annotate(
        run_count=Count("runs"),
        ended_count=Count("runs", filter=Q(runs__status=Run.Status.ENDED)),
        **overview.rates("runs"),
    )
    shown = request.GET.get("show", "")
    word, condition = _FILTERS.get(shown, (shown, Q(pk=None)))
    page = Paginator(experiments.filter(condition).order_by("-id"), PAGE).get_page(request.GET.get("page"))
    context = {
        "place": "experiments",
        "page": page,
        "rows": [(experiment, overview.rate_of(experiment)) for experiment in page],
        "filters": _counted(),
        "shown": shown,
        "nothing_shown": f"No experiment is “{word[:40]}”.",
        "kept": urlencode({"show": shown}) if shown else "",
    }
    return render(request, "experiments/list.html", context)


def _counted() -> list[Filter]:
    """The filters with their counts, none where they would all show the same."""
    counts = Experiment.objects.aggregate(
        **{key or "all": Count("pk", filter=condition) for key, (_, condition) in _FILTERS.items()}
    )
    narrower = [Filter(key, word, counts[key or "all"]) for key, (word, _) in _FILTERS.items()]
    shown = [one for one in narrower if one.number or one.key in ("", "own")]
    return shown if any(one.key not in ("", "own") for one in shown) else []


@require_safe
@for_role(Role.VIEWER)
def experiment_detail(request: HttpRequest, pk: int) -> HttpResponse:
    experiment = get_object_or_404(Experiment.objects.select_related("launched_by", "task_set"), pk=pk)
    runs = Run.objects.filter(experiment=experiment).for_rows().order_by("position", "id")
    page = Paginator(runs, PAGE).get_page(request.GET.get("page"))
    arms = overview.arms_of(pk)
    context = {
        "place": "experiments",
        "experiment": experiment,
        "arms": arms,
        "lights": compared_arms.lights_of_arms([arm for arm, _ in arms]),
        "sandboxes": compared_arms.sandboxes_of_arms([arm for arm, _ in arms]),
        "page": page,
        "counts": overview.experiment_counts(pk),
        "flagged": flags.flagged_runs(pk),
        "replayable": replays.replayable([arm for arm, _ in arms]),
        "despite": preflights.numbered(experiment.launched_despite),
        "exports": exports.CHOICES,
    }
    return render(request, "experiments/detail.html", context)
