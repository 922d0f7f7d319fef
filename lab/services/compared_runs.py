"""What a run was made with, as its own log says it: harness, limits, model. What nobody knows is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS
from lab.engine.llm.base import JSONObject
from lab.models import Attempt, Event, Experiment, Run
from lab.render.sandboxes import limit_words, shown_image, shown_sandbox
from lab.services.blobs import BodyMissingError
from lab.services.payloads import REFERENCE, is_reference, short_text, whole
from lab.services.run_pages import kind_of_sandbox
from lab.services.trajectories import text_of

OTHER_SANDBOX = "verified in another sandbox"


class LimitChange(NamedTuple):
    """A limit that people changed while the run was going on; `seq` is the event that says so."""

    limit: str
    before: Any
    after: Any
    seq: int


class Unreadable(NamedTuple):
    """Why a harness's configuration cannot be shown."""

    reason: str


@dataclass(frozen=True)
class MadeWith:
    """What one run was made with.

    `harness_digest` and `limits_digest` None: unknown. `limits` holds those the first attempt began with, in
    their units, None for "no limit"; a name that is missing is unknown. `limit_changes`: what people changed
    while it ran. `settings` are model, sampling, endpoint, seed and the like by their paths, such as
    `sampling.temperature`. Of a path that is missing nothing is known, but of sampling and extra body, where
    `sampling_known` says that it was not set.
    """

    run: Run
    harness: str
    harness_digest: str | None
    limits_digest: str | None
    limits: Mapping[str, Any]
    limit_changes: tuple[LimitChange, ...]
    settings: Mapping[str, Any]
    sampling_known: bool
    sandbox: Mapping[str, str]
    _recorded_harness: JSONObject

    @property
    def harness_config(self) -> JSONObject | Unreadable:
        """The configuration as JSON with its defaults: the stored version where it is the recorded one, else
        from the log."""
        version = self.run.arm.harness_version
        if version.digest == self.harness_digest:
            return _with_defaults(version.config) if version.config else Unreadable("nothing was recorded")
        config = self._recorded_harness.get("config")
        if not isinstance(config, dict):
            return Unreadable("only the digest was recorded")
        try:
            return _with_defaults(whole(config, text_of=text_of))
        except BodyMissingError as missing:
            return Unreadable(str(missing))


def _with_defaults(config: JSONObject) -> JSONObject:
    """The configuration with what an older release did not know yet; as it is, where it cannot be read."""
    try:
        return HarnessConfig.model_validate(config).model_dump(mode="json")
    except ValidationError:
        return config


def made_with(runs: Sequence[Run]) -> list[MadeWith]:
    """What each of these runs was made with, in their order, in three queries.

    The runs come with task set, experiment, harness version, model and endpoint.
    """
    ids = [run.pk for run in runs]
    started: dict[int, list[JSONObject]] = {run_id: [] for run_id in ids}
    changes: dict[int, list[LimitChange]] = {run_id: [] for run_id in ids}
    verified_in: dict[int, JSONObject] = {}
    kinds = ("attempt_started", "limit_changed", "sandbox_started")
    for event in Event.objects.filter(run__in=ids, kind__in=kinds).order_by("seq"):
        payload = event.payload
        if event.kind == "attempt_started":
            started[event.run_id].append(payload)
            verified_in.pop(event.run_id, None)
        elif event.kind == "sandbox_started":
            if payload.get("purpose") == "verification":
                verified_in[event.run_id] = payload
        elif payload.get("before") != payload.get("after"):
            name, before, after = (
                short_text(payload.get("limit")),
                payload.get("before"),
                payload.get("after"),
            )
            changes[event.run_id].append(LimitChange(name, before, after, event.seq))
    attempts = {attempt.run_id: attempt for attempt in Attempt.objects.filter(run__in=ids).order_by("n")}
    made = []
    for run in runs:
        attempt = attempts.get(run.pk)
        ran_in = attempt.sandbox if attempt else {}
        sandbox = sandbox_facts(ran_in, verified_in.get(run.pk))
        made.append(_made_with(run, started[run.pk], tuple(changes[run.pk]), sandbox))
    return made


