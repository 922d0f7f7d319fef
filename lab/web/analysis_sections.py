"""An analysis as sections, worked out from the runs of a selection."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User

from lab.analysis import (
    conduct,
    cost_plane,
    harness_effect,
    pairs,
    per_task,
    reference_points,
    resolve,
    spending,
)
from lab.analysis.conduct import ArmConduct
from lab.analysis.harness_effect import ArmParts
from lab.analysis.pairs import PairResult
from lab.analysis.per_task import PerTask
from lab.models import TaskSet
from lab.render.tables import Table
from lab.services import analysis, judge_costs
from lab.services.analysis import Observed
from lab.web import (
    analysis_conduct,
    analysis_costs,
    analysis_failures,
    analysis_pairs,
    analysis_rates,
    analysis_tasks,
)
from lab.web.analysis_parts import Section, Shown

# All pairs of so many arms are compared at once; of more, those with the first of the pair. Holm corrects for
# what is compared at once, so up to so many arms it does not matter which pair is looked at.
MOST_ARMS_IN_PAIRS = 12


def sections(observed: Observed, person: User, *, band: str = "") -> list[Section]:
    """All sections in their order. `band` narrows the list of single tasks; `person` sees what they may."""
    shown = Shown(observed)
    conducts = _conducts(observed)
    spends = spending.of_arms(
        _keys(observed),
        observed.observations,
        observed.selection.switches,
        judge_costs.by_arm(observed.observations),
    )
    return [
        _rates(shown),
        _paired(shown),
        analysis_costs.cost_section(shown, _money(observed, spends)),
        analysis_costs.token_section(shown, spends),
        analysis_conduct.behaviour(shown, conducts),
        analysis_conduct.exits(shown, conducts),
        analysis_conduct.failures(shown, conducts, analysis_failures.panels(shown, person)),
        analysis_tasks.harness_effect(shown, _slopes(observed)),
        analysis_tasks.section(shown, _per_task(observed), band),
    ]


def tables(observed: Observed, person: User) -> list[Table]:
    """Every table, whole, as files hold them, with what the person may see."""
    found: list[Table] = []
    for section in sections(observed, person):
        found += [table for panel in section.panels for table in panel.tables]
        if isinstance(section.extra, analysis_pairs.PairShown) and section.extra.discordant:
            found.append(section.extra.discordant)
    whole = analysis_tasks.task_table(Shown(observed), _per_task(observed))
    return [whole if table.key == whole.key else table for table in found]


def _keys(observed: Observed) -> list[str]:
    return [arm.key for arm in observed.arms]


def _rates(shown: Shown) -> Section:
    observed = shown.observed
    switches = observed.selection.switches
    found = resolve.of_arms(_keys(observed), observed.observations, switches)
    sets = TaskSet.objects.filter(experiments__in=observed.selection.experiments).distinct()
    published = reference_points.of_task_sets(sets.values_list("name", flat=True))
    return analysis_rates.section(shown, found, published)


def _paired(shown: Shown) -> Section:
    observed = shown.observed
    wanted = wanted_pairs(observed)
    found = pairs.of_pairs(wanted, observed.observations, observed.selection.switches)
    chosen = _chosen(observed, found)
    lights = analysis.lights_between(observed, chosen.first, chosen.second) if chosen else []
    sampling = analysis.sampling_between(observed, chosen.first, chosen.second) if chosen else ""
    cost = None
    if chosen:
        switches = observed.selection.switches
        cost = cost_plane.cost_difference(chosen.first, chosen.second, observed.observations, switches)
    return analysis_pairs.section(shown, found, analysis_pairs.Chosen(chosen, lights, sampling, cost))


def wanted_pairs(observed: Observed) -> list[tuple[str, str]]:
    """The pairs that are shown: all of a few arms, else those with the first arm of the chosen pair."""
    keys = _keys(observed)
    pair = observed.selection.pair
    if len(keys) <= MOST_ARMS_IN_PAIRS:
        wanted = pairs.all_of(keys)
    else:
        usual = pairs.most_shared(keys, observed.observations) or (keys[0], keys[1])
        first = pair[0] if pair and pair[0] in keys else usual[0]
        wanted = [(first, other) for other in keys if other != first]
    if not pair or pair in wanted or not set(pair) <= set(keys):
        return wanted
    return [pair if set(one) == set(pair) else one for one in wanted]


def _chosen(observed: Observed, found: Sequence[PairResult]) -> PairResult | None:
    """The pair that was asked for, else the one with most tasks that both tried."""
    pair = observed.selection.pair
    usual = max(found, key=lambda one: one.tasks, default=None)
    return next((one for one in found if (one.first, one.second) == pair), usual)


def _money(observed: Observed, spends: list[spending.ArmSpend]) -> analysis_costs.Money:
    keys, switches = _keys(observed), observed.selection.switches
    return analysis_costs.Money(
        spends,
        cost_plane.plane(keys, observed.observations, switches),
        cost_plane.curves(keys, observed.observations, switches),
    )


def _conducts(observed: Observed) -> list[ArmConduct]:
    """In the order of the arms; of one without a run there is nothing to say."""
    found = conduct.conduct(observed.observations, observed.selection.switches)
    return [found[key] for key in _keys(observed) if key in found]


def _per_task(observed: Observed) -> PerTask:
    return per_task.per_task(observed.observations, observed.selection.switches)


def _slopes(observed: Observed) -> list[harness_effect.Slope]:
    # Two that no record names need not be the same: "" says so.
    parts = [
        ArmParts(
            arm.key,
            arm.harness if arm.harness_recorded else "",
            arm.model if arm.model_recorded else "",
            arm.limits_digest,
        )
        for arm in observed.arms
    ]
    return harness_effect.slopes(observed.observations, observed.selection.switches, parts)
