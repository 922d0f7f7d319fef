"""Labels of the failed runs of an analysis, ready to be counted by arm."""

from __future__ import annotations

from typing import NamedTuple

from django.contrib.auth.models import User

from lab.analysis.failures import Labelled, place_of
from lab.analysis.run_traits import failure_of
from lab.models import RunFacts
from lab.services import labels_in_force
from lab.services.analysis import Observed
from lab.services.labels_in_force import NOT_SETTLED
from lab.services.taxonomies import content_of


class Breakdown(NamedTuple):
    """`labelled` runs are failed ones of the selection; `failed`: number of failed runs by arm.

    `hidden`: labelled runs that whoever asks may still label. `words`: category -> its name. `unsettled`:
    runs whose labels differ in one of the fields, and nobody settled.
    """

    labelled: list[Labelled]
    failed: dict[str, int]
    hidden: int
    unsettled: int
    words: dict[str, str]
    annotations: dict[int, int]


def of(person: User, observed: Observed) -> Breakdown:
    """The labels in force of the selection's failed runs: unresolved or unparsed ones, as their tests say."""
    failures = [one for one in observed.observations if failure_of(one) is not None]
    failed: dict[str, int] = {arm.key: 0 for arm in observed.arms}
    for one in failures:
        failed[one.arm] = failed.get(one.arm, 0) + 1
    shown, hidden = labels_in_force.of(person, [one.run for one in failures])
    steps = dict(RunFacts.objects.filter(run_id__in=shown).values_list("run_id", "steps"))
    labelled = [
        Labelled(
            run=one.run,
            arm=one.arm,
            task=one.task,
            owner=found.owner,
            category=found.category,
            phase=found.phase,
            place=NOT_SETTLED if found.steps_differ else place_of(found.step, steps.get(one.run, 0)),
        )
        for one in failures
        if (found := shown.get(one.run)) is not None
    ]
    words: dict[str, str] = {}
    for found in shown.values():
        words |= {code.id: code.name for code in content_of(found.guideline.taxonomy_version).codes}
    return Breakdown(
        labelled=labelled,
        failed=failed,
        hidden=len(hidden),
        unsettled=sum(NOT_SETTLED in (run.owner, run.category, run.phase, run.place) for run in labelled),
        words=words,
        annotations={run: found.annotation for run, found in shown.items()},
    )
