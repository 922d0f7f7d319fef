"""Experiments: all of them, one as a live grid of tasks, arms and seeds, and one as a list of its runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from lab.models import Experiment, Role, Run
from lab.render.grids import CONTENTS, grid_html
from lab.services import (
    compared_arms,
    experiment_asks,
    exports,
    flags,
    grid_summaries,
    grids,
    overview,
    preflights,
    replays,
)
from lab.web.http import for_role, holds

PAGE = 100
# More rows than this are shown in the compact form unless asked.
FULL_ROWS = 40
# Names of tasks up to so many characters fit in the column of every window.
_SHORT_NAME = 18
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
    shown = request.GET.get("show", "")
    word, condition = _FILTERS.get(shown, (shown, Q(pk=None)))
    experiments = Experiment.objects.select_related("launched_by", "task_set").filter(condition)
    page = Paginator(experiments.order_by("-id"), PAGE).get_page(request.GET.get("page"))
    context = {
        "place": "experiments",
        "page": page,
        "rows": grid_summaries.listed(list(page)),
        "filters": _counted(),
        "shown": shown,
        "nothing_shown": f"No experiment is “{word[:40]}”.",
        "kept": urlencode({"show": shown}) if shown else "",
    }
    return render(request, "experiments/list.html", context)


def _counted() -> list[Filter]:
    """The filters with their counts, none where they would all show the same."""
    kinds = grid_summaries.count_kinds()
    counts = {"": sum(kinds.values()), "own": kinds.get(Experiment.Kind.LAUNCHED, 0)} | {
        key: kinds.get(key, 0) for key in ("imported", "demo")
    }
    narrower = [Filter(key, word, counts[key]) for key, (word, _) in _FILTERS.items()]
    shown = [one for one in narrower if one.number or one.key in ("", "own")]
    return shown if any(one.key not in ("", "own") for one in shown) else []


@require_safe
@for_role(Role.VIEWER)
def experiment_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """The grid; `?as=list` is the list of its runs."""
    experiment = get_object_or_404(
        Experiment.objects.select_related("launched_by", "task_set", "cloned_from"), pk=pk
    )
    if request.GET.get("as") == "list":
        return render(request, "experiments/runs.html", _list_context(request, experiment))
    grid = grids.read(pk)
    summary = grid_summaries.summary(grid, experiment)
    shown = Shown.asked(request, summary, tasks=len(grid.tasks))
    context = {
        "experiment": experiment,
        "state": grid_summaries.state_badge(experiment, grid),
        "summary": summary,
        "shown": shown,
        "table": grid_html(grid.rows(sort=shown.sort), grid.heads, show=shown.show),
        "long_names": any(len(task.slug) > _SHORT_NAME for task in grid.tasks),
        "mark": grid.mark,
        "socket": f"/ws/experiments/{pk}/grid/",
        "sampling": grid_summaries.sampling_differences(grid.arms),
        "budget": grid_summaries.budget_lines(experiment),
        "asks": experiment_asks.asks_of(experiment) if holds(request, Role.OPERATOR) else None,
        "counts": {"total": len(grid.runs)},
        "arms": grid.arms,
        **_shared(experiment, grid.arms),
    }
    return render(request, "experiments/detail.html", context)


def _shared(experiment: Experiment, arms: list[Any]) -> dict[str, Any]:
    """What the grid and the list say alike."""
    lights = compared_arms.lights_of_arms(arms)
    return {
        "place": "experiments",
        "lights": lights,
        "sandboxes": compared_arms.sandboxes_of_arms(arms) if lights else None,
        "flagged": flags.flagged_runs(experiment.pk),
        "replayable": replays.replayable(arms),
        "despite": preflights.numbered(experiment.launched_despite),
        "exports": exports.CHOICES,
    }


def _list_context(request: HttpRequest, experiment: Experiment) -> dict[str, Any]:
    runs = Run.objects.filter(experiment=experiment).for_rows().order_by("position", "id")
    arms = overview.arms_of(experiment.pk)
    return {
        "experiment": experiment,
        "arms": arms,
        "page": Paginator(runs, PAGE).get_page(request.GET.get("page")),
        "counts": overview.experiment_counts(experiment.pk),
        "kept": "as=list",
        **_shared(experiment, [arm for arm, _ in arms]),
    }


class Choice(NamedTuple):
    """One way to show the grid, with the query that leads to it."""

    key: str
    word: str
    query: str
    current: bool


class ChoiceGroup(NamedTuple):
    """Ways to show the grid of which one is current."""

    name: str
    label: str
    choices: list[Choice]


class ShownFilter(NamedTuple):
    """A filter with its count, and the query that leads to it. `optional`: it hides while it finds none."""

    key: str
    word: str
    icon: str
    number: int
    digit: int
    query: str
    current: bool
    optional: bool


_SORTS = {name: name for name in grids.SORTS}
_ROWS = {"full": "full", "compact": "compact"}
_ALWAYS = 6


class Shown(NamedTuple):
    """How the grid was asked for; what no such way is falls back to the usual one."""

    show: str
    sort: str
    cell: str
    rows: str
    filters: list[ShownFilter]
    choices: list[ChoiceGroup]
    query: str
    without_filter: str
    word: str
    nothing: bool

    @classmethod
    def asked(cls, request: HttpRequest, summary: grid_summaries.Summary, *, tasks: int) -> Shown:
        """Read from the address."""
        usual = {"show": "all", "sort": "set", "cell": "cost", "rows": "full"}
        usual["rows"] = "compact" if tasks > FULL_ROWS else "full"
        known = {
            "show": [one.key for one in summary.filters],
            "sort": list(_SORTS),
            "cell": list(CONTENTS),
            "rows": list(_ROWS),
        }
        asked = {name: request.GET.get(name, usual[name]) for name in usual}
        asked = {name: value if value in known[name] else usual[name] for name, value in asked.items()}

        def query(**changed: str) -> str:
            wanted = {**asked, **changed}
            return urlencode({name: wanted[name] for name in usual if wanted[name] != usual[name]})

        def choices(name: str, words: dict[str, str]) -> list[Choice]:
            return [
                Choice(key, word, query(**{name: key}), asked[name] == key) for key, word in words.items()
            ]

        filters = [
            ShownFilter(
                *one,
                query=query(show=one.key),
                current=asked["show"] == one.key,
                optional=one.digit > _ALWAYS,
            )
            for one in summary.filters
        ]
        chosen = next(one for one in filters if one.current)
        return cls(
            **asked,
            filters=filters,
            choices=[
                ChoiceGroup("sort", "sort", choices("sort", _SORTS)),
                ChoiceGroup("cell", "cell", choices("cell", {one: one for one in CONTENTS})),
                ChoiceGroup("rows", "rows", choices("rows", _ROWS)),
            ],
            query=query(),
            without_filter=query(show="all"),
            word=chosen.word,
            nothing=not chosen.number and chosen.key != "all",
        )
