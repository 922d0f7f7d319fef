"""One try of a model call, against a server with real sockets and every fault it may have."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lab.engine.errors import ExitReason
from lab.engine.llm.base import ModelConfig, Reply
from lab.engine.llm.failures import CallFailure, CallInterrupted
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, html, plain, says, stream, usage_chunk

BODY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def model_at(base_url: str, **fields: Any) -> ModelConfig:
    return ModelConfig(name="fake", model_id="fake", base_url=base_url, **fields)


def no_draft(**_: Any) -> None:
    return


def ask(answer: Answer, *, body: dict[str, Any] = BODY, max_bytes: int = 1 << 26, **fields: Any) -> Reply:
    with (
        FakeOpenAI(answer) as server,
        ChatConnection(model_at(server.base_url, **fields), api_key="k", max_reply_bytes=max_bytes) as chat,
    ):
        return chat.try_once(step=1, body=body, stop=StopSignal(), draft=no_draft)


def failure(answer: Answer, **fields: Any) -> CallFailure:
    with pytest.raises(CallFailure) as caught:
        ask(answer, **fields)
    return caught.value


def call(index: int | None = 0, **fields: Any) -> dict[str, Any]:
    """A delta of one tool call; `name` and `arguments` go into its function."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    where = {} if index is None else {"index": index}
    return delta(tool_calls=[where | fields | {"function": function}])


