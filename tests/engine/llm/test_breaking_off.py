"""Time-outs, and stopping a request at every stage of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lab.engine.errors import ExitReason
from lab.engine.llm.failures import CallFailure, CallInterrupted
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.stop import StopSignal
from tests.engine.llm.asking import BODY, ask, failure, model_at, no_draft
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, says, stream
from tests.timing import SOON, when


class TestTime:
    def test_no_first_byte_is_a_time_out(self) -> None:
        failed = failure(says("x", delay=60), read_timeout=0.4)
        assert (failed.error, failed.retryable) == ("timeout", True)
        assert "no answer within 0.4 s" in failed.message

    def test_a_stall_in_mid_stream_is_a_time_out_that_keeps_what_came(self) -> None:
        failed = failure(stream(delta(content="so"), done=False, silence=60), read_timeout=4.0)
        assert (failed.error, failed.partial) == ("timeout", "so")
        assert "stalled" in failed.message

    def test_a_slow_stream_that_never_stalls_may_take_longer_than_the_read_time_out(self) -> None:
        chunks = [delta(content="a") for _ in range(6)]
        assert ask(stream(*chunks, delta(finish="stop"), pause=0.9), read_timeout=5.0).content == "a" * 6

    def test_a_closed_port_is_a_connection_failure(self) -> None:
        with FakeOpenAI() as server:
            url = server.base_url
        with ChatConnection(model_at(url), api_key="k") as chat, pytest.raises(CallFailure) as caught:
            chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert (caught.value.error, caught.value.retryable) == ("connection", True)
        assert url in caught.value.message

    def test_an_unknown_host_is_a_connection_failure(self) -> None:
        with (
            ChatConnection(model_at("http://nowhere.invalid/v1"), api_key="k") as chat,
            pytest.raises(CallFailure) as caught,
        ):
            chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert caught.value.error in {"connection", "timeout"}

    def test_the_wall_time_breaks_a_stream_off(self) -> None:
        answer = Answer(pieces=[event(delta(content="a")) for _ in range(4000)], pause=0.02)
        with FakeOpenAI(answer) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            started = time.monotonic()

            def seconds_left() -> float:
                return started + 4.0 - time.monotonic()

            with pytest.raises(CallInterrupted) as caught:
                chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft, seconds_left=seconds_left)
        assert caught.value.reason is ExitReason.MAX_TIME
        assert caught.value.partial.startswith("a")
        assert time.monotonic() - started < SOON


def silent_port() -> tuple[socket.socket, int]:
    """A listener whose queue is full: further connections to it hang while they connect."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        FILLERS.append(filler)
    return listener, port


FILLERS: list[socket.socket] = []


class TestStopping:
    def interrupted(
        self, chat: ChatConnection, *, asked: Callable[[], object] = lambda: True
    ) -> tuple[CallInterrupted, float]:
        """The interruption, half a second after `asked` is true, and the seconds from its signal to it."""
        stop = StopSignal()
        set_at: list[float] = []

        def cancel() -> None:
            set_at.append(time.monotonic())
            stop.set(ExitReason.CANCELLED)

        when(asked, lambda: threading.Timer(0.5, cancel).start())
        with pytest.raises(CallInterrupted) as caught:
            chat.try_once(step=1, body=BODY, stop=stop, draft=no_draft)
        return caught.value, time.monotonic() - set_at[0]

    def test_a_stop_while_waiting_for_headers_is_heard_at_once(self) -> None:
        with (
            FakeOpenAI(says("x", delay=60)) as server,
            ChatConnection(model_at(server.base_url), api_key="k") as chat,
        ):
            _, seconds = self.interrupted(chat, asked=lambda: server.calls)
        assert seconds < SOON

    def test_a_stop_in_the_middle_of_a_stream_keeps_what_came(self) -> None:
        sent = threading.Event()

        def pieces() -> Iterator[bytes]:
            yield from [event(delta(content="a "))] * 3
            sent.set()

        answer = Answer(pieces=pieces(), silence=60)
        with FakeOpenAI(answer) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            caught, seconds = self.interrupted(chat, asked=sent.is_set)
        assert seconds < SOON
        assert (caught.reason, caught.partial) == (ExitReason.CANCELLED, "a a a ")

    def test_a_stop_while_connecting_is_heard_at_once(self) -> None:
        listener, port = silent_port()
        try:
            with ChatConnection(
                model_at(f"http://127.0.0.1:{port}/v1", connect_timeout=60), api_key="k"
            ) as chat:
                _, seconds = self.interrupted(chat)
        finally:
            listener.close()
            while FILLERS:
                FILLERS.pop().close()
        assert seconds < SOON

    def test_a_stop_during_a_tls_handshake_is_heard_at_once(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        try:
            with ChatConnection(
                model_at(f"https://127.0.0.1:{port}/v1", connect_timeout=60), api_key="k"
            ) as chat:
                _, seconds = self.interrupted(chat)
        finally:
            listener.close()
        assert seconds < SOON

    def test_a_stop_that_was_set_before_sends_nothing(self) -> None:
        stop = StopSignal()
        stop.set(ExitReason.MAX_TIME)
        with (
            FakeOpenAI() as server,
            ChatConnection(model_at(server.base_url), api_key="k") as chat,
            pytest.raises(CallInterrupted) as caught,
        ):
            chat.try_once(step=1, body=BODY, stop=stop, draft=no_draft)
        assert caught.value.reason is ExitReason.MAX_TIME
        assert server.calls == []

    def test_the_connection_can_be_used_again_after_a_stop(self) -> None:
        answers = [says("x", delay=60), says("hello again")]
        with FakeOpenAI(*answers) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            self.interrupted(chat, asked=lambda: server.calls)
            reply = chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert reply.content == "hello again"
