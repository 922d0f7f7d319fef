"""Whole experiments are stopped while real attempts of them go on: by a budget, and by a person."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.models import Endpoint, Event, Experiment, Model, PriceCard, Run
from lab.services import budgets, controls, endpoints, experiment_asks, isolation, queue
from lab.services.queue import Claim
from lab.worker.execution import Execution
from tests.fakes.openai_server import FakeOpenAI, delta, says, stream, usage_chunk
from tests.services.builders import launched
from tests.timing import SOON

# Costs two dollars by the card of `priced`, and is tried again.
BILLED = stream(
    delta(content="half"),
    delta(finish="abort"),
    usage_chunk(prompt_tokens=1000, completion_tokens=1000, total_tokens=2000),
)


@pytest.fixture(autouse=True)
def _plain_processes(settings: Settings) -> None:
    settings.LAB_SANDBOX = "process"
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    isolation.look_again()


@pytest.fixture
def bills() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(BILLED) as server:
        yield server


def priced(server: FakeOpenAI) -> Model:
    endpoint = Endpoint.objects.create(name="server", base_url=server.base_url)
    PriceCard.objects.create(
        endpoint=endpoint,
        model_id="m",
        basis="card",
        rates={"input": "1000", "output": "1000"},
        valid_from=timezone.now() - dt.timedelta(days=1),
    )
    return Model.objects.create(endpoint=endpoint, name="m", model_id="m", price_basis="card")


def limited(experiment: Experiment, **amounts: Any) -> Experiment:
    experiment.budgets = amounts
    experiment.save(update_fields=["budgets"])
    return experiment


def claimed() -> Claim:
    found = queue.claim_next(worker="w")
    assert found is not None
    return found


def at_work(*claims: Claim) -> list[threading.Thread]:
    """Each claim is run on a thread of its own, as by a worker child."""

    def work(one: Claim) -> None:
        try:
            Execution(one).run()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(one,)) for one in claims]
    for thread in threads:
        thread.start()
    return threads


def end(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive()


def kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).order_by("seq").values_list("kind", flat=True))


def eventually(is_true: Callable[[], bool], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, f"it did not come true: {[kinds(run) for run in Run.objects.all()]}"
        time.sleep(0.02)


def now(experiment: Experiment) -> Experiment:
    return Experiment.objects.get(pk=experiment.pk)


def no_sandbox_is_left(settings: Settings) -> bool:
    return not any(Path(str(settings.LAB_DATA_DIR)).joinpath("sandboxes").glob("*"))


def test_a_server_that_bills_failed_tries_is_not_asked_once_the_budget_is_spent_until_it_is_raised(
    alice: User, bills: FakeOpenAI, settings: Settings
) -> None:
    experiment = limited(launched(alice, models=[priced(bills)], seeds=3), max_cost_usd="5")
    end(at_work(claimed(), claimed()))
    stopped = now(experiment)
    assert (stopped.state, stopped.paused_by_budget) == (Experiment.State.PAUSED, "max_cost_usd")
    # Three requests reach it; of the two runs one may have another in flight.
    assert len(bills.calls) in (3, 4)
    spent = budgets.spent(stopped)
    assert spent.usd == Decimal(2) * len(bills.calls)
    assert set(Run.objects.values_list("status", "exit_reason")) == {(Run.Status.QUEUED, "")}
    assert queue.claim_next(worker="w") is None
    assert no_sandbox_is_left(settings)

    bills.answers = [says("there is nothing to mend", prompt=100, completion=10)]
    experiment_asks.change_budgets(
        experiment=experiment, by=alice, typed={"max_cost_usd": "50"}, goes_on=True
    )
    for _ in range(3):
        end(at_work(claimed()))
    assert set(Run.objects.values_list("status", "exit_reason")) == {(Run.Status.ENDED, "agent")}
    assert now(experiment).state == Experiment.State.ENDED
    began = [kinds(run) for run in Run.objects.order_by("pk") if "attempt_continued" in kinds(run)]
    assert len(began) == 2
    assert all(one.count("attempt_started") == 1 and "model_call_interrupted" not in one for one in began)


def test_a_budget_that_the_first_request_exceeds_costs_one_request(alice: User, bills: FakeOpenAI) -> None:
    experiment = limited(launched(alice, models=[priced(bills)]), max_cost_usd="0.10")
    end(at_work(claimed()))
    assert len(bills.calls) == 1
    assert now(experiment).paused_because == "the budget of $0.10 is reached: $2.00 spent by then"


def test_the_request_that_reaches_the_budget_is_the_agents_last_one_and_its_work_is_graded(
    alice: User, bills: FakeOpenAI
) -> None:
    bills.answers = [says("it is fine as it is", prompt=1000, completion=1000)]
    experiment = limited(launched(alice, models=[priced(bills)], seeds=2), max_cost_usd="1")
    end(at_work(claimed()))
    assert now(experiment).state == Experiment.State.PAUSED
    ended = Run.objects.select_related("facts").get(status=Run.Status.ENDED)
    assert (ended.exit_reason, ended.facts.verdict) == ("agent", "unresolved")
    assert Run.objects.filter(status=Run.Status.QUEUED, exit_reason="").count() == 1


def test_a_budget_that_is_given_while_runs_go_on_holds_for_them(claim: Claim, settings: Settings) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.05
    threads = at_work(claim)
    eventually(lambda: kinds(claim.run).count("model_call_finished") >= 1)
    limited(now(claim.run.experiment), max_tokens=1)
    end(threads)
    assert now(claim.run.experiment).paused_by_budget == "max_tokens"
    assert (Run.objects.get().status, Run.objects.get().exit_reason) == (Run.Status.QUEUED, "")


def test_a_paused_experiments_run_ends_its_request_gives_back_its_place_and_goes_on_where_it_was(
    alice: User, claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.2
    threads = at_work(claim)
    eventually(lambda: "model_call_started" in kinds(claim.run))
    experiment_asks.pause(experiment=claim.run.experiment, by=alice)
    end(threads)
    assert (Run.objects.get().status, queue.claim_next(worker="w")) == (Run.Status.QUEUED, None)
    assert not Run.objects.holding_slots().exists()
    assert no_sandbox_is_left(settings)
    experiment_asks.resume(experiment=claim.run.experiment, by=alice)
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    again = queue.claim_next(worker="other")
    assert again is not None
    assert (again.attempt, again.orderly) == (claim.attempt, True)
    end(at_work(again))
    run = Run.objects.select_related("facts").get()
    assert (run.facts.verdict, kinds(run).count("attempt_continued")) == ("resolved", 1)
    assert "model_call_interrupted" not in kinds(run)
    assert "tool_call_interrupted" not in kinds(run)
    assert now(claim.run.experiment).state == Experiment.State.ENDED


def test_a_run_that_a_person_paused_gives_back_its_place_once_its_experiment_stands(
    alice: User, claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.1
    threads = at_work(claim)
    eventually(lambda: "model_call_started" in kinds(claim.run))
    controls.ask(run=claim.run, by=alice, control="pause")
    eventually(lambda: "paused" in kinds(claim.run))
    limited(now(claim.run.experiment), max_tokens=1)
    budgets.enforce_all()
    end(threads)
    assert Run.objects.get().status == Run.Status.PAUSED
    assert not Run.objects.holding_slots().exists()


def test_a_cancel_is_heard_while_a_paused_experiments_request_is_in_flight(
    alice: User, claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 30.0
    threads = at_work(claim)
    eventually(lambda: "model_call_started" in kinds(claim.run))
    experiment_asks.pause(experiment=claim.run.experiment, by=alice)
    time.sleep(1.5)
    asked = time.monotonic()
    experiment_asks.cancel(experiment=claim.run.experiment, by=alice)
    end(threads)
    assert time.monotonic() - asked < SOON
    run = Run.objects.get()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
    assert "patch_captured" in kinds(run)
    assert now(claim.run.experiment).state == Experiment.State.CANCELLED
    assert no_sandbox_is_left(settings)


def test_a_run_that_is_cancelled_while_a_paused_experiment_lets_it_go_keeps_its_patch(
    alice: User, claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 30.0
    threads = at_work(claim)
    eventually(lambda: "model_call_started" in kinds(claim.run))
    experiment_asks.pause(experiment=claim.run.experiment, by=alice)
    time.sleep(1.5)
    controls.ask(run=claim.run, by=alice, control="cancel")
    end(threads)
    run = Run.objects.get()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
    assert "patch_captured" in kinds(run)
    assert no_sandbox_is_left(settings)


def test_a_worker_that_is_killed_while_its_experiment_is_being_paused_costs_nothing_but_its_request(
    alice: User, claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 30.0
    execution = Execution(claim)
    thread = threading.Thread(target=execution.run)
    thread.start()
    eventually(lambda: "model_call_started" in kinds(claim.run))
    experiment_asks.pause(experiment=claim.run.experiment, by=alice)
    time.sleep(1.5)
    execution.hand_over(orderly=False)
    thread.join(150)
    queue.settle_abandoned()
    assert (Run.objects.get().status, queue.claim_next(worker="w")) == (Run.Status.QUEUED, None)
    experiment_asks.resume(experiment=claim.run.experiment, by=alice)
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    again = queue.claim_next(worker="other")
    assert again is not None
    end(at_work(again))
    run = Run.objects.select_related("facts").get()
    assert (run.facts.verdict, kinds(run).count("model_call_interrupted")) == ("resolved", 1)


def test_scripted_models_report_the_tokens_that_a_budget_counts(alice: User, claim: Claim) -> None:
    Execution(claim).run()
    assert budgets.spent(claim.run.experiment).tokens > 0
    assert endpoints.price_is_known(claim.run.arm.model)