class TestWhatIsSent:
    def test_the_body_arrives_as_it_was_given(self) -> None:
        body = {
            "model": "fake",
            "messages": [
                {"role": "user", "content": "grüße 👋"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function"}]},
            ],
            "tools": [{"type": "function", "function": {"name": "b", "parameters": {"z": 1, "a": 2}}}],
            "temperature": 0.6,
            "chat_template_kwargs": {"enable_thinking": True},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with FakeOpenAI() as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            chat.try_once(step=1, body=body, stop=StopSignal(), draft=no_draft)
        assert server.calls[0].body == body
        assert list(server.calls[0].body["tools"][0]["function"]["parameters"]) == ["z", "a"]

    def test_the_key_goes_out_as_a_bearer_token_and_the_models_headers_beside_it(self) -> None:
        with FakeOpenAI() as server:
            model = model_at(server.base_url, headers={"X-Team": "lab"})
            with ChatConnection(model, api_key="key-1") as chat:
                chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert server.calls[0].headers["authorization"] == "Bearer key-1"
        assert server.calls[0].headers["x-team"] == "lab"

    def test_without_a_key_none_is_sent_and_the_environments_openai_variables_stay_at_home(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
            monkeypatch.setenv(name, "private")
        with FakeOpenAI() as server, ChatConnection(model_at(server.base_url), api_key="") as chat:
            chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert "private" not in str(server.calls[0].headers)

    def test_calls_share_one_connection(self) -> None:
        with FakeOpenAI() as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            opened = []
            original = chat._backend.connect_tcp

            def counting(*arguments: Any, **named: Any) -> Any:
                opened.append(1)
                return original(*arguments, **named)

            chat._backend.connect_tcp = counting  # type: ignore[method-assign]
            for _ in range(3):
                chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert len(server.calls) == 3
        assert len(opened) == 1

    def test_a_proxy_of_the_environment_is_not_asked_for_loopback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert ask(says("hello there")).content == "hello there"


class TestGoodAnswers:
    def test_text_reasoning_and_usage_are_put_together(self) -> None:
        reply = ask(
            stream(
                delta(role="assistant", content=""),
                delta(reasoning_content="Let me "),
                delta(reasoning_content="think."),
                delta(content="Done"),
                delta(content="."),
                delta(finish="stop"),
                usage_chunk(prompt_tokens=7, completion_tokens=3, total_tokens=10),
            )
        )
        assert (reply.reasoning, reply.reasoning_field) == ("Let me think.", "reasoning_content")
        assert (reply.content, reply.finish_reason) == ("Done.", "stop")
        assert (reply.usage.input_total, reply.usage.output_total) == (7, 3)
        assert (reply.model, reply.response_id) == ("fake", "chatcmpl-fake")
        assert reply.first_token_seconds is not None
        assert 0 < reply.first_token_seconds <= reply.seconds

    def test_the_newer_reasoning_field_keeps_its_name(self) -> None:
        reply = ask(stream(delta(reasoning="hm"), delta(content="x", finish="stop")))
        assert (reply.reasoning, reply.reasoning_field) == ("hm", "reasoning")

    def test_reasoning_sent_in_both_fields_is_counted_once(self) -> None:
        reply = ask(stream(delta(reasoning="hm", reasoning_content="hm"), delta(content="x", finish="stop")))
        assert reply.reasoning == "hm"

    def test_null_content_is_empty_and_a_refusal_is_kept(self) -> None:
        reply = ask(stream(delta(content=None, refusal="I will not."), delta(finish="stop")))
        assert (reply.content, reply.refusal) == ("", "I will not.")

    def test_the_last_usage_that_is_not_null_counts(self) -> None:
        reply = ask(
            stream(
                delta(content="x", usage={"prompt_tokens": 5, "completion_tokens": 1}),
                delta(finish="stop", usage={"prompt_tokens": 5, "completion_tokens": 2}),
                {"choices": [], "usage": None},
            )
        )
        assert reply.usage.output_total == 2

    def test_a_stream_without_its_end_mark_is_whole_when_a_finish_reason_came(self) -> None:
        assert ask(stream(delta(content="x"), delta(finish="length"), done=False)).finish_reason == "length"

    def test_a_server_that_ignores_streaming_is_understood(self) -> None:
        message = {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}}],
        }
        answer = {
            "id": "1",
            "model": "fake",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        }
        reply = ask(plain(answer))
        assert (reply.tool_calls[0].name, reply.reasoning) == ("Read", "hm")
        assert (reply.finish_reason, reply.usage.total) == ("tool_calls", 7)

    def test_a_stream_with_the_wrong_content_type_comments_and_single_line_ends_is_understood(self) -> None:
        pieces = [b": keep-alive\n\n", b"event: message\r\nid: 3\r\n", event(delta(content="a")).rstrip(b"\n") + b"\n"]
        pieces += [event(delta(content="b")).replace(b"\n", b"\r\n"), event(delta(finish="stop"))]
        assert ask(Answer(pieces=pieces, content_type="text/plain")).content == "ab"

    def test_a_server_that_leaves_the_connection_open_after_the_end_mark_is_not_waited_for(self) -> None:
        started = time.monotonic()
        assert ask(says("hello", silence=8.0)).content == "hello"
        assert time.monotonic() - started < 6

    def test_every_piece_of_text_can_be_watched_and_a_long_text_is_not_shown_for_each(self) -> None:
        seen: list[str] = []

        def draft(*, content: str, **_: Any) -> None:
            seen.append(content)

        chunks = [delta(content="word ") for _ in range(5000)]
        with FakeOpenAI(stream(*chunks, delta(finish="stop"))) as server:
            with ChatConnection(model_at(server.base_url), api_key="k") as chat:
                reply = chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=draft)
        assert reply.content == "word " * 5000
        assert seen[0].startswith("word ")
        assert seen == sorted(seen, key=len)
        assert sum(map(len, seen)) < 100 * len(reply.content)


