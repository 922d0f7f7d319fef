"""What the first page says beside the lists: what to do next, and how the latest experiment stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Avg, Case, Count, Q, QuerySet, Sum, When
from django.urls import reverse

from lab.engine.verify.base import Outcome
from lab.models import Arm, Experiment, Model, Queue, Run, RunFacts, Task, TaskSet
from lab.render.numbers import plural
from lab.render.text import one_line
from lab.services import preflights, queues
from lab.services.endpoints import key_is_set
from lab.services.lab import workers_alive
from lab.services.run_pages import why_it_broke

MOST_SUGGESTIONS = 5
MOST_NAMED = 3
RUNNING_SHOWN = 12
FINISHED_SHOWN = 10
GRADED = [Outcome.RESOLVED, Outcome.UNRESOLVED]


class Suggestion(NamedTuple):
    """Something worth doing: icon and tone say what kind, one verb leads there."""

    icon: str
    tone: str
    title: str
    detail: str
    verb: str
    url: str


class Rate(NamedTuple):
    """How many of the graded runs are resolved, and what is left out of both and counted beside them.

    `limits_changed` and `got_message` count graded runs in which people stepped in; one that had both is
    counted as the first.
    """

    resolved: int
    graded: int
    limits_changed: int = 0
    got_message: int = 0

    @property
    def beside(self) -> str:
        """ "+ 1 with changed limits, + 2 that got a message"; "" where nothing is left out."""
        parts = []
        if self.limits_changed:
            parts.append(f"+ {self.limits_changed} with changed limits")
        if self.got_message:
            parts.append(f"+ {self.got_message} that got a message")
        return ", ".join(parts)


class ArmStanding(NamedTuple):
    """How the graded runs of an arm came out."""

    letter: str
    name: str
    rate: Rate


class Standing(NamedTuple):
    """An experiment in a few lines."""

    experiment: Experiment
    graded: int
    total: int
    arms: list[ArmStanding]


class Slots(NamedTuple):
    """How full the lab is. `finished` counts this lab's own runs, `demo` recorded ones that were loaded."""

    busy: int
    total: int
    queued: int
    finished: int
    demo: int


class ExperimentCounts(NamedTuple):
    """How far an experiment is, and how its runs came out."""

    total: int
    ended: int
    rate: Rate


def running() -> QuerySet[Run]:
    """What the first page lists as running, those that wait for a slot last.

    An imported run whose file has no end, and which nobody follows, runs nowhere.
    """
    rows = Run.objects.all().for_rows().exclude(status=Run.Status.ENDED)
    rows = rows.exclude(status=Run.Status.PAUSED, experiment__kind=Experiment.Kind.IMPORTED)
    return rows.order_by("position", "id")[:RUNNING_SHOWN]


def finished() -> QuerySet[Run]:
    """What the first page lists as finished, newest first."""
    rows = Run.objects.all().for_rows().filter(status=Run.Status.ENDED)
    return rows.order_by("-ended_at", "-id")[:FINISHED_SHOWN]


def slots() -> Slots:
    """How many runs hold a slot, wait for one and have ended, in one query."""
    free = [Run.Status.QUEUED, Run.Status.ENDED]
    demo = Q(experiment__kind=Experiment.Kind.DEMO)
    return Slots(
        total=settings.LAB_RUN_SLOTS,
        **Run.objects.aggregate(
            busy=Count("pk", filter=~Q(status__in=free) & ~Q(experiment__kind=Experiment.Kind.IMPORTED)),
            queued=Count("pk", filter=Q(status=Run.Status.QUEUED)),
            finished=Count("pk", filter=Q(status=Run.Status.ENDED) & ~demo),
            demo=Count("pk", filter=demo),
        ),
    )


def rates(runs: str = "") -> dict[str, Count]:
    """What `Rate` is made of, as aggregates. `runs` leads to the runs, as from an experiment or an arm."""
    to = f"{runs}__" if runs else ""
    graded = Q(**{f"{to}facts__verdict__in": GRADED})
    limits = Q(**{f"{to}facts__limits_changed": True})
    told = Q(**{f"{to}facts__got_message": True})
    resolved = Q(**{f"{to}facts__verdict": Outcome.RESOLVED})
    pk = f"{to}pk"
    return {
        "rate_resolved": Count(pk, filter=resolved & ~limits & ~told),
        "rate_graded": Count(pk, filter=graded & ~limits & ~told),
        "rate_limits_changed": Count(pk, filter=graded & limits),
        "rate_got_message": Count(pk, filter=graded & told & ~limits),
    }


