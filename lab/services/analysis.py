"""Which runs an analysis is of, read in one query, and which runs are behind a number."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from lab.analysis.counting import Switches
from lab.analysis.observations import Observation
from lab.services.comparisons import Light

Origin = Literal["launched", "imported", "demo"]


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """What a link to an analysis says. Empty parts ask for everything.

    `arms` are keys (see `Observation.arm`), `tasks` slugs or keys, `pair` two arms' keys in order.
    Use `dataclasses.replace` for the same selection with something else.
    """

    experiments: tuple[int, ...] = ()
    arms: tuple[str, ...] = ()
    task_sets: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    invalid: Literal["out", "failures"] = "out"
    flagged: Literal["in", "out"] = "in"
    stepped_in: Literal["out", "in"] = "out"
    pair: tuple[str, str] | None = None

    @property
    def switches(self) -> Switches:
        return Switches(self.invalid == "failures", self.flagged == "out", self.stepped_in == "in")


class ArmOf(NamedTuple):
    """An arm across the selected experiments.

    `series` (from 1) is its series in every plot, whatever else is selected.
    `letter` is the experiment's where one is selected. `name` is what to call it: as short as the others
    allow. `arm_ids` are its rows, one an experiment.
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
    limits: dict[str, object]
    limits_digest: str
    experiments: tuple[int, ...]
    arm_ids: tuple[int, ...]


class TaskOf(NamedTuple):
    """A task by its key: versions of a set that hold it unchanged share it. `ids` are its rows."""

    key: str
    slug: str
    title: str
    repository: str
    ids: tuple[int, ...]


class Observed(NamedTuple):
    """What a selection holds. `selection` names its experiments, also where nothing was asked.

    `arms` are those of the selection in their order, `all_arms` those of its experiments. `lights` are over
    `arms` (none for a single one), `sampling` what differs in the models' sampling, "" for nothing.
    """

    selection: Selection
    arms: list[ArmOf]
    all_arms: list[ArmOf]
    tasks: dict[str, TaskOf]
    observations: list[Observation]
    lights: list[Light]
    sampling: str
