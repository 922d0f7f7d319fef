from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction

from lab.engine.errors import ExitReason
from lab.models import (
    Control,
    Endpoint,
    Event,
    Experiment,
    Harness,
    HarnessVersion,
    Model,
    Preflight,
    Role,
    Run,
)
from lab.services import budgets, controls, endpoints, experiment_asks, harnesses, log, queue
from lab.services.errors import AccessDeniedError, FieldErrors
from lab.services.queue import Claim
from lab.services.upkeep import Upkeep
from tests.services import events as ev
from tests.services.builders import launched, person

State = Experiment.State


@pytest.fixture
def experiment(alice: User) -> Experiment:
    return launched(alice, runs_wanted=2, seeds=2)


def claim() -> Claim:
    found = queue.claim_next(worker="w")
    assert found is not None
    return found


def append(held: Claim, *events: Any) -> None:
    log.append(run_id=held.run.pk, attempt=held.attempt.n, lease_token=held.lease_token, events=events)


def ends(reason: ExitReason = ExitReason.AGENT, *, retryable: bool = False) -> Run:
    """The next run that may start is claimed and ends so."""
    held = claim()
    append(held, ev.attempt_started(), ev.attempt_ended(reason.value, retryable=retryable))
    queue.settle(claim=held, retryable=retryable, reason=reason, verdict=None)
    return Run.objects.get(pk=held.run.pk)


def all_end(reason: ExitReason = ExitReason.AGENT) -> None:
    while Run.objects.filter(status=Run.Status.QUEUED).exists():
        ends(reason)


def state(experiment: Experiment) -> str:
    experiment.refresh_from_db()
    return experiment.state


def statuses(experiment: Experiment) -> list[str]:
    return list(experiment.runs.order_by("position", "pk").values_list("status", flat=True))


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(FieldErrors) as caught:
        act()
    return str(caught.value)


class TestPause:
    def test_nothing_starts_while_it_is_paused_and_everything_goes_on_afterwards(
        self, alice: User, experiment: Experiment
    ) -> None:
        held = claim()
        said = experiment_asks.pause(experiment=experiment, by=alice)
        assert said.startswith("The experiment is paused")
        assert queue.look(claim=held).let_go
        assert queue.hand_back(claim=held)
        assert (queue.claim_next(worker="w"), queue.startable_runs()) == (None, 0)
        assert statuses(experiment) == ["queued"] * 4
        assert (
            experiment_asks.resume(experiment=experiment, by=alice)
            == "The experiment goes on where it stood."
        )
        again = claim()
        assert (again.run, again.attempt, again.continues) == (held.run, held.attempt, True)
        assert (Run.objects.exclude(exit_reason="").count(), Control.objects.count()) == (0, 0)

    def test_pausing_twice_says_who_was_first_and_changes_nothing(
        self, alice: User, experiment: Experiment
    ) -> None:
        experiment_asks.pause(experiment=experiment, by=alice)
        other = person(Role.OPERATOR, "olga")
        said = experiment_asks.pause(experiment=experiment, by=other)
        assert said == "The experiment is paused already: alice paused it."
        experiment_asks.resume(experiment=experiment, by=other)
        assert experiment_asks.resume(experiment=experiment, by=other) == "The experiment goes on already."

    def test_a_run_that_is_paused_itself_stays_so_without_a_worker(
        self, alice: User, experiment: Experiment
    ) -> None:
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started())
        controls.ask(run=held.run, by=alice, control="pause")
        experiment_asks.pause(experiment=experiment, by=alice)
        queue.hand_back(claim=held)
        assert Run.objects.get(pk=held.run.pk).status == Run.Status.PAUSED
        assert not Run.objects.holding_slots().exists()
        experiment_asks.resume(experiment=experiment, by=alice)
        assert Run.objects.get(pk=held.run.pk).status == Run.Status.PAUSED

    def test_a_run_that_is_resumed_meanwhile_is_told_what_it_waits_for(
        self, alice: User, experiment: Experiment
    ) -> None:
        run = experiment.runs.order_by("position").first()
        assert run is not None
        controls.ask(run=run, by=alice, control="pause")
        experiment_asks.pause(experiment=experiment, by=alice)
        said = controls.ask(run=run, by=alice, control="resume").said
        assert said == f"Run {run.pk} goes on once its experiment does, which is paused: alice paused it."
        assert queue.claim_next(worker="w") is None

    def test_one_whose_budget_is_used_up_is_not_resumed(self, alice: User, experiment: Experiment) -> None:
        Experiment.objects.update(budgets={"max_hours": 1}, clock={"seconds": 4000.0, "since": None})
        assert budgets.enforce(experiment_id=experiment.pk)
        why = refusal(lambda: experiment_asks.resume(experiment=experiment, by=alice))
        because = "the budget of 1 hour is reached: 1.11 hours worked by then"
        assert why == f"experiment: {because}; raise or lift it, then it goes on"
        assert state(experiment) == State.PAUSED

    def test_one_that_has_ended_cannot_be_paused(self, alice: User, experiment: Experiment) -> None:
        all_end()
        why = refusal(lambda: experiment_asks.pause(experiment=experiment, by=alice))
        assert "all its runs have ended, and it cannot be paused" in why