class TestText:
    def test_a_character_split_between_packets_arrives_whole(self) -> None:
        whole = event('{"choices":[{"delta":{"content":"naïve 👋"}}]}')
        cut = whole.index(b"\x9f")
        pieces = [whole[:cut], whole[cut:], event(delta(finish="stop"))]
        assert ask(Answer(pieces=pieces, pause=0.02)).content == "naïve 👋"

    def test_bytes_that_are_no_utf8_are_replaced(self) -> None:
        piece = b'data: {"choices":[{"delta":{"content":"a\xff\xfeb"},"finish_reason":"stop"}]}\n\n'
        assert ask(Answer(pieces=[piece])).content == "a��b"

    def test_a_lone_surrogate_is_replaced_and_a_pair_split_between_deltas_is_joined(self) -> None:
        chunks = [
            '{"choices":[{"delta":{"content":"\\ud83d"}}]}',
            '{"choices":[{"delta":{"content":"\\ude00 \\ud800"}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"b","arguments":"\\udfff"}}]}}]}',
        ]
        reply = ask(stream(*chunks, delta(finish="stop")))
        assert reply.content == "😀 �"
        assert reply.tool_calls[0].arguments == "�"
        json.dumps(reply.model_dump(mode="json"), ensure_ascii=False).encode()

    def test_a_chunk_of_ten_megabytes_is_read_in_time_that_grows_with_its_length_only(self) -> None:
        text = "x" * 10_000_000
        started = time.monotonic()
        assert len(ask(stream(delta(content=text), delta(finish="stop"))).content) == len(text)
        assert time.monotonic() - started < 20


class TestToolCalls:
    def test_deltas_are_merged_by_index_however_they_are_interleaved(self) -> None:
        reply = ask(
            stream(
                call(0, id="a", name="Read", arguments=""),
                call(1, id="b", name="Glob", arguments='{"pat'),
                call(0, arguments='{"file_path": '),
                call(1, arguments='tern": "*"}'),
                call(0, arguments='"x"}'),
                delta(finish="tool_calls"),
            )
        )
        assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
            ("a", "Read", '{"file_path": "x"}'),
            ("b", "Glob", '{"pattern": "*"}'),
        ]
        assert not any(c.synthesised_id for c in reply.tool_calls)

    def test_missing_and_repeated_ids_are_made_and_marked(self) -> None:
        reply = ask(
            stream(
                call(0, id=None, name="a", arguments="{}"),
                call(1, id="same", name="b", arguments="{}"),
                call(2, id="same", name="c", arguments="{}"),
                delta(finish="tool_calls"),
            )
        )
        assert [c.synthesised_id for c in reply.tool_calls] == [True, False, True]
        assert len({c.id for c in reply.tool_calls}) == 3
        assert all(len(c.id) == 29 and c.id.startswith("call_") for c in reply.tool_calls if c.synthesised_id)

    def test_a_missing_index_is_made_good(self) -> None:
        reply = ask(
            stream(
                call(None, id="a", name="Read", arguments='{"x'),
                call(None, arguments='": 1}'),
                call(None, id="b", name="Glob", arguments="{}"),
                call(None, name="Bash", arguments="{}"),
                delta(finish="tool_calls"),
            )
        )
        assert [(c.name, c.arguments) for c in reply.tool_calls] == [
            ("Read", '{"x": 1}'),
            ("Glob", "{}"),
            ("Bash", "{}"),
        ]

    def test_parallel_calls_that_all_say_index_zero_stay_apart(self) -> None:
        reply = ask(
            stream(
                call(0, id="a", name="Read", arguments="{}"),
                call(0, id="b", name="Read", arguments="{}"),
                delta(finish="tool_calls"),
            )
        )
        assert [c.id for c in reply.tool_calls] == ["a", "b"]

    def test_broken_arguments_stay_raw_and_arguments_sent_as_an_object_become_text(self) -> None:
        reply = ask(
            stream(
                call(0, id="a", name="Read", arguments='{"file_path": "x'),
                call(1, id="b", name="Read", arguments={"file_path": "y"}),
                delta(finish="tool_calls"),
            )
        )
        assert [c.arguments for c in reply.tool_calls] == ['{"file_path": "x', '{"file_path": "y"}']

    def test_a_name_repeated_in_every_delta_is_taken_once(self) -> None:
        reply = ask(
            stream(
                call(0, id="a", name="Read", arguments="{"),
                call(0, id="a", name="Read", arguments="}"),
                delta(finish="stop"),
            )
        )
        assert (reply.tool_calls[0].name, reply.tool_calls[0].arguments) == ("Read", "{}")


