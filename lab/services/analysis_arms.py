"""Arms across experiments: what one is called, its place in every plot, and what differs between some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lab.engine.llm.base import canonical_json
from lab.models import Arm
from lab.services.comparisons import LIMIT_NAMES, Light, said_of_each, state_of

DIGEST_SHOWN = 12


# What imports call a harness that no record names.
_NO_HARNESS = ("unknown program (imported)", "harness not recorded (imported)")


class ArmOf(NamedTuple):
    """An arm across the selected experiments.

    `series` (from 1) is its place in every plot, whatever else is selected. `letter` is the experiment's
    where one is selected. `name` is what to call it: as short as the others allow. `harness_recorded` and
    `model_recorded`: whether an imported record says which it was. `limits_digest` is "" where not all limits
    are known. `experiments` and `arm_ids` belong together, one row an experiment.
    """

    key: str
    letter: str
    series: int
    name: str
    harness: str
    harness_version_id: int
    harness_digest: str | None
    model: str
    model_id: int
    sampling: dict[str, Any]
    limits: dict[str, Any]
    limits_digest: str
    experiments: tuple[int, ...]
    arm_ids: tuple[int, ...]
    harness_recorded: bool = True
    model_recorded: bool = True


def key_of(harness_version_id: int, model_id: int, limits_digest: str) -> str:
    """What runs of one harness version, model and limits share: `Observation.arm`."""
    return f"{harness_version_id}.{model_id}.{limits_digest[:DIGEST_SHOWN]}"


def arms_of(experiments: Sequence[int]) -> list[ArmOf]:
    """All arms of these experiments, in the order of experiments and letters; equal ones are one arm."""
    rows = (
        Arm.objects.filter(experiment__in=experiments)
        .select_related("harness_version__harness", "model")
        .defer("harness_version__config", "harness_version__source")
        .order_by("experiment_id", "letter", "pk")
    )
    merged: dict[str, list[Arm]] = {}
    for row in rows:
        key = key_of(row.harness_version_id, row.model_id, row.limits_digest)
        merged.setdefault(key, []).append(row)
    names = _names([found[0] for found in merged.values()])
    alone = len(experiments) == 1
    return [
        _arm(key, found, name, series, found[0].letter if alone else letter(series))
        for series, ((key, found), name) in enumerate(zip(merged.items(), names, strict=True), start=1)
    ]


def _arm(key: str, rows: Sequence[Arm], name: str, series: int, its_letter: str) -> ArmOf:
    first = rows[0]
    return ArmOf(
        key=key,
        letter=its_letter,
        series=series,
        name=name,
        harness=str(first.harness_version),
        harness_version_id=first.harness_version_id,
        harness_digest=first.harness_version.digest,
        model=_model(first),
        model_id=first.model_id,
        sampling={**first.model.sampling, **first.model.extra_body},
        limits=dict(first.limits),
        limits_digest=first.limits_digest,
        experiments=tuple(row.experiment_id for row in rows),
        arm_ids=tuple(row.pk for row in rows),
        harness_recorded=not first.harness_version.harness.name.startswith(_NO_HARNESS),
        model_recorded=bool(first.model.model_id),
    )


def letter(series: int) -> str:
    """A, B, … Z, AA, AB, …"""
    shown = ""
    while series:
        series, place = divmod(series - 1, 26)
        shown = chr(ord("A") + place) + shown
    return shown


def _model(arm: Arm) -> str:
    """A model by its name; versions after the first say which they are."""
    return arm.model.name if arm.model.version == 1 else f"{arm.model.name} v{arm.model.version}"


def _names(arms: Sequence[Arm]) -> list[str]:
    """What tells each from the others: model, harness, both, and limits where all else is the same."""
    parts: tuple[Callable[[Arm], str], ...] = (lambda arm: str(arm.harness_version), _model)
    telling = [part for part in parts if len({part(arm) for arm in arms}) > 1] or [_model]
    names = [" × ".join(part(arm) for part in telling) for arm in arms]
    differing = [name for name in LIMIT_NAMES if _differs(name, [arm.limits for arm in arms])]
    return [
        f"{name}, {_limits(arm.limits, differing)}" if names.count(name) > 1 else name
        for arm, name in zip(arms, names, strict=True)
    ]


def _limits(limits: Mapping[str, Any], names: Sequence[str]) -> str:
    known = [f"{LIMIT_NAMES[name]} {said_of_each(name, [limits])}" for name in names if name in limits]
    return ", ".join(known) or "limits unknown"


def _differs(name: str, limits: Sequence[Mapping[str, Any]]) -> bool:
    return len({canonical_json([one[name]]) for one in limits if name in one}) > 1


def lights_of(arms: Sequence[ArmOf], tasks: Mapping[str, set[str]], unknown: set[str]) -> list[Light]:
    """The lights over arms, none for a single one: harness, limits, tasks.

    `tasks`: arm's key -> keys of the tasks it ran, `unknown` the tasks whose content nobody knows.
    """
    if len(arms) < 2:
        return []
    harnesses = {arm.letter: arm.harness_digest for arm in arms}
    digests = {arm.letter: arm.limits_digest or None for arm in arms}
    differing = _differing_limits(arms)
    limits = state_of(list(digests.values()))
    return [
        Light("harness", state_of(list(harnesses.values())), _grouped(harnesses)),
        Light("limits", "different" if differing else limits, differing or _grouped(digests)),
        _task_light(arms, tasks, unknown),
    ]


def _grouped(values: Mapping[str, str | None]) -> str:
    """ "A, C against B; not known of D": letters with the same value together, "" where all have the same."""
    groups: dict[str, list[str]] = {}
    for its_letter, value in values.items():
        if value is not None:
            groups.setdefault(value, []).append(its_letter)
    unknown = [its_letter for its_letter, value in values.items() if value is None]
    parts = [" against ".join(", ".join(letters) for letters in groups.values())] if len(groups) > 1 else []
    return "; ".join([*parts, *([f"not known of {', '.join(unknown)}"] if unknown else [])])


def _differing_limits(arms: Sequence[ArmOf]) -> str:
    limits = [arm.limits for arm in arms]
    return "; ".join(
        f"{words} {said_of_each(name, limits)}"
        for name, words in LIMIT_NAMES.items()
        if _differs(name, limits)
    )


def _task_light(arms: Sequence[ArmOf], tasks: Mapping[str, set[str]], unknown: set[str]) -> Light:
    ran = [tasks.get(arm.key, set()) for arm in arms]
    shared = set.intersection(*ran)
    if any(one != shared for one in ran):
        counts = ", ".join(f"{arm.letter} {len(one):,}" for arm, one in zip(arms, ran, strict=True))
        return Light("task set", "different", f"tasks {counts}; {len(shared):,} in common")
    blurred = len(shared & unknown)
    if blurred:
        return Light("task set", "unknown", f"what {blurred:,} of {len(shared):,} tasks hold is not recorded")
    return Light("task set", "same")


def sampling_of(arms: Sequence[ArmOf]) -> str:
    """What differs in the models' sampling: "temperature 0.6 and 1, top_p not set and 0.95"; "" for nothing.

    A model whose sampling nobody recorded has none.
    """
    paths = dict.fromkeys(path for arm in arms for path in arm.sampling)
    parts = []
    for path in paths:
        values = dict.fromkeys(_said(arm.sampling, path) for arm in arms)
        if len(values) > 1:
            parts.append(f"{path} {' and '.join(values)}")
    return "; ".join(parts)


def _said(sampling: Mapping[str, Any], path: str) -> str:
    return canonical_json([sampling[path]]).decode()[1:-1] if path in sampling else "not set"


def ran_by(runs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Arm's key -> keys of the tasks it ran, from pairs of them."""
    found: dict[str, set[str]] = {}
    for arm, task in runs:
        found.setdefault(arm, set()).add(task)
    return found
