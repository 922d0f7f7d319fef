"""Flags: what the lab's own rules find in a run, beside its verdict."""

from __future__ import annotations

from django.db import models

# Replies to requests with native tools that look like calls no parser has read.
LEAKED_CALLS = "leaked_calls"


class Flag(models.Model):
    """One finding of a deterministic rule in a run's log. Rebuildable: rules run again replace their flags.

    `code` names the rule, such as `leaked_calls`. `present`: what it looks for is there. `effective`: it
    changed the outcome, None: nobody knows. `event_seq` is the event that shows it, `step` its step (0:
    none).
    """

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="flags")
    code = models.CharField(max_length=40)
    present = models.BooleanField(default=True)
    effective = models.BooleanField(null=True, blank=True)
    event_seq = models.PositiveIntegerField()
    step = models.PositiveIntegerField(default=0)
    detail = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_flag"
        ordering = ["event_seq"]
        constraints = [models.UniqueConstraint(fields=["run", "code", "event_seq"], name="flag_unique")]

    def __str__(self) -> str:
        return f"{self.code} in run {self.run_id}"
