from __future__ import annotations

import pytest

from lab.engine.events import AttemptEnded, RunEnded
from lab.models import Experiment, Run, RunFacts
from lab.services import overview
from tests import builders


def ran_without_a_price() -> str:
    run = builders.run()
    RunFacts.objects.update_or_create(run=run, defaults={"cost_unknown": 1, "cost": None})
    return run.arm.model.name


def suggested() -> list[overview.Suggestion]:
    return [card for card in overview.suggestions(task_set=None) if "known price" in card.title]


@pytest.mark.django_db
def test_a_model_without_a_price_is_named() -> None:
    assert suggested() == []
    name = ran_without_a_price()
    assert [card.title for card in suggested()] == [f"{name} has no known price"]


@pytest.mark.django_db
def test_several_models_without_a_price_are_one_card() -> None:
    names = sorted(ran_without_a_price() for _ in range(5))
    (card,) = suggested()
    assert card.title == "5 models have no known price"
    assert card.detail.startswith(f"{', '.join(names[:3])} and 2 more: ")


def graded(of: Run, *, seed: int, outcome: str, **marks: bool) -> Run:
    run = builders.another_run(of, seed=seed)
    RunFacts.objects.update_or_create(run=run, defaults={"verdict": outcome, "agent_seconds": 3.0, **marks})
    return run


@pytest.mark.django_db
def test_runs_in_which_people_stepped_in_are_left_out_of_rates_and_counted_beside_them() -> None:
    first = builders.run()
    plain = [graded(first, seed=2, outcome="resolved"), graded(first, seed=3, outcome="unresolved")]
    graded(first, seed=4, outcome="resolved", limits_changed=True)
    graded(first, seed=5, outcome="resolved", limits_changed=True, got_message=True)
    graded(first, seed=6, outcome="unresolved", got_message=True)
    graded(first, seed=7, outcome="", got_message=True)
    rate = overview.experiment_counts(first.experiment_id).rate

    assert rate == (1, 2, 2, 1)
    assert rate.beside == "+ 2 with changed limits, + 1 that got a message"
    assert set(Run.objects.comparable()) == {first, *plain}
    latest = overview.latest_experiment()
    assert latest is not None
    assert (latest.arms[0].rate, latest.graded, latest.total) == (rate, 5, 7)
    assert overview.forecasts()[first.arm.model_id].runs == 2


@pytest.mark.django_db
def test_a_run_that_infrastructure_ended_is_named_with_what_happened() -> None:
    run = builders.run()
    builders.start(run)
    broken = "the image lab/none cannot be had: " + "no such host " * 40
    builders.append(
        run,
        AttemptEnded(exit_reason="infrastructure_error", error=broken, steps=0, wall_seconds=1.0),
        RunEnded(exit_reason="infrastructure_error"),
    )
    cards = overview.suggestions(task_set=None)
    card = next(card for card in cards if card.title == f"Run {run.pk} ended by infrastructure")
    assert card.detail.startswith("dst-schedule: the image lab/none cannot be had: no such host no such")
    assert card.detail.endswith("…. Nobody failed; look before launching more.")


@pytest.mark.django_db
def test_an_imported_run_without_an_end_is_not_called_running_while_nobody_follows_it() -> None:
    left, followed, own = (builders.run(status=Run.Status.PAUSED) for _ in range(3))
    Run.objects.filter(pk=followed.pk).update(status=Run.Status.RUNNING)
    experiments = [left.experiment_id, followed.experiment_id]
    Experiment.objects.filter(pk__in=experiments).update(kind=Experiment.Kind.IMPORTED)
    assert {run.pk for run in overview.running()} == {followed.pk, own.pk}
