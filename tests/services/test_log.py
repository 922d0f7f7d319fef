from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, connections, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.engine.errors import LeaseLostError
from lab.engine.events import ControlAsked
from lab.engine.llm.base import Cost, Usage
from lab.models import Attempt, Call, Draft, Event, Run, RunFacts, TestResult, Verification
from lab.services import blobs, facts, log, queue
from lab.services.queue import Claim
from tests.house.tree import ROOT
from tests.services import events as ev
from tests.services.builders import launched, person


@pytest.fixture
def claim(alice: User) -> Claim:
    launched(alice)
    claim = queue.claim_next(worker="w")
    assert claim is not None
    return claim


def append(claim: Claim, *events: Any, **changes: Any) -> int:
    values = {"run_id": claim.run.pk, "attempt": claim.attempt.n, "lease_token": claim.lease_token}
    return log.append(**(values | changes), events=list(events))


def test_what_was_appended_is_read_back_equal_and_numbered_from_one(claim: Claim) -> None:
    wanted = [*ev.whole_run()]
    wanted[5] = ev.tool_finished(1, "x" * 10_000 + "\x00\x1b[31m\ud800 end")
    append(claim, *wanted[:4])
    assert append(claim, *wanted[4:]) == len(wanted)
    records = log.read_records(run_id=claim.run.pk)
    assert [record.event for record in records] == wanted
    assert [record.seq for record in records] == list(range(1, len(wanted) + 1))
    assert Run.objects.get().last_seq == len(wanted)


def test_reading_starts_after_a_number_and_stops_at_a_limit(claim: Claim) -> None:
    append(claim, *ev.whole_run())
    assert [record.seq for record in log.read_records(run_id=claim.run.pk, after=3, limit=2)] == [4, 5]


def test_a_long_text_is_a_blob_with_a_preview_and_a_short_one_is_not(claim: Claim) -> None:
    append(claim, ev.tool_finished(1, "é" * 3000), ev.tool_finished(2, "é" * 2048))
    long, short = Event.objects.order_by("seq")
    reference = long.payload["observation"]
    assert (reference["bytes"], reference["characters"], len(reference["preview"])) == (6000, 3000, 400)
    assert reference == long.payload["stdout"]["text"] == long.payload["message"]["content"]
    assert short.payload["observation"] == "é" * 2048
    assert log.blob_text(reference["$blob"]) == "é" * 3000
    thin = log.read_records(run_id=claim.run.pk, whole_texts=False)[0].event
    assert thin.observation == "é" * 400


def test_a_body_that_is_gone_torn_or_changed_says_so_and_leaves_the_rest_readable(claim: Claim) -> None:
    append(claim, ev.tool_finished(1, "a" * 5000))
    digest = Event.objects.get().payload["observation"]["$blob"]
    file = blobs.path_of(digest)
    good = file.read_bytes()
    other = blobs.path_of(blobs.put(data=b"b" * 5000)).read_bytes()
    for bad in (good[: len(good) // 2], b"", b"junk", other):
        file.write_bytes(bad)
        with pytest.raises(log.BodyMissingError, match="body missing"):
            log.blob_text(digest)
    file.unlink()
    assert log.read_records(run_id=claim.run.pk)[0].event.observation.startswith("[body missing: ")


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["", "../../etc/passwd", "/etc/passwd", "a" * 64, "." * 64])
def test_a_blobs_name_never_leads_out_of_the_blobs(name: str) -> None:
    with pytest.raises(log.BodyMissingError):
        log.blob_text(name)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.text(min_size=1100, max_size=1500),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["$blob", "$plain", "bytes", "a"]) | st.text(), inner, max_size=3
            )
        ),
        max_leaves=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_payload_survives_being_made_thin_even_one_that_imitates_a_reference(value: Any) -> None:
    from lab.services.payloads import thin, whole

    kept: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        kept[str(len(kept))] = data
        return str(len(kept) - 1)

    payload = {"value": value}
    thinned = thin(payload, keep=keep)
    assert whole(thinned, text_of=lambda ref: kept[ref["$blob"]].decode("utf-8", "surrogatepass")) == payload


def test_arguments_that_imitate_a_reference_are_read_back_as_they_were(claim: Claim) -> None:
    fake = {"$blob": "0" * 64, "$plain": {"a": 1}}
    append(claim, ControlAsked(control="x", person="p", value=fake))
    assert log.read_records(run_id=claim.run.pk)[0].event.value == fake


