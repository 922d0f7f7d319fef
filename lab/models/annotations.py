"""Who labelled which run how. What was submitted is never changed: a correction is a row of its own."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from lab.models.fields import ExactJSONField


class Annotator(models.Model):
    """Whose reading a label is: a person of the lab, people outside of whom only a name is known, or a model.

    A judge never counts as a person in agreement.
    """

    class Kind(models.TextChoices):
        PERSON = "person", "person"
        IMPORTED = "imported", "imported"
        JUDGE = "judge", "judge"

    kind = models.CharField(max_length=16, choices=Kind)
    name = models.CharField(max_length=200)
    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="annotator"
    )
    model = models.OneToOneField(
        "lab.Model", null=True, blank=True, on_delete=models.PROTECT, related_name="annotator"
    )

    class Meta:
        db_table = "lab_annotator"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="annotator_unique")]

    def __str__(self) -> str:
        return self.name


class Annotation(models.Model):
    """One reading of one run under one guideline version.

    While it is a draft, `draft` holds it (`lab.engine.labels.label.Label` as JSON), `earlier` and `later`
    what undo and redo go back to, and `revision` counts its changes. Submitting writes the columns below and
    the error events, and empties the draft.

    `known` is what tests and exit reason said of the run when it was submitted. `lead_seconds`: time worked
    on it, without the time it lay open and untouched. `replaces`: the same person's earlier reading of
    the same run, which does not count any more. `parents`: what an adjudication decides between; they stay.
    `extras`: of an imported label, what has no column here, as its file wrote it.
    """

    class State(models.TextChoices):
        DRAFT = "draft", "draft"
        SUBMITTED = "submitted", "submitted"
        DISCARDED = "discarded", "discarded"

    class Kind(models.TextChoices):
        LABEL = "label", "label"
        ADJUDICATION = "adjudication", "adjudication"
        JUDGEMENT = "judgement", "judgement"

    run = models.ForeignKey("lab.Run", on_delete=models.CASCADE, related_name="annotations")
    guideline = models.ForeignKey(
        "lab.GuidelineVersion", on_delete=models.PROTECT, related_name="annotations"
    )
    annotator = models.ForeignKey(Annotator, on_delete=models.PROTECT, related_name="annotations")
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.LABEL)
    state = models.CharField(max_length=16, choices=State, default=State.DRAFT)
    item = models.ForeignKey(
        "lab.QueueItem", null=True, blank=True, on_delete=models.SET_NULL, related_name="annotations"
    )
    replaces = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaced_by"
    )
    parents = models.ManyToManyField("self", symmetrical=False, blank=True, related_name="adjudications")

    owner = models.CharField(max_length=16, blank=True, default="")
    phase = models.CharField(max_length=16, blank=True, default="")
    sure = models.BooleanField(null=True, blank=True)
    # Whether its author saw no other reading of the run when they began it: only such ones are compared.
    blind = models.BooleanField(default=True, db_default=True)
    note = models.TextField(blank=True, default="")
    # The key of the event that is the root cause, among this label's events.
    root_event = models.PositiveIntegerField(null=True, blank=True)
    root_reason = models.TextField(blank=True, default="")
    alternatives = models.JSONField(default=list, blank=True)
    verified_by_replay = models.CharField(max_length=16, blank=True, default="not tried")
    known = ExactJSONField(default=dict, blank=True)
    extras = ExactJSONField(default=dict, blank=True)

    draft = ExactJSONField(default=dict, blank=True)
    earlier = ExactJSONField(default=list, blank=True)
    later = ExactJSONField(default=list, blank=True)
    revision = models.PositiveIntegerField(default=0)

    lead_seconds = models.FloatField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    touched_at = models.DateTimeField(null=True, blank=True)
    submitted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_annotation"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "guideline", "annotator", "kind"],
                condition=Q(state="draft"),
                name="annotation_one_draft",
            )
        ]
        indexes = [models.Index(fields=["run", "state"], name="annotation_run_state")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk} of run {self.run_id}"


class ErrorEvent(models.Model):
    """Something that went wrong at one step, as one submitted label says. `key` is its number in the label.

    `step` counts from 1 within its attempt, `seq` is the step's first `model_call_started` (NULL where the
    run records none). `category` is a code of the guideline's vocabulary, `native_category` an imported
    file's own word. `evidence` are `lab.engine.labels.label.Evidence` as JSON. `agent`: who acted, in a run
    of several.
    """

    annotation = models.ForeignKey(Annotation, on_delete=models.CASCADE, related_name="events")
    key = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField(default=1)
    step = models.PositiveIntegerField()
    seq = models.PositiveIntegerField(null=True, blank=True)
    category = models.CharField(max_length=64, blank=True, default="")
    native_category = models.CharField(max_length=200, blank=True, default="")
    severity = models.CharField(max_length=16, blank=True, default="")
    recovered = models.BooleanField(null=True, blank=True)
    caused_by = models.PositiveIntegerField(null=True, blank=True)
    ideal_action = models.TextField(blank=True, default="")
    note = models.TextField(blank=True, default="")
    category_reason = models.TextField(blank=True, default="")
    agent = models.CharField(max_length=200, blank=True, default="")
    evidence = ExactJSONField(default=list, blank=True)

    class Meta:
        db_table = "lab_error_event"
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["annotation", "key"], name="error_event_unique")]

    def __str__(self) -> str:
        return f"E{self.key} of annotation {self.annotation_id}"