def rate_of(row: object) -> Rate:
    """The rate of a row, or of a mapping, that was annotated with `rates`."""
    values = row if isinstance(row, dict) else vars(row)
    return Rate(*(values[f"rate_{name}"] for name in Rate._fields))


def experiment_counts(experiment_id: int) -> ExperimentCounts:
    """How many of an experiment's runs have ended, and how the graded ones came out."""
    row = Run.objects.filter(experiment_id=experiment_id).aggregate(
        total=Count("pk"), ended=Count("pk", filter=Q(status=Run.Status.ENDED)), **rates()
    )
    return ExperimentCounts(row["total"], row["ended"], rate_of(row))


def arms_of(experiment_id: int) -> list[tuple[Arm, Rate]]:
    """The arms of an experiment by their letters, each with how its graded runs came out."""
    arms = Arm.objects.filter(experiment_id=experiment_id).annotate(**rates("runs")).order_by("letter")
    arms = arms.select_related("harness_version__harness", "model__endpoint")
    return [(arm, rate_of(arm)) for arm in arms.defer("harness_version__config", "harness_version__source")]


def suggestions(*, task_set: TaskSet | None) -> list[Suggestion]:
    """At most five things to do next, the most pressing first."""
    found = [
        *_no_worker(),
        *_missing_keys(),
        *_failing_preflights(),
        *_invalid_tasks(task_set),
        *_infrastructure(),
        *_unknown_prices(),
        *_labels_waiting(),
    ]
    return found[:MOST_SUGGESTIONS]


class Forecast(NamedTuple):
    """What runs of a model have taken on average: seconds, and dollars where one basis priced every call."""

    runs: int
    seconds: float
    dollars: float | None


def forecasts() -> dict[int, Forecast]:
    """Model row -> what its earlier graded runs took; a model without such runs is not in it."""
    rows = (
        RunFacts.objects.filter(verdict__in=GRADED, agent_seconds__isnull=False)
        .exclude(run__experiment__kind=Experiment.Kind.DEMO)
        .exclude(Q(limits_changed=True) | Q(got_message=True))
        .values("run__arm__model")
        .annotate(
            runs=Count("pk"),
            seconds=Avg("agent_seconds"),
            dollars=Avg("cost"),
            unknown=Sum("cost_unknown"),
            bases=Count("cost_basis", distinct=True),
            mixed=Count("pk", filter=Q(cost_basis="mixed")),
        )
    )
    return {
        int(row["run__arm__model"]): Forecast(
            runs=row["runs"],
            seconds=row["seconds"],
            dollars=None if _is_no_mean(row) else float(row["dollars"]),
        )
        for row in rows
    }


def _is_no_mean(row: Mapping[str, Any]) -> bool:
    """Part of it is unknown, or its parts are priced by different bases."""
    return bool(row["unknown"] or row["dollars"] is None or row["bases"] > 1 or row["mixed"])


def latest_experiment() -> Standing | None:
    """The newest experiment with more than one run, a demo only where there is no other; None without one."""
    counted = Experiment.objects.annotate(run_count=Count("runs")).filter(run_count__gt=1)
    own_first = Case(When(kind=Experiment.Kind.DEMO, then=1), default=0)
    experiment = counted.order_by(own_first, "-pk").first()
    if experiment is None:
        return None
    arms = arms_of(experiment.pk)
    several = len({arm.harness_version_id for arm, _ in arms}) > 1
    standings = [ArmStanding(arm.letter, str(arm) if several else arm.model.name, rate) for arm, rate in arms]
    return Standing(
        experiment=experiment,
        graded=sum(sum(standing.rate[1:]) for standing in standings),
        total=experiment.runs.count(),
        arms=standings,
    )


def _no_worker() -> list[Suggestion]:
    if workers_alive() or not Run.objects.filter(status=Run.Status.QUEUED).exists():
        return []
    return [
        Suggestion(
            icon="warning",
            tone="warning",
            title="No worker takes runs",
            detail="Queued runs wait until one is up; see the terminal where the lab was started.",
            verb="Show",
            url=reverse("experiments"),
        )
    ]


