"""One try of a model call: what is sent, and how answers are put together."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from openai import OpenAI

from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.stop import StopSignal
from tests.engine.llm.asking import BODY, ask, call, model_at, no_draft
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, plain, says, stream, usage_chunk
from tests.timing import SOON, require_growth, seconds_of


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

    def test_an_authorization_among_the_models_headers_is_the_only_one_sent(self) -> None:
        with FakeOpenAI() as server:
            model = model_at(server.base_url, headers={"authorization": "Basic abc"})
            with ChatConnection(model, api_key="") as chat:
                chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        sent = server.calls[0].header_list
        assert [value for name, value in sent if name.lower() == "authorization"] == ["Basic abc"]

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

    def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert ask(says("hello there")).content == "hello there"

    def test_another_hosts_calls_go_through_the_environments_proxy_with_its_login(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with FakeOpenAI(says("by proxy")) as proxy:
            monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
            monkeypatch.setenv("no_proxy", "")
            with ChatConnection(model_at("http://models.invalid/v1"), api_key="k") as chat:
                reply = chat.try_once(step=1, body=BODY, stop=StopSignal(), draft=no_draft)
        assert reply.content == "by proxy"
        assert proxy.requests[0].path == "http://models.invalid/v1/chat/completions"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


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

    def test_numbers_that_are_no_json_never_reach_the_log(self) -> None:
        usage = '{"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":3,"cost":Infinity}}'
        reply = ask(stream(delta(content="x", finish="stop"), usage))
        assert reply.usage.raw == {"prompt_tokens": None, "completion_tokens": 3, "cost": None}

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
        pieces = [
            b": keep-alive\n\n",
            b"event: message\r\nid: 3\r\n",
            event(delta(content="a")).rstrip(b"\n") + b"\n",
        ]
        pieces += [event(delta(content="b")).replace(b"\n", b"\r\n"), event(delta(finish="stop"))]
        assert ask(Answer(pieces=pieces, content_type="text/plain")).content == "ab"

    def test_a_server_that_leaves_the_connection_open_after_the_end_mark_is_not_waited_for(self) -> None:
        started = time.monotonic()
        assert ask(says("hello", silence=60)).content == "hello"
        assert time.monotonic() - started < SOON

    def test_every_piece_of_text_can_be_watched_and_a_long_text_is_not_shown_for_each(self) -> None:
        seen: list[str] = []

        def draft(*, content: str, **_: Any) -> None:
            seen.append(content)

        chunks = [delta(content="word ") for _ in range(5000)]
        with (
            FakeOpenAI(stream(*chunks, delta(finish="stop"))) as server,
            ChatConnection(model_at(server.base_url), api_key="k") as chat,
        ):
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

    @pytest.mark.serial
    def test_a_chunk_of_ten_megabytes_is_read_in_time_that_grows_with_its_length_only(self) -> None:
        def read(characters: int) -> None:
            text = "x" * characters
            assert ask(stream(delta(content=text), delta(finish="stop"))).content == text

        require_growth(read, whole=10_000_000)


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

    def test_calls_of_one_id_in_an_answer_without_a_stream_stay_two_calls(self) -> None:
        function = {"name": "Read", "arguments": "{}"}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "same", "function": function}] * 2,
        }
        reply = ask(plain({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}))
        assert [(c.name, c.arguments, c.synthesised_id) for c in reply.tool_calls] == [
            ("Read", "{}", False),
            ("Read", "{}", True),
        ]

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


@pytest.mark.serial
def test_a_call_with_a_long_context_costs_a_fraction_of_what_the_sdks_own_way_of_sending_it_costs() -> None:
    messages = [{"role": "user", "content": "x" * 2000} for _ in range(150)]
    body = {**BODY, "messages": messages}
    with (
        FakeOpenAI(says("one two three four five")) as server,
        ChatConnection(model_at(server.base_url), api_key="k") as chat,
        OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as sdk,
    ):
        ours, theirs = [
            min(seconds_of(call) for _ in range(10))
            for call in (
                lambda: chat.try_once(step=1, body=body, stop=StopSignal(), draft=no_draft),
                lambda: list(sdk.chat.completions.create(**body)),
            )
        ]
    # A ninth, as it is.
    assert ours < theirs / 3
