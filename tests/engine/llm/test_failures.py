"""Broken answers and server errors, in the shapes that servers are known to send."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.llm.asking import ask, call, failure
from tests.fakes.openai_server import Answer, delta, event, html, plain, stream, usage_chunk


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

    def test_a_counted_answer_that_ends_with_the_end_mark_alone_is_whole(self) -> None:
        used = usage_chunk(prompt_tokens=9, completion_tokens=2, total_tokens=11)
        reply = ask(stream(delta(content="so"), used))
        assert (reply.content, reply.finish_reason, reply.usage.total) == ("so", "", 11)
        assert failure(stream(delta(content="so"), used, done=False)).error == "stream_broken"

    def test_whole_calls_that_end_with_the_end_mark_alone_are_taken_and_half_ones_are_not(self) -> None:
        whole = call(0, id="a", name="Bash", arguments='{"command": "ls"}')
        assert ask(stream(whole)).tool_calls[0].name == "Bash"
        half = call(0, id="a", name="Bash", arguments='{"command": "rm')
        assert failure(stream(half)).error == "stream_broken"

    def test_an_answer_that_sglang_aborts_is_a_failed_try_and_its_usage_is_kept(self) -> None:
        used = usage_chunk(prompt_tokens=9, completion_tokens=2, total_tokens=11)
        failed = failure(stream(delta(content="so"), delta(finish="abort"), used))
        assert (failed.error, failed.usage.total) == ("stream_broken", 11)

    @pytest.mark.parametrize(
        "answer",
        [
            Answer(),
            Answer(pieces=[b"\n\n"]),
            stream(),
            stream({"choices": []}),
            Answer(content_type="text/html"),
        ],
        ids=["no body", "white space", "only the end mark", "no choices", "empty html"],
    )
    def test_an_empty_stream_is_a_bad_stream(self, answer: Answer) -> None:
        assert failure(answer).error == "bad_stream"

    def test_a_data_line_that_is_not_json_is_kept(self) -> None:
        failed = failure(stream(delta(content="good"), '{"choices": [{'))
        assert (failed.error, failed.partial) == ("bad_stream", "good")
        assert '{"choices": [{' in failed.raw

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000])
    def test_json_that_breaks_a_parser_is_a_bad_stream(self, text: str) -> None:
        assert failure(stream(text)).error == "bad_stream"
        assert failure(Answer(pieces=[b"[" * 100_000])).error == "bad_stream"

    def test_an_error_text_with_a_lone_surrogate_can_be_stored(self) -> None:
        failed = failure(stream('{"error": {"message": "bad \\ud800", "code": 500}}'))
        assert failed.message == "bad \ufffd"
        failed.raw.encode()

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

    def test_an_endless_error_page_is_broken_off_too(self) -> None:
        endless = Answer(pieces=[b"x" * 50_000], status=500, endless=True)
        assert failure(endless, max_bytes=300_000).retryable


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
    def test_the_status_says_what_kind_of_failure_it_is(
        self, answer: Answer, error: str, retryable: bool
    ) -> None:
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
    def test_the_wait_a_server_asks_for_is_read(
        self, header: str, value: str, low: float, high: float
    ) -> None:
        seconds = failure(plain({}, status=429, headers={header: value})).retry_after
        assert seconds is not None
        assert low <= seconds <= high

    @pytest.mark.parametrize("value", ["soon", ""])
    def test_a_wait_that_cannot_be_read_is_none(self, value: str) -> None:
        assert failure(plain({}, status=429, headers={"Retry-After": value})).retry_after is None

    OPENAI = {
        "error": {
            "message": "This model's maximum context length is 8192 tokens.",
            "code": "context_length_exceeded",
        }
    }
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
            "message": "This model's maximum context length is 4096 tokens. You requested 5000 tokens. "
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
        "error",
        [OPENAI, SGLANG_LONG, SGLANG_SUM, VLLM, LLAMA],
        ids=["openai", "sglang", "sglang sum", "vllm", "llama"],
    )
    @pytest.mark.parametrize("how", ["status 400", "in a data line", "in a 200 answer"])
    def test_a_context_overflow_is_known_in_every_servers_words(
        self, error: dict[str, Any], how: str
    ) -> None:
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
            ({"message": "odd", "code": "²"}, "server"),
            ({"message": "odd", "code": "4" * 5000}, "server"),
            ({"message": "odd", "code": "٤٠٤"}, "server"),
            ({"message": "gone", "code": "404"}, "http_4xx"),
        ],
    )
    def test_an_error_in_the_middle_of_a_stream_is_typed_and_the_text_before_it_kept(
        self, error: dict[str, Any], kind: str
    ) -> None:
        failed = failure(stream(delta(content="so far"), {"error": error}))
        assert (failed.error, failed.partial) == (kind, "so far")
        assert failed.message == error["message"]
