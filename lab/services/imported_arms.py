"""What an imported run is a run of: harness, model and task as its file names them, as rows of the lab.

Names that the lab gives end in "(imported)", so that no recorded model or harness ever becomes a newer
version of one of the lab's own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from django.db import transaction
from pydantic import ValidationError

from lab.engine.formats.to_events import Standing
from lab.engine.formats.trajectory import HarnessUsed, ModelUsed, Trajectory
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import UNITS, Limits
from lab.engine.llm.base import JSONObject, canonical_sha256, clean_json
from lab.engine.redact import Redactor, mapped_texts, storable
from lab.engine.tasks.repositories import repository_of
from lab.models import (
    Arm,
    Endpoint,
    Experiment,
    Harness,
    HarnessVersion,
    HiddenTaskPart,
    Model,
    Task,
    TaskSet,
)
from lab.services.locks import one_at_a_time
from lab.services.tasks import RECORDED_ELSEWHERE

ENDPOINT = "recorded elsewhere"
TASK_SET = RECORDED_ELSEWHERE
# A wire protocol that the lab does not know, and a harness whose content nobody recorded.
FAMILY = "recorded"
_MARK = " (imported)"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Place(NamedTuple):
    """Of which arm and task a run is, and what the first event of its log says of them."""

    arm: Arm
    task: Task
    standing: JSONObject


@dataclass
class Cleaner:
    """Texts of a file as they may be stored: without the lab's secrets, fit for any store."""

    redactor: Redactor

    def text(self, value: str, limit: int = 1_000_000) -> str:
        return storable(self.redactor.text(str(clean_json(value))))[:limit]

    def json(self, value: JSONObject) -> JSONObject:
        cleaned: JSONObject = mapped_texts(clean_json(value), lambda text: storable(self.redactor.text(text)))
        return cleaned


class Rows:
    """Finds and makes these rows; what one experiment's runs share is looked up once."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._clean = cleaner
        self._versions: dict[str, HarnessVersion] = {}
        self._models: dict[str, Model] = {}
        self._tasks: dict[str, Task] = {}
        self._arms: dict[tuple[int, int, int, str], Arm] = {}

    def place(self, trajectory: Trajectory, experiment: Experiment) -> Place:
        """Arm and task of the trajectory in the experiment, made where they are missing."""
        version = self.version_of(trajectory.harness)
        model = self.model_of(trajectory.model)
        task = self.task_of(trajectory)
        arm = self._arm(experiment, version, model, _complete_limits(trajectory.limits))
        return Place(arm, task, self._standing(trajectory, arm, task))

    def forget(self) -> None:
        """A transaction was undone, and what was made in it with it."""
        for known in (self._versions, self._models, self._tasks, self._arms):
            known.clear()

    def version_of(self, used: HarnessUsed) -> HarnessVersion:
        name = self._clean.text(used.name).strip() or "unknown program"
        recorded = {
            "version": self._clean.text(used.version, 200),
            "config": self._clean.json(used.config),
            "family": self._clean.text(used.family, 16),
            "complete": used.complete,
        }
        key = canonical_sha256([name, recorded])
        if key not in self._versions:
            own = _own_config(used) if used.complete else None
            known = HarnessVersion.objects.filter(digest=own.digest).first() if own is not None else None
            self._versions[key] = known or self._new_version(name, recorded, key, own)
        return self._versions[key]

    def _new_version(
        self, name: str, recorded: JSONObject, key: str, own: HarnessConfig | None
    ) -> HarnessVersion:
        with transaction.atomic():
            one_at_a_time("harnesses")
            family = own.family if own is not None else recorded["family"] or FAMILY
            harness = _harness(name, family)
            versions = list(HarnessVersion.objects.filter(harness=harness).order_by("version"))
            same = next((one for one in versions if one.source.get("sha256") == key), None)
            if same is not None:
                return same
            config = own.model_dump(mode="json") if own is not None else _unread(recorded["config"])
            return HarnessVersion.objects.create(
                harness=harness,
                version=versions[-1].version + 1 if versions else 1,
                digest=own.digest if own is not None else None,
                config=config,
                source={
                    "kind": "imported",
                    "program": name,
                    **({"revision": recorded["version"]} if recorded["version"] else {}),
                    "sha256": key,
                },
            )

    def model_of(self, used: ModelUsed) -> Model:
        name = self._clean.text(used.name).strip()
        provider = self._clean.text(used.provider, 64)
        sampling = self._clean.json(used.sampling)
        key = canonical_sha256([name, provider, sampling])
        if key not in self._models:
            self._models[key] = _model(name, provider, sampling)
        return self._models[key]

    def task_of(self, trajectory: Trajectory) -> Task:
        slug = self._slug(trajectory.instance_id, trajectory.origin.sha256)
        repository = repository_of(slug, trajectory.task_kept)
        if slug not in self._tasks:
            self._tasks[slug] = _task(slug, self._clean.text(trajectory.statement), repository)
        task = self._tasks[slug]
        if repository and not task.repository and task.task_set.name == TASK_SET:
            task.repository = repository
            task.save(update_fields=["repository"])
        if trajectory.statement and not task.statement and task.task_set.name == TASK_SET:
            task.statement = self._clean.text(trajectory.statement)
            task.title = _title(slug, task.statement)
            task.save(update_fields=["statement", "title"])
        return task

    def _slug(self, instance_id: str, sha256: str) -> str:
        slug = self._clean.text(instance_id).strip()
        if not slug:
            return f"not-recorded-{sha256[:8]}"
        if len(slug) <= 200:
            return slug
        return f"{slug[:180]}-{hashlib.sha256(slug.encode()).hexdigest()[:16]}"

    def _arm(
        self, experiment: Experiment, version: HarnessVersion, model: Model, limits: Limits | None
    ) -> Arm:
        digest = limits.digest if limits is not None else ""
        key = (experiment.pk, version.pk, model.pk, digest)
        if key not in self._arms:
            values = limits.model_dump(mode="json") if limits is not None else {}
            made, _ = Arm.objects.select_related("harness_version__harness", "model__endpoint").get_or_create(
                experiment=experiment,
                harness_version=version,
                model=model,
                limits_digest=digest,
                defaults={"limits": values, "letter": _letter(experiment.arms.count())},
            )
            self._arms[key] = made
        return self._arms[key]

    def _standing(self, trajectory: Trajectory, arm: Arm, task: Task) -> JSONObject:
        version, model = arm.harness_version, arm.model
        used = trajectory.harness
        harness = {
            "name": version.harness.name,
            "version": version.version,
            "recorded_version": used.version,
            "family": version.harness.family,
            "digest": version.digest,
            "config": used.config,
        }
        asked = trajectory.model
        facts = {
            "name": model.name,
            "version": model.version,
            "model_id": asked.name,
            "provider": asked.provider,
            "base_url": asked.base_url,
            "endpoint": ENDPOINT,
            "sampling": asked.sampling,
        }
        told: JSONObject = self._clean.json(
            {
                "task": {"id": task.slug, "set": task.task_set.name, "set_version": task.task_set.version},
                "harness": _said(harness),
                "model": _said(facts),
            }
        )
        return told


def standing(place: Place, *, seed: int, lab_version: str) -> Standing:
    """What the first event says, once the run has its seed."""
    return Standing(**place.standing, seed=seed, lab_version=lab_version)


def _said(facts: JSONObject) -> JSONObject:
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def _own_config(used: HarnessUsed) -> HarnessConfig | None:
    """The harness as the lab runs it, where the file holds all of it; None for anything else."""
    try:
        return HarnessConfig.model_validate(used.config)
    except ValidationError:
        return None


def _unread(config: JSONObject) -> JSONObject:
    """A foreign configuration, in a place where nobody takes it for one of the lab's."""
    return {"protocol": FAMILY, "recorded": config}


