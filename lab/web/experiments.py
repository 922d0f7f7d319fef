"""Experiments as lists of runs that grow while one watches."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.models import Experiment, Role, Run
from lab.services import overview
from lab.web.http import for_role

PAGE = 100


@require_safe
@for_role(Role.VIEWER)
def experiment_list(request: HttpRequest) -> HttpResponse:
    experiments = Experiment.objects.select_related("launched_by", "task_set").annotate(
        run_count=Count("runs"),
        ended_count=Count("runs", filter=Q(runs__status=Run.Status.ENDED)),
        **overview.rates("runs"),
    )
    experiments = experiments.order_by("-id")
    page = Paginator(experiments, PAGE).get_page(request.GET.get("page"))
    rows = [(experiment, overview.rate_of(experiment)) for experiment in page]
    return render(request, "experiments/list.html", {"place": "experiments", "page": page, "rows": rows})


@require_safe
@for_role(Role.VIEWER)
def experiment_detail(request: HttpRequest, pk: int) -> HttpResponse:
    experiment = get_object_or_404(Experiment.objects.select_related("launched_by", "task_set"), pk=pk)
    runs = Run.objects.filter(experiment=experiment).for_rows().order_by("position", "id")
    page = Paginator(runs, PAGE).get_page(request.GET.get("page"))
    context = {
        "place": "experiments",
        "experiment": experiment,
        "arms": overview.arms_of(pk),
        "page": page,
        "counts": overview.experiment_counts(pk),
    }
    return render(request, "experiments/detail.html", context)
