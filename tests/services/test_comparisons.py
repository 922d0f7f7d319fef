"""Runs side by side: what is the same, what differs, and what nobody knows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.events import AttemptEnded, AttemptStarted, LimitChanged, MessageSent
from lab.engine.limits import Limits
from lab.models import Arm, Experiment, HarnessVersion, Run
from lab.services import blobs, compared_arms, comparisons
from tests import builders

pytestmark = pytest.mark.django_db


def twin(of: Run, **changes: Any) -> Run:
    """A run of another arm of the same experiment, on the same task."""
    arm = Arm.objects.create(
        **{
            "experiment": of.experiment,
            "harness_version": of.arm.harness_version,
            "model": of.arm.model,
            "limits": of.arm.limits,
            "limits_digest": of.arm.limits_digest,
            "letter": "B",
            **changes,
        }
    )
    return Run.objects.create(experiment=of.experiment, arm=arm, task=of.task, seed=1)


def another_harness(of: Run, **changes: Any) -> HarnessVersion:
    version = of.arm.harness_version
    return HarnessVersion.objects.create(
        harness=version.harness,
        version=version.version + 1,
        digest=changes.pop("digest", "f" * 64),
        config={**version.config, **changes},
    )


def with_limits(**changes: Any) -> dict[str, Any]:
    limits = Limits(max_steps=150, max_context_tokens=131_072, max_cost_usd=Decimal(2)).model_copy(
        update=changes
    )
    return {"limits": limits.model_dump(mode="json"), "limits_digest": limits.digest}


def compared(*runs: Run) -> comparisons.Comparison:
    return comparisons.compare(comparisons.find_runs([run.pk for run in runs]))


def states(*runs: Run) -> dict[str, str]:
    return {light.name: light.state for light in compared(*runs).lights}


def rows(found: list[comparisons.Row]) -> dict[str, list[str]]:
    return {row.name: [cell.words for cell in row.cells] for row in found}


def started(run: Run, **facts: Any) -> None:
    """The run's first event, with what the builders' one leaves out."""
    event = builders.opening()[0]
    assert isinstance(event, AttemptStarted)
    builders.append(run, event.model_copy(update=facts))


def test_two_runs_of_one_arm_are_the_same_in_everything_but_the_seed() -> None:
    run = builders.run()
    comparison = compared(run, builders.another_run(run, seed=2))
    assert [light.state for light in comparison.lights] == ["same", "same", "same"]
    assert (comparison.harnesses, comparison.limits, comparison.task_set) == ([], [], [])
    assert rows(comparison.other) == {"seed": ["1", "2"]}


def test_another_harness_is_different_and_every_field_that_differs_is_named() -> None:
    run = builders.run()
    other = twin(
        run, harness_version=another_harness(run, system_prompt="You mend.\n", parallel_tool_calls=False)
    )
    comparison = compared(run, other)
    assert comparison.lights[0].state == "different"
    (pair,) = comparison.harnesses
    assert {one.path: (one.left, one.right) for one in pair.differences if not one.diff} == {
        "parallel_tool_calls": ("true", "false")
    }
    (prompt,) = [one for one in pair.differences if one.diff]
    assert prompt.path == "system_prompt"
    assert "You mend" in prompt.diff
    assert states(run, other)["limits"] == "same"


def test_a_field_that_an_older_release_did_not_write_is_at_its_default_and_no_difference() -> None:
    run = builders.run()
    version = another_harness(run, system_prompt="Another.")
    del version.config["parallel_tool_calls"]
    version.save()
    (pair,) = compared(run, twin(run, harness_version=version)).harnesses
    assert [one.path for one in pair.differences] == ["system_prompt"]


def test_runs_are_grouped_by_harness_and_held_against_the_first() -> None:
    run = builders.run()
    other = twin(run, harness_version=another_harness(run, protocol="xml"))
    third = builders.another_run(other, seed=2)
    (pair,) = compared(run, other, third).harnesses
    assert pair.left_runs == f"run {run.pk}"
    assert pair.right_runs == f"runs {other.pk} and {third.pk}"
    (back,) = compared(third, run).harnesses
    assert back.left_runs == f"run {third.pk}"


def test_an_unknown_harness_is_unknown_and_never_the_same() -> None:
    run = builders.run()
    version = another_harness(run, digest=None)
    left, right = (
        twin(run, harness_version=version),
        twin(run, harness_version=version, letter="C", **with_limits(max_steps=1)),
    )
    assert states(left, run)["harness"] == "unknown"
    # One row of the database, and still nobody knows what it was.
    assert states(left, right)["harness"] == "unknown"
    assert f"not known of run {left.pk}" in compared(left, run).lights[0].detail


def test_two_known_harnesses_that_differ_are_different_whatever_is_unknown_beside_them() -> None:
    run = builders.run()
    other = twin(run, harness_version=another_harness(run, protocol="xml"))
    unknown = twin(run, harness_version=another_harness(other, digest=None), letter="C")
    assert states(run, other, unknown)["harness"] == "different"


def test_a_harness_is_the_one_that_the_runs_own_log_names() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    long_prompt = "Mend it. " * 1000
    config = {**run.arm.harness_version.config, "system_prompt": long_prompt}
    started(other, harness={"name": "x", "digest": "e" * 64, "config": config})
    comparison = compared(run, other)
    assert comparison.lights[0].state == "different"
    (difference,) = comparison.harnesses[0].differences
    assert difference.path == "system_prompt"
    assert "Mend it." in difference.diff


def test_a_recorded_harness_whose_text_is_gone_is_told_and_stops_nothing() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    config = {**run.arm.harness_version.config, "system_prompt": "Gone for good. " * 1000}
    started(other, harness={"name": "x", "digest": "e" * 64, "config": config})
    stored = other.events.get().payload["harness"]["config"]["system_prompt"]["$blob"]
    blobs.path_of(sha256=stored).unlink()
    (pair,) = compared(run, other).harnesses
    assert pair.differences == []
    assert "cannot be listed" in pair.problem


def test_a_harness_of_which_the_log_holds_only_a_digest_is_not_taken_for_the_arms() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    started(other, harness={"name": "x", "digest": "e" * 64})
    comparison = compared(run, other)
    assert comparison.lights[0].state == "different"
    assert "only the digest was recorded" in comparison.harnesses[0].problem


def test_each_limit_that_differs_is_shown_with_its_unit() -> None:
    run = builders.run()
    other = twin(run, **with_limits(max_steps=100, max_cost_usd=None))
    comparison = compared(run, other)
    assert comparison.lights[1] == comparisons.Light(
        "limits", "different", "steps 150 and 100; cost $2.00 and no limit"
    )
    assert rows(comparison.limits) == {"steps": ["150 steps", "100 steps"], "cost": ["$2.00", "no limit"]}
    assert "context 131,072" in comparison.limits_alike


def test_limits_changed_while_a_run_went_on_make_it_different_from_one_with_the_same_limits() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    builders.start(other)
    seq = builders.append(other, LimitChanged(limit="max_steps", before=150, after=300, person="ann"))
    comparison = compared(run, other)
    assert comparison.lights[1].state == "different"
    assert comparison.lights[1].detail == f"changed while run {other.pk} went on"
    (row,) = comparison.limits
    assert [cell.words for cell in row.cells] == ["150 steps", "150 steps"]
    assert (row.cells[1].note, row.cells[1].seq) == ("→ 300 steps, changed while running", seq)


def test_a_limit_set_to_what_it_was_is_no_change() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    builders.start(other)
    builders.append(other, LimitChanged(limit="max_steps", before=150, after=150, person="ann"))
    assert states(run, other)["limits"] == "same"


def test_limits_that_nobody_recorded_are_unknown_unless_a_known_one_differs() -> None:
    run = builders.run()
    some = twin(run, limits={"max_steps": 150}, limits_digest="")
    none = twin(run, limits={}, limits_digest="", letter="C", harness_version=another_harness(run))
    assert states(run, some)["limits"] == "unknown"
    assert states(run, none)["limits"] == "unknown"
    assert rows(compared(run, some).limits)["context"] == ["131,072 tokens", "unknown"]
    some.arm.limits = {"max_steps": 20}
    some.arm.save()
    assert states(run, some)["limits"] == "different"


def test_other_task_sets_are_different_and_other_tasks_of_one_set_are_said() -> None:
    run, stranger = builders.run(), builders.run()
    assert states(run, stranger)["task set"] == "different"
    assert "digest of the set" in rows(compared(run, stranger).task_set)
    sibling = builders.another_run(run, seed=2)
    sibling.task = run.task.task_set.tasks.create(
        slug="other", position=2, title="o", statement="s", digest="d" * 64
    )
    sibling.save()
    comparison = compared(run, sibling)
    assert comparison.lights[2].state == "same"
    assert "other tasks of it" in comparison.lights[2].detail
    assert rows(comparison.task_set)["task"] == ["dst-schedule", "other"]
    assert len(comparison.tasks) == 2


def test_sampling_is_listed_as_a_fact_and_what_was_left_out_was_not_set() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    model = {"name": "cedar", "model_id": "cedar-large", "sampling": {"temperature": 0.6}, "extra_body": {}}
    started(run, model=model)
    started(
        other, model={**model, "sampling": {"temperature": 0.6, "top_k": 20}, "extra_body": {"a": {"b": 1}}}
    )
    comparison = compared(run, other)
    found = rows(comparison.other)
    assert found["sampling.top_k"] == ["not set", "20"]
    assert found["extra_body.a.b"] == ["not set", "1"]
    assert "sampling.temperature" not in found
    assert "sampling.temperature 0.6" in comparison.other_alike
    assert [light.state for light in comparison.lights] == ["same", "same", "same"]


def test_sampling_of_an_imported_run_that_recorded_none_is_unknown_and_not_unset() -> None:
    run, imported = builders.run(), builders.run()
    model = run.arm.model
    model.sampling = {"temperature": 0.6}
    model.save()
    Experiment.objects.filter(pk=imported.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    assert rows(compared(run, imported).other)["sampling.temperature"] == ["0.6", "unknown"]


def test_a_message_to_the_agent_is_among_what_differs() -> None:
    run = builders.run()
    other = builders.another_run(run, seed=2)
    builders.start(other)
    builders.append(other, MessageSent(person="ann", message={"role": "user", "content": "Look at zones.py"}))
    assert rows(compared(run, other).other)["messages from people"] == ["none", "yes"]


def test_usage_and_cost_that_nobody_counted_are_unknown_and_a_sum_with_a_gap_is_at_least() -> None:
    run = builders.run()
    silent = builders.another_run(run, seed=2)
    builders.believable(run)
    builders.start(silent)
    builders.append(silent, builders.asked(1), builders.failed_request(1, retry_in=None))
    counted, unknown = compared(run, silent).sides
    assert counted.tokens.words.startswith("at least ")
    assert counted.cost.words.startswith("at least $")
    assert (unknown.tokens.known, unknown.cost.known, unknown.peak_memory.known) == (False, False, False)
    assert "Usage reported for 0 of 1" in unknown.cost.note


def test_a_run_that_never_began_says_so_instead_of_counting_nothing() -> None:
    run = builders.run()
    begun, waiting = compared(run, builders.another_run(run, seed=2)).sides
    assert not begun.asked
    assert not waiting.asked


def test_peak_memory_is_that_of_the_run() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run, AttemptEnded(exit_reason="agent", steps=1, wall_seconds=1.0, peak_memory_bytes=6_600_000)
    )
    side, other = compared(run, builders.another_run(run, seed=2)).sides
    assert side.peak_memory.words == "6.6 MB"
    assert not other.peak_memory.known


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [(["12,15"], [12, 15]), (["12, 15 ,12"], [12, 15]), (["12", "", "#15"], [12, 15]), ([], [])],
)
def test_numbers_of_runs_are_read_as_people_write_them(texts: list[str], numbers: list[int]) -> None:
    assert comparisons.asked_numbers(texts) == numbers


@pytest.mark.parametrize("text", ["12,abc", "-1", "1.5", "١٢", "9" * 20, "1,2,3,4,5,6,7,8,9"])
def test_what_names_no_runs_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"write numbers as in 12,15|leave 3 out"):
        comparisons.asked_numbers([text])


def test_a_run_that_does_not_exist_is_named() -> None:
    run = builders.run()
    with pytest.raises(InvalidValueError, match="999999"):
        comparisons.find_runs([run.pk, 999_999])


def test_the_lights_of_arms_say_which_are_alike() -> None:
    run = builders.run()
    second = twin(run, harness_version=another_harness(run, protocol="xml"))
    third = twin(run, letter="C", **with_limits(max_steps=10))
    harness, limits, task_set = compared_arms.lights_of_arms([run.arm, second.arm, third.arm])
    assert (harness.state, harness.detail) == ("different", "A, C against B")
    assert (limits.state, limits.detail, limits.brief) == ("different", "steps 150 and 10", "steps")
    assert task_set.state == "same"
    assert compared_arms.lights_of_arms([run.arm]) == []


def test_many_limits_that_differ_have_a_few_words_and_all_that_is_said_of_them() -> None:
    run = builders.run()
    second = twin(run, **with_limits(max_steps=10, max_total_time_sec=60.0, max_format_errors=3))
    limits = compared_arms.lights_of_arms([run.arm, second.arm])[1]
    assert limits.brief == "steps, time, malformed replies"
    assert limits.detail.startswith("steps 150 and 10; time ")
    assert limits.detail.endswith("; malformed replies in a row no limit and 3")


def test_arms_of_which_the_same_sandbox_is_told_share_a_line() -> None:
    def lines(*told: tuple[str, str]) -> list[tuple[str, str]]:
        arms = [compared_arms.ArmSandboxes(*one) for one in told]
        return [tuple(line) for line in compared_arms.Sandboxes(arms, "").lines]

    assert lines(("A", "x"), ("B", "x"), ("C", "x"), ("D", "x")) == [("A … D", "x")]
    assert lines(("A", "x"), ("B", "y"), ("C", "x"), ("D", "x")) == [("A, C, D", "x"), ("B", "y")]
    assert lines(("A", "x"), ("B", "x")) == [("A, B", "x")]


def test_limits_of_arms_without_a_digest_are_unknown_unless_a_known_one_differs() -> None:
    run = builders.run()
    second = twin(run, limits_digest="", harness_version=another_harness(run))
    assert compared_arms.lights_of_arms([run.arm, second.arm])[1].state == "unknown"
    second.arm.limits = {"max_steps": 10}
    assert compared_arms.lights_of_arms([run.arm, second.arm])[1].state == "different"


def test_runs_of_arms_are_matched_by_task_and_seed() -> None:
    run = builders.run()
    second = twin(run, letter="B", **with_limits(max_steps=10))
    builders.another_run(run, seed=2)
    (match,) = compared_arms.matches([run.arm, second.arm])
    assert (match.task, match.seed, match.runs) == ("dst-schedule", 1, [run, second])
