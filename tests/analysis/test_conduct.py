"""How agents went about it: an arm by hand, the rules of each class, and what holds of any runs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis.conduct import KINDS, TIMES, ArmConduct, conduct, runs_behind
from lab.analysis.counting import Switches, considered
from lab.analysis.estimates import Estimate, Unknown
from lab.analysis.observations import Observation
from lab.analysis.run_traits import FAILURES, failure_of, is_whole, tokens_of, trait
from lab.analysis.shares import Share
from lab.analysis.spreads import Quartiles, Spread
from lab.engine.errors import ExitOrigin, ExitReason
from tests.analysis.observed import ALL_IN, behaviour, observations, run, switches

LONG = behaviour(
    tools={"bash": 16},
    kinds={"read": 10, "edit": 6},
    calls=16,
    steps_with_calls=8,
    parallel_steps=4,
    malformed=2,
    exit_codes=15,
    failed_commands=3,
    tests=0,
    edits=6,
    cycles=0,
    tested_after_last_edit=False,
    repeats=5,
    model_seconds=50.0,
    tool_seconds=6.0,
    waiting_seconds=4.0,
)
ONLY_READS = behaviour(
    tools={"bash": 4},
    kinds={"read": 4},
    tests=0,
    edits=0,
    cycles=0,
    tested_after_last_edit=None,
    model_seconds=None,
)


def by_hand() -> list[Observation]:
    """Five runs of one arm on four tasks, one of them broken off and one with an older roll-up."""
    failed = run(0, verdict="unresolved", fail_to_pass=(0, 1))
    at_limit = failed._replace(exit_reason="max_turns", steps=8, input_total=3000, peak_memory_bytes=None)
    without_edit = failed._replace(steps=6, usage_unknown=1, peak_memory_bytes=3000, changed_files=0)
    return [
        run(1, task="a"),
        at_limit._replace(run=2, task="b", behaviour=LONG),
        without_edit._replace(run=3, task="c", behaviour=ONLY_READS),
        run(4, task="d", verdict="infrastructure", exit_reason="infrastructure_error", steps=2),
        run(5, task="d", verdict="unparsed", behaviour=None, steps=10),
    ]


def arm() -> ArmConduct:
    return conduct(by_hand(), ALL_IN)["1.1.aa"]


def counts(shares: tuple[Share, ...]) -> dict[str, tuple[float, float]]:
    return {share.key: (share.part, share.of) for share in shares}


def test_what_is_whole_and_what_is_graded_is_counted() -> None:
    found = arm()
    assert (found.runs, found.open, found.ended, found.whole, found.graded) == (5, 0, 5, 4, 3)
    assert found.unknown == 1


def test_exit_reasons_are_of_all_ended_runs_and_a_task_counts_once() -> None:
    found = arm()
    assert counts(found.exits) == {
        "exit:agent": (3, 5),
        "exit:infrastructure_error": (1, 5),
        "exit:max_turns": (1, 5),
    }
    values = [share.estimate.value for share in found.exits if isinstance(share.estimate, Estimate)]
    assert values == [2.5 / 4, 0.5 / 4, 1 / 4]
    assert (found.at_step_limit.part, found.at_step_limit.of) == (1, 4)


def test_a_record_without_an_exit_reason_has_an_unknown_one() -> None:
    runs = [run(1, exit_reason="", verdict=""), run(2, exit_reason="unknown")]
    found = conduct(runs, ALL_IN)["1.1.aa"]
    assert counts(found.exits) == {"exit:unknown": (2, 2)}
    assert found.whole == 2
    assert runs_behind(runs, ALL_IN, "1.1.aa", "exit:unknown") == [1, 2]


def test_steps_and_tokens_are_those_of_runs_with_a_verdict() -> None:
    found = arm()
    assert found.steps.graded.quartiles == Quartiles(4, 5, 6, 7, 8)
    assert found.steps.resolved.quartiles == Quartiles(4, 4, 4, 4, 4)
    assert (found.steps.unresolved.n, found.steps.graded.unknown) == (2, 0)
    assert found.tokens.graded.quartiles == Quartiles(1050, 1550, 2050, 2550, 3050)
    assert (found.tokens.graded.n, found.tokens.graded.unknown) == (2, 1)
    assert (found.tokens.resolved.unknown, found.tokens.unresolved.unknown) == (0, 1)


def test_the_tool_mix_is_of_calls_and_parallel_ones_are_of_steps() -> None:
    use = arm().tool_use
    assert [share.key for share in use.kinds] == [f"kind:{kind}" for kind in KINDS]
    assert [share.part for share in use.kinds] == [15, 7, 1, 0, 1]
    assert counts(use.tools) == {"tool:bash": (23, 24), "tool:submit": (1, 24)}
    assert counts((use.parallel, use.malformed, use.failed)) == {
        "parallel": (4, 16),
        "malformed": (2, 24),
        "failed": (3, 23),
    }
    assert use.parallel.unknown == 1
    assert use.per_run.quartiles == Quartiles(4, 4, 4, 10, 16)


def test_a_reply_without_any_call_that_was_understood_is_a_format_error() -> None:
    runs = [run(1, task="a", replies=10, format_errors=1), run(2, task="b", replies=30), run(3, replies=None)]
    errors = conduct(runs, ALL_IN)["1.1.aa"].tool_use.format_errors
    assert (errors.part, errors.of, errors.unit, errors.unknown) == (1, 40, "replies", 1)
    assert runs_behind(runs, ALL_IN, "1.1.aa", "format_errors") == [1]


def test_failed_commands_are_of_calls_whose_exit_code_is_known() -> None:
    silent = behaviour(exit_codes=0, failed_commands=None)
    failing = behaviour(exit_codes=2, failed_commands=1)
    runs = [run(1, task="a", behaviour=silent), run(2, task="b", behaviour=failing), run(3, behaviour=None)]
    failed = conduct(runs, ALL_IN)["1.1.aa"].tool_use.failed
    assert (failed.part, failed.of, failed.unit, failed.unknown) == (1, 2, "calls", 2)
    assert runs_behind(runs, ALL_IN, "1.1.aa", "failed") == [2]
    unsaid = conduct(runs[:1], ALL_IN)["1.1.aa"].tool_use.failed
    assert isinstance(unsaid.estimate, Unknown)


def test_a_run_that_edited_nothing_has_no_test_after_its_last_edit() -> None:
    habits = arm().habits
    assert counts((habits.tested, habits.cycled, habits.tested_last)) == {
        "habit:tested": (1, 3),
        "habit:cycled": (1, 3),
        "habit:tested_last": (1, 2),
    }
    assert (habits.no_edit, habits.tested_last.unknown) == (1, 1)
    assert (habits.cycles.n, habits.cycles.unknown) == (3, 1)


def test_repeats_are_counted_by_call_and_by_run() -> None:
    repeats = arm().repeats
    assert (repeats.of_calls.part, repeats.of_calls.of) == (5, 24)
    assert (repeats.of_runs.part, repeats.of_runs.of) == (1, 3)
    assert repeats.per_run.quartiles == Quartiles(0, 0, 0, 2.5, 5)


def test_time_is_split_where_all_of_its_parts_are_known() -> None:
    time = arm().time
    assert [share.key for share in time.parts] == [f"time:{name}" for name in TIMES]
    assert [(share.part, share.of) for share in time.parts] == [(80, 100), (16, 100), (4, 100)]
    assert (time.seconds, time.known, time.unknown) == (100, 2, 2)


def test_where_no_record_says_how_long_it_waited_time_has_two_parts() -> None:
    runs = [run(1, behaviour=behaviour(waiting_seconds=None)), run(2, behaviour=None)]
    time = conduct(runs, ALL_IN)["1.1.aa"].time
    assert counts(time.parts) == {"time:model": (30, 40), "time:tools": (10, 40), "time:waiting": (0, 0)}
    assert str(time.parts[2].estimate) == ("not estimable, because no run's record says how long it waited")
    assert (time.seconds, time.known, time.unknown) == (40, 1, 1)
    assert runs_behind(runs, ALL_IN, "1.1.aa", "time:tools") == [1]


def test_peak_memory_is_of_runs_that_measured_it() -> None:
    memory = arm().memory
    assert memory.quartiles == Quartiles(1000, 1000, 1000, 2000, 3000)
    assert (memory.n, memory.unknown) == (3, 1)


def test_failures_are_in_one_class_each() -> None:
    failed = arm().failed_tests
    assert (failed.failures, failed.unknown) == (3, 0)
    assert counts(failed.classes) == {
        "tests:empty_patch": (1, 3),
        "tests:never_ran": (1, 3),
        "tests:both": (0, 3),
        "tests:regression": (0, 3),
        "tests:never_fixed": (1, 3),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"verdict": "resolved"}, None),
        ({"verdict": "infrastructure"}, None),
        ({"verdict": ""}, None),
        ({"ended": False}, None),
        ({"verdict": "unparsed", "exit_reason": "cancelled"}, None),
        ({"changed_files": 0}, "empty_patch"),
        ({"changed_files": 0, "verdict": "unparsed"}, "empty_patch"),
        ({"changed_files": None, "verdict": "unparsed"}, "never_ran"),
        ({"fail_to_pass": (0, 2), "pass_to_pass": (0, 9)}, "never_ran"),
        ({"fail_to_pass": (1, 2), "pass_to_pass": (0, 9)}, "both"),
        ({"fail_to_pass": (0, 2), "pass_to_pass": (8, 9)}, "both"),
        ({"fail_to_pass": (2, 2), "pass_to_pass": (8, 9)}, "regression"),
        ({"fail_to_pass": (1, 2)}, "never_fixed"),
        ({"fail_to_pass": (0, 2), "pass_to_pass": (0, 0)}, "never_fixed"),
        ({"fail_to_pass": None, "pass_to_pass": None}, "unknown"),
        ({"fail_to_pass": (2, 2)}, "unknown"),
    ],
)
def test_what_the_tests_of_a_failure_did(changes: dict[str, Any], expected: str | None) -> None:
    assert failure_of(run(1, **{"verdict": "unresolved", **changes})) == expected


def test_a_run_is_whole_unless_a_person_or_something_broken_ended_it() -> None:
    whole = {reason for reason in ExitReason if is_whole(run(1, verdict="", exit_reason=reason.value))}
    # Of an imported run it is not known why it ended, and all that it did is there.
    assert whole == {reason for reason in ExitReason if reason.origin is ExitOrigin.MODEL_OR_LIMIT} | {
        ExitReason.UNKNOWN
    }
    assert is_whole(run(1, verdict="unresolved", exit_reason="llm_query_error"))
    assert not is_whole(run(1, ended=False))


def test_tokens_are_unknown_where_one_request_is() -> None:
    assert tokens_of(run(1)) == 1050
    assert tokens_of(run(1, usage_unknown=1)) is None
    assert tokens_of(run(1, output_total=None)) is None
    # A server that says nothing of its cache: the whole is known, its parts are not.
    assert tokens_of(run(1, input_uncached=None, cache_read=None)) == 1050
    assert tokens_of(run(1, input_total=None, cache_write=None)) == 1050
    assert tokens_of(run(1, input_total=None, cache_read=None)) is None


def test_an_arm_without_any_behaviour_says_why_there_is_nothing() -> None:
    found = conduct([run(1, behaviour=None), run(2, behaviour=None)], ALL_IN)["1.1.aa"]
    assert found.unknown == 2
    assert str(found.tool_use.parallel.estimate) == ("not estimable, because there are no steps to count")
    assert found.habits.tested.unknown == found.time.unknown == found.repeats.per_run.unknown == 2
    assert isinstance(found.habits.tested.estimate, Unknown)
    assert found.tool_use.tools == ()


def test_no_run_is_no_arm() -> None:
    assert conduct([], ALL_IN) == {}


def test_a_figure_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'habits' is no figure of behaviour; use one of open, ended"):
        runs_behind([], ALL_IN, "a", "habits")
    with pytest.raises(ValueError, match="'exit:' is no figure"):
        trait("exit:")


def shares_of_runs(found: ArmConduct) -> list[Share]:
    habits = (found.habits.tested, found.habits.cycled, found.habits.tested_last)
    return [*found.exits, found.at_step_limit, *habits, found.repeats.of_runs, *found.failed_tests.classes]


def shares_of_calls(found: ArmConduct) -> list[Share]:
    use = found.tool_use
    return [
        *use.kinds,
        *use.tools,
        use.parallel,
        use.malformed,
        use.format_errors,
        use.failed,
        found.repeats.of_calls,
    ]


def spreads_of(found: ArmConduct) -> list[Spread]:
    by_verdict = [*found.steps, *found.tokens]
    return [*by_verdict, found.tool_use.per_run, found.habits.cycles, found.repeats.per_run, found.memory]


@given(observations(), switches)
def test_each_figure_has_as_many_runs_behind_it_as_it_counts(
    runs: list[Observation], turned: Switches
) -> None:
    for name, found in conduct(runs, turned).items():

        def behind(key: str, arm: str = name) -> int:
            return len(runs_behind(runs, turned, arm, key))

        for share in shares_of_runs(found):
            assert behind(share.key) == share.part, share.key
        for share in shares_of_calls(found):
            assert (behind(share.key) > 0) == (share.part > 0), share.key
        for spread in spreads_of(found):
            assert behind(spread.key) == spread.n, spread.key
        assert behind("steps:unknown") == found.steps.graded.unknown
        assert behind("tokens:unknown") == found.tokens.graded.unknown
        assert behind("memory:unknown") == found.memory.unknown
        assert behind("habit:no_edit") == found.habits.no_edit
        assert behind("habit:untested") == found.habits.tested.of - found.habits.tested.part
        assert behind("habit:untested_last") == found.habits.tested_last.of - found.habits.tested_last.part
        assert (behind("time:model"), behind("time:unknown")) == (found.time.known, found.time.unknown)
        assert (behind("tests:failures"), behind("tests:unknown")) == (
            found.failed_tests.failures,
            found.failed_tests.unknown,
        )
        assert behind("behaviour:unknown") == found.unknown
        assert [behind(key) for key in ("open", "ended", "whole", "graded")] == [
            found.open,
            found.ended,
            found.whole,
            found.graded,
        ]


@given(observations(), switches)
def test_parts_of_a_whole_sum_to_one(runs: list[Observation], turned: Switches) -> None:
    for found in conduct(runs, turned).values():
        wholes = (
            found.exits,
            found.tool_use.kinds,
            found.tool_use.tools,
            [share for share in found.time.parts if share.of],
            found.failed_tests.classes,
        )
        for parts in wholes:
            values = [share.estimate.value for share in parts if isinstance(share.estimate, Estimate)]
            assert len(values) in (0, len(parts))
            if values:
                assert sum(values) == pytest.approx(1)
                assert sum(share.part for share in parts) == pytest.approx(parts[0].of)
        known = found.failed_tests.failures - found.failed_tests.unknown
        assert [share.of for share in found.failed_tests.classes] == [known] * len(FAILURES)


@given(observations(), switches, st.randoms())
def test_the_order_of_runs_changes_nothing(
    runs: list[Observation], turned: Switches, chance: random.Random
) -> None:
    expected = conduct(runs, turned)
    mixed = list(runs)
    chance.shuffle(mixed)
    assert conduct(mixed, turned) == expected


@given(observations(), switches)
def test_an_arm_alone_is_what_it_is_among_others(runs: list[Observation], turned: Switches) -> None:
    together = conduct(runs, turned)
    assert sum(found.runs for found in together.values()) == len(considered(runs, turned))
    for name, found in together.items():
        assert conduct([one for one in runs if one.arm == name], turned) == {name: found}