class TestCancel:
    def test_every_run_that_has_not_ended_is_cancelled_and_the_experiment_stays_cancelled(
        self, alice: User, experiment: Experiment
    ) -> None:
        done, held = ends(), claim()
        said = experiment_asks.cancel(experiment=experiment, by=alice, expected=3)
        assert said == "3 runs are being cancelled."
        assert queue.claim_next(worker="w") is None
        assert sorted(statuses(experiment)) == ["ended", "ended", "ended", "preparing"]
        assert Run.objects.get(pk=held.run.pk).cancel_asked
        append(held, ev.attempt_started(), ev.attempt_ended("cancelled"))
        queue.settle(claim=held, retryable=False, reason=ExitReason.CANCELLED, verdict=None)
        assert (state(experiment), experiment.ended_at is not None) == (State.CANCELLED, True)
        reasons = dict(experiment.runs.values_list("pk", "exit_reason"))
        assert reasons.pop(done.pk) == "agent"
        assert set(reasons.values()) == {"cancelled"}
        again = experiment_asks.cancel(experiment=experiment, by=alice)
        assert again == "The experiment is cancelled already."

    def test_more_runs_than_were_shown_are_asked_about_again(
        self, alice: User, experiment: Experiment
    ) -> None:
        why = refusal(lambda: experiment_asks.cancel(experiment=experiment, by=alice, expected=3))
        assert why == "expected: it was 3, and by now 4 runs would be cancelled; confirm it again"
        assert state(experiment) == State.ACTIVE

    def test_what_takes_longer_than_anybody_waits_is_done_by_the_tick(
        self, alice: User, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(experiment_asks, "_CHUNK", 1)
        monkeypatch.setattr(experiment_asks, "_CANCEL_SECONDS", -1.0)
        experiment_asks.cancel(experiment=experiment, by=alice)
        assert "queued" in statuses(experiment)
        assert queue.claim_next(worker="w") is None
        Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False).tick()
        assert statuses(experiment) == ["ended"] * 4
        assert set(Control.objects.values_list("kind", "asked_by__username")) == {("cancel", "alice")}
        assert Control.objects.count() == 4
        assert Event.objects.filter(kind="run_ended").count() == 4

    def test_one_that_has_ended_has_nothing_to_cancel(self, alice: User, experiment: Experiment) -> None:
        all_end()
        assert "nothing to cancel" in refusal(lambda: experiment_asks.cancel(experiment=experiment, by=alice))
        assert state(experiment) == State.ENDED


