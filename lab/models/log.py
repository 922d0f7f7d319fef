"""The event log and what is stored beside it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from lab.models.fields import ExactJSONField


class Event(models.Model):
    """One record of a run's append-only log. Long texts of the payload are blobs: `{"$blob": sha256, …}`."""

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    schema_version = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=32)
    step = models.PositiveIntegerField(null=True, blank=True)
    at = models.DateTimeField()
    payload = ExactJSONField()

    class Meta:
        db_table = "lab_event"
        ordering = ["seq"]
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="event_seq_unique"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="event_seq_from_one"),
        ]

    def __str__(self) -> str:
        return f"event {self.seq} of run {self.run_id}: {self.kind}"


class Call(models.Model):
    """One model request: usage in parts, its price snapshot, cost and times. NULL is unknown."""

    class State(models.TextChoices):
        FINISHED = "finished", "finished"
        FAILED = "failed", "failed"
        INTERRUPTED = "interrupted", "interrupted"

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="calls")
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    request = models.PositiveIntegerField()
    seq = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State)
    model = models.CharField(max_length=200, blank=True, default="")
    input_total = models.PositiveBigIntegerField(null=True, blank=True)
    input_uncached = models.PositiveBigIntegerField(null=True, blank=True)
    cache_read = models.PositiveBigIntegerField(null=True, blank=True)
    cache_write = models.PositiveBigIntegerField(null=True, blank=True)
    output_total = models.PositiveBigIntegerField(null=True, blank=True)
    reasoning = models.PositiveBigIntegerField(null=True, blank=True)
    usage_source = models.CharField(max_length=16, default="absent")
    cost = models.DecimalField(max_digits=18, decimal_places=10, null=True, blank=True)
    cost_basis = models.CharField(max_length=16, default="unknown")
    # What the server says the call cost, in dollars; beside ours, never in place of it.
    cost_reported = models.DecimalField(max_digits=18, decimal_places=10, null=True, blank=True)
    price = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    first_token_seconds = models.FloatField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True)

    class Meta:
        db_table = "lab_call"
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="call_seq_unique")]
        # The first page sums what was spent today.
        indexes = [models.Index(fields=["started_at"], name="call_started")]

    def __str__(self) -> str:
        return f"call {self.seq} of run {self.run_id}"


class Blob(models.Model):
    """Bytes kept once by content: a compressed file under the data folder.

    One that a purge removed keeps its row as a tombstone: hash, size, and which purge.
    """

    sha256 = models.CharField(max_length=64, primary_key=True)
    size = models.PositiveBigIntegerField()
    stored_size = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    purge = models.ForeignKey(
        "lab.Purge", null=True, blank=True, on_delete=models.PROTECT, related_name="blobs"
    )

    class Meta:
        db_table = "lab_blob"

    def __str__(self) -> str:
        return self.sha256


class Purge(models.Model):
    """A leaked secret was taken out of everything stored. Of the secret itself only its hash is kept."""

    secret_sha256 = models.CharField(max_length=64)
    person = models.CharField(max_length=200, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    # Where it was found: how many events, blobs, drafts, other texts; which runs.
    found = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_purge"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"purge {self.pk}"


class Control(models.Model):
    """Something a person asked of a run: who, when, and when the worker saw it."""

    class Kind(models.TextChoices):
        CANCEL = "cancel", "cancel"
        PAUSE = "pause", "pause"
        RESUME = "resume", "resume"
        LIMIT = "limit", "limit"
        MESSAGE = "message", "message"
        ATTEMPT = "attempt", "another attempt"
        AGAIN = "again", "run again"

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="controls")
    kind = models.CharField(max_length=16, choices=Kind)
    value = models.JSONField(default=dict, blank=True)
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_control"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.kind} of run {self.run_id}"


class Draft(models.Model):
    """Text that is still streaming. One row a run, overwritten; never part of the log."""

    run = models.OneToOneField("lab.Run", on_delete=models.CASCADE, related_name="draft", primary_key=True)
    after_seq = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    version = models.PositiveIntegerField(default=0)
    content = models.TextField(blank=True, default="")
    reasoning = models.TextField(blank=True, default="")
    calls = models.TextField(blank=True, default="")
    characters = models.PositiveIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "lab_draft"

    def __str__(self) -> str:
        return f"draft of run {self.run_id}"
