"""Experiments, arms, runs and attempts."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db import models
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from lab.models.endpoints import Endpoint
from lab.models.fields import ExactJSONField
from lab.models.flags import LEAKED_CALLS, Flag
from lab.models.log import Event


class Experiment(models.Model):
    """Arms × tasks × seeds under budgets. Every launch makes one."""

    class Kind(models.TextChoices):
        LAUNCHED = "launched", "launched"
        IMPORTED = "imported", "imported"
        DEMO = "demo", "demo"

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        PAUSED = "paused", "paused"
        CANCELLED = "cancelled", "cancelled"
        ENDED = "ended", "ended"

    name = models.CharField(max_length=200, blank=True, default="")
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.LAUNCHED)
    state = models.CharField(max_length=16, choices=State, default=State.ACTIVE)
    task_set = models.ForeignKey(
        "lab.TaskSet", null=True, blank=True, on_delete=models.PROTECT, related_name="experiments"
    )
    launched_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    # What was asked for, as `lab.services.experiment_plans` writes it; empty where nobody wrote it down.
    plan = ExactJSONField(default=dict, blank=True, db_default={})
    cloned_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="clones"
    )
    # Name of a budget -> how much the whole may use: max_cost_usd (dollars as text), max_tokens, max_hours.
    budgets = models.JSONField(default=dict, blank=True)
    # How many attempts a run may have that infrastructure ends.
    max_attempts = models.PositiveSmallIntegerField(default=3, db_default=3)
    # The clock of `max_hours`: {"seconds": worked so far, "since": when the runs went on last, or null}.
    clock = models.JSONField(default=dict, blank=True, db_default={})
    # Why it is paused, in words; which budget did it, or "" where a person did.
    paused_because = models.CharField(max_length=300, blank=True, default="", db_default="")
    paused_by_budget = models.CharField(max_length=32, blank=True, default="", db_default="")
    # Failing preflights that whoever launched it was shown and went on in spite of, by their numbers.
    launched_despite = models.JSONField(default=list, blank=True)
    concurrency = models.PositiveIntegerField(null=True, blank=True)
    # A form sent twice (double click, replay) carries the same key and launches once.
    idempotency_key = models.CharField(max_length=64, unique=True, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_experiment"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"experiment {self.pk}"

    @property
    def demo(self) -> bool:
        """Recorded runs to look at: marked wherever they are shown, and in no total of the lab's own."""
        return self.kind == self.Kind.DEMO


class Arm(models.Model):
    """Harness version × model × effective limits."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="arms")
    harness_version = models.ForeignKey("lab.HarnessVersion", on_delete=models.PROTECT, related_name="arms")
    model = models.ForeignKey("lab.Model", on_delete=models.PROTECT, related_name="arms")
    limits = models.JSONField()
    limits_digest = models.CharField(max_length=64)
    letter = models.CharField(max_length=2)

    class Meta:
        db_table = "lab_arm"
        ordering = ["letter"]
        constraints = [
            models.UniqueConstraint(
                fields=["experiment", "harness_version", "model", "limits_digest"], name="arm_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.harness_version} × {self.model}"


class RunQuerySet(models.QuerySet["Run"]):
    def for_rows(self) -> RunQuerySet:
        """Runs with everything a row of a list shows, in one query, and without prompts and settings."""
        leaks = Flag.objects.filter(run=OuterRef("pk"), code=LEAKED_CALLS, present=True)
        # An attempt's end is the last event or the one before: never a search through a long log.
        ends = Event.objects.filter(
            run=OuterRef("pk"), kind="attempt_ended", seq__gte=OuterRef("last_seq") - 1
        )
        runs = self.annotate(
            looks_like_a_parser_problem=Exists(leaks),
            last_end=Subquery(ends.order_by("-seq").values("payload")[:1]),
        )
        return runs.select_related(
            "facts", "task", "experiment", "arm__harness_version__harness", "arm__model__endpoint"
        ).defer(
            "experiment__budgets",
            "task__environment",
            "arm__harness_version__config",
            "arm__harness_version__source",
            "arm__model__sampling",
            "arm__model__extra_body",
            "arm__model__endpoint__headers",
        )

    def real(self) -> RunQuerySet:
        """Runs of this lab's own: those of a demo and those recorded elsewhere are in no total."""
        return self.filter(experiment__kind=Experiment.Kind.LAUNCHED)

    def comparable(self) -> RunQuerySet:
        """Runs that went on as their arm says: people changed no limit and sent no message."""
        return self.exclude(facts__limits_changed=True).exclude(facts__got_message=True)

    def locked(self) -> RunQuerySet:
        """Read under a lock that the transaction keeps: who is second sees what the first has written.

        It does not hold off rows that refer to the run, such as a draft or something a person asks of it.
        """
        return self.select_for_update(of=("self",), no_key=True)

    def holding_slots(self) -> RunQuerySet:
        """Runs that a worker is at work on, or was when it died; a paused one only while a worker waits.

        One that is imported from a file which still grows has no worker.
        """
        # Named one by one, so that the index finds these few among all that are queued or have ended.
        statuses = (Run.Status.PREPARING, Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.VERIFYING)
        leased = Attempt.objects.filter(run=OuterRef("pk"), lease_until__isnull=False)
        held = self.filter(status__in=statuses).exclude(Q(status=Run.Status.PAUSED) & ~Exists(leased))
        return held.exclude(experiment__kind=Experiment.Kind.IMPORTED)

    def claimable(self, *, slots: int) -> RunQuerySet:
        """Queued runs that may start now, the next one first: what was begun goes on before anything new.

        Free slots of lab, endpoint and experiment are counted in the same query. `position` interleaves the
        arms of an experiment, and experiments with each other.
        """
        active = Run.objects.holding_slots().order_by()
        # Counted for each endpoint and experiment that has a limit, not for each run that waits.
        full_endpoints = (
            Endpoint.objects.filter(concurrency_limit__isnull=False)
            .alias(active=_count(active.filter(arm__model__endpoint=OuterRef("pk")), "arm__model__endpoint"))
            .filter(active__gte=F("concurrency_limit"))
        )
        full_experiments = (
            Experiment.objects.filter(concurrency__isnull=False, state=Experiment.State.ACTIVE)
            .alias(active=_count(active.filter(experiment=OuterRef("pk")), "experiment"))
            .filter(active__gte=F("concurrency"))
        )
        return (
            self.filter(
                status=Run.Status.QUEUED,
                cancel_asked=False,
                experiment__state=Experiment.State.ACTIVE,
                experiment__kind=Experiment.Kind.LAUNCHED,
            )
            .alias(lab_active=_count(active, Value(1)))
            .filter(lab_active__lt=slots)
            .exclude(arm__model__endpoint__in=full_endpoints.order_by().values("pk"))
            .exclude(experiment__in=full_experiments.order_by().values("pk"))
            .order_by(F("started_at").asc(nulls_last=True), "position", "id")
        )

    def abandoned(self, *, now: dt.datetime) -> RunQuerySet:
        """Runs in progress that nobody holds a valid lease of."""
        leased = Attempt.objects.filter(run=OuterRef("pk"), lease_until__gte=now)
        return self.holding_slots().filter(~Exists(leased))


