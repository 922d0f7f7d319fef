"""Endpoints and the models behind them."""

from __future__ import annotations

from django.db import models

from lab.models.fields import ExactJSONField


class Endpoint(models.Model):
    """A base URL that speaks the OpenAI chat-completions API.

    The key stays in the environment: only the name of its variable is here.
    """

    name = models.CharField(max_length=100, unique=True)
    base_url = models.CharField(max_length=500, blank=True, default="")
    key_variable = models.CharField(max_length=100, blank=True, default="")
    scripted = models.BooleanField(default=False)
    headers = models.JSONField(default=dict, blank=True)
    concurrency_limit = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_endpoint"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ModelQuerySet(models.QuerySet["Model"]):
    def in_use(self) -> ModelQuerySet:
        """The newest version of each model that was not retired, scripted ones last."""
        newer = Model.objects.filter(name=models.OuterRef("name"), version__gt=models.OuterRef("version"))
        return (
            self.filter(~models.Exists(newer), retired=False)
            .select_related("endpoint")
            .order_by("endpoint__scripted", "name")
        )


class Model(models.Model):
    """A model id at an endpoint with its settings.

    Never edited once a run used it: a change makes a new version.
    """

    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="models")
    name = models.CharField(max_length=200)
    version = models.PositiveIntegerField(default=1)
    model_id = models.CharField(max_length=200)
    context_window = models.PositiveIntegerField(null=True, blank=True)
    max_tokens_per_turn = models.PositiveIntegerField(null=True, blank=True)
    sampling = ExactJSONField(default=dict, blank=True)
    extra_body = ExactJSONField(default=dict, blank=True)
    price_basis = models.CharField(max_length=16, default="table")
    price_provider = models.CharField(max_length=64, blank=True, default="")
    price_model = models.CharField(max_length=200, blank=True, default="")
    retired = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ModelQuerySet.as_manager()

    class Meta:
        db_table = "lab_model"
        ordering = ["name", "-version"]
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="model_name_version_unique")]

    def __str__(self) -> str:
        return self.name

    @property
    def scripted(self) -> bool:
        return self.endpoint.scripted