def _missing_keys() -> list[Suggestion]:
    return [
        Suggestion(
            icon="cross",
            tone="failed",
            title=f"{model.name} has no key",
            detail=f"The variable {model.endpoint.key_variable} is not set where the lab was started.",
            verb="See",
            url=reverse("endpoints"),
        )
        for model in Model.objects.in_use()
        if model.endpoint.key_variable and not key_is_set(endpoint=model.endpoint)
    ]


def _failing_preflights() -> list[Suggestion]:
    return [
        Suggestion(
            icon="cross",
            tone="failed",
            title=f"{preflight.model.name} fails its preflight",
            detail=f"{preflights.failing_titles(preflight)[0]}. Runs would be worthless until it is mended.",
            verb="See why",
            url=reverse("preflight", args=[preflight.model_id]),
        )
        for preflight in preflights.failing(Model.objects.in_use())
    ]


def _invalid_tasks(task_set: TaskSet | None) -> list[Suggestion]:
    if task_set is None:
        return []
    tasks = Task.objects.filter(task_set=task_set).prefetch_related("checks")
    # The newest check decides; a task that was mended since is not reported again.
    invalid = [task for task in tasks if (checks := list(task.checks.all())) and not checks[0].valid]
    return [
        Suggestion(
            icon="invalid",
            tone="warning",
            title=f"{task.slug} fails its environment check",
            detail="Its verdicts say nothing about a model until it is mended.",
            verb="See why",
            url=reverse("task", args=[task.pk]),
        )
        for task in invalid
    ]


# So much of what stopped a run stands in its card; its page says all of it.
_WHY_CHARACTERS = 160


def _infrastructure() -> list[Suggestion]:
    broken = (
        Run.objects.real()
        .filter(status=Run.Status.ENDED, facts__verdict="", exit_reason__gt="")
        .exclude(exit_reason="cancelled")
        .for_rows()
        .order_by("-ended_at")
        .first()
    )
    newest = Run.objects.real().filter(status=Run.Status.ENDED).order_by("-ended_at").first()
    # Only while it is news: a later run that ended well says that the trouble is over.
    if broken is None or newest is None or newest.pk != broken.pk:
        return []
    why = one_line(why_it_broke(broken), _WHY_CHARACTERS).rstrip(".") or broken.exit_reason
    return [
        Suggestion(
            icon="bolt",
            tone="second",
            title=f"Run {broken.pk} ended by infrastructure",
            detail=f"{broken.task.slug}: {why}. Nobody failed; look before launching more.",
            verb="See why",
            url=reverse("run", args=[broken.pk]),
        )
    ]


def _unknown_prices() -> list[Suggestion]:
    """Models that ran and whose calls have no known price."""
    names = list(
        Model.objects.in_use()
        .filter(endpoint__scripted=False, arms__runs__facts__cost_unknown__gt=0, arms__runs__facts__cost=None)
        .values_list("name", flat=True)
        .distinct()
    )
    if not names:
        return []
    one = len(names) == 1
    detail = (
        "The price table does not hold it, so what its runs cost stays unknown."
        if one
        else f"{_listed(names)}: the price table does not hold them, so what their runs cost stays unknown."
    )
    return [
        Suggestion(
            icon="unparsed",
            tone="quiet",
            title=f"{names[0]} has no known price" if one else f"{len(names)} models have no known price",
            detail=detail,
            verb="See",
            url=reverse("endpoints"),
        )
    ]


def _labels_waiting() -> list[Suggestion]:
    """The newest open queue that wants more labels, of the three newest, in one line."""
    for queue in Queue.objects.filter(closed_at=None).order_by("-pk")[:3]:
        now = queues.progress(queue)
        if now.labels < now.wanted:
            return [
                Suggestion(
                    icon="flag",
                    tone="second",
                    title=f"{plural(now.wanted - now.labels, 'label')} waiting",
                    detail=f"in the queue “{queue.name}”: {now.labels:,} of {now.wanted:,} are there",
                    verb="Label",
                    url=reverse("queue", args=[queue.pk]),
                )
            ]
    return []


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
