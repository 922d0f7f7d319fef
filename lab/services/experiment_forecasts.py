"""What an experiment would take and could show, before it is launched: from earlier runs of its arms.

What no earlier run tells is None: unknown, and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Avg, Count, F, FloatField, Q, Sum
from django.db.models.functions import Cast

from lab.analysis.estimates import Unknown
from lab.analysis.observations import GRADED, RESOLVED
from lab.models import Arm, Experiment, Run, RunFacts
from lab.services.compared_arms import lights_of_arms
from lab.services.comparisons import Light
from lab.services.experiment_plans import Resolved
from lab.services.runs import ArmPlan, letter_of, planned

# Of tasks on which two arms differ, where no earlier runs say it: a share often seen on SWE-bench Verified.
ASSUMED_SHARE = 0.2
_ENOUGH_TASKS = 10
_NORMAL = 1.96
_PAIRS_LISTED = 6


class Expected(NamedTuple):
    """A sum over runs to come: its mean, and where it lies 19 times of 20; both ends equal the mean where a
    single earlier run, or a price of nothing, leaves no range."""

    mean: float
    low: float
    high: float

    @property
    def has_range(self) -> bool:
        return self.low < self.high


class ArmForecast(NamedTuple):
    """One arm. `earlier` graded runs tell what it takes; `other_limits`: none of them had its limits.

    `tokens_at_least`: some requests did not report their usage. `why_no_cost` says why `dollars` is None.
    """

    letter: str
    harness: str
    model: str
    runs: int
    earlier: int
    other_limits: bool
    tokens: Expected | None
    tokens_at_least: bool
    dollars: Expected | None
    why_no_cost: str
    seconds: Expected | None


class Detectable(NamedTuple):
    """The smallest difference of rates that two arms could show (power 80 %, level 5 %), as shares of 1.

    With one seed both are that of the exact test. With several it lies between the two, by how much of their
    disagreement is chance: `high` takes `share` for the variance of one task's difference, `low` divides it
    by the seeds. An end is infinite where no difference that there can be would be found; `why` says
    why not, if both are. `measured` is how many tasks with earlier runs of both tell `share`, 0 where it is
    assumed. `method` says how the power is worked out.
    """

    first: str
    second: str
    tasks: int
    share: float
    measured: int
    low: float
    high: float
    method: str
    why: str


class Forecast(NamedTuple):
    """All arms together; None where some arm is unknown.

    `clock` is the time by the wall on the `slots` that can be used, if nothing else runs.
    """

    runs: int
    arms: list[ArmForecast]
    tokens: Expected | None
    tokens_at_least: bool
    dollars: Expected | None
    known_dollars: Expected | None
    seconds: Expected | None
    clock: Expected | None
    slots: int
    lights: list[Light]
    detectable: list[Detectable]
    more_pairs: int


class _Seen(NamedTuple):
    """Earlier runs of one kind: how many, and mean and mean square of something; None: not known of all."""

    runs: int
    tokens: tuple[float, float] | None
    tokens_at_least: bool
    dollars: tuple[float, float] | None
    seconds: tuple[float, float]


def forecast(resolved: Resolved) -> Forecast:
    """What the experiment takes and could show.

    Raises:
        FieldErrors: limits that do not fit an arm, and arms that are the same.
    """
    plans = planned(resolved.arms)
    each = len(resolved.tasks) * len(resolved.plan.seeds)
    seen = _earlier(plans)
    arms = [_of_arm(letter_of(index), plan, each, seen) for index, plan in enumerate(plans)]
    seconds = together([arm.seconds for arm in arms])
    pairs = _detectable(resolved, plans)
    return Forecast(
        runs=each * len(plans),
        arms=arms,
        tokens=together([arm.tokens for arm in arms]),
        tokens_at_least=any(arm.tokens_at_least for arm in arms),
        dollars=together([arm.dollars for arm in arms]),
        known_dollars=together([arm.dollars for arm in arms if arm.dollars is not None]),
        seconds=seconds,
        clock=_clock(seconds, arms, plans, resolved.plan.concurrency),
        slots=_slots(resolved.plan.concurrency),
        lights=lights_of_arms(unsaved_arms(plans)),
        detectable=pairs[:_PAIRS_LISTED],
        more_pairs=max(0, len(pairs) - _PAIRS_LISTED),
    )


def unsaved_arms(plans: Sequence[ArmPlan]) -> list[Arm]:
    """The arms as rows that nobody has stored, lettered in order."""
    return [
        Arm(
            harness_version=plan.harness_version,
            model=plan.model,
            limits=plan.limits.model_dump(mode="json"),
            limits_digest=plan.limits.digest,
            letter=letter_of(index),
        )
        for index, plan in enumerate(plans)
    ]


_Key = tuple[int, int]


def _earlier(plans: Sequence[ArmPlan]) -> dict[_Key, dict[str, _Seen]]:
    """(harness version, model) -> digest of limits -> what graded runs took. Runs that people changed, and
    those of a demo, tell nothing of others."""
    tokens = Cast(F("input_total") + F("output_total"), FloatField())
    cost = Cast("cost", FloatField())
    seconds = F("agent_seconds")
    rows = (
        RunFacts.objects.filter(
            verdict__in=GRADED,
            agent_seconds__isnull=False,
            run__arm__harness_version__in={plan.harness_version.pk for plan in plans},
            run__arm__model__in={plan.model.pk for plan in plans},
        )
        .exclude(run__experiment__kind=Experiment.Kind.DEMO)
        .exclude(Q(limits_changed=True) | Q(got_message=True))
        .order_by()
        .values("run__arm__harness_version", "run__arm__model", "run__arm__limits_digest")
        .annotate(
            runs=Count("pk"),
            mean_seconds=Avg(seconds),
            square_seconds=Avg(seconds * seconds),
            mean_tokens=Avg(tokens),
            square_tokens=Avg(tokens * tokens),
            with_tokens=Count(tokens),
            usage_missing=Sum("usage_unknown"),
            mean_cost=Avg(cost),
            square_cost=Avg(cost * cost),
            with_cost=Count("cost"),
            cost_missing=Sum("cost_unknown"),
            bases=Count("cost_basis", distinct=True),
            mixed=Count("pk", filter=Q(cost_basis="mixed")),
        )
    )
    found: dict[_Key, dict[str, _Seen]] = {}
    for row in rows:
        key = (int(row["run__arm__harness_version"]), int(row["run__arm__model"]))
        found.setdefault(key, {})[row["run__arm__limits_digest"]] = _seen(row)
    return found


def _seen(row: Mapping[str, Any]) -> _Seen:
    runs = row["runs"]
    one_basis = row["bases"] == 1 and not row["mixed"] and not row["cost_missing"]
    return _Seen(
        runs=runs,
        tokens=(row["mean_tokens"], row["square_tokens"]) if row["with_tokens"] == runs else None,
        tokens_at_least=bool(row["usage_missing"]),
        dollars=(row["mean_cost"], row["square_cost"]) if row["with_cost"] == runs and one_basis else None,
        seconds=(row["mean_seconds"], row["square_seconds"]),
    )


def _merged(all_of: Iterable[_Seen]) -> _Seen | None:
    """Runs under different limits as if they were of one kind."""
    kinds = list(all_of)
    runs = sum(kind.runs for kind in kinds)
    if not runs:
        return None
    return _Seen(
        runs=runs,
        tokens=_weighted([(kind.runs, kind.tokens) for kind in kinds]),
        tokens_at_least=any(kind.tokens_at_least for kind in kinds),
        dollars=_weighted([(kind.runs, kind.dollars) for kind in kinds]),
        seconds=_weighted([(kind.runs, kind.seconds) for kind in kinds]) or (0.0, 0.0),
    )


def _weighted(parts: Sequence[tuple[int, tuple[float, float] | None]]) -> tuple[float, float] | None:
    runs = sum(number for number, _ in parts)
    known = [(number, moments) for number, moments in parts if moments is not None]
    if len(known) < len(parts):
        return None
    means = sum(number * moments[0] for number, moments in known) / runs
    return means, sum(number * moments[1] for number, moments in known) / runs


def _of_arm(
    letter: str, plan: ArmPlan, runs: int, earlier: Mapping[_Key, Mapping[str, _Seen]]
) -> ArmForecast:
    kinds = earlier.get((plan.harness_version.pk, plan.model.pk), {})
    exact = kinds.get(plan.limits.digest)
    seen = exact or _merged(kinds.values())
    dollars = _expected(seen.dollars, seen.runs, runs) if seen and seen.dollars else None
    if plan.model.scripted:
        dollars = Expected(0.0, 0.0, 0.0)
    return ArmForecast(
        letter=letter,
        harness=str(plan.harness_version),
        model=plan.model.name,
        runs=runs,
        earlier=seen.runs if seen else 0,
        other_limits=seen is not None and exact is None,
        tokens=_expected(seen.tokens, seen.runs, runs) if seen and seen.tokens else None,
        tokens_at_least=bool(seen and seen.tokens_at_least),
        dollars=dollars,
        why_no_cost=_why_no_cost(seen) if dollars is None else "",
        seconds=_expected(seen.seconds, seen.runs, runs) if seen else None,
    )


def _why_no_cost(seen: _Seen | None) -> str:
    return "no earlier run" if seen is None else "the cost of earlier runs is not known, or has several bases"


def _expected(moments: tuple[float, float] | None, earlier: int, runs: int) -> Expected | None:
    """The sum over `runs` to come. Both what one run differs from the next, and that the mean itself is known
    from few runs, make the range."""
    if moments is None:
        return None
    mean, square = moments
    if earlier < 2:
        return Expected(mean * runs, mean * runs, mean * runs)
    variance = max(0.0, square - mean * mean) * earlier / (earlier - 1)
    half = _NORMAL * math.sqrt(runs * variance + runs * runs * variance / earlier)
    return Expected(mean * runs, max(0.0, mean * runs - half), mean * runs + half)


def together(parts: Sequence[Expected | None]) -> Expected | None:
    """The sum, None where a part is unknown or there is none."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    mean = sum(part.mean for part in known)
    below = math.hypot(*(part.mean - part.low for part in known))
    above = math.hypot(*(part.high - part.mean for part in known))
    return Expected(mean, max(0.0, mean - below), mean + above)


