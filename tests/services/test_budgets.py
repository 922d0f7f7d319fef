from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone

from lab.engine.errors import ExitReason, InvalidValueError
from lab.engine.llm.base import Cost, Usage
from lab.models import Experiment, Run
from lab.services import budgets, experiment_asks, experiment_plans, log, queue
from lab.services.errors import FieldErrors
from lab.services.queue import Claim
from lab.services.upkeep import Upkeep
from tests.services import events as ev
from tests.services.builders import launched, person
from tests.services.work import thousands_of_steps


@pytest.fixture
def experiment(alice: User) -> Experiment:
    return launched(alice, seeds=3)


def limited(experiment: Experiment, **amounts: Any) -> Experiment:
    experiment.budgets = amounts
    experiment.save(update_fields=["budgets"])
    return experiment


def claim() -> Claim:
    found = queue.claim_next(worker="w")
    assert found is not None
    return found


def append(held: Claim, *events: Any) -> None:
    log.append(run_id=held.run.pk, attempt=held.attempt.n, lease_token=held.lease_token, events=events)


def pays(held: Claim, step: int, dollars: str = "1") -> None:
    cost = Cost(amount=Decimal(dollars), basis="table")
    append(held, ev.call_started(step), ev.call_finished(step, cost=cost))


def stands(experiment: Experiment) -> tuple[str, str, str]:
    experiment.refresh_from_db()
    return experiment.state, experiment.paused_by_budget, experiment.paused_because


ACTIVE = (Experiment.State.ACTIVE, "", "")


def test_every_request_of_every_run_counts_and_those_without_a_figure_are_counted(
    experiment: Experiment,
) -> None:
    one, other = claim(), claim()
    append(one, ev.attempt_started())
    pays(one, 1, "0.25")
    append(one, ev.call_started(2), ev.call_failed(2))
    pays(other, 1, "0.5")
    append(other, ev.call_started(2), ev.call_finished(2, usage=Usage(), cost=Cost(amount=None)))
    spent = budgets.spent(experiment)
    assert (spent.usd, spent.usd_unknown) == (Decimal("0.75"), 2)
    assert (spent.tokens, spent.tokens_unknown) == (240, 2)
    assert (spent.said("max_cost_usd"), spent.said("max_tokens")) == ("at least $0.75", "at least 240 tokens")
    assert (spent.reached, spent.budgets) == ("", {})


def test_the_request_that_reaches_a_budget_pauses_the_experiment(experiment: Experiment) -> None:
    limited(experiment, max_cost_usd="2.00")
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1, "1.99")
    assert stands(experiment) == ACTIVE
    assert queue.may_ask(claim=held)
    pays(held, 2, "0.04")
    because = "the budget of $2.00 is reached: $2.03 spent by then"
    assert stands(experiment) == (Experiment.State.PAUSED, "max_cost_usd", because)
    assert not queue.may_ask(claim=held)
    assert queue.claim_next(worker="other") is None


@pytest.mark.parametrize(
    ("name", "amount", "budget", "what"),
    [("max_tokens", 10**6, "1,000,000 tokens", "usage"), ("max_cost_usd", "9", "$9.00", "price")],
)
def test_a_budget_that_cannot_be_kept_since_usage_is_missing_pauses_until_it_is_lifted(
    experiment: Experiment, alice: User, name: str, amount: Any, budget: str, what: str
) -> None:
    limited(experiment, **{name: amount})
    held = claim()
    append(held, ev.attempt_started())
    for step in range(1, 10):
        pays(held, step, "0.01")
    for step in range(10, 31):
        append(held, ev.call_started(step), ev.call_failed(step))
    for step in range(31, 41):
        append(held, ev.call_started(step), ev.call_finished(step, usage=Usage(), cost=Cost(amount=None)))
    assert stands(experiment) == ACTIVE
    append(held, ev.call_started(41), ev.call_finished(41, usage=Usage(), cost=Cost(amount=None)))
    because = f"11 of 20 requests have no {what}: the budget of {budget} cannot be kept"
    assert stands(experiment) == (Experiment.State.PAUSED, name, because)
    with pytest.raises(FieldErrors, match="cannot be kept; lift it, then it goes on"):
        experiment_asks.resume(experiment=experiment, by=alice)
    experiment_asks.change_budgets(experiment=experiment, by=alice, typed={name: None}, goes_on=True)
    append(held, ev.call_started(42), ev.call_finished(42, usage=Usage(), cost=Cost(amount=None)))
    assert stands(experiment) == ACTIVE


