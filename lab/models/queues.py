"""What is to be labelled, who holds what right now, and what was skipped."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Queue(models.Model):
    """Runs to be labelled under one guideline version. `rules` says by what it was filled, see
    `lab.services.queues`.

    `overlap` is the share of its runs, in percent, that `labels_wanted` people label each; the others one.
    `show_hidden`: whoever labels sees gold patch and hidden tests. `claim_minutes`: how long somebody holds a
    run without a sign of life.
    """

    name = models.CharField(max_length=200, unique=True)
    guideline = models.ForeignKey("lab.GuidelineVersion", on_delete=models.PROTECT, related_name="queues")
    rules = models.JSONField(default=dict, blank=True)
    seed = models.PositiveIntegerField(default=1)
    overlap = models.PositiveSmallIntegerField(default=20)
    labels_wanted = models.PositiveSmallIntegerField(default=2)
    show_hidden = models.BooleanField(default=False)
    claim_minutes = models.PositiveSmallIntegerField(default=30)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    made_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_queue"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name


class QueueItem(models.Model):
    """One run in a queue. `wanted`: by how many people it is to be labelled."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="items")
    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="queue_items")
    position = models.PositiveIntegerField()
    wanted = models.PositiveSmallIntegerField(default=1)

    class Meta:
        db_table = "lab_queue_item"
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["queue", "run"], name="queue_item_unique")]
        indexes = [models.Index(fields=["queue", "position"], name="queue_item_order")]

    def __str__(self) -> str:
        return f"run {self.run_id} in queue {self.queue_id}"


class Claim(models.Model):
    """Somebody labels an item right now; until `until`, then others may have it."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="claims")
    annotator = models.ForeignKey("lab.Annotator", on_delete=models.CASCADE, related_name="claims")
    until = models.DateTimeField()

    class Meta:
        db_table = "lab_claim"
        constraints = [models.UniqueConstraint(fields=["item", "annotator"], name="claim_unique")]

    def __str__(self) -> str:
        return f"claim of item {self.item_id}"


class Skip(models.Model):
    """Somebody passed an item on, and why. `to`: back to them at the end, to others, or to nobody."""

    class To(models.TextChoices):
        ME = "me", "back to me, last"
        OTHERS = "others", "to others"
        NOBODY = "nobody", "to nobody: it counts as done"

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="skips")
    annotator = models.ForeignKey("lab.Annotator", on_delete=models.CASCADE, related_name="skips")
    to = models.CharField(max_length=8, choices=To)
    reason = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_skip"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"skip of item {self.item_id}"