class TestLease:
    def test_a_child_that_lost_its_lease_writes_nothing(self, claim: Claim) -> None:
        append(claim, ev.attempt_started())
        Attempt.objects.update(lease_token=claim.lease_token + 1)
        before = list(Event.objects.values())
        with pytest.raises(LeaseLostError, match="another worker"):
            append(claim, ev.call_started(1), ev.run_ended())
        with pytest.raises(LeaseLostError):
            log.store_draft(
                run_id=claim.run.pk,
                attempt=1,
                lease_token=claim.lease_token,
                after_seq=1,
                step=1,
                content="late",
                reasoning="",
                calls="",
                characters=4,
            )
        assert list(Event.objects.values()) == before
        assert not Draft.objects.exists()
        assert Run.objects.get().status == Run.Status.PREPARING

    def test_an_ended_attempt_takes_no_more_events(self, claim: Claim) -> None:
        append(claim, ev.attempt_ended())
        with pytest.raises(LeaseLostError):
            append(claim, ev.call_started(1))

    def test_a_writer_that_missed_somebody_elses_event_is_refused(self, claim: Claim) -> None:
        append(claim, ev.attempt_started())
        append(claim, ev.call_started(1), lease_token=None)
        with pytest.raises(LeaseLostError, match="ends at 2, not at 1"):
            append(claim, ev.call_finished(1), after_seq=1)

    def test_the_same_batch_twice_is_stored_once(self, claim: Claim) -> None:
        append(claim, ev.attempt_started(), after_seq=0)
        with pytest.raises(LeaseLostError):
            append(claim, ev.attempt_started(), after_seq=0)
        assert Event.objects.count() == 1


def test_the_database_itself_refuses_a_second_event_with_one_number(claim: Claim) -> None:
    append(claim, ev.attempt_started())
    row = Event.objects.get()
    row.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)
    row.seq = 0
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


def test_an_event_that_cannot_be_derived_from_leaves_nothing_behind(claim: Claim) -> None:
    append(claim, ev.attempt_started())
    Call.objects.create(
        run=claim.run, attempt=1, step=1, request=1, seq=3, state="finished", started_at=timezone.now()
    )
    with pytest.raises(IntegrityError):
        append(claim, ev.call_started(1), ev.call_finished(1))
    assert Event.objects.count() == 1
    assert Run.objects.get().last_seq == 1


class TestDerived:
    def test_calls_hold_usage_price_and_times_of_each_request(self, claim: Claim) -> None:
        append(claim, *ev.whole_run())
        first, failed, second = Call.objects.order_by("seq")
        assert (first.state, first.model, first.input_uncached, first.cache_read) == (
            "finished",
            "m-1",
            60,
            40,
        )
        assert (first.cost, first.cost_basis, first.usage_source) == (Decimal("0.001"), "table", "provider")
        assert (first.seconds, first.first_token_seconds) == (0.5, 0.1)
        assert (failed.state, failed.cost, failed.input_total) == ("failed", None, None)
        assert second.step == 2

    def test_a_server_may_call_its_model_what_it_likes(self, claim: Claim) -> None:
        finished = ev.call_finished(1)
        reply = finished.reply.model_copy(update={"model": "m" * 3000})
        append(claim, ev.call_started(1), finished.model_copy(update={"reply": reply}))
        assert Call.objects.get().model == "m" * 200

    def test_the_verification_and_its_tests_are_rows(self, claim: Claim) -> None:
        append(claim, ev.verification_finished("unresolved", log="E " * 5000))
        verification = Verification.objects.get()
        assert (verification.n, verification.outcome, verification.seconds) == (1, "unresolved", 1.5)
        assert log.blob_text(verification.log_blob) == "E " * 5000
        tests = TestResult.objects.values_list("test_id", "group", "status", "assertion")
        assert list(tests)[2] == ("t::c", "pass_to_pass", "failed", "1 != 2")
        assert TestResult.objects.order_by("position")[0].log == "E " * 5000

    def test_the_status_follows_the_events(self, claim: Claim) -> None:
        seen = []
        for event in ev.whole_run():
            append(claim, event, lease_token=None)
            seen.append(Run.objects.get().status)
        changes = [status for index, status in enumerate(seen) if index == 0 or seen[index - 1] != status]
        assert changes == ["preparing", "running", "verifying", "ended"]
        run = Run.objects.get()
        assert (run.exit_reason, run.sandbox_kind) == ("agent", "process")
        attempt = Attempt.objects.get()
        assert (attempt.exit_reason, attempt.peak_memory_bytes, attempt.sandbox["isolation"]) == (
            "agent",
            1000,
            "none",
        )

    def test_what_is_pending_is_known_while_it_is(self, claim: Claim) -> None:
        def pending(event: Any) -> dict[str, Any]:
            append(claim, event)
            found: dict[str, Any] = RunFacts.objects.get().pending
            return found

        model = pending(ev.call_started(1))
        assert (model["kind"], model["step"]) == ("model", 1)
        assert pending(ev.call_failed(1))["summary"] == "tries again in 2 s"
        assert pending(ev.call_finished(1)) == {}
        tool = pending(ev.tool_started(1))
        assert (tool["kind"], tool["tool"], tool["summary"], tool["timeout"]) == (
            "tool",
            "bash",
            "ls -l",
            120,
        )
        assert tool["since"] == Event.objects.order_by("-seq")[0].at.isoformat(timespec="milliseconds")
        assert pending(ev.tool_finished(1)) == {}
        assert pending(ev.verification_started())["kind"] == "verification"
        endless = pending(ev.tool_started(2).model_copy(update={"tool": "t" * 10_000}))
        assert endless["tool"] == "t" * 400

    def test_sums_say_how_much_is_unknown(self, claim: Claim) -> None:
        append(claim, ev.call_failed(1), ev.call_interrupted(1))
        rolled = RunFacts.objects.get()
        assert (rolled.cost, rolled.input_total, rolled.cost_unknown, rolled.usage_unknown) == (
            None,
            None,
            2,
            2,
        )
        append(
            claim, ev.call_finished(1), ev.call_finished(1, cost=Cost(amount=Decimal(0), basis="scripted"))
        )
        rolled = RunFacts.objects.get()
        assert (rolled.cost, rolled.cost_unknown, rolled.cost_basis) == (Decimal("0.001"), 2, "mixed")
        assert (rolled.calls, rolled.failed_calls, rolled.input_total, rolled.reasoning) == (4, 1, 200, 10)


