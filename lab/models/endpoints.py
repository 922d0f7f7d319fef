"""Endpoints and the models behind them."""

from __future__ import annotations

from django.conf import settings
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
    # In seconds: until the connection stands, and between two pieces of an answer.
    connect_timeout = models.FloatField(default=10.0, db_default=10.0)
    read_timeout = models.FloatField(default=600.0, db_default=600.0)
    retired = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_endpoint"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ModelQuerySet(models.QuerySet["Model"]):
    def newest(self) -> ModelQuerySet:
        """The newest version of each model, whatever was retired."""
        newer = Model.objects.filter(name=models.OuterRef("name"), version__gt=models.OuterRef("version"))
        return self.filter(~models.Exists(newer)).select_related("endpoint")

    def in_use(self) -> ModelQuerySet:
        """The newest version of each model that was not retired, nor its endpoint; scripted ones last."""
        in_use = self.newest().filter(retired=False, endpoint__retired=False)
        return in_use.order_by("endpoint__scripted", "name")


class Model(models.Model):
    """A model id at an endpoint with its settings.

    Never edited once a run used it: a change makes a new version. `replays` is the arm whose recorded turns a
    replay model serves: each run gets those of the run of the same task and seed. `on_difference` says what a
    replay does where the conversation first goes another way.
    """

    class OnDifference(models.TextChoices):
        STOP = "stop", "stop at the first difference"
        FOLLOW = "follow", "follow the recording all the same"

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
    replays = models.ForeignKey(
        "lab.Arm", null=True, blank=True, on_delete=models.PROTECT, related_name="replayed_by"
    )
    on_difference = models.CharField(
        max_length=8, choices=OnDifference, default=OnDifference.STOP, db_default="stop"
    )
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

    @property
    def replay(self) -> bool:
        """Whether it serves recorded turns, also of runs that are gone by now."""
        return self.price_basis == "replay"

    @property
    def lab_written(self) -> bool:
        """Whether all its commands were written by the lab: scripted, or a replay of such runs."""
        return self.scripted or (self.replays is not None and self.replays.model.lab_written)


class PriceCard(models.Model):
    """What a model id at an endpoint costs between two moments, by the lab's own reckoning.

    `basis` as in `engine.pricing`: `card` and `reference` hold dollars per million tokens by part in `rates`
    (`input`, `cache_read`, `cache_write`, `cache_write_1h`, `output`; decimals as text), `gpu_hours` what a
    rate is derived from (`gpus`, `usd_per_gpu_hour`, `tokens_per_second`, `utilisation`). `valid_until` is
    excluded, None: still. Cards of one model id and basis never overlap.
    """

    class Basis(models.TextChoices):
        CARD = "card", "own card"
        GPU_HOURS = "gpu_hours", "GPU hours"
        REFERENCE = "reference", "reference price"

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="price_cards")
    model_id = models.CharField(max_length=200)
    basis = models.CharField(max_length=16, choices=Basis)
    rates = models.JSONField(default=dict)
    source = models.CharField(max_length=500, blank=True, default="")
    valid_from = models.DateTimeField()
    valid_until = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_price_card"
        ordering = ["model_id", "valid_from"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(valid_until__isnull=True)
                | models.Q(valid_until__gt=models.F("valid_from")),
                name="price_card_ends_after_it_begins",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_basis_display()} of {self.model_id}"


class Preflight(models.Model):
    """One examination of a model as its server answers it.

    `probes` are what was asked and answered (excerpts, times), `findings` the diagnoses with their evidence,
    `measured` the figures (tokens a second, seconds to the first token, context limit, …). `outcome` is the
    worst finding's severity, "" while it runs; `error` says why it could not be finished. A model is examined
    once at a time: whoever asks holds it until `lease_until`, and looks whether somebody has cancelled it.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        ENDED = "ended", "ended"

    class Outcome(models.TextChoices):
        HEALTHY = "healthy", "healthy"
        WARNING = "warning", "warnings"
        FAILING = "failing", "failing"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="preflights")
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    outcome = models.CharField(max_length=16, choices=Outcome, blank=True, default="")
    over_limit = models.BooleanField(default=False)
    probes = ExactJSONField(default=list, blank=True)
    findings = ExactJSONField(default=list, blank=True)
    measured = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True, default="")
    worker = models.CharField(max_length=200, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    cancelled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_preflight"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["model"], condition=~models.Q(state="ended"), name="preflight_one_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"preflight {self.pk} of {self.model}"
