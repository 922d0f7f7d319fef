"""Asking a model: every try is an event, retries end in time, and errors name the way out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from lab.engine.errors import AttemptStoppedError, EndpointError, ExitReason
from lab.engine.events import ModelCallFailed, ModelCallInterrupted, ModelCallStarted
from lab.engine.llm.base import ModelConfig, Price, canonical_sha256
from lab.engine.llm.client import ContextOverflowError, ModelClient, complete_body
from lab.engine.llm.failures import RAW_CHARACTERS
from lab.engine.redact import Redactor
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import (
    Answer,
    FakeOpenAI,
    delta,
    event,
    html,
    models,
    plain,
    says,
    stream,
    usage_chunk,
)
from tests.timing import SOON, when

BODY: dict[str, Any] = {
    "model": "fake",
    "messages": [{"role": "user", "content": "hi"}],
    "max_completion_tokens": 64,
}
BUSY = plain({"error": {"message": "slow down"}}, status=429)
BROKEN = plain({"error": {"message": "out of memory"}}, status=500)


class Asking:
    """A client at a fake server, its sink and its stop signal."""

    def __init__(self, server: FakeOpenAI, **fields: Any) -> None:
        model = {"name": "fake", "model_id": "fake", "base_url": server.base_url} | fields.pop("model", {})
        self.sink = ListSink()
        self.stop = StopSignal()
        self.client = ModelClient(
            ModelConfig(**model),
            api_key="the-key-of-the-endpoint",
            emit=self.sink.emit,
            draft=self.sink.draft,
            stop=self.stop,
            **({"first_wait": 0.01} | fields),
        )

    def ask(self, *, deadline: Callable[[], float | None] | None = None, body: dict[str, Any] = BODY) -> Any:
        return self.client.ask(step=3, body=body, message_count=1, deadline=deadline)

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.sink.events]

    def failures(self) -> list[ModelCallFailed]:
        return [entry for entry in self.sink.events if isinstance(entry, ModelCallFailed)]


@contextmanager
def asking(
    *answers: Answer, listed: Answer | None = None, **fields: Any
) -> Iterator[tuple[Asking, FakeOpenAI]]:
    with FakeOpenAI(*answers, listed=listed) as server:
        one = Asking(server, **fields)
        with one.client:
            yield one, server


def seconds_until(ends: float) -> Callable[[], float]:
    return lambda: ends - time.monotonic()


class TestAnswers:
    def test_a_good_answer_comes_with_its_request_number_and_cost(self) -> None:
        with asking(says("hello"), model={"price": Price(basis="scripted")}) as (one, _):
            reply, request, cost = one.ask()
        assert (reply.content, request) == ("hello", 1)
        assert (cost.amount, cost.basis) == (Decimal(0), "scripted")

    def test_the_log_holds_the_hash_of_the_body_that_was_really_sent(self) -> None:
        with asking(says("hello")) as (one, server):
            one.ask(body={**BODY, "messages": [{"role": "user", "content": "lone \ud800"}]})
        started = one.sink.events[0]
        assert isinstance(started, ModelCallStarted)
        assert started.body_sha256 == canonical_sha256(server.calls[0].body)
        assert server.calls[0].body["messages"][0]["content"] == "lone �"
        assert server.calls[0].body["stream_options"] == {"include_usage": True}
        assert (started.step, started.request, started.message_count, started.max_tokens) == (3, 1, 1, 64)

    def test_completing_a_body_keeps_what_it_holds(self) -> None:
        body = {"model": "m", "messages": [], "stream_options": {"continuous_usage_stats": True}, "seed": 4}
        assert complete_body(body) == {
            **body,
            "stream": True,
            "stream_options": {"continuous_usage_stats": True, "include_usage": True},
        }

    def test_broken_tool_arguments_come_back_as_raw_text(self) -> None:
        broken = delta(
            tool_calls=[{"index": 0, "id": "a", "function": {"name": "Read", "arguments": '{"file'}}]
        )
        with asking(stream(broken, delta(finish="tool_calls"))) as (one, _):
            assert one.ask().reply.tool_calls[0].arguments == '{"file'

    def test_the_text_of_a_turn_that_never_ends_can_be_watched_and_cancelled(self) -> None:
        endless = Answer(pieces=[event(delta(content="and on ")) for _ in range(20_000)], pause=0.01)
        with asking(endless) as (one, _):
            when(lambda: len(one.sink.drafts) > 5, lambda: one.stop.set(ExitReason.CANCELLED))
            with pytest.raises(AttemptStoppedError) as caught:
                one.ask()
        assert caught.value.reason is ExitReason.CANCELLED
        interrupted = one.sink.events[-1]
        assert isinstance(interrupted, ModelCallInterrupted)
        assert interrupted.partial.startswith("and on and on")
        assert (interrupted.reason, interrupted.usage.total, interrupted.cost.amount) == (
            "cancelled",
            None,
            None,
        )


class TestRetries:
    def test_each_failed_try_is_an_event_and_the_next_one_has_its_own_number(self) -> None:
        half = stream(delta(content="half"), done=False)
        with asking(BUSY, BROKEN, half, says("at last")) as (one, _):
            reply, request, _ = one.ask()
        assert (reply.content, request) == ("at last", 4)
        assert one.kinds() == ["model_call_started", "model_call_failed"] * 3 + ["model_call_started"]
        assert [(f.error, f.status, f.request) for f in one.failures()] == [
            ("rate_limit", 429, 1),
            ("server", 500, 2),
            ("stream_broken", None, 3),
        ]
        assert one.failures()[2].partial == "half"
        assert all(f.retry_in is not None and f.usage.total is None for f in one.failures())

    def test_a_failed_try_whose_usage_is_known_has_its_price_and_one_without_has_none(self) -> None:
        used = usage_chunk(prompt_tokens=1_000_000, completion_tokens=0, total_tokens=1_000_000)
        aborted = stream(delta(content="so", finish="abort"), used)
        price = Price(provider="openai", model="gpt-5")
        with asking(aborted, BROKEN, says("x"), model={"price": price}) as (one, _):
            one.ask()
        assert [f.cost.amount for f in one.failures()] == [Decimal("1.25"), None]

    def test_the_wait_the_server_asks_for_is_honoured(self) -> None:
        slow = plain({}, status=429, headers={"Retry-After": "0.7"})
        with asking(slow, says("x")) as (one, server):
            one.ask()
        first, second = server.calls
        assert second.at - first.at >= 0.7
        assert one.failures()[0].retry_in == pytest.approx(0.7, abs=0.01)

    def test_a_dropped_connection_is_tried_again(self) -> None:
        dropped = Answer(pieces=[event(delta(content="x"))], cut_after=5)
        with asking(dropped, says("x")) as (one, _):
            assert one.ask().request == 2

    def test_retries_end_after_their_time_with_an_endpoint_error(self) -> None:
        with (
            asking(BROKEN, retry_seconds=4.0, first_wait=0.05) as (one, server),
            pytest.raises(EndpointError) as caught,
        ):
            one.ask()
        assert caught.value.retryable
        assert caught.value.exit_reason is ExitReason.LLM_QUERY_ERROR
        assert "given up after" in str(caught.value)
        assert len(one.failures()) == len(server.calls) >= 2
        assert one.failures()[-1].retry_in is None
        assert all(f.retry_in is not None for f in one.failures()[:-1])

    def test_rate_limits_for_ever_end_with_the_wall_time_although_no_usage_grows(self) -> None:
        with asking(BUSY, retry_seconds=900) as (one, _):
            started = time.monotonic()
            with pytest.raises(AttemptStoppedError) as caught:
                one.ask(deadline=seconds_until(started + 0.6))
            assert time.monotonic() - started < SOON
        assert caught.value.reason is ExitReason.MAX_TIME
        assert all(f.usage.total is None and f.cost.amount is None for f in one.failures())

    def test_a_wait_longer_than_the_wall_time_is_cut_at_it(self) -> None:
        with asking(plain({}, status=429, headers={"Retry-After": "3600"})) as (one, _):
            started = time.monotonic()
            with pytest.raises(AttemptStoppedError) as caught:
                one.ask(deadline=seconds_until(started + 0.4))
            assert time.monotonic() - started < SOON
        assert caught.value.reason is ExitReason.MAX_TIME

    def test_the_wall_time_interrupts_a_call_that_is_under_way(self) -> None:
        with asking(says("x", delay=60)) as (one, _), pytest.raises(AttemptStoppedError) as caught:
            one.ask(deadline=seconds_until(time.monotonic() + 4.0))
        assert caught.value.reason is ExitReason.MAX_TIME
        assert one.kinds() == ["model_call_started", "model_call_interrupted"]

    def test_with_no_wall_time_left_nothing_is_sent(self) -> None:
        with asking(says("x")) as (one, server), pytest.raises(AttemptStoppedError) as caught:
            one.ask(deadline=lambda: -1.0)
        assert caught.value.reason is ExitReason.MAX_TIME
        assert (server.calls, one.kinds()) == ([], [])

    def test_a_stop_during_a_wait_is_heard_at_once(self) -> None:
        with asking(plain({}, status=503, headers={"Retry-After": "60"})) as (one, _):
            threading.Timer(0.4, one.stop.set, [ExitReason.CANCELLED]).start()
            started = time.monotonic()
            with pytest.raises(AttemptStoppedError) as caught:
                one.ask()
            assert time.monotonic() - started < SOON
        assert caught.value.reason is ExitReason.CANCELLED

    def test_a_damaged_answer_is_asked_for_three_times_only(self) -> None:
        with asking(stream("{")) as (one, server), pytest.raises(EndpointError):
            one.ask()
        assert len(server.calls) == 3

    def test_waits_grow_and_differ(self) -> None:
        with asking(*[BROKEN] * 5, says("x"), first_wait=0.02) as (one, _):
            one.ask()
        waits = [f.retry_in or 0.0 for f in one.failures()]
        assert waits[-1] > waits[0]
        assert len(set(waits)) == len(waits)


class TestFinalErrors:
    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_what_can_never_become_right_is_asked_once(self, status: int) -> None:
        with (
            asking(plain({"error": {"message": "no"}}, status=status)) as (one, server),
            pytest.raises(EndpointError) as caught,
        ):
            one.ask()
        assert not caught.value.retryable
        assert len(server.calls) == 1
        assert (one.failures()[0].error, one.failures()[0].retry_in) == ("http_4xx", None)

    def test_a_refused_key_is_named_by_its_variable_with_address_model_and_status(self) -> None:
        refused = plain({"error": {"message": "bad key the-key-of-the-endpoint"}}, status=401)
        redact = Redactor({"MY_KEY": "the-key-of-the-endpoint"})
        with (
            asking(refused, key_variable="MY_KEY", redact=redact) as (one, server),
            pytest.raises(EndpointError) as caught,
        ):
            one.ask()
        text = str(caught.value)
        assert f"model fake at {server.base_url}" in text
        assert "the server answered 401" in text
        assert "the key in variable MY_KEY was refused" in text
        assert "the-key-of-the-endpoint" not in text + repr(one.sink.events)

    def test_an_unknown_model_is_answered_with_those_the_server_lists(self) -> None:
        missing = plain({"error": {"message": "no such model"}}, status=404)
        with (
            asking(missing, listed=models("qwen3-8b", "qwen3-32b")) as (one, _),
            pytest.raises(EndpointError, match="the server lists: qwen3-8b, qwen3-32b"),
        ):
            one.ask()

    def test_a_web_page_is_answered_with_what_a_base_url_looks_like(self) -> None:
        with (
            asking(html()) as (one, _),
            pytest.raises(EndpointError, match="usually it ends in /v1") as caught,
        ):
            one.ask()
        assert not caught.value.retryable
        assert one.failures()[0].raw.startswith("<!doctype")

    def test_a_context_overflow_is_its_own_error(self) -> None:
        long = {
            "object": "error",
            "message": "longer than the model's context length (8 tokens)",
            "code": 400,
        }
        with asking(plain(long, status=400)) as (one, _), pytest.raises(ContextOverflowError):
            one.ask()
        assert one.kinds() == ["model_call_started", "model_call_failed"]
        assert one.failures()[0].error == "context_overflow"

    def test_a_closed_port_is_tried_and_then_named(self) -> None:
        with FakeOpenAI() as server:
            one = Asking(server, retry_seconds=0.3)
        with pytest.raises(EndpointError) as caught:
            one.ask()
        assert server.base_url in str(caught.value)
        assert "check that the server runs" in str(caught.value)
        assert {f.error for f in one.failures()} == {"connection"}


def test_a_secret_that_the_end_of_a_kept_error_text_cuts_leaves_no_part_of_itself() -> None:
    key = "an-endpoint-key-0123456789"
    before = "x" * (RAW_CHARACTERS - 20)
    refused = Answer(status=401, pieces=[(before + key).encode()], content_type="text/plain")
    with (
        asking(refused, redact=Redactor({"MY_KEY": key})) as (one, _),
        pytest.raises(EndpointError),
    ):
        one.ask()
    (failed,) = one.failures()
    assert failed.raw == before + "[redacted: MY_KEY]"


@pytest.mark.parametrize("cut", [0, 1, 5, 15, 25, 26, 40])
def test_a_secret_at_the_end_of_what_is_read_of_an_endless_error_leaves_no_part_of_itself(cut: int) -> None:
    # Replaced, the answer is much shorter than what is read of it: its end is among what is kept.
    key = "k" + "0123456789" * 400
    text = "x" * cut + f" {key}" * 30
    refused = Answer(status=400, pieces=[text.encode()], content_type="text/plain")
    with asking(refused, redact=Redactor({"A": key})) as (one, _), pytest.raises(EndpointError) as caught:
        one.ask()
    (failed,) = one.failures()
    for kept in (failed.raw, failed.message, str(caught.value)):
        assert "012345" not in kept


def test_a_broken_stream_whose_chunks_hold_a_secret_in_pieces_keeps_no_raw_bytes_of_it() -> None:
    key = "the-key-of-the-endpoint"
    halves = [delta(content="it is " + key[:14]), delta(content=key[14:] + " and")]
    with asking(stream(*halves, done=False), redact=Redactor({"K": key}), retry_seconds=0.0) as (one, _):
        with pytest.raises(EndpointError):
            one.ask()
        (failed,) = one.failures()
    assert failed.partial == "it is [redacted: K] and"
    assert key[:14] not in failed.raw
    assert "not kept" in failed.raw


def test_a_stream_that_breaks_in_the_middle_of_a_secret_keeps_no_part_of_it() -> None:
    key = "the-key-of-the-endpoint"
    call = delta(
        tool_calls=[{"index": 0, "id": "a", "function": {"name": "B", "arguments": '{"c": "' + key[:9]}}]
    )
    other = delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "C", "arguments": key[:12]}}])
    with asking(stream(call, other, done=False), redact=Redactor({"K": key}), retry_seconds=0.0) as (one, _):
        with pytest.raises(EndpointError):
            one.ask()
        (failed,) = one.failures()
    assert key[:5] not in failed.model_dump_json()


def test_secrets_in_a_reply_are_replaced_before_anybody_gets_it() -> None:
    key = "the-key-of-the-endpoint"
    call = delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "Bash", "arguments": f'"{key}"'}}])
    answer = stream(delta(reasoning=f"I see {key}"), delta(content=key), call, delta(finish="stop"))
    with asking(answer, redact=Redactor({"MY_KEY": key})) as (one, _):
        reply = one.ask().reply
    assert key not in reply.model_dump_json()
    assert reply.content == "[redacted: MY_KEY]"
    assert reply.tool_calls[0].arguments == '"[redacted: MY_KEY]"'
