"""What people ask of one run, asked through the one service function for pages and programs."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from lab.engine.events import AttemptEnded, LimitChanged, PatchCaptured, RunEnded
from lab.models import Arm, Control, Event, Experiment, Model, Role, Run
from lab.services import controls, log, queue
from lab.services.controls import ask
from lab.services.errors import AccessDeniedError, FieldErrors
from lab.services.queue import Claim
from lab.services.run_asks import Actions, asks_of
from tests.services import events
from tests.services.builders import launched, person


@pytest.fixture
def oscar(db: None) -> User:
    return person(Role.OPERATOR, "oscar")


@pytest.fixture
def run(alice: User) -> Run:
    """A queued run."""
    return launched(alice).runs.get()


@pytest.fixture
def held(run: Run) -> Claim:
    """A run that a worker holds, in its third step."""
    claim = queue.claim_next(worker="host/1/1")
    assert claim is not None
    write(claim, events.attempt_started(), events.sandbox_started())
    for step in (1, 2, 3):
        write(claim, events.call_started(step), events.call_finished(step))
    return claim


def write(claim: Claim, *written: Any) -> None:
    log.append(
        run_id=claim.run.pk, attempt=claim.attempt.n, lease_token=claim.lease_token, events=list(written)
    )


def asked_events(run: Run) -> list[tuple[str, str, int]]:
    """Control, person and number of every `control_asked`."""
    rows = Event.objects.filter(run=run, kind="control_asked").order_by("seq")
    return [(row.payload["control"], row.payload["person"], row.payload["ask"]) for row in rows]


def kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).order_by("seq").values_list("kind", flat=True))


def refused(run: Run, by: User, control: str, value: Any = None) -> dict[str, str]:
    """The field errors of an ask, after which nothing is different."""
    before = (Control.objects.count(), Event.objects.count(), Run.objects.values_list().get(pk=run.pk))
    with pytest.raises(FieldErrors) as error:
        ask(run=run, by=by, control=control, value=value)
    after = (Control.objects.count(), Event.objects.count(), Run.objects.values_list().get(pk=run.pk))
    assert after == before
    return error.value.errors


def end(claim: Claim, reason: str = "agent", *, verdict: str | None = "resolved") -> None:
    """The worker ends attempt and run."""
    ended = AttemptEnded(exit_reason=reason, steps=3, wall_seconds=9.0, agent_seconds=8.0)
    write(claim, ended)
    log.append(
        run_id=claim.run.pk,
        attempt=1,
        lease_token=None,
        events=[RunEnded(exit_reason=reason, verdict=verdict)],
    )


# ---- who may ask, and what ---------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["pause", "resume", "cancel", "limit", "message", "attempt", "again"])
def test_somebody_who_is_no_operator_may_ask_nothing(run: Run, bob: User, control: str) -> None:
    with pytest.raises(AccessDeniedError, match="needs the role operator"):
        ask(run=run, by=bob, control=control)

    assert not Control.objects.exists()


def test_an_unknown_control_is_named_with_the_known_ones(run: Run, alice: User) -> None:
    errors = refused(run, alice, "explode")

    assert "'explode' is unknown; choose one of pause, resume" in errors["control"]


# ---- pause and resume --------------------------------------------------------------------------------------


def test_a_queued_run_is_paused_at_once_and_nobody_claims_it(run: Run, alice: User) -> None:
    asked = ask(run=run, by=alice, control="pause")

    run.refresh_from_db()
    assert (asked.new, run.status) == (True, Run.Status.PAUSED)
    assert kinds(run) == ["control_asked", "paused"]
    control = Control.objects.get()
    assert asked_events(run) == [("pause", "alice", control.pk)]
    assert Event.objects.get(run=run, kind="paused").payload["ask"] == control.pk
    assert control.seen_at is not None
    assert queue.claim_next(worker="host/1/1") is None


def test_a_paused_run_that_nobody_holds_takes_no_slot(run: Run, alice: User) -> None:
    ask(run=run, by=alice, control="pause")

    assert not Run.objects.holding_slots().exists()


def test_a_resumed_run_is_queued_and_claimed_again(run: Run, alice: User) -> None:
    ask(run=run, by=alice, control="pause")
    ask(run=run, by=alice, control="resume")

    run.refresh_from_db()
    assert run.status == Run.Status.QUEUED
    assert kinds(run) == ["control_asked", "paused", "control_asked", "resumed"]
    assert queue.claim_next(worker="host/1/1") is not None


def test_the_second_of_two_who_pause_is_told_who_was_first(run: Run, alice: User, oscar: User) -> None:
    ask(run=run, by=alice, control="pause")
    second = ask(run=run, by=oscar, control="pause")

    assert not second.new
    assert second.said == f"alice asked to pause run {run.pk} already."
    assert kinds(run) == ["control_asked", "paused"]


def test_the_second_of_two_who_resume_is_told_who_was_first(run: Run, alice: User, oscar: User) -> None:
    ask(run=run, by=alice, control="pause")
    ask(run=run, by=oscar, control="resume")
    second = ask(run=run, by=alice, control="resume")

    assert (second.new, second.said) == (False, f"oscar resumed run {run.pk} already.")
    assert kinds(run).count("resumed") == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_who_pause_at_the_same_moment_one_is_first(run: Run, alice: User, oscar: User) -> None:
    answers: list[bool] = []
    start = threading.Barrier(8)

    def pause(by: User) -> None:
        start.wait()
        try:
            answers.append(ask(run=run, by=by, control="pause").new)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=pause, args=[by]) for by in [alice, oscar] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 7 + [True]
    assert kinds(run) == ["control_asked", "paused"]


def test_a_run_that_was_never_paused_is_not_resumed(run: Run, alice: User) -> None:
    asked = ask(run=run, by=alice, control="resume")

    assert (asked.new, asked.said) == (False, f"Run {run.pk} is not paused.")
    assert not Control.objects.exists()


def test_a_worker_is_told_of_a_pause_and_writes_it_down_itself(held: Claim, alice: User) -> None:
    before = kinds(held.run)
    asked = ask(run=held.run, by=alice, control="pause")

    assert asked.said == f"Run {held.run.pk} pauses after the current event."
    assert [control.kind for control in queue.renew(claim=held).controls] == ["pause"]
    assert kinds(held.run) == before
    # The log is still the worker's alone.
    write(held, events.call_started(4))


def test_a_pause_that_is_under_way_can_be_taken_back(held: Claim, alice: User, oscar: User) -> None:
    ask(run=held.run, by=alice, control="pause")
    assert ask(run=held.run, by=oscar, control="resume").new
    assert not ask(run=held.run, by=alice, control="resume").new
    assert controls.standing_pause(held.run) is None
    assert ask(run=held.run, by=alice, control="pause").new


# ---- cancel ------------------------------------------------------------------------------------------------


def test_a_paused_run_that_nobody_holds_is_cancelled_at_once(run: Run, alice: User) -> None:
    ask(run=run, by=alice, control="pause")
    ask(run=run, by=alice, control="cancel")

    run.refresh_from_db()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
    assert kinds(run)[-2:] == ["control_asked", "run_ended"]


def test_cancelling_a_run_between_two_workers_ends_its_attempt(held: Claim, alice: User) -> None:
    held.attempt.lease_until = None
    held.attempt.save()
    Run.objects.filter(pk=held.run.pk).update(status=Run.Status.QUEUED)
    ask(run=held.run, by=alice, control="cancel")

    held.attempt.refresh_from_db()
    assert held.attempt.exit_reason == "cancelled"
    assert kinds(held.run)[-3:] == ["control_asked", "attempt_ended", "run_ended"]
    assert asked_events(held.run)[-1][:2] == ("cancel", "alice")


def test_the_second_of_two_who_cancel_is_told_who_was_first(held: Claim, alice: User, oscar: User) -> None:
    assert ask(run=held.run, by=alice, control="cancel").new
    second = ask(run=held.run, by=oscar, control="cancel")

    assert (second.new, second.said) == (False, f"alice cancelled run {held.run.pk} already.")


def test_cancelling_an_ended_run_changes_nothing(held: Claim, alice: User) -> None:
    end(held)
    asked = ask(run=held.run, by=alice, control="cancel")

    assert (asked.new, asked.said) == (False, f"Run {held.run.pk} has ended already: agent.")


# ---- limits ------------------------------------------------------------------------------------------------


def limit(run: Run, by: User, name: str, after: Any) -> controls.Asked:
    return ask(run=run, by=by, control="limit", value={"limit": name, "after": after})


def test_a_limit_may_be_raised_above_the_arms(held: Claim, alice: User) -> None:
    own = held.run.arm.limits["max_steps"]
    asked = limit(held.run, alice, "max_steps", f"{own * 2:,}")

    assert asked.said == f"{own * 2} steps from the agent's next event on."
    assert Control.objects.get().value == {"limit": "max_steps", "after": own * 2}


def test_the_same_limit_asked_twice_is_one_ask(held: Claim, alice: User, oscar: User) -> None:
    limit(held.run, alice, "max_steps", "300")
    second = limit(held.run, oscar, "max_steps", "300")

    assert (second.new, second.said) == (False, "alice asked for 300 steps already.")
    assert Control.objects.count() == 1


def test_a_limit_that_holds_already_is_not_asked_for(held: Claim, alice: User) -> None:
    own = held.run.arm.limits["max_steps"]
    write(held, LimitChanged(limit="max_steps", before=own, after=200, person="alice", ask=1))

    assert limit(held.run, alice, "max_steps", "200").said == "The limit is 200 steps already."
    assert limit(held.run, alice, "max_steps", str(own)).new


@pytest.mark.parametrize(
    ("name", "typed", "text"),
    [
        ("max_steps", "2", "'2' is less than the 3 steps used already; write 3 or more"),
        ("max_context_tokens", "4", "is less than the .* tokens used already; write .* or more"),
        ("max_tokens_total", "9", "is less than the .* tokens used already"),
        ("max_steps", "many", "'many' is not a number of steps; write a number such as 5"),
        ("max_steps", "", "is empty; write a number of steps, or choose “no limit”"),
        ("max_steps", "-3", "is not a positive number"),
        ("max_cost_usd", "$5,00", "is not a number of dollars; write 5.00"),
        ("max_tokens_per_turn", None, "'no limit' cannot be: a turn that never ends"),
    ],
)
def test_a_limit_that_cannot_be_names_value_and_way_out(
    held: Claim, alice: User, name: str, typed: str | None, text: str
) -> None:
    errors = refused(held.run, alice, "limit", {"limit": name, "after": typed})

    assert list(errors) == [name]
    assert __import__("re").search(text, errors[name]), errors


def test_a_limit_may_be_lowered_to_what_is_used(held: Claim, alice: User) -> None:
    assert limit(held.run, alice, "max_steps", "3").new


def test_context_may_be_raised_up_to_the_models_window(held: Claim, alice: User) -> None:
    Model.objects.update(context_window=100_000)
    errors = refused(held.run, alice, "limit", {"limit": "max_context_tokens", "after": "100001"})

    assert (
        "is more than the context window of scripted/solver, 100,000 tokens; write 100000 or less"
        in (errors["max_context_tokens"])
    )
    assert (
        "no limit"
        in refused(held.run, alice, "limit", {"limit": "max_context_tokens", "after": None})[
            "max_context_tokens"
        ]
    )
    assert limit(held.run, alice, "max_context_tokens", "100000").new


def test_a_cost_limit_needs_a_known_price(held: Claim, alice: User) -> None:
    Model.objects.update(price_basis="table")
    endpoint = held.run.arm.model.endpoint
    endpoint.scripted = False
    endpoint.save()
    errors = refused(held.run, alice, "limit", {"limit": "max_cost_usd", "after": "2"})

    assert "cannot hold for scripted/solver, whose price is unknown" in errors["max_cost_usd"]


def test_an_unknown_limit_is_named_with_the_known_ones(held: Claim, alice: User) -> None:
    errors = refused(held.run, alice, "limit", {"limit": "max_fun", "after": "2"})

    assert "'max_fun' is no limit; known are max_steps" in errors["limit"]
    assert "write" in refused(held.run, alice, "limit", "5")["limit"]


def test_dollars_are_kept_exactly(held: Claim, alice: User) -> None:
    asked = limit(held.run, alice, "max_cost_usd", "2.50")

    assert asked.said == "$2.50 from the agent's next event on."
    assert Control.objects.get().value["after"] == "2.50"
    assert not limit(held.run, alice, "max_cost_usd", "2.50").new


# ---- messages ----------------------------------------------------------------------------------------------


def test_a_message_waits_for_the_worker(held: Claim, alice: User) -> None:
    ask(run=held.run, by=alice, control="message", value=" Look at the tests.\r\nThen stop. ")

    assert Control.objects.get().value == {"text": "Look at the tests.\nThen stop."}


def test_the_same_words_sent_twice_are_one_message(held: Claim, alice: User, oscar: User) -> None:
    ask(run=held.run, by=alice, control="message", value="Go on.")
    assert not ask(run=held.run, by=alice, control="message", value="Go on.").new
    assert ask(run=held.run, by=oscar, control="message", value="Go on.").new
    assert Control.objects.count() == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty; write what the agent should know"),
        (" \n ", "is empty"),
        ("x" * 32_001, "has 32,001 characters and may have 32,000; shorten it"),
        ("ü" * 1_000_000, "has 1,000,000 characters"),
        (None, "is empty"),
    ],
)
def test_a_message_that_cannot_be_sent_is_a_field_error(
    held: Claim, alice: User, text: str | None, reason: str
) -> None:
    assert reason in refused(held.run, alice, "message", text)["message"]


def test_a_secret_in_a_message_is_not_stored(
    held: Claim, alice: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECRET_KEY = "a-secret-of-the-lab-itself"
    ask(run=held.run, by=alice, control="message", value=f"use {settings.SECRET_KEY}\0")

    assert Control.objects.get().value["text"] == "use [redacted: LAB_SECRET_KEY]␀"


def test_a_message_after_the_agent_has_ended_is_refused_with_the_reason(held: Claim, alice: User) -> None:
    write(held, PatchCaptured(exit_reason="agent", patch=""))
    text = refused(held.run, alice, "message", "Wait!")["control"]

    assert "the agent of run" in text
    assert "has ended, its patch is being graded" in text


# ---- once it has ended -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("control", "value"),
    [
        ("pause", None),
        ("resume", None),
        ("message", "Hello?"),
        ("limit", {"limit": "max_steps", "after": "500"}),
    ],
)
def test_a_control_for_a_finished_run_is_refused_and_changes_nothing(
    held: Claim, alice: User, control: str, value: Any
) -> None:
    end(held)

    assert "has ended (agent) and cannot be" in refused(held.run, alice, control, value)["control"]


def test_another_attempt_reopens_run_and_experiment(held: Claim, alice: User) -> None:
    end(held, "infrastructure_error", verdict=None)
    assert Experiment.objects.get().state == Experiment.State.ENDED
    asked = ask(run=held.run, by=alice, control="attempt")

    run = Run.objects.get()
    assert asked.new
    assert (run.status, run.exit_reason, run.ended_at) == (Run.Status.QUEUED, "", None)
    assert (Experiment.objects.get().state, Experiment.objects.get().ended_at) == ("active", None)
    assert asked_events(run)[-1] == ("attempt", "alice", Control.objects.get().pk)
    claim = queue.claim_next(worker="host/1/1")
    assert claim is not None
    assert claim.attempt.n == 2


def test_another_attempt_asked_twice_is_one(held: Claim, alice: User, oscar: User) -> None:
    end(held, "tool_error", verdict=None)
    ask(run=held.run, by=alice, control="attempt")
    second = ask(run=held.run, by=oscar, control="attempt")

    assert (second.new, second.said) == (False, "alice asked for another attempt already.")


@pytest.mark.parametrize("reason", ["agent", "max_turns", "cancelled"])
def test_another_attempt_is_only_for_what_infrastructure_ended(held: Claim, alice: User, reason: str) -> None:
    end(held, reason)

    assert "run it again instead" in refused(held.run, alice, "attempt")["control"]


def test_run_again_makes_a_new_experiment_with_the_same_settings(held: Claim, alice: User) -> None:
    Arm.objects.update(limits=held.run.arm.limits | {"max_steps": 17})
    Run.objects.update(seed=4)
    end(held)
    fresh = ask(run=held.run, by=alice, control="again", value="form-1").run

    assert fresh.experiment_id != held.run.experiment_id
    assert (fresh.task_id, fresh.seed) == (held.run.task_id, 4)
    assert fresh.arm.harness_version == held.run.arm.harness_version
    assert fresh.arm.model == held.run.arm.model
    assert fresh.arm.limits["max_steps"] == 17
    assert fresh.status == Run.Status.QUEUED
    row = Event.objects.get(run=held.run, kind="control_asked")
    assert (row.payload["control"], row.payload["value"]) == ("again", {"run": fresh.pk})


def test_the_same_form_sent_twice_runs_again_once(held: Claim, alice: User) -> None:
    end(held)
    first = ask(run=held.run, by=alice, control="again", value="form-1")
    second = ask(run=held.run, by=alice, control="again", value="form-1")
    third = ask(run=held.run, by=alice, control="again", value="form-2")

    assert (first.new, second.new, third.new) == (True, False, True)
    assert first.run == second.run != third.run


def test_a_run_that_goes_on_is_not_run_again(held: Claim, alice: User) -> None:
    assert "can be run again when it has ended" in refused(held.run, alice, "again")["control"]


def test_a_cost_limit_in_force_is_read_as_dollars(held: Claim) -> None:
    from lab.services import limits

    write(held, LimitChanged(limit="max_cost_usd", before=None, after="2.50", person="alice"))

    assert limits.in_force(run=Run.objects.get()).max_cost_usd == Decimal("2.50")


@pytest.mark.parametrize("status", [Run.Status.RUNNING, Run.Status.PAUSED])
@pytest.mark.parametrize("control", ["pause", "resume", "cancel", "message", "limit"])
def test_of_a_run_that_another_program_records_nothing_can_be_asked(
    run: Run, oscar: User, control: str, status: Run.Status
) -> None:
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    Run.objects.filter(pk=run.pk).update(status=status)
    value = {"message": "look", "limit": {"limit": "max_steps", "after": "5"}}.get(control)
    with pytest.raises(FieldErrors, match="run by another program"):
        ask(run=run, by=oscar, control=control, value=value)
    assert Run.objects.get(pk=run.pk).status == status
    assert not Control.objects.filter(run=run).exists()
    shown = asks_of(Run.objects.all().for_rows().get(pk=run.pk))
    assert (shown.actions, shown.waiting) == (Actions(), [])


@pytest.mark.parametrize("kind", [Experiment.Kind.DEMO, Experiment.Kind.IMPORTED])
def test_a_run_that_was_recorded_elsewhere_gets_no_other_attempt_and_is_never_claimed(
    run: Run, oscar: User, kind: str
) -> None:
    Experiment.objects.filter(pk=run.experiment_id).update(kind=kind)
    Run.objects.filter(pk=run.pk).update(status=Run.Status.ENDED, exit_reason="infrastructure_error")
    with pytest.raises(FieldErrors, match="recorded elsewhere and gets no other attempt"):
        ask(run=run, by=oscar, control="attempt")
    assert not asks_of(Run.objects.all().for_rows().get(pk=run.pk)).actions.attempt
    Run.objects.filter(pk=run.pk).update(status=Run.Status.QUEUED)
    assert queue.claim_next(worker="w") is None
