from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason
from lab.engine.events import AttemptEnded, LimitChanged
from lab.models import Attempt, Call, Endpoint, Event, Model, Run, RunFacts, TestResult
from lab.services import blobs, controls, endpoints, facts, isolation, log, queue
from lab.services.queue import Claim
from lab.worker.execution import Execution
from tests.services import events as ev
from tests.services.builders import launched
from tests.timing import SOON


@pytest.fixture(autouse=True)
def _plain_processes(settings: Settings) -> None:
    settings.LAB_SANDBOX = "process"
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    isolation.look_again()


def kinds() -> list[str]:
    return list(Event.objects.order_by("seq").values_list("kind", flat=True))


def eventually(is_true: Callable[[], bool], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, f"it did not come true in time: {kinds()}"
        time.sleep(0.02)


def no_sandbox_is_left(folder: object) -> bool:
    return not any(Path(str(folder)).joinpath("sandboxes").glob("*"))


def test_a_scripted_run_reaches_its_verdict_and_leaves_a_whole_log(claim: Claim, settings: Settings) -> None:
    Execution(claim).run()
    run = Run.objects.select_related("facts").get()
    assert (run.status, run.exit_reason, run.facts.verdict) == (Run.Status.ENDED, "agent", "resolved")
    assert (kinds()[0], kinds()[-2:]) == ("attempt_started", ["attempt_ended", "run_ended"])
    records = log.read_records(run_id=run.pk)
    assert [record.seq for record in records] == list(range(1, run.last_seq + 1))
    assert run.facts.steps == Call.objects.count()
    assert run.facts.cost == 0
    assert run.facts.cost_basis == "scripted"
    assert run.facts.fail_to_pass_passed == run.facts.fail_to_pass_total
    assert TestResult.objects.count() >= 2
    kept = RunFacts.objects.values().get()
    facts.rebuild_facts(run_id=run.pk)
    assert RunFacts.objects.values().get() == kept
    started = records[0].event
    assert (started.task["set"], started.harness["version"]) == ("practice", 1)
    assert no_sandbox_is_left(settings.LAB_DATA_DIR)


def test_the_gold_patch_and_the_hidden_tests_are_nowhere_in_the_log_before_the_agent_ended(
    claim: Claim,
) -> None:
    Execution(claim).run()
    hidden = claim.run.task.hidden
    before = []
    for record in log.read_records(run_id=claim.run.pk):
        if record.event.kind == "patch_captured":
            break
        before.append(record.to_line())
    for content in hidden.verification["test_files"].values():
        assert content[:200] not in "".join(before)


def test_a_cancel_in_the_middle_of_a_reply_ends_the_run_soon(
    claim: Claim, alice: User, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 30.0
    execution = threading.Thread(target=Execution(claim).run)
    execution.start()
    eventually(lambda: "model_call_started" in kinds())
    asked = time.monotonic()
    controls.ask(run=claim.run, by=alice, control="cancel")
    execution.join(90)
    took = time.monotonic() - asked
    run = Run.objects.get()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
    assert "model_call_interrupted" in kinds()
    assert "verification_started" not in kinds()
    assert took < SOON
    assert no_sandbox_is_left(settings.LAB_DATA_DIR)


def test_an_execution_that_is_handed_over_leaves_the_attempt_to_whoever_comes_next(
    claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 2.0
    execution = Execution(claim)
    thread = threading.Thread(target=execution.run)
    thread.start()
    eventually(lambda: "model_call_started" in kinds())
    settings.LAB_STOP_SECONDS = 0.5
    execution.hand_over()
    thread.join(90)
    assert "attempt_ended" not in kinds()
    assert Run.objects.get().status == Run.Status.QUEUED
    assert no_sandbox_is_left(settings.LAB_DATA_DIR)
    second = queue.claim_next(worker="other")
    assert second is not None
    assert (second.run, second.attempt.n, second.orderly) == (claim.run, 1, True)
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    Execution(second).run()
    assert Run.objects.select_related("facts").get().facts.verdict == "resolved"
    assert kinds().count("attempt_started") == kinds().count("attempt_continued") == 1


def test_a_key_that_is_not_set_ends_the_run_at_once_and_says_which(alice: User) -> None:
    endpoint = Endpoint.objects.create(
        name="server", base_url="http://127.0.0.1:9/v1", key_variable="NOBODY_SET_THIS_KEY"
    )
    model = Model.objects.create(endpoint=endpoint, name="m", model_id="m")
    launched(alice, models=[model])
    claim = queue.claim_next(worker="w")
    assert claim is not None
    Execution(claim).run()
    run = Run.objects.get()
    assert (run.status, run.exit_reason, Attempt.objects.count()) == (
        Run.Status.ENDED,
        "infrastructure_error",
        1,
    )
    assert "NOBODY_SET_THIS_KEY" in log.read_records(run_id=run.pk)[0].event.error


def test_a_repository_that_is_missing_ends_the_run_without_another_attempt(
    alice: User, tmp_path: Path
) -> None:
    run = launched(alice, models=endpoints.sync_scripted()[:1]).runs.get()
    run.task.folder = str(tmp_path / "gone")
    run.task.save()
    claim = queue.claim_next(worker="w")
    assert claim is not None
    Execution(claim).run()
    run.refresh_from_db()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "infrastructure_error")
    assert str(tmp_path / "gone") in Event.objects.get(kind="attempt_ended").payload["error"]
    assert Attempt.objects.count() == 1


def test_a_run_that_cannot_be_settled_by_its_worker_is_settled_by_the_tick(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(**values: object) -> bool:
        raise OperationalError("database is locked")

    monkeypatch.setattr(queue, "settle", locked)
    Execution(claim).run()
    assert kinds()[-1] == "attempt_ended"
    queue.release(claim=claim)
    assert queue.settle_abandoned() == [claim.run.pk]
    run = Run.objects.select_related("facts").get()
    assert (run.status, run.facts.verdict) == (Run.Status.ENDED, "resolved")


def go_on() -> Claim:
    """The next claim; runs in the test's own thread."""
    found = queue.claim_next(worker="other")
    assert found is not None
    return found


def test_a_paused_run_needs_no_worker_and_goes_on_where_it_was(
    claim: Claim, alice: User, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.1
    execution = Execution(claim)
    thread = threading.Thread(target=execution.run)
    thread.start()
    eventually(lambda: "model_call_started" in kinds())
    controls.ask(run=claim.run, by=alice, control="pause")
    eventually(lambda: "paused" in kinds())
    execution.hand_over()
    thread.join(90)
    assert (Run.objects.get().status, queue.claim_next(worker="other")) == (Run.Status.PAUSED, None)
    assert "model_call_interrupted" not in kinds()
    assert no_sandbox_is_left(settings.LAB_DATA_DIR)
    controls.ask(run=claim.run, by=alice, control="resume")
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    Execution(go_on()).run()
    assert Run.objects.select_related("facts").get().facts.verdict == "resolved"
    calls = [(call.step, call.state) for call in Call.objects.order_by("seq")]
    assert calls == [(step, "finished") for step in range(1, len(calls) + 1)]


def test_a_worker_that_lost_its_lease_writes_nothing_more_and_cleans_up_after_itself(
    claim: Claim, settings: Settings
) -> None:
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 2.0
    thread = threading.Thread(target=Execution(claim).run)
    thread.start()
    eventually(lambda: "model_call_started" in kinds())
    assert queue.take_away(attempt_id=claim.attempt.pk, lease_token=claim.lease_token)
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    Execution(go_on()).run()
    thread.join(90)
    run = Run.objects.select_related("facts").get()
    assert (run.facts.verdict, kinds().count("attempt_continued")) == ("resolved", 1)
    assert run.last_seq == Event.objects.count()
    assert no_sandbox_is_left(settings.LAB_DATA_DIR)


def test_a_limit_that_was_changed_holds_for_the_next_attempt_too(
    claim: Claim, alice: User, settings: Settings
) -> None:
    changed = LimitChanged(limit="max_steps", before=100, after=2, person="alice", ask=1)
    log.append(run_id=claim.run.pk, attempt=1, lease_token=claim.lease_token, events=[changed])
    ended = AttemptEnded(
        exit_reason="infrastructure_error", retryable=True, steps=0, wall_seconds=1.0, error="broken"
    )
    log.append(run_id=claim.run.pk, attempt=1, lease_token=claim.lease_token, events=[ended])
    queue.settle(claim=claim, retryable=True, reason=ExitReason.INFRASTRUCTURE_ERROR, verdict=None)
    second = go_on()
    assert (second.attempt.n, second.continues) == (2, False)
    Execution(second).run()
    run = Run.objects.select_related("facts").get()
    assert (run.exit_reason, run.facts.steps) == ("max_turns", 2)


def test_a_log_that_lost_a_text_is_not_continued_but_the_run_is_tried_again(
    claim: Claim, settings: Settings
) -> None:
    started = log.append(
        run_id=claim.run.pk,
        attempt=1,
        lease_token=claim.lease_token,
        events=[ev.attempt_started(messages=[{"role": "user", "content": "x" * 9000}])],
    )
    digest = Event.objects.get(seq=started).payload["messages"][0]["content"]["$blob"]
    blobs.path_of(digest).unlink()
    queue.hand_back(claim=claim)
    Execution(go_on()).run()
    assert "body missing" in Event.objects.get(kind="attempt_ended").payload["error"]
    second = go_on()
    assert (second.attempt.n, second.continues) == (2, False)


def test_a_connection_that_drops_while_a_run_is_settled_costs_nothing(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops, settle = iter([OperationalError("server closed the connection")]), queue.settle

    def sometimes(**values: Any) -> bool:
        if (error := next(drops, None)) is not None:
            raise error
        return settle(**values)

    monkeypatch.setattr(queue, "settle", sometimes)
    Execution(claim).run()
    assert (Run.objects.get().status, kinds()[-1]) == (Run.Status.ENDED, "run_ended")


def test_what_is_asked_before_the_agent_begins_holds_from_its_first_request(alice: User) -> None:
    run = launched(alice).runs.get()
    controls.ask(run=run, by=alice, control="message", value="Mind the units.")
    controls.ask(run=run, by=alice, control="limit", value={"limit": "max_steps", "after": "1"})
    claimed = queue.claim_next(worker="here/1/1")
    assert claimed is not None
    Execution(claimed).run()
    first = kinds().index("model_call_started")
    assert {"message_sent", "limit_changed"} <= set(kinds()[:first])
    assert kinds().count("model_call_started") == 1
