"""Which runs to put side by side: those to hold against a run, the most telling first, and what was mistaken.

Whatever was chosen stays chosen, whatever was typed stays typed: a mistake costs its correction alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from lab.engine.errors import InvalidValueError
from lab.engine.verify.base import Outcome
from lab.models import Arm, Experiment, Run, Task
from lab.services import comparisons, task_names
from lab.services.comparisons import MOST_RUNS
from lab.services.facts import facts_of

# How many runs of each group are offered; together 50.
MOST_OF_ANOTHER_ARM = 25
MOST_OF_OTHER_SEEDS = 15
MOST_OF_OTHER_TASKS = 10
# Of the runs that were asked for, how many one may choose among.
MOST_LISTED = 50
MOST_PAIRS = 10
# How far back runs of other tasks, and pairs, are looked for.
_NEWEST = 2000
_NEAREST = "Nearest"
_GRADED = (Outcome.RESOLVED.value, Outcome.UNRESOLVED.value)


class Choice(NamedTuple):
    """A run to choose (read by `for_rows`), and in a few words what makes it worth it."""

    run: Run
    why: str = ""
    ticked: bool = False


class Group(NamedTuple):
    """Runs that are near for one reason. `warning` says what to mind, "" where nothing is to be minded.

    `more`: there are further ones, which only their number names. `other_tasks`: each row needs its task.
    """

    title: str
    note: str
    choices: list[Choice]
    warning: str = ""
    more: bool = False
    other_tasks: bool = False


class Pair(NamedTuple):
    """Two runs of one task and seed of which one is resolved and the other is not."""

    resolved: Run
    unresolved: Run

    @property
    def query(self) -> str:
        return f"{self.resolved.pk},{self.unresolved.pk}"


@dataclass(frozen=True)
class Choosing:
    """The page on which one chooses: what is chosen and typed so far, what is wrong with it, what is offered.

    `listed` are runs that were asked for and of which some fit; then nothing is `chosen` beside them.
    """

    chosen: list[Run] = field(default_factory=list)
    typed: str = ""
    errors: list[InvalidValueError] = field(default_factory=list)
    note: str = ""
    listed: Group | None = None
    groups: list[Group] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    @property
    def query(self) -> str:
        return ",".join(str(run.pk) for run in self.chosen)

    @property
    def room(self) -> int:
        """How many more fit."""
        return MOST_RUNS - len(self.chosen)

    @property
    def without(self) -> list[tuple[Run, str]]:
        """Each chosen run, and the address's runs without it."""
        return [
            (run, ",".join(str(other.pk) for other in self.chosen if other is not run)) for run in self.chosen
        ]


def wanted(texts: Sequence[str], *, choose: bool = False) -> list[Run] | Choosing:
    """The two to six runs that an address or form names; else, or to `choose` others, the page to choose on.

    `texts` are the values of `runs` as they came. The runs are those of `comparisons.find_runs`.
    """
    named = comparisons.read_numbers(texts)
    numbers, wrong = named.numbers, named.wrong
    found = comparisons.found_runs(numbers[:MOST_LISTED])
    missing = [number for number in numbers[:MOST_LISTED] if number not in found]
    errors = [comparisons.no_numbers(wrong)] if wrong else []
    errors += [comparisons.absent(missing)] if missing else []
    typed = ",".join(text for text, number in named.parts if number is None or number in missing)
    if len(found) > MOST_RUNS:
        # A link that names them all asked for the page to choose on; a form was told how many fit.
        errors += [comparisons.too_many(numbers)] if len(texts) > 1 else []
        return _too_many(numbers, list(found), typed, errors)
    given = len(named.parts)
    if len(found) == 1 and not errors and (given > 1 or len(texts) > 1):
        errors.append(_alone(next(iter(found)), given))
    if len(found) < 2 or errors or choose:
        return _choosing(list(found.values()), typed, errors)
    return list(found.values())


def _alone(number: int, given: int) -> InvalidValueError:
    said = f"is one run, named {given} times" if given > 1 else "is one run"
    return InvalidValueError(
        "runs",
        number,
        f"{said}; two to {MOST_RUNS} fit side by side, so tick another one or write its number",
    )


def _too_many(
    numbers: Sequence[int], found: Sequence[int], typed: str, errors: list[InvalidValueError]
) -> Choosing:
    """More runs than fit: all of them to choose among, and the most telling ones ticked."""
    rows = _rows(found)
    ticked = most_telling(rows)
    choices = [Choice(run, ticked=run.pk in ticked) for run in rows]
    note = (
        f"{len(numbers):,} runs were asked for and {MOST_RUNS} fit side by side. Ticked are the "
        f"{MOST_RUNS} that tell most: both verdicts first, then other arms, then the same seed."
    )
    beyond = len(numbers) - MOST_LISTED
    if beyond > 0:
        note += f" The last {beyond:,} of those asked for are not listed."
    return Choosing(
        typed=typed,
        errors=errors,
        note=note,
        listed=Group(
            "Runs asked for",
            "in the order asked for",
            choices,
            other_tasks=len({run.task_id for run in rows}) > 1,
        ),
    )