class TestBrokenAnswers:
    def test_a_stream_that_dies_midway_is_a_failed_try_with_its_text_and_unknown_usage(self) -> None:
        good = [event(delta(content="half a ")), event(delta(content="thought"))]
        failed = failure(Answer(pieces=[*good, b"data: {}"], cut_after=len(good[0]) + len(good[1]) + 4))
        assert (failed.error, failed.partial, failed.retryable) == ("stream_broken", "half a thought", True)
        assert failed.usage.total is None

    def test_half_a_tool_call_is_only_kept_as_partial_text(self) -> None:
        failed = failure(stream(call(0, id="a", name="Bash", arguments='{"command": "rm'), done=False))
        assert failed.error == "stream_broken"
        assert 'Bash {"command": "rm' in failed.partial

    def test_an_end_mark_without_a_finish_reason_is_a_broken_stream(self) -> None:
        assert failure(stream(delta(content="so"))).error == "stream_broken"

    def test_an_answer_that_sglang_aborts_is_a_failed_try_and_its_usage_is_kept(self) -> None:
        used = usage_chunk(prompt_tokens=9, completion_tokens=2, total_tokens=11)
        failed = failure(stream(delta(content="so"), delta(finish="abort"), used))
        assert (failed.error, failed.usage.total) == ("stream_broken", 11)

    @pytest.mark.parametrize(
        "answer",
        [Answer(), Answer(pieces=[b"\n\n"]), stream(), stream({"choices": []}), Answer(content_type="text/html")],
        ids=["no body", "white space", "only the end mark", "no choices", "empty html"],
    )
    def test_an_empty_stream_is_a_bad_stream(self, answer: Answer) -> None:
        assert failure(answer).error == "bad_stream"

    def test_a_data_line_that_is_not_json_is_kept(self) -> None:
        failed = failure(stream(delta(content="good"), '{"choices": [{'))
        assert (failed.error, failed.partial) == ("bad_stream", "good")
        assert '{"choices": [{' in failed.raw

    def test_an_html_page_says_that_the_base_url_is_wrong(self) -> None:
        failed = failure(html())
        assert (failed.error, failed.retryable) == ("not_json", False)
        assert "not an OpenAI-compatible base URL; usually it ends in /v1" in failed.message
        assert "<title>Welcome" in failed.raw

    def test_plain_text_is_no_api_answer_either(self) -> None:
        assert failure(Answer(pieces=[b"It works!\n"], content_type="text/plain")).error == "not_json"

    def test_json_without_choices_is_a_bad_stream(self) -> None:
        assert failure(plain({"hello": 1})).error == "bad_stream"

    def test_an_endless_stream_is_broken_off_at_the_byte_cap(self) -> None:
        endless = Answer(pieces=[event(delta(content="again and " * 500))], endless=True)
        failed = failure(endless, max_bytes=300_000)
        assert (failed.error, failed.retryable) == ("bad_stream", False)
        assert 0 < len(failed.partial) < 400_000

    def test_an_endless_answer_without_a_line_end_is_broken_off_too(self) -> None:
        assert failure(Answer(pieces=[b"x" * 5000], endless=True), max_bytes=300_000).error == "bad_stream"


