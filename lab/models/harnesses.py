"""Harnesses and their immutable versions."""

from __future__ import annotations

from django.db import models

from lab.models.fields import ExactJSONField


class Harness(models.Model):
    name = models.CharField(max_length=100, unique=True)
    family = models.CharField(max_length=16)
    preset = models.BooleanField(default=False)

    class Meta:
        db_table = "lab_harness"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class HarnessVersionQuerySet(models.QuerySet["HarnessVersion"]):
    def newest(self) -> HarnessVersionQuerySet:
        """The newest version of each harness: presets first, in the order in which the lab got them."""
        newer = HarnessVersion.objects.filter(
            harness=models.OuterRef("harness"), version__gt=models.OuterRef("version")
        )
        return (
            self.filter(~models.Exists(newer))
            .select_related("harness")
            .order_by("-harness__preset", "harness_id")
        )


class HarnessVersion(models.Model):
    """A harness's configuration, frozen.

    `digest` is NULL only where an imported harness's content is unknown.
    """

    harness = models.ForeignKey(Harness, on_delete=models.PROTECT, related_name="versions")
    version = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, unique=True, null=True, blank=True)
    config = ExactJSONField()
    source = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = HarnessVersionQuerySet.as_manager()

    class Meta:
        db_table = "lab_harness_version"
        ordering = ["harness__name", "-version"]
        constraints = [models.UniqueConstraint(fields=["harness", "version"], name="harness_version_unique")]

    def __str__(self) -> str:
        return f"{self.harness.name} v{self.version}"
