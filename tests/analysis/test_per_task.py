"""Single tasks: how often they are resolved, by whom, and which of them tell arms apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from lab.analysis import per_task
from lab.analysis.counting import Switches, outcome_of
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from tests.analysis.observed import ALL_IN, observations, run, switches
from tests.analysis.test_rates import near

FIRST, SECOND = "1.1.aa", "2.1.aa"


def by_hand() -> list[Observation]:
    """Task a: two of three by the first arm, none by the second. b: always. c: once, never. d: broken."""
    return [
        run(1, task="a", arm=FIRST),
        run(2, task="a", arm=FIRST, seed=2),
        run(3, task="a", arm=FIRST, seed=3, verdict="unresolved"),
        run(4, task="a", arm=SECOND, verdict="unresolved"),
        run(5, task="b", arm=FIRST),
        run(6, task="b", arm=SECOND),
        run(7, task="c", arm=SECOND, verdict="unresolved"),
        run(8, task="d", arm=SECOND, verdict="infrastructure", exit_reason="infrastructure_error"),
    ]


def test_a_task_has_its_rate_by_arm_and_over_all_of_them() -> None:
    found = per_task.per_task(by_hand(), ALL_IN)
    a = found.tasks[0]
    assert (a.task, a.repository, list(a.arms)) == ("a", "r1", [FIRST, SECOND])
    first = a.arms[FIRST]
    assert (first.resolved, first.unresolved, first.others) == ((1, 2), (3,), ())
    low, high = proportion_confint(2, 3, method="wilson")
    interval = Interval(near(low), near(high))  # type: ignore[arg-type]
    assert first.rate == Estimate(2 / 3, interval, 3, per_task.OVER_ATTEMPTS)
    assert (a.whole.resolved, a.whole.unresolved) == ((1, 2), (3, 4))
    assert a.informs


def test_bands_say_which_tasks_inform() -> None:
    found = per_task.per_task(by_hand(), ALL_IN)
    assert [task.band for task in found.tasks] == ["sometimes", "always", "never", "untried"]
    assert found.bands == {"never": 1, "sometimes": 1, "always": 1, "untried": 1}
    # Task c has a single run, and d none that counts.
    assert (found.informing.part, found.informing.of, found.informing.unknown) == (1, 2, 1)
    assert found.informing.unit == "tasks"
    assert (found.by_arm[FIRST].part, found.by_arm[FIRST].of, found.by_arm[FIRST].unknown) == (1, 1, 1)


def test_one_run_a_task_does_not_say_which_tasks_inform() -> None:
    found = per_task.per_task(by_hand(), ALL_IN)
    assert str(found.by_arm[SECOND].estimate) == (
        "not estimable, because one run of a task is resolved or it is not"
    )
    assert per_task.per_task([], ALL_IN).informing.estimate == Unknown("no task was tried")


def test_an_invalid_run_is_a_failure_where_that_is_asked() -> None:
    out = per_task.per_task(by_hand(), ALL_IN).tasks[3]
    assert (out.whole.rate, out.whole.others) == (Unknown("no run of it counts"), (8,))
    asked = per_task.per_task(by_hand(), Switches(invalid_as_failures=True)).tasks[3]
    assert (asked.whole.unresolved, asked.band) == ((8,), "never")


def test_the_runs_behind_a_figure_are_of_its_tasks_and_arm() -> None:
    found = per_task.per_task(by_hand(), ALL_IN)
    assert per_task.runs_behind(found, "resolved") == [1, 2, 5, 6]
    assert per_task.runs_behind(found, "unresolved", task="a") == [3, 4]
    assert per_task.runs_behind(found, "all", task="a", arm=FIRST) == [1, 2, 3]
    assert per_task.runs_behind(found, "band:sometimes", arm=SECOND) == [4]
    assert per_task.runs_behind(found, "band:untried") == per_task.runs_behind(found, "others") == [8]
    with pytest.raises(ValueError, match="'band:often' is no figure of tasks; use one of resolved"):
        per_task.runs_behind(found, "band:often")


@given(observations(), switches, st.randoms())
def test_every_run_is_behind_one_figure_whatever_their_order(
    runs: list[Observation], turned: Switches, chance: random.Random
) -> None:
    found = per_task.per_task(runs, turned)
    mixed = list(runs)
    chance.shuffle(mixed)
    assert per_task.per_task(mixed, turned) == found
    parts = [per_task.runs_behind(found, key) for key in ("resolved", "unresolved", "others")]
    bands = [per_task.runs_behind(found, f"band:{band}") for band in per_task.BANDS]
    assert sorted(sum(parts, [])) == sorted(sum(bands, [])) == per_task.runs_behind(found, "all")
    assert sum(found.bands.values()) == len(found.tasks)
    outcomes = {one.run: outcome_of(one) for one in runs}
    assert {outcomes[number] for number in parts[0]} <= {"resolved"}
    for task in found.tasks:
        assert sum(len(one.resolved) for one in task.arms.values()) == len(task.whole.resolved)
        assert sum(one.counted for one in task.arms.values()) == task.whole.counted
