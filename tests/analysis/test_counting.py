"""Which runs count, and as what."""

from __future__ import annotations

from hypothesis import given

from lab.analysis import counting
from lab.analysis.counting import AS_USUAL, Switches
from lab.analysis.observations import Observation
from tests.analysis.observed import observations, run, switches

RUNS = [
    run(1),
    run(2, verdict="unresolved", flagged=True),
    run(3, verdict="infrastructure", exit_reason="tool_error"),
    run(4, verdict="", exit_reason="cancelled"),
    run(5, verdict="", ended=False, exit_reason=""),
    run(6, stepped_in=True),
    run(7, verdict="unparsed"),
    run(8, verdict="", exit_reason="max_turns"),
    run(9, verdict="", exit_reason="unknown"),
]


def numbers(found: list[Observation]) -> list[int]:
    return [one.run for one in found]


def test_each_run_has_one_outcome() -> None:
    outcomes = [counting.outcome_of(one) for one in RUNS]
    assert outcomes == [
        *("resolved", "unresolved", "invalid", "cancelled", "open", "resolved", "invalid"),
        *("not_graded", "invalid"),
    ]
    assert [one.run for one in RUNS if one.invalid] == [3, 7, 9]
    assert [one.run for one in RUNS if one.not_graded] == [8]


def test_only_graded_runs_count_and_those_people_stepped_into_do_not() -> None:
    assert numbers([trial.run for trial in counting.trials(RUNS, AS_USUAL)]) == [1, 2]
    assert [trial.resolved for trial in counting.trials(RUNS, AS_USUAL)] == [True, False]


def test_the_switches() -> None:
    assert numbers([one.run for one in counting.trials(RUNS, Switches(invalid_as_failures=True))]) == [
        *(1, 2, 3, 7, 9)
    ]
    assert numbers([one.run for one in counting.trials(RUNS, Switches(without_flagged=True))]) == [1]
    assert numbers([one.run for one in counting.trials(RUNS, Switches(stepped_in=True))]) == [1, 2, 6]


def test_what_is_left_out_is_counted_beside_it() -> None:
    found = counting.tally(RUNS, Switches(without_flagged=True))
    assert (found.runs, found.considered, found.left_out_stepped_in, found.left_out_flagged) == (9, 7, 1, 1)
    assert (found.resolved, found.unresolved, found.invalid, found.cancelled, found.open) == (1, 0, 3, 1, 1)
    assert found.not_graded == 1


@given(runs=observations(), chosen=switches)
def test_every_run_is_counted_once(runs: list[Observation], chosen: Switches) -> None:
    found = counting.tally(runs, chosen)
    assert found.runs == len(runs)
    assert found.runs == found.considered + found.left_out_stepped_in + found.left_out_flagged
    counted = counting.trials(runs, chosen)
    assert len(counted) == found.valid + (found.invalid if chosen.invalid_as_failures else 0)
    assert sum(trial.resolved for trial in counted) == found.resolved
    assert all(counting.outcome_of(trial.run) in ("resolved", "unresolved", "invalid") for trial in counted)