def _count(runs: RunQuerySet, group: str | Value) -> Coalesce:
    """A correlated count, 0 where there is none."""
    counted = (
        runs.annotate(group=F(group) if isinstance(group, str) else group)
        .values("group")
        .annotate(n=Count("pk"))
        .values("n")
    )
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


class Run(models.Model):
    """One (arm, task, seed).

    What it did is in its events; the columns here are for finding and claiming it.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "queued"
        PREPARING = "preparing", "preparing"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        VERIFYING = "verifying", "verifying"
        ENDED = "ended", "ended"

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="runs")
    arm = models.ForeignKey(Arm, on_delete=models.PROTECT, related_name="runs")
    task = models.ForeignKey("lab.Task", on_delete=models.PROTECT, related_name="runs")
    seed = models.PositiveIntegerField()
    status = models.CharField(max_length=16, choices=Status, default=Status.QUEUED)
    position = models.PositiveIntegerField(default=0)
    last_seq = models.PositiveIntegerField(default=0)
    exit_reason = models.CharField(max_length=32, blank=True, default="")
    sandbox_kind = models.CharField(max_length=32, blank=True, default="")
    cancel_asked = models.BooleanField(default=False)
    # The newest one of the model when the run was first claimed.
    preflight = models.ForeignKey(
        "lab.Preflight", null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    parent_run = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="forks"
    )
    parent_seq = models.PositiveIntegerField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        db_table = "lab_run"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["experiment", "arm", "task", "seed"], name="run_unique"),
            models.CheckConstraint(condition=Q(seed__gte=1), name="run_seed_from_one"),
        ]
        indexes = [models.Index(fields=["status", "position"], name="run_queue")]

    def __str__(self) -> str:
        return f"run {self.pk}"


class Attempt(models.Model):
    """One try at a run. Whoever holds the newest `lease_token` may write; nobody else."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    n = models.PositiveIntegerField()
    lease_token = models.PositiveBigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=200, blank=True, default="")
    # The worker that held it last was stopped in an orderly way: no sign that the attempt kills workers.
    handed_over = models.BooleanField(default=False, db_default=False)
    # Since when its lease is known to have run out: whoever could not reach the database either has some
    # seconds to say that it is still there.
    doubted_at = models.DateTimeField(null=True, blank=True)
    # How many workers have died with it since the log's event `lost_after`, its last committed step.
    workers_lost = models.PositiveIntegerField(default=0, db_default=0)
    lost_after = models.PositiveIntegerField(default=0, db_default=0)
    sandbox = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_reason = models.CharField(max_length=32, blank=True, default="")
    native_reason = models.CharField(max_length=200, blank=True, default="")
    peak_memory_bytes = models.BigIntegerField(null=True, blank=True)
    cpu_seconds = models.FloatField(null=True, blank=True)
    wall_seconds = models.FloatField(null=True, blank=True)

    class Meta:
        db_table = "lab_attempt"
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["run", "n"], name="attempt_unique")]

    def __str__(self) -> str:
        return f"attempt {self.n} of run {self.run_id}"