def _slots(concurrency: int | None) -> int:
    return min(settings.LAB_RUN_SLOTS, concurrency or settings.LAB_RUN_SLOTS)


def _clock(
    seconds: Expected | None,
    arms: Sequence[ArmForecast],
    plans: Sequence[ArmPlan],
    concurrency: int | None,
) -> Expected | None:
    """Work divided by what may go on at once: in the lab and the experiment, and at each endpoint."""
    if seconds is None or seconds.mean <= 0:
        return None
    shares = [1 / _slots(concurrency)]
    by_endpoint: dict[int, tuple[float, int]] = {}
    for arm, plan in zip(arms, plans, strict=True):
        limit = plan.model.endpoint.concurrency_limit
        if limit and arm.seconds is not None:
            before, _ = by_endpoint.get(plan.model.endpoint_id, (0.0, limit))
            by_endpoint[plan.model.endpoint_id] = (before + arm.seconds.mean, limit)
    shares += [work / limit / seconds.mean for work, limit in by_endpoint.values()]
    slowest = max(shares)
    return Expected(*(value * slowest for value in seconds))


def _detectable(resolved: Resolved, plans: Sequence[ArmPlan]) -> list[Detectable]:
    """What each pair of arms could show; pairs of which nothing is known are one, without names."""
    from lab.analysis import power

    tasks, seeds = len(resolved.tasks), len(resolved.plan.seeds)
    if len(plans) < 2 or not tasks:
        return []
    rates = _solve_rates(resolved, plans)
    found: dict[tuple[str, str], Detectable] = {}
    for one, two in combinations(range(len(plans)), 2):
        share, measured = _share(rates.get(_key(plans[one]), {}), rates.get(_key(plans[two]), {}))
        names = (letter_of(one), letter_of(two)) if measured or len(plans) == 2 else ("", "")
        if names not in found:
            method = power.mcnemar_method(tasks) if seeds == 1 else power.STUDENT
            ends, why = _ends(tasks, share, seeds)
            found[names] = Detectable(*names, tasks, share, measured, *ends, method, why)
    return list(found.values())


