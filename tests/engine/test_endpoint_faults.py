"""What a model server may do to a whole attempt, and what becomes of it."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab.engine.errors import ExitReason
from lab.engine.events import (
    AttemptEnded,
    Event,
    LimitReached,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    Record,
    ToolCallFinished,
    ToolCallStarted,
    VerificationStarted,
)
from lab.engine.llm.base import Price
from lab.engine.llm.failures import PARTIAL_CHARACTERS, RAW_CHARACTERS
from lab.engine.runner import AttemptResult
from lab.engine.stop import StopSignal
from lab.engine.verify.base import Outcome
from tests.engine.attempts import WatchedSink, run_whole
from tests.engine.conftest import MakeTask
from tests.engine.harnesses.driving import bash, call, calls
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, html, plain, says, stream, usage_chunk
from tests.timing import SOON

Attempt = Callable[..., tuple[AttemptResult, WatchedSink, FakeOpenAI]]
DONE = says("done")


@pytest.fixture(scope="session")
def faults_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults-data")


@pytest.fixture
def attempt(faults_folder: Path, make_task: MakeTask) -> Attempt:
    def run(*answers: Answer, **fields: Any) -> tuple[AttemptResult, WatchedSink, FakeOpenAI]:
        with FakeOpenAI(*answers) as server:
            result, sink = run_whole(
                faults_folder, make_task, server.base_url, **({"retry_seconds": 30.0} | fields)
            )
        return result, sink, server

    return run


def http_date(seconds_from_now: float) -> str:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds_from_now)
    return email.utils.format_datetime(moment, usegmt=True)


class TestBusyServers:
    @pytest.mark.parametrize(
        ("answer", "error", "least"),
        [
            (lambda: plain({}, status=429, headers={"Retry-After": "1"}), "rate_limit", 0.95),
            (lambda: plain({}, status=503, headers={"retry-after-ms": "300"}), "server", 0.28),
            (lambda: plain({"error": {"message": "oops"}}, status=500), "server", 0.0),
            (lambda: html("<h1>Bad gateway</h1>", status=502), "server", 0.0),
            (lambda: Answer(status=503, pieces=[b"overloaded"]), "server", 0.0),
            (lambda: Answer(status=529, pieces=[b""]), "server", 0.0),
        ],
        ids=["429 seconds", "503 milliseconds", "500", "502", "503", "529 empty"],
    )
    def test_it_is_asked_again_after_the_wait_it_asks_for_and_the_wait_is_in_the_log(
        self, attempt: Attempt, answer: Callable[[], Answer], error: str, least: float
    ) -> None:
        result, sink, server = attempt(answer(), DONE)
        failed = sink.one(ModelCallFailed)
        assert (result.exit_reason, result.steps, failed.error) == (ExitReason.AGENT, 1, error)
        assert failed.retry_in is not None
        waited = server.calls[1].at - server.calls[0].at
        assert waited >= max(least, failed.retry_in * 0.9)
        assert failed.retry_in >= least * 0.9
        assert [started.request for started in sink.of(ModelCallStarted)] == [1, 2]

    def test_it_is_not_asked_again_before_a_date_that_it_names(self, attempt: Attempt) -> None:
        started = time.monotonic()
        _, sink, server = attempt(plain({}, status=429, headers={"Retry-After": http_date(5)}), DONE)
        # The date has no fractions of a second, and the first wait of one's own is shorter.
        assert server.calls[1].at - started >= 3.9
        assert sink.one(ModelCallFailed).error == "rate_limit"

    def test_waits_without_a_wish_of_the_server_grow_and_differ(self, attempt: Attempt) -> None:
        busy = plain({}, status=500)
        _, sink, _ = attempt(busy, busy, busy, DONE)
        waits = [failed.retry_in or 0 for failed in sink.of(ModelCallFailed)]
        assert waits[2] > waits[0]
        assert all(wait % 1 for wait in waits)

    def test_one_that_stays_busy_ends_the_attempt_as_infrastructure_after_the_time_for_retries(
        self, attempt: Attempt
    ) -> None:
        started = time.monotonic()
        result, sink, _ = attempt(plain({"error": {"message": "down"}}, status=503), retry_seconds=3.0)
        assert 2.5 < time.monotonic() - started < 3 + SOON
        assert (result.exit_reason, result.retryable, result.verdict) == (
            ExitReason.LLM_QUERY_ERROR,
            True,
            None,
        )
        assert sink.of(VerificationStarted) == []
        assert "down" in sink.one(AttemptEnded).error
        assert sink.of(ModelCallFailed)[-1].retry_in is None

    def test_rate_limits_for_ever_end_by_the_wall_time_although_no_usage_grows(
        self, attempt: Attempt
    ) -> None:
        busy = plain({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "600"})
        result, sink, _ = attempt(busy, limits={"max_total_time_sec": 1.5}, retry_seconds=900.0)
        assert (result.exit_reason, result.verdict) == (ExitReason.MAX_TIME, Outcome.RESOLVED)
        assert sink.one(LimitReached).limit == "max_total_time_sec"
        assert sink.one(PatchCaptured).exit_reason == "max_time"

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_a_refusal_is_not_tried_again_and_no_new_attempt_would_help(
        self, attempt: Attempt, status: int
    ) -> None:
        result, sink, server = attempt(plain({"error": {"message": "no"}}, status=status))
        assert (result.exit_reason, result.retryable) == (ExitReason.LLM_QUERY_ERROR, False)
        assert len(server.calls) == 1
        assert sink.one(ModelCallFailed).status == status

    def test_a_server_that_bills_each_failed_try_stops_the_run_near_its_limit(self, attempt: Attempt) -> None:
        usage = usage_chunk(prompt_tokens=400_000, completion_tokens=10, total_tokens=400_010)
        billed = stream(delta(content="half"), delta(finish="abort"), usage)
        price = Price(basis="table", provider="openai", model="gpt-4o")
        result, sink, server = attempt(
            billed, model={"model_id": "gpt-4o", "price": price}, limits={"max_cost_usd": Decimal("1.5")}
        )
        spent = sum(failed.cost.amount or 0 for failed in sink.of(ModelCallFailed))
        each = sink.of(ModelCallFailed)[0].cost.amount or Decimal(0)
        assert result.exit_reason is ExitReason.MAX_COST
        assert Decimal("1.5") <= spent < Decimal("1.5") + each
        assert len(server.calls) == len(sink.of(ModelCallFailed))

    def test_a_model_without_a_price_costs_an_unknown_sum_and_that_of_a_retry_is_not_counted_twice(
        self, attempt: Attempt
    ) -> None:
        _, sink, _ = attempt(plain({}, status=500), says("done", prompt=10, completion=5))
        costs = [
            event.cost for event in sink.events if isinstance(event, ModelCallFailed | ModelCallFinished)
        ]
        assert [cost.amount for cost in costs] == [None, None]
        assert sink.one(ModelCallFinished).reply.usage.total == 15


@contextmanager
def port_that_takes_nobody() -> Iterator[int]:
    """A listener whose queue is full: further connections to it hang while they connect."""
    fillers = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", listener.getsockname()[1]))
            fillers.append(filler)
        try:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


class CancellingSink(WatchedSink):
    """Sets the stop signal a while after an event of one kind, and remembers when."""

    def __init__(self, stop: StopSignal, kind: type[Event], after: float) -> None:
        super().__init__()
        self._stop, self._kind, self._after = stop, kind, after
        self.at = 0.0

    def append(self, event: Event) -> Record:
        record = super().append(event)
        if isinstance(event, self._kind):
            threading.Timer(self._after, self._cancel).start()
        return record

    def _cancel(self) -> None:
        self.at = time.monotonic()
        self._stop.set(ExitReason.CANCELLED)


SILENCES = {
    "no first byte": says("x", delay=60),
    "a stall in the middle": stream(delta(content="so far"), done=False, silence=60),
}


class TestSilentServers:
    @pytest.mark.parametrize("silence", SILENCES)
    def test_it_is_given_up_after_the_read_time_out_and_asked_again(
        self, attempt: Attempt, silence: str
    ) -> None:
        result, sink, _ = attempt(
            SILENCES[silence], DONE, model={"read_timeout": 1.0, "connect_timeout": 30.0}
        )
        # A machine that stands still may fail the good answer as well.
        failed = sink.of(ModelCallFailed)[0]
        assert (result.exit_reason, failed.error) == (ExitReason.AGENT, "timeout")
        assert 0.9 <= failed.seconds < SOON
        assert ("stalled" in failed.message) == (silence == "a stall in the middle")
        assert failed.partial == ("so far" if silence == "a stall in the middle" else "")
        assert failed.usage.total is None

    def test_a_server_that_takes_no_connection_has_a_time_out_of_its_own(
        self, faults_folder: Path, make_task: MakeTask
    ) -> None:
        with port_that_takes_nobody() as port:
            model = {"read_timeout": 60.0, "connect_timeout": 0.5}
            result, sink = run_whole(faults_folder, make_task, f"http://127.0.0.1:{port}/v1", model=model)
        failed = sink.of(ModelCallFailed)[0]
        assert (failed.error, failed.message) == ("timeout", "no connection within 0.5 s")
        assert 0.45 <= failed.seconds < SOON
        assert result.exit_reason is ExitReason.LLM_QUERY_ERROR

    @pytest.mark.parametrize("silence", [*SILENCES, "no connection", "a wait before the next try"])
    def test_a_cancel_takes_effect_within_two_seconds(
        self, faults_folder: Path, make_task: MakeTask, silence: str
    ) -> None:
        stop = StopSignal()
        waits = silence == "a wait before the next try"
        sink = CancellingSink(stop, ModelCallFailed if waits else ModelCallStarted, 0.6)
        busy = plain({}, status=429, headers={"Retry-After": "60"})
        with FakeOpenAI(SILENCES.get(silence, busy)) as server, port_that_takes_nobody() as port:
            url = f"http://127.0.0.1:{port}/v1" if silence == "no connection" else server.base_url
            fields = {"model": {"read_timeout": 60.0, "connect_timeout": 60.0}, "retry_seconds": 600.0}
            result, _ = run_whole(faults_folder, make_task, url, sink=sink, stop=stop, **fields)
        assert result.exit_reason is ExitReason.CANCELLED
        # The sandbox is read for the patch, and removed, before the attempt ends.
        assert time.monotonic() - sink.at < SOON
        if not waits:
            interrupted = sink.one(ModelCallInterrupted)
            assert interrupted.seconds < 0.6 + SOON
            assert interrupted.cost.amount is None
        assert sink.of(VerificationStarted) == []

    @pytest.mark.parametrize("silence", [*SILENCES, "no connection"])
    def test_the_wall_time_ends_it_too_and_the_patch_is_verified(
        self, faults_folder: Path, make_task: MakeTask, silence: str
    ) -> None:
        with FakeOpenAI(SILENCES.get(silence, DONE)) as server, port_that_takes_nobody() as port:
            url = f"http://127.0.0.1:{port}/v1" if silence == "no connection" else server.base_url
            fields = {"model": {"read_timeout": 60.0, "connect_timeout": 60.0}, "retry_seconds": 600.0}
            result, sink = run_whole(
                faults_folder, make_task, url, limits={"max_total_time_sec": 1.0}, **fields
            )
        assert (result.exit_reason, result.verdict) == (ExitReason.MAX_TIME, Outcome.RESOLVED)
        assert sink.one(LimitReached).limit == "max_total_time_sec"


HALF_A_CALL = delta(
    tool_calls=[{"index": 0, "id": "a", "function": {"name": "Bash", "arguments": '{"command": "touch half'}}]
)


class TestBrokenStreams:
    @pytest.mark.parametrize(
        "broken",
        [
            stream(HALF_A_CALL, done=False),
            stream(HALF_A_CALL),
            Answer(
                pieces=[event(HALF_A_CALL), event(delta(finish="tool_calls"))],
                cut_after=len(event(HALF_A_CALL)) + 9,
            ),
        ],
        ids=["ends", "says that it is done", "is cut off"],
    )
    def test_half_a_tool_call_is_kept_and_never_executed(self, attempt: Attempt, broken: Answer) -> None:
        result, sink, _ = attempt(broken, DONE)
        failed = sink.one(ModelCallFailed)
        assert (result.exit_reason, failed.error) == (ExitReason.AGENT, "stream_broken")
        assert "touch half" in failed.partial
        assert sink.of(ToolCallStarted) == []
        assert sink.one(PatchCaptured).patch == ""

    DAMAGED = {
        "bad json": stream(delta(content="so"), '{"choices": [{'),
        "no object": stream(delta(content="so"), "[1, 2]"),
        "an error in the stream": stream(
            delta(content="so"), {"error": {"message": "CUDA error", "code": 500}}
        ),
        "an error with 200": plain({"error": {"message": "CUDA error", "code": 500}}),
        "an error of sglang with 200": plain({"object": "error", "message": "CUDA error", "code": 500}),
        "nothing": Answer(),
        "only the end mark": stream(),
        "json without choices": plain({"hello": 1}),
        "an aborted answer": stream(delta(content="so"), delta(finish="abort")),
    }

    @pytest.mark.parametrize("kind", DAMAGED)
    def test_a_damaged_answer_is_a_failed_try_with_what_had_come_and_the_next_one_counts(
        self, attempt: Attempt, kind: str
    ) -> None:
        result, sink, _ = attempt(self.DAMAGED[kind], DONE)
        failed = sink.one(ModelCallFailed)
        assert result.exit_reason is ExitReason.AGENT
        assert failed.error in {"bad_stream", "stream_broken", "server"}
        assert failed.message
        assert failed.partial in {"so", ""}
        assert sink.one(ModelCallFinished).reply.content == "done"

    def test_an_answer_that_is_damaged_each_time_is_given_up_after_three_tries(
        self, attempt: Attempt
    ) -> None:
        result, sink, server = attempt(stream(delta(content="so"), "{broken"))
        assert (result.exit_reason, len(server.calls)) == (ExitReason.LLM_QUERY_ERROR, 3)
        assert "{broken" in sink.of(ModelCallFailed)[0].raw

    @pytest.mark.parametrize("answer", [html(), Answer(pieces=[b"It works!"], content_type="text/plain")])
    def test_a_page_instead_of_an_api_is_told_with_the_way_out_and_not_asked_again(
        self, attempt: Attempt, answer: Answer
    ) -> None:
        result, _, server = attempt(answer)
        assert (result.exit_reason, result.retryable, len(server.calls)) == (
            ExitReason.LLM_QUERY_ERROR,
            False,
            1,
        )
        assert "usually it ends in /v1" in result.error

    def test_odd_but_whole_answers_are_understood(self, attempt: Attempt) -> None:
        whole = event('{"choices":[{"delta":{"content":"naïve 👋"}}]}')
        cut = whole.index(b"\x9f")
        split = Answer(pieces=[whole[:cut], whole[cut:], event(delta(finish="stop"))], pause=0.02)
        wrong_type = stream(delta(content="x", finish="stop"), content_type="text/plain")
        no_mark = stream(delta(content="x", finish="stop"), done=False)
        for answer, content in ((split, "naïve 👋"), (wrong_type, "x"), (no_mark, "x")):
            result, sink, _ = attempt(answer)
            assert (result.exit_reason, sink.one(ModelCallFinished).reply.content) == (
                ExitReason.AGENT,
                content,
            )
            assert sink.of(ModelCallFailed) == []

    def test_a_chunk_of_ten_megabytes_is_one_reply(self, attempt: Attempt) -> None:
        text = "x" * 10_000_000
        result, sink, _ = attempt(stream(delta(content=text), delta(finish="stop")))
        assert result.exit_reason is ExitReason.AGENT
        assert sink.one(ModelCallFinished).reply.content == text

    def test_an_endless_stream_is_broken_off_and_what_is_kept_of_it_is_bounded(
        self, attempt: Attempt
    ) -> None:
        endless = Answer(pieces=[event(delta(content="again and " * 5000))], endless=True)
        result, sink, server = attempt(endless)
        failed = sink.one(ModelCallFailed)
        assert (result.exit_reason, result.retryable) == (ExitReason.LLM_QUERY_ERROR, False)
        assert failed.error == "bad_stream"
        assert "longer than" in failed.message
        assert 0 < len(failed.partial) <= PARTIAL_CHARACTERS
        assert 0 < len(failed.raw) <= RAW_CHARACTERS
        assert len(server.calls) == 1


class TestStrangeCalls:
    def test_broken_arguments_an_unknown_tool_and_repeated_ids_are_told_to_the_model(
        self, attempt: Attempt
    ) -> None:
        odd = calls(
            call("Bash", '{"command": "ls', "same"), call("Teleport", {"to": "x"}, "same"), bash("echo fine")
        )
        result, sink, server = attempt(odd, DONE)
        assert result.exit_reason is ExitReason.AGENT
        finished = sink.of(ToolCallFinished)
        assert [one.failed for one in finished] == [True, True, False]
        told = [message for message in server.calls[1].body["messages"] if message["role"] == "tool"]
        identities = [message["tool_call_id"] for message in told]
        assert len(set(identities)) == len(told) == 3
        asked = server.calls[1].body["messages"][-4]["tool_calls"]
        assert [one["id"] for one in asked] == identities
        assert all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in asked)

    def test_fifty_calls_at_once_are_executed_in_order_with_one_answer_each(self, attempt: Attempt) -> None:
        result, sink, server = attempt(calls(*(bash(f"echo {n}") for n in range(50))), DONE)
        assert (result.exit_reason, result.steps) == (ExitReason.AGENT, 2)
        outputs = [one.stdout.text for one in sink.of(ToolCallFinished) if one.stdout]
        assert outputs == [f"{n}\n" for n in range(50)]
        assert [message["role"] for message in server.calls[1].body["messages"]].count("tool") == 50

    def test_an_empty_answer_is_the_agents_own_ending(self, attempt: Attempt) -> None:
        result, sink, _ = attempt(stream(delta(content=""), delta(finish="stop")))
        assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED)
        assert sink.one(ModelCallFinished).reply.content == ""

    def test_three_replies_that_are_not_understood_end_the_run_by_their_limit(self, attempt: Attempt) -> None:
        result, sink, server = attempt(calls(call("Bash", "no json")), limits={"max_format_errors": 3})
        assert (result.exit_reason, result.verdict) == (ExitReason.FORMAT_ERRORS, Outcome.RESOLVED)
        assert len(server.calls) == 3
        assert [one.raw_arguments for one in sink.of(ToolCallStarted)] == ["no json"] * 3


class TestContextAndUsage:
    @pytest.mark.parametrize(
        "refused",
        [
            plain({"error": {"message": "maximum context length is 8192 tokens", "code": 400}}, status=400),
            stream({"error": {"message": "the request exceeds the available context size", "code": 400}}),
            plain(
                {"object": "error", "message": "longer than the model's context length", "code": 400},
                status=400,
            ),
        ],
        ids=["status 400", "in the stream", "sglang"],
    )
    def test_an_overflowing_context_is_a_limit_and_the_work_is_verified(
        self, attempt: Attempt, refused: Answer
    ) -> None:
        result, sink, server = attempt(calls(bash("echo 'y = 2' >> thing.py")), refused)
        assert (result.exit_reason, result.verdict) == (ExitReason.MAX_CONTEXT_LEN, Outcome.RESOLVED)
        assert len(server.calls) == 2
        assert "+y = 2" in sink.one(PatchCaptured).patch

    USAGES: dict[str, dict[str, Any] | None] = {
        "missing": None,
        "negative": {"prompt_tokens": -5, "completion_tokens": 3},
        "words": {"prompt_tokens": "many", "completion_tokens": []},
        "absurd": {"prompt_tokens": 10**30, "completion_tokens": 1},
        "no numbers": {"prompt_tokens": True, "completion_tokens": None},
    }

    @pytest.mark.parametrize("kind", USAGES)
    def test_a_usage_that_is_missing_or_wrong_is_unknown_and_the_context_is_estimated(
        self, attempt: Attempt, kind: str
    ) -> None:
        usage = self.USAGES[kind]
        chunks = [delta(content="done"), delta(finish="stop")]
        result, sink, _ = attempt(stream(*chunks, *([{"choices": [], "usage": usage}] if usage else [])))
        finished = sink.one(ModelCallFinished)
        assert result.exit_reason is ExitReason.AGENT
        assert finished.reply.usage.input_total is None
        assert finished.context_tokens_estimated
        assert finished.context_tokens > 0
        assert finished.cost.amount is None
