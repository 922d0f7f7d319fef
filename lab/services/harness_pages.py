"""What the pages of harnesses show: the list, one version, and what it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Count, Q, QuerySet
from pydantic import ValidationError

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.difference import (
    OUTSIDE,
    Difference,
    content_differences,
    differences,
    differences_beside,
)
from lab.models import Experiment, Harness, HarnessVersion, Run

RUNS_SHOWN = 8
_DEMO = Experiment.Kind.DEMO


class HarnessRow(NamedTuple):
    """A harness in the list: its newest version, how many there are, and the runs of all of them.

    `demo_runs` are beside `runs`, which are the lab's own.
    """

    version: HarnessVersion
    protocol: str
    tools: list[str]
    versions: int
    runs: int
    demo_runs: int
    origin: str


class Launchable(NamedTuple):
    """A version that can be launched; `older` says that its harness has a newer one."""

    version: HarnessVersion
    older: bool


class FamilyCount(NamedTuple):
    """How many harnesses there are of a family; "" stands for all of them."""

    family: str
    number: int


class UsedBy(NamedTuple):
    """The runs of a harness version: how many of the lab's own, how many of a demo, and the newest few."""

    runs: int
    demo_runs: int
    newest: Sequence[Run]


@dataclass(frozen=True)
class ShownFeedback:
    """A text of the harness for the model; `own` says that it is not the family's."""

    name: str
    template: str
    own: bool


def listed(*, family: str = "") -> list[HarnessRow]:
    """The newest version of each harness, presets first; of one family where one is named."""
    newest = HarnessVersion.objects.newest()
    if family:
        newest = newest.filter(harness__family=family)
    counts = _counts()
    return [
        HarnessRow(
            version=version,
            protocol=str(version.config.get("protocol", "native")),
            tools=[str(tool.get("name", "")) for tool in version.config.get("tools", [])],
            versions=counts[version.harness_id].versions,
            runs=counts[version.harness_id].runs,
            demo_runs=counts[version.harness_id].demo_runs,
            origin=origin_of(version),
        )
        for version in newest
    ]


def families() -> list[FamilyCount]:
    """The families there are harnesses of, all of them first."""
    rows = Harness.objects.values("family").annotate(number=Count("pk")).order_by("family")
    found = [FamilyCount(row["family"], row["number"]) for row in rows]
    return [FamilyCount("", sum(one.number for one in found)), *found]


def used_by(version: HarnessVersion) -> UsedBy:
    """The runs that were made with this version."""
    runs = Run.objects.filter(arm__harness_version=version)
    counted = runs.aggregate(
        own=Count("pk", filter=~Q(experiment__kind=_DEMO)),
        demo=Count("pk", filter=Q(experiment__kind=_DEMO)),
    )
    newest = runs.for_rows().order_by("-pk")[:RUNS_SHOWN] if sum(counted.values()) else []
    return UsedBy(counted["own"], counted["demo"], list(newest))


def launchable(*, also: int = 0) -> list[Launchable]:
    """What can be launched: the newest version of each harness, and after the newest of its harness the
    version with the number `also`, where that is an older one.

    A version whose content is unknown, or nothing that this lab can read, is not among them.
    """
    found = [Launchable(version, older=False) for version in HarnessVersion.objects.newest()]
    asked = HarnessVersion.objects.select_related("harness").filter(pk=also).first()
    if asked is not None and all(one.version != asked for one in found):
        harnesses = [one.version.harness_id for one in found]
        found.insert(harnesses.index(asked.harness_id) + 1, Launchable(asked, older=True))
    return [one for one in found if can_be_launched(one.version)]


def can_be_launched(version: HarnessVersion) -> bool:
    """Whether its content is known, and this lab can read it."""
    return version.digest is not None and readable_config(version) is not None


def versions_of(harness: Harness) -> QuerySet[HarnessVersion]:
    """All versions of a harness, newest first, without what they hold."""
    return harness.versions.order_by("-version").defer("config")


def readable_config(version: HarnessVersion) -> HarnessConfig | None:
    """The version's content as this lab understands it; None for one that it cannot read."""
    try:
        return HarnessConfig.model_validate(version.config)
    except ValidationError:
        return None


def feedback_of(config: HarnessConfig) -> list[ShownFeedback]:
    """The harness's texts for the model: its own, else those of its family."""
    try:
        family = dict(registry.family(config.family).feedback)
    except InvalidValueError:
        family = {}
    names = [*family, *(name for name in config.feedback if name not in family)]
    return [
        ShownFeedback(
            name=name,
            template=config.feedback[name] if name in config.feedback else family[name].template,
            own=name in config.feedback,
        )
        for name in names
    ]


class HarnessDifference(NamedTuple):
    """What differs in what a model sees, and beside it; `equal` are the sections that are the same."""

    content: list[Difference]
    beside: list[Difference]
    equal: list[str]


def difference_of(left: HarnessVersion, right: HarnessVersion) -> HarnessDifference:
    """Two versions held against each other; of what this lab cannot read, as the text it is."""
    before, after = readable_config(left), readable_config(right)
    if before and after:
        return compared(before, after)
    return HarnessDifference(content_differences(left.config, right.config), [], [])


def compared(left: HarnessConfig, right: HarnessConfig) -> HarnessDifference:
    """Two harnesses held against each other."""
    content = differences(left, right)
    touched = {difference.path.split(".")[0].split(" ")[0] for difference in content}
    equal = [name for name in HarnessConfig.model_fields if name not in OUTSIDE and name not in touched]
    return HarnessDifference(content, differences_beside(left, right), equal)


def origin_of(version: HarnessVersion) -> str:
    """Where a version is from, in a few words."""
    source: dict[str, Any] = version.source if isinstance(version.source, dict) else {}
    kind = str(source.get("kind", ""))
    if kind == "preset":
        return "comes with the lab"
    if kind == "edited":
        return f"edited from {source['based_on']}" if source.get("based_on") else "written here"
    if kind == "yaml":
        return f"YAML {source.get('file') or 'import'}"
    named = str(source.get("folder") or source.get("file") or "")
    commit = str(source.get("commit") or source.get("revision") or "")[:12]
    told = " ".join(filter(None, [kind, named, f"at {commit}" if commit else ""]))
    return told or "unknown"


class _Counts(NamedTuple):
    versions: int
    runs: int
    demo_runs: int


def _counts() -> dict[int, _Counts]:
    rows = Harness.objects.annotate(
        versions_count=Count("versions", distinct=True),
        runs=Count("versions__arms__runs", distinct=True, filter=~Q(versions__arms__experiment__kind=_DEMO)),
        demo_runs=Count(
            "versions__arms__runs", distinct=True, filter=Q(versions__arms__experiment__kind=_DEMO)
        ),
    ).values_list("pk", "versions_count", "runs", "demo_runs")
    return {pk: _Counts(*counted) for pk, *counted in rows}
