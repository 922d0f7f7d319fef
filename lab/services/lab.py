"""The state of the lab as a whole, for the first page and for whoever asks whether it can work."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from lab.engine.sandboxes import docker_use
from lab.models import Blob, Call, Experiment
from lab.services import heartbeats, preflight_costs
from lab.services.isolation import Isolation, isolation
from lab.services.run_costs import FREE, spent_words

WORKER_PREFIX = "runs@"


class LabState(NamedTuple):
    """Texts and figures of the panel "Lab". `silent_for` says how long no worker reported."""

    workers_alive: bool
    workers: str
    silent_for: str
    sandbox: str
    spent_today: str
    data_folder: str


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
        silent_for=f"{ages[0]:.0f} s" if ages and not alive else "",
        sandbox=_sandbox(isolation()),
        spent_today=_spent_today(),
        data_folder=_data_folder(),
    )


def _sandbox(found: Isolation) -> str:
    if found.available:
        images = not found.forced and docker_use.is_noted(Path(settings.LAB_DATA_DIR))
        return f"{found.kind}, isolated{'; docker for tasks with an image' if images else ''}"
    if found.kind == "process":
        return "plain process, not isolated"
    return f"{found.kind} does not work here"


def _spent_today() -> str:
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    # What was recorded elsewhere was not spent here, whenever that was.
    real = Call.objects.filter(run__experiment__kind=Experiment.Kind.LAUNCHED)
    by_basis = (
        real.filter(started_at__gte=today)
        .order_by()
        .values("cost_basis")
        .annotate(spent=Sum("cost"), calls=Count("pk"), unknown=Count("pk", filter=Q(cost=None)))
    )
    rows = list(by_basis)
    examined = preflight_costs.spent_since(today)
    if not rows and not examined.requests:
        return "$0.00, no call yet"
    known = {row["cost_basis"]: Decimal(row["spent"]) for row in rows if row["spent"] is not None}
    for basis, spent in examined.sums.items():
        known[basis] = known.get(basis, Decimal(0)) + spent
    unknown = sum(row["unknown"] for row in rows) + examined.unknown
    beside = f", of it preflights {_preflights(examined)}" if examined.requests else ""
    if not known:
        return f"unknown: no price for {_calls(unknown)}{beside}"
    # What costs nothing is worth no word beside what does.
    priced = {basis: spent for basis, spent in known.items() if basis not in FREE} or {"": Decimal(0)}
    text = spent_words(priced, places=2)
    return (f"at least {text} ({_calls(unknown)} unknown)" if unknown else text) + beside


def _preflights(spent: preflight_costs.Spent) -> str:
    """Their part of what was spent, "$0.01" or "unknown (9 calls)"."""
    if not spent.sums:
        return f"unknown ({_calls(spent.unknown)})"
    text = spent_words(spent.sums, places=2)
    return f"at least {text}" if spent.unknown else text


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


def _data_folder() -> str:
    folder = Path(settings.LAB_DATA_DIR)
    database = Path(str(settings.DATABASES["default"].get("NAME", "")))
    # SQLite keeps the newest writes beside the database, often more than a small database itself.
    files = (Path(f"{database}{ending}") for ending in ("", "-wal", "-shm"))
    used = sum(file.stat().st_size for file in files if file.is_file())
    used += Blob.objects.aggregate(size=Coalesce(Sum("stored_size"), 0))["size"]
    return f"{_size(used)} used, {_size(shutil.disk_usage(folder).free)} free"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