class TestMore:
    def test_seeds_are_added_to_every_task_and_arm_once_however_often_it_is_asked(
        self, alice: User, experiment: Experiment
    ) -> None:
        assert experiment_asks.add_seeds(experiment=experiment, by=alice, seeds="3") == "2 runs are queued."
        said = experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=3)
        assert said == "The experiment has 3 seeds already."
        cells = experiment.runs.values_list("task_id", "seed")
        assert (len(cells), len(set(cells))) == (6, 6)
        positions = experiment.runs.order_by("position").values_list("position", "seed")
        assert [position for position, _ in positions] == list(range(6))
        assert [seed for _, seed in positions][-2:] == [3, 3]

    def test_seeds_that_are_missing_below_are_queued_as_well(self, alice: User) -> None:
        experiment = launched(alice)
        experiment.runs.update(seed=3)
        assert experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=4) == "3 runs are queued."
        assert sorted(experiment.runs.values_list("seed", flat=True)) == [1, 2, 3, 4]
        experiment.runs.filter(seed=2).update(seed=5)
        assert experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=5) == "1 run is queued."

    def test_an_experiment_that_has_ended_goes_on_with_more_seeds(
        self, alice: User, experiment: Experiment
    ) -> None:
        all_end()
        assert state(experiment) == State.ENDED
        experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=3)
        assert (state(experiment), experiment.ended_at) == (State.ACTIVE, None)
        assert claim().run.seed == 3

    def test_more_seeds_wait_where_a_budget_is_used_up(self, alice: User, experiment: Experiment) -> None:
        all_end()
        Experiment.objects.update(budgets={"max_hours": 1}, clock={"seconds": 3600.0, "since": None})
        said = experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=3)
        because = "the budget of 1 hour is reached: 1 hour worked by then"
        assert said == f"2 runs are queued. Nothing starts yet: {because}."
        assert (state(experiment), queue.claim_next(worker="w")) == (State.PAUSED, None)

    @pytest.mark.parametrize(
        ("seeds", "reason"),
        [
            ("1", "is less than seed 2, which is there"),
            ("", "is no whole number from 2 to 100; write 3"),
            ("three", "is no whole number"),
            ("101", "is out of range: seeds go from 2 to 100; write 3"),
            ("9" * 5000, "is out of range"),
        ],
    )
    def test_what_is_no_number_of_seeds_is_refused(
        self, alice: User, experiment: Experiment, seeds: str, reason: str
    ) -> None:
        assert reason in refusal(
            lambda: experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=seeds)
        )
        assert experiment.runs.count() == 4

    def test_a_model_that_was_retired_since_gets_no_more_seeds(
        self, alice: User, experiment: Experiment
    ) -> None:
        Model.objects.update(retired=True)
        why = refusal(lambda: experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=3))
        assert "is retired; choose its newer version or another model" in why

    def test_an_arm_is_added_with_every_cell_the_others_have_and_only_once(
        self, alice: User, experiment: Experiment
    ) -> None:
        version, model = harnesses.sync_presets()[1], endpoints.sync_scripted()[1]
        asked = {"experiment": experiment, "by": alice, "harness_version": version, "model": model}
        said = experiment_asks.add_arm(**asked, limits={"max_steps": "7"})
        assert said == "Arm B: 4 runs are queued."
        arm = experiment.arms.get(letter="B")
        assert (arm.harness_version, arm.model, arm.limits["max_steps"]) == (version, model, 7)
        first = experiment.runs.filter(arm__letter="A").order_by("position")
        added = experiment.runs.filter(arm=arm).order_by("position")
        cells = [[(run.seed, run.task_id) for run in runs] for runs in (first, added)]
        assert cells[0] == cells[1]
        said = experiment_asks.add_arm(**asked, limits={"max_steps": "7"})
        assert said == "That is arm B already; choose another harness, model or limit."
        assert experiment.runs.count() == 8
        assert experiment_asks.add_seeds(experiment=experiment, by=alice, seeds=3) == "4 runs are queued."

    def test_an_arm_with_a_wider_limit_than_the_harness_allows_is_refused(
        self, alice: User, experiment: Experiment
    ) -> None:
        arm = experiment_asks.arms_of(experiment)[0]
        why = refusal(
            lambda: experiment_asks.add_arm(
                **{"experiment": experiment, "by": alice, "model": arm.model},
                harness_version=arm.harness_version,
                limits={"max_steps": "100000"},
            )
        )
        assert "max_steps" in why
        assert experiment.arms.count() == 1

    def test_a_failing_preflight_is_confirmed_before_an_arm_is_added(
        self, alice: User, experiment: Experiment
    ) -> None:
        model = endpoints.sync_scripted()[1]
        failing = Preflight.objects.create(
            model=model, state=Preflight.State.ENDED, outcome=Preflight.Outcome.FAILING, findings=[]
        )
        version = experiment_asks.arms_of(experiment)[0].harness_version
        asked = {"experiment": experiment, "by": alice, "harness_version": version, "model": model}
        assert "is failing" in refusal(lambda: experiment_asks.add_arm(**asked))
        experiment_asks.add_arm(**asked, despite=[failing.pk])
        experiment.refresh_from_db()
        assert experiment.launched_despite == [failing.pk]

    @pytest.mark.parametrize("digest", [None, "d"])
    def test_a_harness_of_which_nobody_recorded_what_it_is_is_refused(
        self, alice: User, experiment: Experiment, digest: str | None
    ) -> None:
        harness = Harness.objects.create(name="recorded-elsewhere", family="leaf")
        version = HarnessVersion.objects.create(harness=harness, version=1, digest=digest, config={})
        model = experiment.arms.get().model
        asked = {"experiment": experiment, "by": alice, "harness_version": version, "model": model}
        assert "was not recorded; choose another harness" in refusal(lambda: experiment_asks.add_arm(**asked))
        assert experiment.arms.count() == 1