def most_telling(runs: Sequence[Run]) -> set[int]:
    """The numbers of six of these runs: both verdicts first, then other arms, then the first one's seed."""
    left, chosen = list(runs), list[Run]()
    while left and len(chosen) < MOST_RUNS:
        worth = [_adds(run, chosen) for run in left]
        chosen.append(left.pop(worth.index(max(worth))))
    return {run.pk for run in chosen}


def _adds(run: Run, chosen: Sequence[Run]) -> tuple[bool, bool, bool]:
    """What a run would add to those that are chosen already: another verdict, another arm, the same seed."""
    verdict = facts_of(run).verdict
    return (
        verdict in _GRADED and all(facts_of(other).verdict != verdict for other in chosen),
        all(other.arm_id != run.arm_id for other in chosen),
        bool(chosen) and chosen[0].seed == run.seed,
    )


def _choosing(chosen: list[Run], typed: str, errors: list[InvalidValueError]) -> Choosing:
    if not chosen:
        return Choosing(typed=typed, errors=errors, pairs=worth_comparing())
    note = ""
    if len(chosen) == MOST_RUNS:
        note = f"{MOST_RUNS} runs are chosen and no more fit side by side: leave one out to choose another."
    groups = near(chosen[0], beside=chosen) if len(chosen) < MOST_RUNS else []
    return Choosing(chosen=chosen, typed=typed, errors=errors, note=note, groups=groups)


class _Sort(NamedTuple):
    """One reason why runs are near: which, in what order, how many of them at most."""

    title: str
    note: str
    runs: QuerySet[Run]
    order: tuple[str, ...]
    most: int
    warning: str = ""
    other_tasks: bool = False


def near(run: Run, *, beside: Iterable[Run] = ()) -> list[Group]:
    """Runs to hold against this one (see `comparisons.find_runs`), without those it already stands beside.

    At most 50, in at most three groups: the same task in another arm, in the same arm, and what is nearest of
    other tasks. The same at each call; in at most twelve queries, however many runs there are.
    """
    others = Run.objects.exclude(pk__in={run.pk, *(other.pk for other in beside)})
    others = others.order_by().annotate(**_ranks(run))
    same_task = list(
        Task.objects.filter(Q(pk=run.task_id) | Q(digest=run.task.digest))
        .order_by()
        .values_list("pk", flat=True)
    )
    of_task = others.filter(task__in=same_task)
    arm = Q(
        arm__harness_version=run.arm.harness_version_id,
        arm__model=run.arm.model_id,
        arm__limits_digest=run.arm.limits_digest,
    )
    sorts = [
        _Sort(
            "Same task, another arm",
            "same seed first, then another verdict, then the same harness",
            of_task.exclude(arm),
            ("other_seed", "same_verdict", "other_harness", "other_model", "elsewhere", "-pk"),
            MOST_OF_ANOTHER_ARM,
        ),
        _Sort(
            "Same task and arm, another seed",
            "another verdict first",
            of_task.filter(arm),
            ("same_verdict", "elsewhere", "-pk"),
            MOST_OF_OTHER_SEEDS,
        ),
    ]
    found = [(sort, _numbers(sort)) for sort in sorts]
    found += _nearest(run, others.exclude(task__in=same_task))
    rows = {row.pk: row for row in _rows([pk for sort, pks in found for pk in pks[: sort.most]])}
    return [
        Group(
            sort.title,
            sort.note,
            [Choice(rows[pk], _why(run, rows[pk], sort)) for pk in pks[: sort.most] if pk in rows],
            sort.warning,
            len(pks) > sort.most,
            sort.other_tasks,
        )
        for sort, pks in found
        if pks
    ]


def _ranks(run: Run) -> dict[str, Case]:
    """What orders runs beside this one: 0 comes first. Its own verdict tells least, none tells nothing."""
    verdict = facts_of(run).verdict
    telling = [one for one in _GRADED if one != verdict]
    return {
        "same_verdict": Case(
            When(facts__verdict__in=telling, then=Value(0)),
            When(facts__verdict__in=_GRADED, then=Value(1)),
            default=Value(2),
            output_field=IntegerField(),
        ),
        "elsewhere": _unless(experiment=run.experiment_id),
        "other_seed": _unless(seed=run.seed),
        "other_harness": _unless(arm__harness_version__harness=run.arm.harness_version.harness_id),
        "other_model": _unless(arm__model=run.arm.model_id),
    }


