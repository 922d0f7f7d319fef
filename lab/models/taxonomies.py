"""Vocabularies of failures and the guidelines people label by: versions that never change."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.models.fields import ExactJSONField


class Taxonomy(models.Model):
    """A vocabulary of failures. `slug` names it in files and mappings, such as `coding` or `agentrx`."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    retired = models.BooleanField(default=False)

    class Meta:
        db_table = "lab_taxonomy"
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name


class TaxonomyVersion(models.Model):
    """One version, immutable: `content` is `lab.engine.labels.taxonomy.Taxonomy` as JSON.

    A code's id never gets another meaning in a later version; one that is not used any more is retired.
    """

    taxonomy = models.ForeignKey(Taxonomy, on_delete=models.PROTECT, related_name="versions")
    n = models.PositiveIntegerField()
    content = ExactJSONField()
    digest = models.CharField(max_length=64)
    note = models.TextField(blank=True, default="")
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_taxonomy_version"
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["taxonomy", "n"], name="taxonomy_version_unique")]

    def __str__(self) -> str:
        return f"{self.taxonomy} v{self.n}"


class Guideline(models.Model):
    """How a team labels. Its versions hold what people read while they do it."""

    name = models.CharField(max_length=200, unique=True)

    class Meta:
        db_table = "lab_guideline"
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name


class GuidelineVersion(models.Model):
    """One version, immutable: the vocabulary, and which step counts as the root cause.

    `definition` is one of the definitions in use (`lab.engine.labels.guideline`), or `own`; `root_cause` is
    the sentence shown while labelling.
    """

    guideline = models.ForeignKey(Guideline, on_delete=models.PROTECT, related_name="versions")
    n = models.PositiveIntegerField()
    taxonomy_version = models.ForeignKey(TaxonomyVersion, on_delete=models.PROTECT, related_name="guidelines")
    definition = models.CharField(max_length=32)
    root_cause = models.TextField()
    instructions = models.TextField(blank=True, default="")
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_guideline_version"
        ordering = ["n"]
        constraints = [models.UniqueConstraint(fields=["guideline", "n"], name="guideline_version_unique")]

    def __str__(self) -> str:
        return f"{self.guideline} v{self.n}"