def _made_with(
    run: Run, started: list[JSONObject], changes: tuple[LimitChange, ...], sandbox: Mapping[str, str]
) -> MadeWith:
    first, last = (started[0], started[-1]) if started else ({}, {})
    version = run.arm.harness_version
    harness = last.get("harness") or {}
    model = last.get("model") or {}
    first_limits = first.get("limits") or {}
    return MadeWith(
        run=run,
        harness=str(version),
        harness_digest=short_text(harness.get("digest")) or version.digest or None,
        limits_digest=short_text(first_limits.get("digest")) or run.arm.limits_digest or None,
        limits={name: value for name, value in {**run.arm.limits, **first_limits}.items() if name in UNITS},
        limit_changes=changes,
        settings=_settings(run, model if "sampling" in model else _model_of(run), last),
        sampling_known="sampling" in model or run.experiment.kind != Experiment.Kind.IMPORTED,
        sandbox=sandbox,
        _recorded_harness=harness,
    )


def _model_of(run: Run) -> JSONObject:
    """What the lab's own row says of a run's model, where its log does not."""
    model = run.arm.model
    facts = {
        "name": model.name,
        "model_id": model.model_id,
        "base_url": model.endpoint.base_url,
        "scripted": model.endpoint.scripted,
        "context_window": model.context_window,
        "max_tokens_per_turn": model.max_tokens_per_turn,
        "sampling": model.sampling,
        "extra_body": model.extra_body,
        "version": model.version,
        "endpoint": model.endpoint.name,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _settings(run: Run, model: JSONObject, started: JSONObject) -> dict[str, Any]:
    """Everything but harness, limits, task and sandbox that may make two runs differ, by path."""
    settings: dict[str, Any] = {"model": model.get("name", run.arm.model.name)}
    # A scripted model's server starts with its attempt, at an address that says nothing.
    nothing_said = {"name", "base_url"} if model.get("scripted") else {"name"}
    for name, value in model.items():
        if name not in nothing_said:
            settings |= _flat(_SHOWN_AS.get(name, f"model.{name}"), value)
    settings["seed"] = run.seed
    if run.preflight is not None:
        settings["preflight"] = run.preflight.outcome
    if started.get("lab_version"):
        settings["lab version"] = short_text(started["lab_version"])
    return settings


def sandbox_facts(payload: JSONObject, verified_in: JSONObject | None = None) -> dict[str, str]:
    """What a sandbox was, by name and in words, from the event of its start; unrecorded facts are missing.

    Images are told apart by their content: a name can come to stand for another one. `verified_in` is the
    start of the verification's sandbox, told where it was of another kind.
    """
    facts: dict[str, str] = {}
    if payload.get("sandbox"):
        facts["provider"] = short_text(payload["sandbox"])
    if payload.get("isolation"):
        shown = shown_sandbox(payload)
        facts["isolation"] = (shown and shown.kept_apart) or short_text(payload["isolation"])
    if payload.get("network") is not None:
        facts["network"] = "with network" if payload["network"] else "no network"
    if "image" in payload:
        image = shown_image(payload["image"])
        facts["image"] = image.reference if image else "none: the system of this machine"
        facts["content of the image"] = image.identifier or image.hash if image else "none"
    facts |= limit_words(payload.get("limits"))
    if verified_in and payload and kind_of_sandbox(verified_in) != kind_of_sandbox(payload):
        other = shown_sandbox(verified_in)
        if other is not None:
            made_from = f", image {other.image.reference} {other.image.short}" if other.image else ""
            facts[OTHER_SANDBOX] = f"{other.line}{made_from}"
    return facts


_SHOWN_AS = {
    "model_id": "model id",
    "endpoint": "endpoint",
    "base_url": "endpoint address",
    "sampling": "sampling",
    "extra_body": "extra_body",
}


def _flat(path: str, value: Any) -> dict[str, Any]:
    if is_reference(value):
        # Its beginning may be that of another text too.
        return {path: f"{short_text(value)}… (SHA-256 {value[REFERENCE][:16]})"}
    if not isinstance(value, dict):
        return {path: value}
    inner = value.get("$plain", value)
    flat: dict[str, Any] = {}
    for name, item in inner.items():
        flat |= _flat(f"{path}.{name}", item)
    return flat