def test_a_persons_pause_over_that_of_a_budget_stops_runs_at_their_next_event(
    experiment: Experiment, alice: User
) -> None:
    limited(experiment, max_tokens=1)
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1)
    assert not queue.look(claim=held).let_go
    said = experiment_asks.pause(experiment=experiment, by=alice)
    because = "alice paused it, and the budget of 1 token is reached: 120 tokens used by then"
    assert said == f"The experiment is paused: {because}."
    assert stands(experiment) == (Experiment.State.PAUSED, "", because)
    assert queue.look(claim=held).let_go


def test_requests_that_failed_count_as_well_when_they_cost_something(experiment: Experiment) -> None:
    limited(experiment, max_tokens=100)
    held = claim()
    billed = ev.call_failed(1).model_copy(update={"usage": Usage(input_total=90, output_total=10)})
    append(held, ev.attempt_started(), ev.call_started(1), billed)
    because = "the budget of 100 tokens is reached: 100 tokens used by then"
    assert stands(experiment) == (Experiment.State.PAUSED, "max_tokens", because)


def test_a_run_whose_experiment_a_budget_stops_is_graded_and_nobody_has_failed(
    experiment: Experiment,
) -> None:
    limited(experiment, max_cost_usd="1")
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1)
    assert not queue.look(claim=held).let_go
    append(held, ev.patch_captured(), ev.verification_started(), ev.verification_finished())
    append(held, ev.attempt_ended())
    queue.settle(claim=held, retryable=False, reason=ExitReason.AGENT, verdict="resolved")
    run = Run.objects.select_related("facts").get(pk=held.run.pk)
    assert (run.status, run.exit_reason, run.facts.verdict) == (Run.Status.ENDED, "agent", "resolved")
    assert stands(experiment)[0] == Experiment.State.PAUSED
    others = Run.objects.exclude(pk=run.pk)
    assert set(others.values_list("status", "exit_reason")) == {(Run.Status.QUEUED, "")}


def test_an_experiment_whose_last_run_reaches_the_budget_and_ends_has_ended(alice: User) -> None:
    experiment = limited(launched(alice), max_cost_usd="1")
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1)
    append(held, ev.patch_captured(), ev.attempt_ended())
    queue.settle(claim=held, retryable=False, reason=ExitReason.AGENT, verdict=None)
    assert stands(experiment) == (Experiment.State.ENDED, "", "")


def test_the_run_that_is_handed_back_goes_on_in_the_same_attempt_once_the_budget_is_raised(
    alice: User, experiment: Experiment
) -> None:
    limited(experiment, max_cost_usd="1")
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1)
    queue.hand_back(claim=held)
    assert queue.claim_next(worker="w") is None
    typed = {"max_cost_usd": "5"}
    said = experiment_asks.change_budgets(experiment=experiment, by=alice, typed=typed, goes_on=True)
    assert said == "From now on the experiment has $5.00. The experiment goes on where it stood."
    again = claim()
    assert (again.run, again.attempt.n, again.continues, again.orderly) == (held.run, 1, True, True)


def test_hours_are_counted_from_the_first_run_on_and_stand_while_it_is_paused(
    alice: User, experiment: Experiment
) -> None:
    assert budgets.spent(experiment).seconds == 0
    claim()
    experiment.refresh_from_db()
    just_now = (timezone.now() - dt.timedelta(seconds=20)).isoformat()
    Experiment.objects.update(clock={"seconds": 5400.0, "since": just_now})
    experiment.refresh_from_db()
    assert budgets.spent(experiment).seconds == pytest.approx(5400, abs=60)
    experiment_asks.pause(experiment=experiment, by=alice)
    experiment.refresh_from_db()
    stood = budgets.spent(experiment).seconds
    assert experiment.clock["since"] is None
    assert stood == pytest.approx(5400, abs=60)
    assert budgets.spent(experiment).seconds == stood
    experiment_asks.resume(experiment=experiment, by=alice)
    experiment.refresh_from_db()
    assert budgets.spent(experiment).seconds >= stood
    assert experiment.clock["since"] is not None


def test_the_tick_stops_an_experiment_whose_time_is_used_up(experiment: Experiment) -> None:
    limited(experiment, max_hours=1.5)
    claim()
    upkeep = Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False)
    upkeep.tick()
    assert stands(experiment) == ACTIVE
    Experiment.objects.update(clock={"seconds": 5400.0, "since": None})
    upkeep.tick()
    because = "the budget of 1.5 hours is reached: 1.5 hours worked by then"
    assert stands(experiment) == (Experiment.State.PAUSED, "max_hours", because)


def test_an_experiment_without_a_budget_is_never_added_up(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "spent", lambda experiment: pytest.fail("its runs were added up"))
    held = claim()
    append(held, ev.attempt_started())
    pays(held, 1)
    assert budgets.enforce_all() == []


