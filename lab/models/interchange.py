"""What came in from outside: imports, and which trajectory of which file became which run."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.models.fields import ExactJSONField


class Import(models.Model):
    """One import: files given at once, read by the `short` worker, that make one experiment.

    `folder` lies under the data folder and holds what was given until all of it is read. `found` counts by
    what became of it (`imported`, `known`, `gradings`, `problems`, `files`, `unread_files`), `report` holds
    what the finished import tells people: notes by field with counts, problems, formats.
    """

    class State(models.TextChoices):
        RECEIVING = "receiving", "receiving"
        QUEUED = "queued", "queued"
        READING = "reading", "reading"
        ENDED = "ended", "ended"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    name = models.CharField(max_length=200, blank=True, default="")
    state = models.CharField(max_length=16, choices=State, default=State.RECEIVING)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    experiment = models.OneToOneField(
        "lab.Experiment", null=True, blank=True, on_delete=models.SET_NULL, related_name="import_of"
    )
    folder = models.CharField(max_length=1000, blank=True, default="")
    # What was given: names and sizes in bytes, in the order in which they came.
    sources = models.JSONField(default=list, blank=True)
    options = models.JSONField(default=dict, blank=True)
    total = models.PositiveIntegerField(null=True, blank=True)
    done = models.PositiveIntegerField(default=0)
    found = models.JSONField(default=dict, blank=True)
    report = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True, default="")
    # Whoever reads it holds it until then; one that ran out is taken over.
    lease_token = models.PositiveBigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_asked = models.BooleanField(default=False)
    idempotency_key = models.CharField(max_length=64, unique=True, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_import"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"import {self.pk}"


class ImportedTrajectory(models.Model):
    """Which run a trajectory became: the same one again is that run, and adds nothing.

    `identity` is the SHA-256 of what it was read from, or of its name where it is still being written.
    `events_sha256` is the hash of the events made so far: what a growing file's next reading must begin with.
    """

    run = models.OneToOneField("lab.Run", on_delete=models.CASCADE, related_name="imported")
    made_by = models.ForeignKey(Import, on_delete=models.CASCADE, related_name="trajectories")
    identity = models.CharField(max_length=64, unique=True)
    format = models.CharField(max_length=64)
    file = models.TextField()
    place = models.CharField(max_length=200, blank=True, default="")
    partial = models.BooleanField(default=False)
    events_sha256 = models.CharField(max_length=64, blank=True, default="")
    # What the lab that wrote the log calls the run's parts, in its order; empty for other formats.
    facts = ExactJSONField(default=dict, blank=True)
    # The file's own word for the repeat, which the run's seed is not where that was taken already.
    seed_recorded = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        db_table = "lab_imported_trajectory"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.file} {self.place}".rstrip()


class ImportedGrading(models.Model):
    """A recorded verdict that was put beside a run: the same one again adds nothing."""

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="imported_gradings")
    identity = models.CharField(max_length=64)

    class Meta:
        db_table = "lab_imported_grading"
        constraints = [models.UniqueConstraint(fields=["run", "identity"], name="imported_grading_unique")]

    def __str__(self) -> str:
        return f"grading of run {self.run_id}"


class Trace(models.Model):
    """What came of one trace by OpenTelemetry so far. It becomes a run once it is quiet.

    `root_at` is when the span without a parent came, which is the last one to end. It `waits` from each span
    until it was looked at; `seen` counts the spans that were there then, NULL before.
    """

    trace_id = models.CharField(max_length=32, primary_key=True)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    root_at = models.DateTimeField(null=True, blank=True)
    sent_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    waits = models.BooleanField(default=True)
    seen = models.PositiveIntegerField(null=True, blank=True)
    problem = models.TextField(blank=True, default="")

    class Meta:
        db_table = "lab_trace"
        ordering = ["first_at"]
        indexes = [models.Index(fields=["waits", "last_at"], name="trace_waits")]

    def __str__(self) -> str:
        return f"trace {self.trace_id}"


class Span(models.Model):
    """One span as it came: OTLP's JSON form with resource and scope, compressed; the same again is none."""

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="spans")
    span_id = models.CharField(max_length=16)
    at = models.DateTimeField()
    body = models.BinaryField()

    class Meta:
        db_table = "lab_span"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["trace", "span_id"], name="span_unique")]

    def __str__(self) -> str:
        return f"span {self.span_id} of {self.trace_id}"
