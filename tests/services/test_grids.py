"""The grid of an experiment: what its cells, rows and arms say of its runs."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from lab.engine.events import RunEnded
from lab.engine.llm.base import Cost
from lab.models import Arm, Endpoint, Experiment, Flag, Model, Run, RunFacts, Task
from lab.services import grid_summaries, grids
from tests import builders

pytestmark = pytest.mark.django_db


def second_arm(run: Run, *, letter: str = "B") -> Arm:
    """Another model in the same experiment."""
    endpoint = Endpoint.objects.create(name=f"{run.arm.model.endpoint.name}-{letter}")
    model = Model.objects.create(endpoint=endpoint, name=f"birch-{run.pk}-{letter}", model_id="birch")
    return Arm.objects.create(
        experiment=run.experiment,
        harness_version=run.arm.harness_version,
        model=model,
        limits=run.arm.limits,
        limits_digest=run.arm.limits_digest,
        letter=letter,
    )


def another_task(run: Run, slug: str, position: int) -> Task:
    return Task.objects.create(
        task_set=run.task.task_set,
        slug=slug,
        position=position,
        title=slug,
        statement="",
        digest=slug,
        folder="",
    )


def place(run: Run, *, arm: Arm | None = None, task: Task | None = None, seed: int = 1) -> Run:
    return Run.objects.create(experiment=run.experiment, arm=arm or run.arm, task=task or run.task, seed=seed)


def graded(run: Run, outcome: str, *, cost: Cost | None = None) -> Run:
    builders.start(run)
    step = [builders.asked(1), builders.answered(1, content="Done.", cost=cost)]
    builders.append(run, *step, *builders.ending(outcome=outcome, steps=1))
    return run


def summary_of(experiment: Experiment) -> grid_summaries.Summary:
    return grid_summaries.summary(grids.read(experiment.pk), Experiment.objects.get(pk=experiment.pk))


def test_three_seeds_of_one_task_are_three_cells_with_their_variance_and_none_is_hidden() -> None:
    first = builders.run()
    runs = [first, builders.another_run(first, seed=2), builders.another_run(first, seed=3)]
    for run, outcome in zip(runs, ("resolved", "unresolved", "resolved"), strict=True):
        graded(run, outcome)
    grid = grids.read(first.experiment_id)
    (row,) = grid.rows()
    ((_, cells, of),) = row.arms
    assert [(cell.run, cell.seed, cell.state) for cell in cells if cell] == [
        (run.pk, run.seed, outcome)
        for run, outcome in zip(runs, ("resolved", "unresolved", "resolved"), strict=True)
    ]
    assert of.words == "2 of 3"
    # The two that differ are offered for comparison.
    assert row.against.differs
    assert row.against.runs == (runs[0].pk, runs[1].pk)
    (head,) = summary_of(first.experiment).arms
    assert "2 of 3 valid runs resolved, mean of 1 task" in head.method
    assert head.spread == "seeds differ on 1 of 1 task, variance within a task 0.333"
    assert "not estimable, because one task says nothing about others" in head.interval


def test_a_rate_has_wilsons_interval_for_one_attempt_a_task_and_students_for_several() -> None:
    first = builders.run()
    tasks = [first.task, *(another_task(first, f"task-{number}", number) for number in range(2, 12))]
    for number, task in enumerate(tasks):
        run = first if number == 0 else place(first, task=task)
        graded(run, "resolved" if number < 8 else "unresolved")
    (head,) = summary_of(first.experiment).arms
    # Wilson's interval of 8 of 11.
    assert (head.rate, head.interval) == ("72.7 %", "43.4 to 90.3 %")
    assert head.method == "8 of 11 valid runs resolved, 95 % interval, Wilson"
    for number, task in enumerate(tasks):
        graded(place(first, task=task, seed=2), "resolved" if number < 6 else "unresolved")
    (head,) = summary_of(first.experiment).arms
    assert head.method == "14 of 22 valid runs resolved, mean of 11 tasks, 95 % interval, t over tasks"
    assert "seeds differ on 2 of 11 tasks" in head.spread
    assert "between tasks" in head.spread


def test_an_arm_is_preliminary_while_a_run_is_open_and_says_when_nothing_is_graded() -> None:
    run = builders.run()
    (head,) = summary_of(run.experiment).arms
    assert (head.rate, head.interval) == ("", "none graded yet")
    graded(builders.another_run(run, seed=2), "resolved")
    (head,) = summary_of(run.experiment).arms
    assert head.method.endswith("preliminary")
    assert str(head.line).startswith("<svg")


def test_invalid_cancelled_and_helped_runs_stand_beside_the_rate_and_are_no_part_of_it() -> None:
    first = builders.run()
    graded(first, "resolved")
    broke, gone, helped = (builders.another_run(first, seed=seed) for seed in (2, 3, 4))
    builders.start(broke)
    builders.append(broke, RunEnded(exit_reason="tool_error"))
    builders.start(gone)
    builders.append(gone, RunEnded(exit_reason="cancelled"))
    graded(helped, "unresolved")
    RunFacts.objects.filter(run=helped).update(got_message=True)
    summary = summary_of(first.experiment)
    (head,) = summary.arms
    assert head.rate == "100.0 %"
    assert head.beside == ["1 invalid", "1 cancelled", "1 that got a message"]
    counts = {one.key: one.number for one in summary.filters}
    assert counts == {
        **dict.fromkeys(("resolved", "unresolved", "infrastructure", "cancelled"), 1),
        **dict.fromkeys(("running", "queued", "flagged", "other"), 0),
        "all": 4,
    }


def test_a_task_that_one_arm_alone_resolves_leads_to_the_two_runs_of_one_seed() -> None:
    first = builders.run()
    arm = second_arm(first)
    graded(first, "resolved")
    graded(place(first, arm=arm), "unresolved")
    second = graded(place(first, seed=2), "resolved")
    other = graded(place(first, arm=arm, seed=2), "unresolved")
    (row,) = grids.read(first.experiment_id).rows()
    assert row.against.only == "A"
    assert row.against.runs[0] == first.pk
    assert {second.pk, other.pk}.isdisjoint(row.against.runs)
    (look,) = summary_of(first.experiment).worth
    assert look.words == "1 task only A resolves"
    assert look.url.endswith(f"?runs={','.join(map(str, row.against.runs))}")


def test_what_an_arm_costs_has_its_basis_and_an_unknown_part_makes_it_at_least() -> None:
    first = builders.run()
    graded(first, "resolved", cost=Cost(amount=Decimal("0.25"), basis="card"))
    (head,) = summary_of(first.experiment).arms
    assert head.cost == "$0.25 own card"
    second = builders.another_run(first, seed=2)
    graded(second, "resolved", cost=Cost(amount=None, basis="unknown"))
    (head,) = summary_of(first.experiment).arms
    assert head.cost == "at least $0.25 own card"
    cells = {
        cell.run: cell.cost
        for _, cells, _ in grids.read(first.experiment_id).rows()[0].arms
        for cell in cells
        if cell
    }
    assert cells == {first.pk: "$0.25", second.pk: "$ ?"}


def test_figures_of_two_bases_are_not_added_up_and_a_model_without_price_is_unknown() -> None:
    first = builders.run()
    graded(first, "resolved", cost=Cost(amount=Decimal("0.25"), basis="card"))
    graded(builders.another_run(first, seed=2), "resolved", cost=Cost(amount=Decimal(1), basis="table"))
    (head,) = summary_of(first.experiment).arms
    assert head.cost == "$0.25 own card + $1.00 price table"
    RunFacts.objects.update(cost=None, cost_unknown=1)
    (head,) = summary_of(first.experiment).arms
    assert head.cost_unknown


def test_sorting_puts_what_the_arms_disagree_on_or_nobody_resolves_first() -> None:
    first = builders.run()
    arm = second_arm(first)
    hard, open_task = another_task(first, "hard", 2), another_task(first, "open", 3)
    graded(first, "resolved")
    graded(place(first, arm=arm), "unresolved")
    graded(place(first, task=hard), "unresolved")
    graded(place(first, task=hard, arm=arm), "unresolved")
    place(first, task=open_task)
    grid = grids.read(first.experiment_id)
    assert [row.slug for row in grid.rows()] == ["dst-schedule", "hard", "open"]
    assert [row.slug for row in grid.rows(sort="disagreement")] == ["dst-schedule", "hard", "open"]
    assert [row.slug for row in grid.rows(sort="rate")] == ["hard", "dst-schedule", "open"]
    missing = grid.rows()[2].arms[1][1]
    assert missing == [None]


def test_only_runs_that_may_have_changed_are_asked_for_again() -> None:
    first = builders.run()
    graded(first, "resolved")
    # Further back than events that may become visible late.
    padding = builders.run()
    builders.start(padding)
    for step in range(1, 60):
        builders.append(padding, *builders.bash_step(step, "true", ""))
    second = builders.another_run(first, seed=2)
    grid = grids.read(first.experiment_id)
    assert grids.changed_since(first.experiment_id, grid.mark) == set()
    builders.start(second)
    assert grids.changed_since(first.experiment_id, grid.mark) == {second.pk}
    grids.refresh(grid, [second.pk])
    assert grid.cell(grid.runs[second.pk]).state == "running"
    assert grid.mark < grids.newest_mark()


def test_a_refreshed_grid_says_the_same_as_one_that_is_read_anew() -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    grid = grids.read(first.experiment_id)
    graded(first, "resolved")
    builders.start(second)
    builders.append(second, *builders.bash_step(1, "make", "")[:3])
    Flag.objects.create(run=second, code="leaked_calls", event_seq=3, step=1)
    grids.refresh(grid, [first.pk, second.pk])
    again = grids.read(first.experiment_id)
    assert grid.rows() == again.rows()
    assert grid.cell(grid.runs[second.pk]).now == "Bash"
    assert grid.cell(grid.runs[second.pk]).flagged
    experiment = first.experiment
    assert grid_summaries.summary(grid, experiment) == grid_summaries.summary(again, experiment)


def test_the_number_of_queries_does_not_depend_on_the_number_of_runs() -> None:
    few, many = builders.run(), builders.run()
    for seed in range(2, 30):
        builders.another_run(many, seed=seed)
    counts = []
    for run in (few, many):
        with CaptureQueriesContext(connection) as queries:
            summary_of(run.experiment)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8


def test_time_left_is_told_once_some_runs_have_ended_and_never_while_it_stands() -> None:
    first = builders.run()
    for seed in (2, 3, 4):
        graded(builders.another_run(first, seed=seed), "resolved")
    assert summary_of(first.experiment).progress.left == ""
    builders.start(first)
    assert re.fullmatch(r"about \d+ min left", summary_of(first.experiment).progress.left)
    Experiment.objects.filter(pk=first.experiment_id).update(
        state=Experiment.State.PAUSED, paused_because="budget"
    )
    assert summary_of(first.experiment).progress.left == ""
    experiment = Experiment.objects.get(pk=first.experiment_id)
    badge = grid_summaries.state_badge(experiment, grids.read(experiment.pk))
    assert (badge.word, badge.why) == ("paused", "budget")


def test_what_of_sampling_differs_between_arms_is_listed() -> None:
    first = builders.run()
    arm = second_arm(first)
    Model.objects.filter(pk=arm.model_id).update(sampling={"temperature": 0.7, "top_p": 1})
    Model.objects.filter(pk=first.arm.model_id).update(sampling={"temperature": 0.2, "top_p": 1})
    assert grid_summaries.sampling_differences(grids.read(first.experiment_id).arms) == [
        "temperature: 0.2 and 0.7"
    ]


def test_the_list_of_experiments_has_state_rate_and_spend() -> None:
    first = builders.run()
    graded(first, "resolved", cost=Cost(amount=Decimal("0.25"), basis="card"))
    empty = Experiment.objects.create(name="nothing yet")
    told, nothing = grid_summaries.listed([first.experiment, empty])
    assert (told.state.word, told.rate, told.resolved, told.graded) == ("ended", "100.0 %", 1, 1)
    assert told.spent == "$0.25 own card"
    assert (nothing.runs, nothing.rate, nothing.spent) == (0, "", "")