def test_what_is_spent_costs_as_little_as_one_look_at_the_roll_ups(alice: User) -> None:
    experiment = launched(alice, seeds=50)
    claim()
    assert thousands_of_steps(lambda: budgets.spent(experiment)) < 40


@pytest.mark.parametrize(
    ("name", "typed", "stored"),
    [
        ("max_cost_usd", "10.50", "10.5"),
        ("max_cost_usd", "1,000", "1000"),
        ("max_tokens", "2 000 000", 2_000_000),
        ("max_hours", "1.5", 1.5),
        ("max_hours", "8", 8),
    ],
)
def test_a_budget_is_read_as_people_write_numbers(name: str, typed: str, stored: object) -> None:
    assert budgets.stored(name, budgets.parse(name, typed)) == stored


@pytest.mark.parametrize(
    ("name", "typed", "reason"),
    [
        ("max_cost_usd", "", "is not a number of dollars"),
        ("max_cost_usd", "ten", "is not a number of dollars; write it like 10.50"),
        ("max_tokens", "1.5", "is no whole number of tokens; write 2"),
        ("max_tokens", "-1", "is no number of tokens from 0.000001"),
        ("max_hours", "1e-400", "is no number of hours from 0.000001 to"),
        ("max_cost_usd", "1e-999999999", "is no number of dollars from 0.000001 to"),
        ("max_cost_usd", f"1.{'1' * 40}", "is no number of dollars"),
        ("max_hours", "NaN", "is no number of hours"),
        ("max_hours", "1e99", "is no number of hours"),
        ("max_days", "3", "is no budget; known are max_cost_usd, max_tokens, max_hours"),
    ],
)
def test_what_is_no_budget_is_refused_with_its_reason(name: str, typed: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        budgets.parse(name, typed)


@pytest.mark.parametrize(
    ("name", "amount", "words"),
    [
        ("max_cost_usd", "10", "$10.00"),
        ("max_cost_usd", "1234.567", "$1,234.57"),
        ("max_cost_usd", "0.00042", "$0.00042"),
        ("max_tokens", "1", "1 token"),
        ("max_tokens", "2000000", "2,000,000 tokens"),
        ("max_hours", "1", "1 hour"),
        ("max_hours", "1.25", "1.25 hours"),
        ("max_hours", "0", "0 hours"),
        ("max_hours", "0.5", "30 minutes"),
        ("max_hours", "0.0129", "46.4 seconds"),
    ],
)
def test_amounts_are_said_in_words(name: str, amount: str, words: str) -> None:
    assert budgets.said(name, Decimal(amount)) == words


class TestAtOnce:
    @pytest.fixture
    def alice(self, transactional_db: None) -> Iterator[User]:
        return person()

    def test_of_two_requests_that_end_at_once_and_reach_it_together_none_is_overlooked(
        self, alice: User
    ) -> None:
        experiment = limited(launched(alice, seeds=2), max_cost_usd="10")
        held = [claim(), claim()]
        for one in held:
            append(one, ev.attempt_started())
        start = threading.Barrier(2)
        errors: list[Exception] = []

        def pay(one: Claim) -> None:
            try:
                start.wait()
                pays(one, 1, "5")
            except Exception as error:
                errors.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=pay, args=(one,)) for one in held]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
        assert errors == []
        because = "the budget of $10.00 is reached: $10.00 spent by then"
        assert stands(experiment) == (Experiment.State.PAUSED, "max_cost_usd", because)


def test_a_budget_of_nothing_that_was_kept_is_full_and_breaks_no_page(experiment: Experiment) -> None:
    limited(experiment, max_hours=0.0, max_cost_usd="0")
    lines = budgets.lines(budgets.spent(experiment))
    assert [line.percent for line in lines] == [100, None, 100]
    assert "budgets" not in experiment_plans.of(experiment).as_data()


def test_the_time_while_the_lab_is_off_is_not_the_experiments(experiment: Experiment) -> None:
    limited(experiment, max_hours=12)
    claim()
    long_ago = (timezone.now() - dt.timedelta(hours=48)).isoformat()
    Experiment.objects.update(clock={"seconds": 100.0, "since": long_ago})
    assert budgets.enforce_all() == []
    assert stands(experiment) == ACTIVE
    assert experiment.clock["seconds"] == pytest.approx(160.0, abs=0.1)
    recently = (timezone.now() - dt.timedelta(seconds=30)).isoformat()
    Experiment.objects.update(clock={"seconds": 100.0, "since": recently})
    budgets.enforce_all()
    experiment.refresh_from_db()
    assert 130.0 <= experiment.clock["seconds"] < 160.0