def _ends(tasks: int, share: float, seeds: int) -> tuple[tuple[float, float], str]:
    """The smallest difference if arms differ by chance alone, and if they differ on the same tasks each time;
    and why there is none."""
    from lab.analysis import power

    if seeds == 1:
        exact = power.detectable_mcnemar(tasks, share)
        if isinstance(exact, Unknown):
            return (math.inf, math.inf), exact.why
        return (exact, exact), ""
    low, high = (
        power.detectable_paired_t(math.sqrt(variance / tasks), tasks) for variance in (share / seeds, share)
    )
    if isinstance(low, Unknown):
        return (math.inf, math.inf), low.why
    if low > share:
        return (math.inf, math.inf), "even all tasks that differ, one way, would be too few"
    return (low, math.inf if isinstance(high, Unknown) or high > share else high), ""


def _key(plan: ArmPlan) -> _Key:
    return plan.harness_version.pk, plan.model.pk


def _solve_rates(resolved: Resolved, plans: Sequence[ArmPlan]) -> dict[_Key, dict[int, float]]:
    """(harness version, model) -> task -> the share of its graded runs that resolved it."""
    few = len(resolved.tasks) < _ONE_BY_ONE
    which = Q(task__in=resolved.tasks) if few else Q(task__task_set=resolved.task_set)
    counted = (
        Run.objects.filter(
            which,
            facts__verdict__in=GRADED,
            arm__harness_version__in={plan.harness_version.pk for plan in plans},
            arm__model__in={plan.model.pk for plan in plans},
        )
        .comparable()
        .exclude(experiment__kind=Experiment.Kind.DEMO)
        .order_by()
        .values_list("arm__harness_version", "arm__model", "task")
        .annotate(runs=Count("pk"), resolved=Count("pk", filter=Q(facts__verdict=RESOLVED)))
    )
    found: dict[_Key, dict[int, float]] = {}
    for version, model, task, runs, resolved_runs in counted:
        found.setdefault((version, model), {})[task] = resolved_runs / runs
    return found


# More parameters than a statement of SQLite takes gladly.
_ONE_BY_ONE = 500


def _share(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[float, int]:
    """How often one attempt of each would differ, and how many tasks tell it; assumed where few do."""
    both = first.keys() & second.keys()
    if len(both) < _ENOUGH_TASKS:
        return ASSUMED_SHARE, 0
    differing = sum(first[task] * (1 - second[task]) + second[task] * (1 - first[task]) for task in both)
    # None seen is no proof that none is there: one more task, half of it differing.
    return (differing + 0.5) / (len(both) + 1), len(both)