def _harness(name: str, family: str) -> Harness:
    """The imported harness of this program, one for each family it was recorded with."""
    # What another lab had imported and exported again is marked already.
    kept = f"{name.removesuffix(_MARK)[:80]}{_MARK}"
    for number in range(1, 100):
        candidate = kept if number == 1 else f"{kept} {number}"
        harness, _ = Harness.objects.get_or_create(name=candidate, defaults={"family": family[:16]})
        if harness.family == family[:16] and not harness.preset:
            return harness
    raise ValueError(f"there are a hundred harnesses named {kept}")


def _model(name: str, provider: str, sampling: JSONObject) -> Model:
    with transaction.atomic():
        one_at_a_time("models")
        endpoint, _ = Endpoint.objects.get_or_create(name=ENDPOINT, defaults={"retired": True})
        kept = f"{(name or 'model not recorded').removesuffix(_MARK)[:180]}{_MARK}"
        versions = list(Model.objects.filter(name=kept).order_by("version"))
        for one in versions:
            if (one.price_provider, one.sampling, one.endpoint_id) == (provider, sampling, endpoint.pk):
                return one
        return Model.objects.create(
            endpoint=endpoint,
            name=kept,
            version=versions[-1].version + 1 if versions else 1,
            model_id=name[:200],
            sampling=sampling,
            price_provider=provider,
            price_basis="table",
            retired=True,
        )


def _task(slug: str, statement: str, repository: str) -> Task:
    known = Task.objects.select_related("task_set").filter(slug=slug).order_by("-task_set", "-pk").first()
    if known is not None:
        return known
    with transaction.atomic():
        one_at_a_time("imports")
        task_set, _ = TaskSet.objects.get_or_create(
            digest=TASK_SET,
            defaults={"name": TASK_SET, "version": "1", "title": "Tasks of imported runs", "folder": ""},
        )
        task, made = Task.objects.select_related("task_set").get_or_create(
            task_set=task_set,
            slug=slug,
            defaults={
                "position": task_set.tasks.count() + 1,
                "title": _title(slug, statement),
                "statement": statement,
                "repository": repository,
                "digest": canonical_sha256([TASK_SET, slug]),
                "folder": "",
            },
        )
        if made:
            HiddenTaskPart.objects.create(task=task, verification={})
    return task


def _title(slug: str, statement: str) -> str:
    first = next((line.strip() for line in statement.splitlines() if line.strip()), "")
    return (first.lstrip("#").strip() or slug)[:300]


def _complete_limits(limits: JSONObject) -> Limits | None:
    """The limits where the file says all of them: some of them make no digest."""
    if not limits.keys() >= UNITS.keys():
        return None
    try:
        return Limits.model_validate({name: limits[name] for name in UNITS})
    except (ValidationError, ArithmeticError):
        return None


def _letter(index: int) -> str:
    first, second = divmod(index, 26)
    return f"{_LETTERS[min(first, 26) - 1] if first else ''}{_LETTERS[second]}"
