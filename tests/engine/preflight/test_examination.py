"""A preflight names what is wrong with a server, from evidence, and finds nothing at a healthy one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.preflight.examination import Examination
from lab.engine.preflight.findings import Finding, Report, diagnoses
from tests.fakes import failing_servers, healthy_servers, model_server
from tests.fakes.model_server import HEALTHY, MODEL, WRONG, ModelServer
from tests.fakes.openai_server import Answer


def examined(server: ModelServer, *, settings: JSONObject | None = None, **options: Any) -> Report:
    model = ModelConfig(
        name="model",
        model_id=MODEL,
        base_url=server.base_url,
        price=Price(basis="unknown"),
        extra_body=settings or {},
    )
    with server:
        return Examination(model, **({"wanted_windows": {"leaf": 100_000}, "pause": 0.05} | options)).run()


def found(report: Report, code: str) -> Finding:
    return next(finding for finding in report.findings if finding.code == code)


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.parametrize("thinking", [None, True, False])
def test_a_healthy_server_gets_no_diagnosis(kind: type[ModelServer], thinking: bool | None) -> None:
    settings = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
    report = examined(kind(), settings=settings, over_limit=True)
    assert [finding.to_json() for finding in report.findings] == []
    assert report.outcome == "healthy"
    assert report.measured["over_limit"] == "refused as too long"
    assert report.measured["context_window_tokens"] == 131_072
    assert report.measured["calls_in_parallel"] == 2


@pytest.mark.parametrize(("kind", "code"), WRONG)
def test_what_is_wrong_is_named_with_its_evidence_and_what_mends_it(
    kind: type[ModelServer], code: str
) -> None:
    report = examined(kind(), over_limit=True)
    finding = found(report, code)
    assert finding.evidence
    assert all(one.excerpt for one in finding.evidence)
    assert finding.diagnosis.mends["generic"]
    assert report.outcome == {"failing": "failing", "warning": "warning", "info": "healthy"}[finding.severity]


# What else a server's one mistake shows; anything beyond it would be a false diagnosis.
ALSO = {
    "LeakingXML": {"calls_as_text", "parser_not_model"},
    "NegativeUsage": {"usage_absurd", "cached_unknown"},
    "CutsSilently": {"silent_truncation", "context_too_small"},
    "TinyContext": {"context_below_probe", "context_too_small"},
}


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, _ in WRONG))
def test_one_mistake_gets_no_other_diagnosis(kind: type[ModelServer]) -> None:
    report = examined(kind(), over_limit=True)
    expected = ALSO.get(kind.__name__) or {code for other, code in WRONG if other is kind}
    assert {finding.code for finding in report.findings} == expected


@pytest.mark.parametrize(
    ("kind", "wanted"), [(model_server.AlwaysThinks, False), (model_server.NeverThinks, True)]
)
def test_a_thinking_setting_without_effect_is_named(kind: type[ModelServer], wanted: bool) -> None:
    report = examined(kind(), settings={"chat_template_kwargs": {"enable_thinking": wanted}})
    assert found(report, "thinking_setting_ignored").severity == "warning"


def test_every_diagnosis_has_a_server_that_shows_it() -> None:
    shown = {code for _, code in WRONG} | {"thinking_setting_ignored", "context_for_some"}
    assert shown == set(diagnoses())


def test_a_lone_closing_tag_says_that_the_template_opens_it() -> None:
    report = examined(model_server.LoneClosingTag())
    assert "template opens" in found(report, "think_in_content").detail


def test_the_over_limit_request_is_sent_only_when_it_is_asked_for() -> None:
    server = model_server.CutsSilently()
    report = examined(server)
    assert "silent_truncation" not in {finding.code for finding in report.findings}
    assert max(len(request.raw) for request in server.calls) < 5_000


def test_a_context_that_fits_some_harness_is_information_and_names_the_others() -> None:
    wanted = {"leaf": 131_072, "long": 65_536, "r2e": 8_192}
    report = examined(model_server.SmallContext(), wanted_windows=wanted)
    finding = found(report, "context_for_some")
    assert finding.severity == "info"
    assert finding.detail == "more is allowed by leaf (131,072 tokens), long (65,536 tokens)"
    assert report.outcome == "healthy"


def test_a_context_that_fits_no_harness_names_them() -> None:
    report = examined(model_server.SmallContext(), wanted_windows={"leaf": 131_072, "r2e": 32_768})
    detail = found(report, "context_too_small").detail
    assert detail == "more is allowed by leaf (131,072 tokens), r2e (32,768 tokens)"


class Fickle(ModelServer):
    """A sampled model: each answer in turn is the next of `answers`, streamed or not."""

    answers: tuple[model_server.Said, ...] = ()

    def call(self, body: JSONObject) -> model_server.Said:
        asked = sum("Call the tool" in str(call.body["messages"][0]) for call in self.calls)
        # Whole and streamed in turn, the forced one after the first.
        place = {1: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5}.get(asked, 0)
        return self.answers[min(place, len(self.answers) - 1)]


CALLS = model_server.Said(calls=[("get_forecast", {"city": "Lisbon", "days": 3, "metric": True})])
TALKS = model_server.Said("It will be sunny in Lisbon.")
WITHOUT_DAYS = model_server.Said(calls=[("get_forecast", {"city": "Lisbon", "metric": True})])


@pytest.mark.parametrize(
    ("answers", "differs"),
    [
        (
            (
                CALLS,
                model_server.Said(calls=[("get_forecast", {"city": "Porto", "days": 4, "metric": False})]),
            ),
            False,
        ),
        ((CALLS, TALKS, CALLS, CALLS), False),
        ((CALLS, TALKS, TALKS, TALKS), False),
        ((CALLS, WITHOUT_DAYS, CALLS, CALLS), False),
        ((CALLS, TALKS, CALLS, TALKS, CALLS, TALKS), False),
        ((CALLS, WITHOUT_DAYS, CALLS, WITHOUT_DAYS, CALLS, CALLS), False),
        ((CALLS, WITHOUT_DAYS, CALLS, WITHOUT_DAYS, CALLS, WITHOUT_DAYS), True),
        ((WITHOUT_DAYS, CALLS), False),
    ],
)
def test_a_streamed_call_differs_only_where_it_lacks_something_each_time(
    answers: tuple[model_server.Said, ...], differs: bool
) -> None:
    server = Fickle()
    server.answers = answers
    assert ("stream_differs" in {finding.code for finding in examined(server).findings}) is differs


def test_streams_in_words_are_a_warning_that_says_how_many() -> None:
    finding = found(examined(failing_servers.StreamsWords()), "stream_calls_less")
    assert finding.severity == "warning"
    assert finding.detail == "0 of 3 streams held the call, 3 of 3 whole answers did"


def test_words_once_and_calls_when_it_is_asked_again_are_no_finding() -> None:
    server = Fickle()
    server.answers = (TALKS, CALLS, CALLS)
    assert examined(server).findings == []


def test_words_each_time_are_told_with_how_often_it_was_asked() -> None:
    detail = found(examined(model_server.OnlyTalks()), "no_call").detail
    assert detail == "0 of 3 whole answers and 0 of 1 streams held a call"


def test_a_failure_that_is_over_when_it_is_asked_again_says_what_happened() -> None:
    finding = found(examined(failing_servers.FailsOnce()), "failed_once")
    assert finding.detail == "Tool call, streamed: CUDA hiccup (status 500)"


def test_a_long_thinker_is_asked_once_more_with_a_larger_cap_and_then_with_that() -> None:
    server = healthy_servers.ThinksLong()
    assert examined(server).findings == []
    caps = [
        call.body["max_tokens" if "max_tokens" in call.body else "max_completion_tokens"]
        for call in server.calls
        if call.body.get("tools")
    ]
    assert caps == [1_024, *[4_096] * (len(caps) - 1)]


def test_a_reply_that_is_cut_again_names_the_examinations_own_cap() -> None:
    detail = found(examined(model_server.ThinksTooLong()), "cut_before_call").detail
    assert "own cap of 4,096 tokens" in detail


def test_a_limit_is_waited_for_once_and_the_wait_that_is_asked_for_is_named() -> None:
    server = failing_servers.AlwaysLimited()
    finding = found(examined(server), "rate_limited")
    assert len(server.calls) == 2
    assert finding.detail.startswith("Rate limit reached")


def test_a_stream_without_usage_beside_whole_answers_with_it_says_so() -> None:
    class CountsWhole(ModelServer):
        def stream(self, said: model_server.Said, usage: JSONObject | None) -> Answer:
            return super().stream(said, None)

    report = examined(CountsWhole())
    assert found(report, "usage_missing").detail == "usage is null, zero or absent in a stream alone"


def test_a_key_that_is_split_over_the_pieces_of_a_stream_is_not_in_the_evidence() -> None:
    key = "0123456789-the-key-of-this-server"

    class Echoes(model_server.NoIndex):
        def call(self, body: JSONObject) -> model_server.Said:
            return model_server.Said(calls=[("get_forecast", {"city": key, "days": 3, "metric": True})])

    finding = found(examined(Echoes(), api_key=key), "call_ids")
    # Whatever way the pieces were cut: their texts one after the other are the whole again.
    said = "".join(one.excerpt for one in finding.evidence)
    assert '"index"' not in said
    assert not any(key[start : start + 6] in said for start in range(len(key) - 6))


def test_a_server_with_more_context_than_is_known_cuts_nothing() -> None:
    class Larger(model_server.SGLang):
        window = 1_000

        def refusal(self, body: JSONObject) -> None:
            return None

        def usage(self, prompt: str, said: model_server.Said) -> JSONObject | None:
            return (super().usage(prompt, said) or {}) | {"prompt_tokens": len(prompt.split())}

    report = examined(Larger(), over_limit=True, wanted_windows={})
    assert report.measured["over_limit"] == "accepted"
    assert "silent_truncation" not in {finding.code for finding in report.findings}


def test_thinking_that_is_not_shown_is_no_buffered_stream() -> None:
    class Hides(ModelServer):
        def usage(self, prompt: str, said: model_server.Said) -> JSONObject | None:
            usage = super().usage(prompt, said) or {}
            hidden = {"completion_tokens": 500, "completion_tokens_details": {"reasoning_tokens": 495}}
            return usage | hidden | {"total_tokens": usage["prompt_tokens"] + 500}

        def stream(self, said: model_server.Said, usage: JSONObject | None) -> Answer:
            return replace(super().stream(said, usage), delay=1.2)

    report = examined(Hides())
    assert {finding.code for finding in report.findings} == {"reasoning_hidden"}


def test_a_call_that_comes_whole_is_no_buffered_stream() -> None:
    class Parses(ModelServer):
        def stream(self, said: model_server.Said, usage: JSONObject | None) -> Answer:
            return replace(super().stream(said, usage), delay=1.2 if said.calls else 0)

    assert examined(Parses()).findings == []


def test_a_call_that_cannot_be_read_goes_back_as_runs_send_it_back() -> None:
    class Strict(model_server.BrokenJSON):
        def refusal(self, body: JSONObject) -> Answer | None:
            for message in body["messages"]:
                for call in message.get("tool_calls") or []:
                    try:
                        json.loads(call["function"]["arguments"])
                    except ValueError:
                        return self.error(400, "invalid arguments in the history")
            return super().refusal(body)

    assert {finding.code for finding in examined(Strict()).findings} == {"malformed_arguments"}


def test_a_key_that_is_refused_ends_the_examination_at_once() -> None:
    server = model_server.RefusesKeys()
    report = examined(server)
    assert [finding.code for finding in report.findings] == ["cannot_ask"]
    assert len(server.calls) == 1


def test_a_server_that_never_answers_is_not_asked_everything() -> None:
    class Silent(ModelServer):
        def refusal(self, body: JSONObject) -> Answer:
            return Answer(pieces=[b"{}"], delay=30)

    server = Silent()
    report = examined(server, seconds=0.3)
    assert [finding.code for finding in report.findings] == ["cannot_ask"]
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ModelServer, None),
        (model_server.SGLang, "sglang"),
        (model_server.VLLM, "vllm"),
        (model_server.LlamaCpp, "llamacpp"),
    ],
)
def test_the_servers_kind_is_read_from_its_list_of_models(kind: type[ModelServer], name: str | None) -> None:
    assert examined(kind()).measured["server"] == name


def test_probes_are_told_one_by_one_as_they_begin_and_end() -> None:
    told: list[JSONObject] = []
    examined(ModelServer(), on_probe=told.append)
    states = [(shown["name"], shown["state"]) for shown in told]
    assert states[:4] == [
        ("models", "running"),
        ("models", "answered"),
        ("plain", "running"),
        ("plain", "answered"),
    ]
    # A machine that does much else may make a stream look held back, which is asked about once more.
    assert {name for name, _ in states} - {"long"} == {
        "models", "plain", "auto", "required", "streamed", "parallel", "result", "thinking"
    }  # fmt: skip


def test_a_key_in_an_answer_is_not_kept() -> None:
    class Echo(ModelServer):
        def refusal(self, body: JSONObject) -> Any:
            return self.error(400, "the key sk-very-secret-key-000 is not allowed here")

    report = examined(Echo(), api_key="sk-very-secret-key-000", key_variable="SOME_KEY")
    assert "sk-very-secret-key-000" not in str([finding.to_json() for finding in report.findings])