def test_cancelling_what_is_being_cancelled_says_so(alice: User) -> None:
    experiment = launched(alice)
    held = claim()
    append(held, ev.attempt_started())
    controls.ask(run=held.run, by=alice, control="cancel")
    said = experiment_asks.cancel(experiment=experiment, by=alice)
    assert said == "1 run is being cancelled already."


class TestRerun:
    def test_each_run_that_infrastructure_ended_gets_another_attempt(
        self, alice: User, experiment: Experiment
    ) -> None:
        fine, broken = ends(), [ends(ExitReason.TOOL_ERROR) for _ in range(2)]
        said = experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        assert said == "2 runs are queued for another attempt."
        assert {Run.objects.get(pk=run.pk).status for run in broken} == {Run.Status.QUEUED}
        assert Run.objects.get(pk=fine.pk).status == Run.Status.ENDED
        again = experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        assert again == "No run of the experiment was ended by infrastructure."

    def test_it_takes_a_bounded_time_and_says_how_many_are_left(
        self, alice: User, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        all_end(ExitReason.TOOL_ERROR)
        monkeypatch.setattr(experiment_asks, "_RERUN_SECONDS", -1.0)
        said = experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        assert said == "1 run is queued for another attempt. 3 are left: ask again."
        assert statuses(experiment).count("queued") == 1

    def test_an_experiment_that_has_ended_goes_on_with_them(
        self, alice: User, experiment: Experiment
    ) -> None:
        all_end(ExitReason.TOOL_ERROR)
        assert (state(experiment), experiment_asks.asks_of(experiment).rerun) == (State.ENDED, 4)
        experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        assert (state(experiment), claim().attempt.n) == (State.ACTIVE, 2)

    def test_they_wait_while_it_is_paused(self, alice: User, experiment: Experiment) -> None:
        ends(ExitReason.TOOL_ERROR)
        experiment_asks.pause(experiment=experiment, by=alice)
        said = experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        assert said == "1 run is queued for another attempt. Nothing starts yet: alice paused it."

    @pytest.mark.parametrize(("attempts", "follows"), [(1, False), (2, True)])
    def test_how_often_infrastructure_is_tried_again_is_the_experiments_own_number(
        self, experiment: Experiment, attempts: int, follows: bool
    ) -> None:
        Experiment.objects.update(max_attempts=attempts)
        run = ends(ExitReason.TOOL_ERROR, retryable=True)
        assert (run.status == Run.Status.QUEUED) == follows


class TestBudget:
    def test_budgets_are_raised_lowered_and_lifted_by_what_was_typed(
        self, alice: User, experiment: Experiment
    ) -> None:
        ask = experiment_asks.raise_budget
        said = ask(experiment=experiment, by=alice, name="max_tokens", typed="2,000,000")
        assert said == "From now on the experiment has 2,000,000 tokens."
        ask(experiment=experiment, by=alice, name="max_hours", typed="8")
        experiment.refresh_from_db()
        assert experiment.budgets == {"max_tokens": 2_000_000, "max_hours": 8}
        said = ask(experiment=experiment, by=alice, name="max_tokens", typed="2000000")
        assert said == "The budgets are that already."
        said = ask(experiment=experiment, by=alice, name="max_hours", typed=None)
        assert said == "From now on the experiment has no budget for time."
        experiment.refresh_from_db()
        assert experiment.budgets == {"max_tokens": 2_000_000}

    def test_a_budget_is_not_set_below_what_is_used_and_then_none_is(
        self, alice: User, experiment: Experiment
    ) -> None:
        held = claim()
        append(held, ev.attempt_started(), ev.call_started(1), ev.call_finished(1))
        typed = {"max_tokens": "120", "max_hours": "8"}
        why = refusal(lambda: experiment_asks.change_budgets(experiment=experiment, by=alice, typed=typed))
        assert "is not above the 120 tokens that it has used already; write more" in why
        experiment.refresh_from_db()
        assert experiment.budgets == {}

    def test_dollars_do_not_limit_what_has_no_price(self, alice: User) -> None:
        endpoint = Endpoint.objects.create(name="server", base_url="http://127.0.0.1:9/v1")
        priceless = Model.objects.create(endpoint=endpoint, name="priceless", model_id="m")
        experiment = launched(alice, models=[priceless])
        why = refusal(
            lambda: experiment_asks.raise_budget(
                experiment=experiment, by=alice, name="max_cost_usd", typed="5"
            )
        )
        assert "cannot hold: the price of no model of its arms is known; limit tokens or hours" in why

    def test_dollars_limit_the_arms_with_a_price_and_the_others_are_named(self, alice: User) -> None:
        endpoint = Endpoint.objects.create(name="server", base_url="http://127.0.0.1:9/v1")
        priceless = Model.objects.create(endpoint=endpoint, name="priceless", model_id="m")
        mixed = launched(alice, models=[endpoints.sync_scripted()[0], priceless])
        uncounted = "The price of priceless is unknown: what its requests cost is not counted in dollars."
        said = experiment_asks.raise_budget(experiment=mixed, by=alice, name="max_cost_usd", typed="5")
        assert said.endswith(uncounted)
        plain = launched(alice)
        Experiment.objects.filter(pk=plain.pk).update(budgets={"max_cost_usd": "1"})
        arm = plain.arms.get()
        said = experiment_asks.add_arm(
            experiment=plain,
            by=alice,
            harness_version=arm.harness_version,
            model=priceless,
            limits={"max_cost_usd": None},
        )
        assert said.endswith(uncounted)

    def test_a_budget_in_dollars_that_is_there_can_be_raised_whatever_is_known_of_prices(
        self, alice: User
    ) -> None:
        endpoint = Endpoint.objects.create(name="server", base_url="http://127.0.0.1:9/v1")
        priceless = Model.objects.create(endpoint=endpoint, name="priceless", model_id="m")
        experiment = launched(alice, models=[priceless])
        Experiment.objects.update(budgets={"max_cost_usd": "1"})
        experiment_asks.raise_budget(experiment=experiment, by=alice, name="max_cost_usd", typed="5")
        experiment.refresh_from_db()
        assert experiment.budgets == {"max_cost_usd": "5"}

    def test_raising_one_of_two_that_are_used_up_does_not_let_it_go_on(
        self, alice: User, experiment: Experiment
    ) -> None:
        held = claim()
        Experiment.objects.update(budgets={"max_tokens": 100, "max_hours": 1})
        append(held, ev.attempt_started(), ev.call_started(1), ev.call_finished(1))
        Experiment.objects.update(clock={"seconds": 3600.0, "since": None})
        why = refusal(
            lambda: experiment_asks.change_budgets(
                experiment=experiment, by=alice, typed={"max_tokens": "500"}, goes_on=True
            )
        )
        assert why.startswith("max_hours: the budget of 1 hour is reached")
        assert state(experiment) == State.PAUSED
        assert experiment.budgets == {"max_tokens": 100, "max_hours": 1}

    def test_how_many_go_on_at_once_is_changed_and_lifted(self, alice: User, experiment: Experiment) -> None:
        experiment_asks.change_concurrency(experiment=experiment, by=alice, typed="1")
        claim()
        assert queue.claim_next(worker="w") is None
        experiment_asks.change_concurrency(experiment=experiment, by=alice, typed=None)
        claim()
        why = refusal(lambda: experiment_asks.change_concurrency(experiment=experiment, by=alice, typed="0"))
        assert "concurrency: '0' is no whole number from 1 to 1,000" in why


@pytest.mark.django_db(transaction=True)
def test_rerunning_all_and_asking_one_for_another_attempt_at_once_wait_for_each_other_in_one_order() -> None:
    alice = person(Role.ADMIN, "alice")
    experiment = launched(alice, seeds=3)
    all_end(ExitReason.TOOL_ERROR)
    second = experiment.runs.order_by("position")[1]
    held, said = threading.Event(), dict[str, str]()

    def rerun() -> None:
        held.wait(30)
        try:
            said["all"] = experiment_asks.rerun_infrastructure(experiment=experiment, by=alice)
        finally:
            connections.close_all()

    def ask_one() -> None:
        try:
            with transaction.atomic():
                run = Run.objects.locked().get(pk=second.pk)
                held.set()
                time.sleep(1.0)
                said["one"] = controls.ask(run=run, by=alice, control="attempt").said
        finally:
            connections.close_all()

    threads = [threading.Thread(target=act) for act in (rerun, ask_one)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said["one"].endswith("is queued for another attempt.")
    assert said["all"] == "2 runs are queued for another attempt."
    assert statuses(experiment) == ["queued"] * 3


ASKS: dict[str, Callable[[Experiment, User], str]] = {
    "pause": lambda one, by: experiment_asks.pause(experiment=one, by=by),
    "resume": lambda one, by: experiment_asks.resume(experiment=one, by=by),
    "cancel": lambda one, by: experiment_asks.cancel(experiment=one, by=by),
    "seeds": lambda one, by: experiment_asks.add_seeds(experiment=one, by=by, seeds=9),
    "rerun": lambda one, by: experiment_asks.rerun_infrastructure(experiment=one, by=by),
    "budget": lambda one, by: experiment_asks.raise_budget(
        experiment=one, by=by, name="max_hours", typed="1"
    ),
    "concurrency": lambda one, by: experiment_asks.change_concurrency(experiment=one, by=by, typed="1"),
}


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("kind", [Experiment.Kind.IMPORTED, Experiment.Kind.DEMO])
def test_nothing_is_asked_of_what_is_not_run_here(
    alice: User, experiment: Experiment, name: str, kind: str
) -> None:
    Experiment.objects.update(kind=kind)
    words = "it was imported" if kind == Experiment.Kind.IMPORTED else "it is a recorded demo"
    assert words in refusal(lambda: ASKS[name](experiment, alice))
    experiment.refresh_from_db()
    assert (experiment.state, experiment.budgets, experiment.concurrency) == (State.ACTIVE, {}, None)
    assert experiment_asks.asks_of(experiment) == experiment_asks.Asks()


@pytest.mark.parametrize("name", ASKS)
def test_nobody_below_an_operator_asks_anything(experiment: Experiment, bob: User, name: str) -> None:
    with pytest.raises(AccessDeniedError):
        ASKS[name](experiment, bob)


def test_while_its_runs_are_being_cancelled_nothing_else_can_be_asked(
    alice: User, experiment: Experiment
) -> None:
    held = claim()
    experiment_asks.cancel(experiment=experiment, by=alice)
    for name in ("pause", "resume", "seeds", "rerun", "budget", "concurrency"):
        assert "cancelled" in refusal(lambda name=name: ASKS[name](experiment, alice)), name
    assert experiment_asks.asks_of(Experiment.objects.get()).cancelling
    append(held, ev.attempt_started(), ev.attempt_ended("cancelled"))
    queue.settle(claim=held, retryable=False, reason=ExitReason.CANCELLED, verdict=None)
    ASKS["seeds"](experiment, alice)
    assert state(experiment) == State.ACTIVE
