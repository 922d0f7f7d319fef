"""Readings by a model: what it was asked, what it answered, what that cost. In a bucket of its own."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.models.fields import ExactJSONField


class JudgeRun(models.Model):
    """A model reads a run by a rubric (`lab.engine.judge.rubric`), in chunks that fit its context.

    `report` says what became of each chunk, and which of its answers could not be used and why. A reading by
    a guideline's own rubric becomes an annotation of kind `judgement`; by another, `result` holds it.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        ENDED = "ended", "ended"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="judge_runs")
    model = models.ForeignKey("lab.Model", on_delete=models.PROTECT, related_name="judge_runs")
    guideline = models.ForeignKey(
        "lab.GuidelineVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="judge_runs"
    )
    rubric = ExactJSONField()
    rubric_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    problem = models.TextField(blank=True, default="")
    report = ExactJSONField(default=dict, blank=True)
    result = ExactJSONField(default=dict, blank=True)
    annotation = models.OneToOneField(
        "lab.Annotation", null=True, blank=True, on_delete=models.SET_NULL, related_name="judge_run"
    )
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    lease_token = models.PositiveBigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_asked = models.BooleanField(default=False)

    class Meta:
        db_table = "lab_judge_run"
        ordering = ["-id"]
        indexes = [models.Index(fields=["state"], name="judge_run_state")]

    def __str__(self) -> str:
        return f"reading {self.pk} of run {self.run_id}"


class JudgeCall(models.Model):
    """One request to a judge: usage in parts, its price snapshot and cost as in `Call`. NULL is unknown."""

    judge_run = models.ForeignKey(JudgeRun, on_delete=models.CASCADE, related_name="calls")
    n = models.PositiveIntegerField()
    chunk = models.PositiveIntegerField()
    state = models.CharField(max_length=16)
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
    price = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    seconds = models.FloatField(null=True, blank=True)
    request_blob = models.CharField(max_length=64, blank=True, default="")
    reply_blob = models.CharField(max_length=64, blank=True, default="")
    problem = models.TextField(blank=True, default="")

    class Meta:
        db_table = "lab_judge_call"
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["judge_run", "n"], name="judge_call_unique")]

    def __str__(self) -> str:
        return f"call {self.n} of reading {self.judge_run_id}"