class TestServerErrors:
    @pytest.mark.parametrize(
        ("answer", "error", "retryable"),
        [
            (plain({"error": {"message": "slow down"}}, status=429), "rate_limit", True),
            (plain({"error": {"message": "oops"}}, status=500), "server", True),
            (Answer(pieces=[b"bad gateway"], status=502), "server", True),
            (html("<h1>502</h1>", status=502), "server", True),
            (plain({"error": {"message": "bad key"}}, status=401), "http_4xx", False),
            (plain({"error": {"message": "no such model"}}, status=404), "http_4xx", False),
            (plain({"detail": [{"loc": ["body"], "msg": "field required"}]}, status=422), "http_4xx", False),
            (plain({"error": "just text"}, status=400), "http_4xx", False),
            (Answer(status=408), "http_4xx", True),
        ],
    )
    def test_the_status_says_what_kind_of_failure_it_is(self, answer: Answer, error: str, retryable: bool) -> None:
        failed = failure(answer)
        assert (failed.error, failed.status, failed.retryable) == (error, answer.status, retryable)

    @pytest.mark.parametrize(
        ("header", "value", "low", "high"),
        [
            ("Retry-After", "7", 7, 7),
            ("Retry-After", "0.5", 0.5, 0.5),
            ("retry-after-ms", "250", 0.25, 0.25),
            ("Retry-After", "Mon, 01 Jan 2001 00:00:00 GMT", 0, 0),
            ("Retry-After", "Sat, 01 Jan 2050 00:00:00 GMT", 1e6, 1e10),
        ],
    )
    def test_the_wait_a_server_asks_for_is_read(self, header: str, value: str, low: float, high: float) -> None:
        seconds = failure(plain({}, status=429, headers={header: value})).retry_after
        assert seconds is not None
        assert low <= seconds <= high

    @pytest.mark.parametrize("value", ["soon", ""])
    def test_a_wait_that_cannot_be_read_is_none(self, value: str) -> None:
        assert failure(plain({}, status=429, headers={"Retry-After": value})).retry_after is None

    OPENAI = {"error": {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}}
    SGLANG_LONG = {
        "object": "error",
        "message": "The input (70000 tokens) is longer than the model's context length (65536 tokens).",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    SGLANG_SUM = SGLANG_LONG | {
        "message": "Requested token count exceeds the model's maximum context length of 65536 tokens."
    }
    VLLM = {
        "error": {
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens. "
            "Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "code": 400,
        }
    }
    LLAMA = {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
        }
    }

    @pytest.mark.parametrize(
        "error", [OPENAI, SGLANG_LONG, SGLANG_SUM, VLLM, LLAMA], ids=["openai", "sglang", "sglang sum", "vllm", "llama"]
    )
    @pytest.mark.parametrize("how", ["status 400", "in a data line", "in a 200 answer"])
    def test_a_context_overflow_is_known_in_every_servers_words(self, error: dict[str, Any], how: str) -> None:
        wrapped = error if "error" in error else {"error": error}
        answer = {
            "status 400": plain(error, status=400),
            "in a data line": stream(wrapped),
            "in a 200 answer": plain(error),
        }[how]
        failed = failure(answer)
        assert (failed.error, failed.retryable) == ("context_overflow", False)

    def test_a_bad_request_about_something_else_is_no_overflow(self) -> None:
        flags = {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice', "code": 400}}
        assert failure(plain(flags, status=400)).error == "http_4xx"

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            ({"message": "CUDA error", "type": "InternalServerError", "code": 500}, "server"),
            ({"message": "busy", "type": "rate_limit_exceeded"}, "rate_limit"),
            ({"message": "no tools here", "type": "invalid_request_error"}, "http_4xx"),
            ({"message": "strange"}, "server"),
        ],
    )
    def test_an_error_in_the_middle_of_a_stream_is_typed_and_the_text_before_it_kept(
        self, error: dict[str, Any], kind: str
    ) -> None:
        failed = failure(stream(delta(content="so far"), {"error": error}))
        assert (failed.error, failed.partial) == (kind, "so far")
        assert failed.message == error["message"]