def _unless(**holds: object) -> Case:
    return Case(When(**holds, then=Value(0)), default=Value(1), output_field=IntegerField())


def _nearest(run: Run, others: QuerySet[Run]) -> list[tuple[_Sort, list[int]]]:
    """Runs of other tasks: the nearest sort of which there are any."""
    for sort in _sorts_of_other_tasks(run, others):
        if numbers := _numbers(sort):
            return [(sort, numbers)]
    return []


def _sorts_of_other_tasks(run: Run, others: QuerySet[Run]) -> list[_Sort]:
    names = task_names.namesakes(run.task)
    imported = run.experiment.kind == Experiment.Kind.IMPORTED
    sorts = _sorts_of_namesakes(run, others, names, imported=imported)
    if not imported:
        alike = Q(arm__harness_version__harness=run.arm.harness_version.harness_id)
        alike |= Q(arm__model=run.arm.model_id)
        sorts.append(
            _unlike(
                "other tasks of the same task set, by the same harness or model",
                others.filter(alike, task__task_set=run.task.task_set_id),
                ("other_harness", "other_model", "elsewhere", "same_verdict", "-pk"),
            )
        )
    note = f"other tasks whose names begin with {names.repository}"
    of_repository = Q(task__in=names.of_repository)
    if run.task.repository:
        note = f"other tasks of the same repository, {run.task.repository}"
        of_repository |= Q(task__repository=run.task.repository)
    sorts.append(
        _unlike(note, others.filter(of_repository), ("same_verdict", "other_model", "elsewhere", "-pk"))
    )
    if imported:
        sorts.append(
            _unlike(
                "other tasks of the same experiment",
                others.filter(experiment=run.experiment_id),
                ("other_model", "same_verdict", "-pk"),
            )
        )
    return sorts


def _sorts_of_namesakes(
    run: Run, others: QuerySet[Run], names: task_names.Namesakes, *, imported: bool
) -> list[_Sort]:
    """Runs whose tasks are the same by their names."""
    recorded = Q() if imported else Q(experiment__kind=Experiment.Kind.IMPORTED)
    # One benchmark's instance has the same id wherever it was run, and not always the same digest.
    return [
        _Sort(
            _NEAREST,
            f"{run.task.slug} by its name, in another task set",
            others.filter(recorded, task__slug=run.task.slug),
            ("same_verdict", "elsewhere", "-pk"),
            MOST_OF_OTHER_TASKS,
            "Tasks of the same name, of which nobody knows whether they are the same in everything.",
            other_tasks=True,
        ),
        _Sort(
            _NEAREST,
            f"{names.issue}, which the names of their tasks share",
            others.filter(task__in=names.of_issue),
            ("elsewhere", "same_verdict", "-pk"),
            MOST_OF_OTHER_TASKS,
            "By their names tasks of the same problem, of which nobody knows whether they are the same.",
            other_tasks=True,
        ),
    ]


def _unlike(note: str, runs: QuerySet[Run], order: tuple[str, ...]) -> _Sort:
    """Runs whose tasks are others."""
    warning = "Of other tasks: their steps may have little in common."
    return _Sort(_NEAREST, note, _newest(runs), order, MOST_OF_OTHER_TASKS, warning, other_tasks=True)