EVENTS: list[Callable[[int], Any]] = [
    lambda step: ev.attempt_started(),
    lambda step: ev.sandbox_started(),
    lambda step: ev.call_started(step),
    lambda step: ev.call_finished(step),
    lambda step: ev.call_finished(step, usage=Usage(), cost=Cost()),
    lambda step: ev.call_finished(step, cost=Cost(amount=Decimal("0.00000012345"), basis="table")),
    lambda step: ev.call_failed(step, None),
    lambda step: ev.call_failed(step),
    lambda step: ev.call_interrupted(step),
    lambda step: ev.tool_started(step, "x" * 9000),
    lambda step: ev.tool_finished(step, "y" * 5000),
    lambda step: ev.tool_interrupted(step),
    lambda step: ev.patch_captured(),
    lambda step: ev.verification_started(),
    lambda step: ev.verification_finished("unresolved"),
    lambda step: ev.verification_finished("resolved"),
    lambda step: ev.attempt_ended(steps=step),
]


@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 5)), min_size=1, max_size=6), max_size=5
    )
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_rebuilt_roll_up_equals_the_one_kept_while_appending(claim: Claim, batches: list[Any]) -> None:
    with transaction.atomic():
        for batch in batches:
            append(claim, *(make(step) for make, step in batch), lease_token=None)
        kept = RunFacts.objects.filter(pk=claim.run.pk).values().get()
        facts.rebuild_facts(run_id=claim.run.pk)
        assert RunFacts.objects.filter(pk=claim.run.pk).values().get() == kept
        transaction.set_rollback(True)


def test_a_draft_is_overwritten_and_gone_when_the_run_has_ended(claim: Claim) -> None:
    for text in ("a", "ab"):
        log.store_draft(
            run_id=claim.run.pk,
            attempt=1,
            lease_token=claim.lease_token,
            after_seq=0,
            step=1,
            content=text,
            reasoning="",
            calls="",
            characters=len(text),
        )
    draft = Draft.objects.get()
    assert (draft.content, draft.version) == ("ab", 2)
    append(claim, ev.run_ended())
    assert not Draft.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_numbers_have_no_gap_and_no_double_under_concurrent_processes_and_threads() -> None:
    launched(person())
    claim = queue.claim_next(worker="w")
    assert claim is not None
    arguments = [str(connection.settings_dict["NAME"]), str(claim.run.pk), str(claim.lease_token), "25"]
    writer = [sys.executable, "-m", "tests.services.writer", *arguments]
    processes = [subprocess.Popen(writer, cwd=ROOT) for _ in range(2)]

    def write_here() -> None:
        for _ in range(20):
            append(claim, ev.tool_started(1))
        connections.close_all()

    threads = [threading.Thread(target=write_here) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    total = 2 * 20 + 2 * 50
    assert list(Event.objects.order_by("seq").values_list("seq", flat=True)) == list(range(1, total + 1))
    assert Run.objects.get().last_seq == total
    assert RunFacts.objects.get().calls == 50
