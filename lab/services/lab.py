"""The state of the lab as a whole, for the first page and for whoever asks whether it can work."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils import timezone

from lab.engine.errors import ExitOrigin, ExitReason
from lab.models import Blob, Call, Experiment, Model, Run
from lab.services import heartbeats
from lab.services.endpoints import key_is_set
from lab.services.isolation import Isolation, isolation

__all__ = ["Isolation", "isolation", "latest_experiment", "state", "todo", "workers_alive"]

TODO_SHOWN = 5
WORKER_PREFIX = "runs@"
_INFRASTRUCTURE = [reason.value for reason in ExitReason if reason.origin is ExitOrigin.INFRASTRUCTURE]


class LabState(NamedTuple):
    """Texts and figures of the panel "Lab". `silent_for` says how long no worker reported."""

    workers_alive: bool
    workers: str
    silent_for: str
    sandbox: str
    spent_today: str
    data_folder: str
    busy_slots: int
    slots: int


class Todo(NamedTuple):
    """One thing worth doing next, with one verb."""

    icon: str
    tone: str
    title: str
    detail: str
    url: str
    verb: str


@dataclass
class ArmCount:
    letter: str
    name: str
    resolved: int
    graded: int


@dataclass
class LatestExperiment:
    experiment: Experiment
    total: int
    graded: int
    arms: list[ArmCount] = field(default_factory=list)


def workers_alive() -> bool:
    """Whether a worker for runs was heard of within the last 15 seconds."""
    ages = heartbeats.ages(prefix=WORKER_PREFIX)
    return bool(ages) and ages[0] < heartbeats.FRESH_SECONDS


def state() -> LabState:
    """What the first page says of the lab right now."""
    ages = heartbeats.ages(prefix=WORKER_PREFIX)
    alive = sum(age < heartbeats.FRESH_SECONDS for age in ages)
    return LabState(
        workers_alive=alive > 0,
        workers=f"{alive} worker{'' if alive == 1 else 's'} with {settings.LAB_RUN_SLOTS} slots",
        silent_for="" if alive else (f"{ages[0]:.0f} s" if ages else "as long as the lab has been up"),
        sandbox=_sandbox(isolation()),
        spent_today=_spent_today(),
        data_folder=_data_folder(),
        busy_slots=Run.objects.holding_slots().count(),
        slots=settings.LAB_RUN_SLOTS,
    )


def todo() -> list[Todo]:
    """At most five things worth doing next, the most pressing first."""
    found = [*_infrastructure_todo(), *_missing_keys()]
    if not workers_alive() and Run.objects.filter(status=Run.Status.QUEUED).exists():
        found.insert(
            0,
            Todo(
                "warning",
                "warning",
                "No worker takes runs",
                "Queued runs wait until one is up.",
                reverse("experiments"),
                "Show",
            ),
        )
    return found[:TODO_SHOWN]


def latest_experiment() -> LatestExperiment | None:
    """The newest experiment of several runs, with what each arm reached."""
    experiment = Experiment.objects.annotate(n=Count("runs")).filter(n__gt=1).order_by("-pk").first()
    if experiment is None:
        return None
    verdicts = Q(runs__facts__verdict__in=["resolved", "unresolved"])
    arms = experiment.arms.select_related("harness_version__harness", "model").annotate(
        graded=Count("runs", filter=verdicts),
        resolved=Count("runs", filter=Q(runs__facts__verdict="resolved")),
    )
    counts = [ArmCount(arm.letter, str(arm), arm.resolved, arm.graded) for arm in arms]
    return LatestExperiment(
        experiment=experiment,
        total=experiment.runs.count(),
        graded=sum(arm.graded for arm in counts),
        arms=counts,
    )


def _infrastructure_todo() -> list[Todo]:
    broken = (
        Run.objects.filter(status=Run.Status.ENDED, exit_reason__in=_INFRASTRUCTURE).order_by("-pk").first()
    )
    if broken is None:
        return []
    return [
        Todo(
            "bolt",
            "warning",
            f"Run {broken.pk} broke down",
            f"{broken.exit_reason}: not the model's fault",
            reverse("run", args=[broken.pk]),
            "Look",
        )
    ]


def _missing_keys() -> list[Todo]:
    return [
        Todo(
            "warning",
            "warning",
            f"{model.name} has no key",
            f"{model.endpoint.key_variable} is not set",
            reverse("endpoints"),
            "Show",
        )
        for model in Model.objects.in_use()
        if not key_is_set(endpoint=model.endpoint)
    ]


def _sandbox(found: Isolation) -> str:
    if found.available:
        return f"{found.kind}, isolated"
    if found.kind == "process":
        return "plain process, not isolated"
    return f"{found.kind} does not work here"


def _spent_today() -> str:
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    sums = Call.objects.filter(started_at__gte=today).aggregate(
        spent=Sum("cost"), calls=Count("pk"), unknown=Count("pk", filter=Q(cost=None))
    )
    if not sums["calls"]:
        return "$0.00, no call yet"
    if sums["spent"] is None:
        return f"unknown: no price for {sums['unknown']} calls"
    text = f"${Decimal(sums['cost']):,.2f}"
    return f"at least {text} ({sums['unknown']} calls unknown)" if sums["unknown"] else text


def _data_folder() -> str:
    folder = Path(settings.LAB_DATA_DIR)
    database = Path(str(settings.DATABASES["default"].get("NAME", "")))
    used = database.stat().st_size if database.is_file() else 0
    used += Blob.objects.aggregate(size=Coalesce(Sum("stored_size"), 0))["size"]
    return f"{_size(used)} used, {_size(shutil.disk_usage(folder).free)} free"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
