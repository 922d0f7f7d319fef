"""Verifications and the results of single tests."""

from __future__ import annotations

from django.db import models


class Verification(models.Model):
    """One grading of a run's patch under a named rule. The verdict is the latest under the rule in use."""

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="verifications")
    n = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    rule = models.CharField(max_length=32)
    outcome = models.CharField(max_length=16)
    detail = models.TextField(blank=True, default="")
    rewards = models.JSONField(default=dict, blank=True)
    log_blob = models.CharField(max_length=64, blank=True, default="")
    seconds = models.FloatField(null=True, blank=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "lab_verification"
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["run", "n"], name="verification_unique")]

    def __str__(self) -> str:
        return f"verification {self.n} of run {self.run_id}: {self.outcome}"


class TestResult(models.Model):
    __test__ = False

    verification = models.ForeignKey(Verification, on_delete=models.CASCADE, related_name="tests")
    position = models.PositiveIntegerField()
    test_id = models.CharField(max_length=500)
    group = models.CharField(max_length=16)
    status = models.CharField(max_length=16)
    assertion = models.TextField(blank=True, default="")
    log = models.TextField(blank=True, default="")

    class Meta:
        db_table = "lab_test_result"
        ordering = ["position"]

    def __str__(self) -> str:
        return f"{self.test_id}: {self.status}"


class RunFacts(models.Model):
    """A roll-up of a run for lists and analysis. Rebuildable from log and verifications at any time.

    A NULL sum means that no part is known; `…_unknown` counts the calls without a figure, which makes the
    sum "at least".
    """

    run = models.OneToOneField("lab.Run", on_delete=models.CASCADE, related_name="facts", primary_key=True)
    steps = models.PositiveIntegerField(default=0)
    calls = models.PositiveIntegerField(default=0)
    failed_calls = models.PositiveIntegerField(default=0)
    input_uncached = models.PositiveBigIntegerField(null=True, blank=True)
    cache_read = models.PositiveBigIntegerField(null=True, blank=True)
    cache_write = models.PositiveBigIntegerField(null=True, blank=True)
    input_total = models.PositiveBigIntegerField(null=True, blank=True)
    output_total = models.PositiveBigIntegerField(null=True, blank=True)
    reasoning = models.PositiveBigIntegerField(null=True, blank=True)
    usage_unknown = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=18, decimal_places=10, null=True, blank=True)
    cost_unknown = models.PositiveIntegerField(default=0)
    cost_basis = models.CharField(max_length=16, default="unknown")
    context_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    pending = models.JSONField(default=dict, blank=True)
    verdict = models.CharField(max_length=16, blank=True, default="")
    fail_to_pass_passed = models.PositiveIntegerField(null=True, blank=True)
    fail_to_pass_total = models.PositiveIntegerField(null=True, blank=True)
    pass_to_pass_passed = models.PositiveIntegerField(null=True, blank=True)
    pass_to_pass_total = models.PositiveIntegerField(null=True, blank=True)
    changed_files = models.JSONField(default=list, blank=True)
    peak_memory_bytes = models.BigIntegerField(null=True, blank=True)
    agent_seconds = models.FloatField(null=True, blank=True)
    # The wall clock of the newest attempt: seconds of "agent" surely worked, "unsure" ones since, the time
    # "at" which that was, and whether somebody "works" or it is "paused". Empty before the first model call.
    agent_clock = models.JSONField(default=dict, blank=True)
    # How often another worker child went on with an attempt, over all attempts.
    continuations = models.PositiveIntegerField(default=0, db_default=0)
    # People stepped in: rates, pairs and costs leave such a run out unless asked, and count it beside them.
    limits_changed = models.BooleanField(default=False, db_default=False)
    got_message = models.BooleanField(default=False, db_default=False)
    # Of the newest attempt: replies, those of which no call was understood though one was needed, and those
    # with what looks like a call in a form that the harness does not take. NULL in older roll-ups.
    replies = models.PositiveIntegerField(null=True, blank=True)
    format_errors = models.PositiveIntegerField(null=True, blank=True)
    unread_forms = models.JSONField(default=dict, blank=True, db_default={})
    # The newest step that counts as a format error so far: a later call of it may be understood.
    format_error_step = models.PositiveIntegerField(null=True, blank=True)
    # What the newest attempt did: see `lab.services.behaviour`. NULL in older roll-ups.
    behaviour = models.JSONField(null=True, blank=True)
    # What its fold must remember between events, and nobody else reads; empty once the attempt has ended.
    behaviour_state = models.JSONField(default=dict, blank=True, db_default={})
    # What attempts before the newest one cost, of `cost`; and how many of their calls have no known cost.
    cost_earlier = models.DecimalField(max_digits=18, decimal_places=10, null=True, blank=True)
    cost_earlier_unknown = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "lab_run_facts"

    def __str__(self) -> str:
        return f"facts of run {self.run_id}"
