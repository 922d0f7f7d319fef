"""Task sets and tasks. What an agent may see stands apart from what it may not."""

from __future__ import annotations

from django.db import models


class TaskSet(models.Model):
    """A versioned list of tasks."""

    name = models.CharField(max_length=100)
    version = models.CharField(max_length=32)
    title = models.CharField(max_length=200, blank=True, default="")
    digest = models.CharField(max_length=64, unique=True)
    folder = models.CharField(max_length=1000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_task_set"
        ordering = ["name", "-created_at"]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Task(models.Model):
    """One task of a set: the public part. `folder` is where the repository snapshot lies."""

    task_set = models.ForeignKey(TaskSet, on_delete=models.CASCADE, related_name="tasks")
    slug = models.CharField(max_length=200)
    position = models.PositiveIntegerField()
    title = models.CharField(max_length=300)
    statement = models.TextField()
    # "owner/name" as the benchmark names it, "" where nobody does: tasks of one are not independent.
    repository = models.CharField(max_length=200, blank=True, default="", db_default="")
    difficulty = models.CharField(max_length=64, blank=True, default="")
    trait = models.CharField(max_length=100, blank=True, default="")
    digest = models.CharField(max_length=64)
    folder = models.CharField(max_length=1000)
    # What the folder's content was when the task was read; a run refuses a snapshot that has changed since.
    repository_digest = models.CharField(max_length=64, blank=True, default="")
    environment = models.JSONField(default=dict, blank=True)
    fail_to_pass_count = models.PositiveIntegerField(default=0)
    pass_to_pass_count = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "lab_task"
        ordering = ["task_set", "position"]
        constraints = [models.UniqueConstraint(fields=["task_set", "slug"], name="task_slug_unique")]

    def __str__(self) -> str:
        return self.slug

    @property
    def brings_image(self) -> bool:
        """Whether the task names what its sandboxes are made from, by an image or by a Dockerfile."""
        return bool(self.environment.get("image") or self.environment.get("build"))


class HiddenTaskPart(models.Model):
    """Gold patch, hidden tests and plans: read by verification, and shown to operators and admins only."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, related_name="hidden", primary_key=True)
    verification = models.JSONField()
    gold_patch = models.TextField(blank=True, default="")
    plans = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "lab_task_hidden"

    def __str__(self) -> str:
        return f"hidden part of {self.task_id}"


class TaskCheck(models.Model):
    """One environment check: F2P tests fail without a patch, everything passes with the gold patch."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="checks")
    at = models.DateTimeField(auto_now_add=True)
    sandbox = models.CharField(max_length=32)
    valid = models.BooleanField()
    detail = models.TextField(blank=True, default="")

    class Meta:
        db_table = "lab_task_check"
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"check of {self.task_id}: {'valid' if self.valid else 'invalid'}"