def _newest(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Only the newest of them are looked through: a lab of many thousand runs answers as fast."""
    pks = list(runs.order_by("-pk").values_list("pk", flat=True)[:_NEWEST])
    return runs.filter(pk__in=pks)


def _numbers(sort: _Sort) -> list[int]:
    """The first of a sort, and one more to know by whether there are further ones."""
    return list(sort.runs.order_by(*sort.order).values_list("pk", flat=True)[: sort.most + 1])


def _rows(pks: Sequence[int]) -> list[Run]:
    """These runs as lists show them, in this order."""
    rows = {run.pk: run for run in Run.objects.filter(pk__in=pks).for_rows()} if pks else {}
    return [rows[pk] for pk in pks if pk in rows]


def _why(run: Run, other: Run, sort: _Sort) -> str:
    mine, theirs = facts_of(run).verdict, facts_of(other).verdict
    said = ["other verdict"] if mine in _GRADED and theirs in _GRADED and mine != theirs else []
    if not sort.other_tasks and run.seed == other.seed:
        said.append("same seed")
    if sort.other_tasks:
        same = [
            word
            for word, is_same in (
                ("harness", run.arm.harness_version.harness_id == other.arm.harness_version.harness_id),
                ("model", run.arm.model_id == other.arm.model_id),
            )
            if is_same
        ]
        said += [f"same {' and '.join(same)}"] if same else []
    said.append("same experiment" if run.experiment_id == other.experiment_id else "another experiment")
    return ", ".join(said)


def of_arms(arms: Sequence[Arm]) -> Choosing | None:
    """The runs of arms that share no task and seed, to choose among; None where fewer than two have runs.

    As many of each arm as there is room for, one of each ticked: those of one task, or whose tasks' names
    share a problem, if there are such. At most six arms and 50 runs; in a query for each arm and one more.
    """
    fair = MOST_LISTED // min(max(len(arms), 1), MOST_RUNS)
    listed = [_rows(_first_of_arm(arm, fair)) for arm in arms[:MOST_RUNS]]
    listed = [runs for runs in listed if runs]
    if len(listed) < 2:
        return None
    ticked = _alike_of_each(listed)
    choices = [Choice(run, ticked=run.pk in ticked) for runs in listed for run in runs]
    letters = ", ".join(runs[0].arm.letter for runs in listed)
    return Choosing(
        note=f"Arms {letters} have no run of the same task and seed. Their runs may stand side by side all "
        "the same: what they did can be held against each other, whether they resolved it cannot.",
        listed=Group(f"Runs of arms {letters}", f"at most {fair} of each", choices, other_tasks=True),
    )


def _first_of_arm(arm: Arm, most: int) -> list[int]:
    runs = Run.objects.filter(arm=arm).order_by("task__position", "task_id", "seed")
    return list(runs.values_list("pk", flat=True)[:most])


def _alike_of_each(listed: Sequence[Sequence[Run]]) -> set[int]:
    """A run of each arm that has one of the problem which most arms have, else the first run of each."""
    by_problem: dict[str, dict[int, int]] = {}
    for place, runs in enumerate(listed):
        for run in runs:
            slug = run.task.slug
            for problem in dict.fromkeys([slug, task_names.issue_of(slug) or slug]):
                by_problem.setdefault(problem, {}).setdefault(place, run.pk)
    most = max(by_problem.values(), key=len)
    return set(most.values()) if len(most) > 1 else {runs[0].pk for runs in listed}


# Number of a run, its experiment, its verdict.
_Graded = tuple[int, int, str]


class _Found(NamedTuple):
    """Numbers of a resolved and an unresolved run of one task and seed, and whether of one experiment."""

    good: int
    bad: int
    together: bool


def worth_comparing() -> list[Pair]:
    """Pairs of one task and seed that came out differently: with steps first, then of one experiment.

    Of those the newest, looked for among the newest 2,000 graded runs with steps and as many without; at most
    ten, one a task and seed; in three queries.
    """
    found: list[_Found] = []
    seen: set[tuple[int, int]] = set()
    for steps in (Q(facts__steps__gt=0), Q(facts__steps=0)):
        if len(found) < MOST_PAIRS:
            found += _discordant_pairs(steps, seen)
    shown = found[:MOST_PAIRS]
    rows = {run.pk: run for run in _rows([pk for pair in shown for pk in (pair.good, pair.bad)])}
    return [Pair(rows[one.good], rows[one.bad]) for one in shown if one.good in rows and one.bad in rows]


def _discordant_pairs(which: Q, seen: set[tuple[int, int]]) -> list[_Found]:
    """Pairs among these runs in order. `seen`: tasks and seeds that have one already; the new ones join."""
    graded = Run.objects.filter(which, facts__verdict__in=_GRADED).order_by("-pk")
    by_case: dict[tuple[int, int], list[_Graded]] = {}
    for pk, task, seed, experiment, verdict in graded.values_list(
        "pk", "task_id", "seed", "experiment_id", "facts__verdict"
    )[:_NEWEST]:
        by_case.setdefault((task, seed), []).append((pk, experiment, verdict))
    found = {case: pair for case, runs in by_case.items() if (pair := _discordant(runs)) and case not in seen}
    seen.update(found)
    return sorted(found.values(), key=lambda pair: (not pair.together, -max(pair.good, pair.bad)))


def _discordant(runs: Sequence[_Graded]) -> _Found | None:
    """The newest resolved and unresolved run, of one experiment if possible."""
    good = [(pk, experiment) for pk, experiment, verdict in runs if verdict == _GRADED[0]]
    bad = [(pk, experiment) for pk, experiment, verdict in runs if verdict != _GRADED[0]]
    if not good or not bad:
        return None
    first_of = {experiment: pk for pk, experiment in reversed(bad)}
    for pk, experiment in good:
        if experiment in first_of:
            return _Found(pk, first_of[experiment], together=True)
    return _Found(good[0][0], bad[0][0], together=False)