class TestTime:
    def test_no_first_byte_is_a_time_out(self) -> None:
        failed = failure(says("x", delay=5.0), read_timeout=0.4)
        assert (failed.error, failed.retryable) == ("timeout", True)
        assert "no answer within 0.4 s" in failed.message

    def test_a_stall_in_mid_stream_is_a_time_out_that_keeps_what_came(self) -> None:
        failed = failure(stream(delta(content="so"), done=False, silence=5.0), read_timeout=0.4)
        assert (failed.error, failed.partial) == ("timeout", "so")
        assert "stalled" in failed.message

    def test_a_slow_stream_that_never_stalls_may_take_longer_than_the_read_time_out(self) -> None:
        chunks = [delta(content="a") for _ in range(6)]
        assert ask(stream(*chunks, delta(finish="stop"), pause=0.25), read_timeout=1.0).content == "a" * 6

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
        answer = Answer(pieces=[event(delta(content="a")) for _ in range(400)], pause=0.02)
        with FakeOpenAI(answer) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            started = time.monotonic()
            with pytest.raises(CallInterrupted) as caught:
                chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft, seconds_left=lambda: 0.5)
        assert caught.value.reason is ExitReason.MAX_TIME
        assert caught.value.partial.startswith("a")
        assert time.monotonic() - started < 4


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
    def interrupted(self, chat: ChatConnection, *, after: float) -> tuple[CallInterrupted, float]:
        """The interruption, and the seconds from setting the signal to its arrival."""
        stop = StopSignal()
        set_at: list[float] = []

        def cancel() -> None:
            set_at.append(time.monotonic())
            stop.set(ExitReason.CANCELLED)

        timer = threading.Timer(after, cancel)
        timer.start()
        try:
            with pytest.raises(CallInterrupted) as caught:
                chat.try_once(step=1, body=BODY, stop=stop, draft=no_draft)
            return caught.value, time.monotonic() - set_at[0]
        finally:
            timer.cancel()

    def test_a_stop_while_waiting_for_headers_is_heard_at_once(self) -> None:
        with FakeOpenAI(says("x", delay=30)) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            _, seconds = self.interrupted(chat, after=0.4)
        assert seconds < 2

    def test_a_stop_in_the_middle_of_a_stream_keeps_what_came(self) -> None:
        answer = Answer(pieces=[event(delta(content="a ")) for _ in range(3)], silence=30)
        with FakeOpenAI(answer) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            caught, seconds = self.interrupted(chat, after=0.6)
        assert seconds < 2
        assert (caught.reason, caught.partial) == (ExitReason.CANCELLED, "a a a ")

    def test_a_stop_while_connecting_is_heard_at_once(self) -> None:
        listener, port = silent_port()
        try:
            with ChatConnection(model_at(f"http://127.0.0.1:{port}/v1", connect_timeout=30), api_key="k") as chat:
                _, seconds = self.interrupted(chat, after=0.4)
        finally:
            listener.close()
            while FILLERS:
                FILLERS.pop().close()
        assert seconds < 2

    def test_a_stop_during_a_tls_handshake_is_heard_at_once(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        try:
            with ChatConnection(model_at(f"https://127.0.0.1:{port}/v1", connect_timeout=30), api_key="k") as chat:
                _, seconds = self.interrupted(chat, after=0.4)
        finally:
            listener.close()
        assert seconds < 2

    def test_a_stop_that_was_set_before_sends_nothing(self) -> None:
        stop = StopSignal()
        stop.set(ExitReason.MAX_TIME)
        with FakeOpenAI() as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            with pytest.raises(CallInterrupted) as caught:
                chat.try_once(step=1, body=BODY, stop=stop, draft=no_draft)
        assert caught.value.reason is ExitReason.MAX_TIME
        assert server.calls == []

    def test_the_connection_can_be_used_again_after_a_stop(self) -> None:
        answers = [says("x", delay=30), says("hello again")]
        with FakeOpenAI(*answers) as server, ChatConnection(model_at(server.base_url), api_key="k") as chat:
            self.interrupted(chat, after=0.3)
            reply = chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert reply.content == "hello again"


def test_a_call_with_a_long_context_costs_a_few_milliseconds_of_processor_time() -> None:
    messages = [{"role": "user", "content": "x" * 2000} for _ in range(150)]
    body = {**BODY, "messages": messages}
    with FakeOpenAI(says("one two three four five")) as server:
        with ChatConnection(model_at(server.base_url), api_key="k") as chat:
            once: Callable[[], Reply] = lambda: chat.try_once(  # noqa: E731
                step=1, body=body, stop=StopSignal(), draft=no_draft
            )
            once()
            started = time.thread_time()
            for _ in range(20):
                once()
            spent = (time.thread_time() - started) / 20
    # The SDK's own way of sending the same list takes some 50 ms.
    assert spent < 0.02
