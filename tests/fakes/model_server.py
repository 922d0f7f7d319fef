"""Model servers with one thing wrong, by the diagnosis that each one should get, and the healthy ones."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.fakes.failing_servers import (
    AlwaysLimited,
    ArgumentsAsObject,
    BreaksStreams,
    CannotStream,
    CountsAlike,
    DamagesAnswers,
    DropsAStreamOnce,
    EndsWithoutReason,
    FailsAlways,
    FailsOnce,
    HoldsSmallPieces,
    IgnoresStream,
    NegativeCost,
    OutOfMemory,
    RefusesTheRegion,
    StreamsWords,
    TinyContext,
)
from tests.fakes.healthy_servers import (
    AnswersAboutMarkup,
    AnswersInParts,
    CallsAgain,
    CannotForce,
    DocumentsAnotherTool,
    KeepsAlive,
    NamesTheClosingTag,
    SpeaksBeforeCalls,
    TakesOtherWords,
    ThinksLong,
    ThinksOfACall,
    ThinksOfMarkup,
)
from tests.fakes.model_shapes import FORECAST, MODEL, TIDE, VLLM, LlamaCpp, ModelServer, Said, SGLang
from tests.fakes.openai_server import Answer, JSONObject, plain

__all__ = [
    "FORECAST",
    "HEALTHY",
    "MODEL",
    "TIDE",
    "WRONG",
    "LlamaCpp",
    "ModelServer",
    "SGLang",
    "Said",
    "VLLM",
]

HEALTHY = (
    ThinksLong,
    ModelServer,
    SGLang,
    VLLM,
    LlamaCpp,
    ThinksOfMarkup,
    ThinksOfACall,
    AnswersAboutMarkup,
    NamesTheClosingTag,
    DocumentsAnotherTool,
    SpeaksBeforeCalls,
    KeepsAlive,
    TakesOtherWords,
    CallsAgain,
    CannotForce,
    AnswersInParts,
)


class VLLMWithoutToolFlags(VLLM):
    def refusal(self, body: JSONObject) -> Answer | None:
        if body.get("tools") and body.get("tool_choice") == "auto":
            text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return plain(
                {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}},
                status=400,
            )
        return super().refusal(body)


class LlamaCppWithoutJinja(LlamaCpp):
    def refusal(self, body: JSONObject) -> Answer | None:
        if body.get("tools"):
            error = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
            return plain({"error": error}, status=500)
        return super().refusal(body)


class LeakingXML(SGLang):
    """SGLang without --tool-call-parser before Qwen3-Coder; a forced call works by grammar."""

    markup = (
        "<tool_call>\n<function=get_forecast>\n<parameter=city>\nLisbon\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n<parameter=metric>\ntrue\n</parameter>\n</function>\n</tool_call>"
    )

    def call(self, body: JSONObject) -> Said:
        return Said(self.markup)

    def both(self, body: JSONObject) -> Said:
        return Said(self.markup * 2)


class LeakingJSON(LeakingXML):
    markup = (
        '```json\n{"name": "get_forecast", "arguments": {"city": "Lisbon", "days": 3, "metric": true}}\n```'
    )

    def forced(self, body: JSONObject) -> Said:
        return self.call(body)


class LeakingMistral(LeakingJSON):
    markup = (
        '[TOOL_CALLS] [{"name": "get_forecast", "arguments": {"city": "Lisbon", "days": 3, "metric": true}}]'
    )


class LeakingPython(LeakingJSON):
    markup = '[get_forecast(city="Lisbon", days=3, metric=True)]'


class LeakingLlama(LeakingJSON):
    markup = (
        '<|python_tag|>{"name": "get_forecast", "parameters": {"city": "Lisbon", "days": 3, "metric": true}}'
    )


class LeakingDeepSeek(LeakingJSON):
    markup = (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_forecast">\n'  # noqa: RUF001
        '<｜DSML｜parameter name="city" string="true">Lisbon</｜DSML｜parameter>\n'  # noqa: RUF001
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"  # noqa: RUF001
    )


class LeakingHarmony(LeakingJSON):
    """vLLM or SGLang without its gpt-oss parser."""

    markup = (
        "<|channel|>commentary to=functions.get_forecast <|constrain|>json<|message|>"
        '{"city": "Lisbon", "days": 3, "metric": true}<|call|>'
    )


class LeakingGemma(LeakingJSON):
    markup = '```tool_code\nget_forecast(city="Lisbon", days=3, metric=True)\n```'


class StopBesideCalls(ModelServer):
    def finish(self, said: Said) -> str:
        return "stop"


class DropsCalls(SGLang):
    def call(self, body: JSONObject) -> Said:
        return Said("", finish="tool_calls")


class BrokenJSON(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said(calls=[("get_forecast", '{"city": "Lisbon", "days": 3, metric: true}')])


class ArgumentsAsArray(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said(calls=[("get_forecast", '["Lisbon", 3, true]')])


class EncodedTwice(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said(calls=[("get_forecast", json.dumps(json.dumps(FORECAST[1])))])


class TextForNumbers(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said(calls=[("get_forecast", {"city": "Lisbon", "days": "3", "metric": "true"})])


class PrefixedNames(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said(calls=[("functions.get_forecast", FORECAST[1])])


class ThinksInContent(SGLang):
    def thought(self, body: JSONObject) -> Said:
        said = super().thought(body)
        return replace(said, content=f"<think>{said.reasoning}</think>\n\n{said.content}", reasoning="")


class LoneClosingTag(SGLang):
    def thought(self, body: JSONObject) -> Said:
        said = super().thought(body)
        return replace(said, content=f"{said.reasoning}\n</think>\n\n{said.content}", reasoning="")


class SwallowsAnswers(SGLang):
    def thought(self, body: JSONObject) -> Said:
        said = super().thought(body)
        return Said("", reasoning=said.reasoning + said.content)


class CallsInsideThinking(VLLM):
    def call(self, body: JSONObject) -> Said:
        return Said("", reasoning=f"I call it. {LeakingXML.markup}")


class HidesReasoning(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        return (super().usage(prompt, said) or {}) | {"completion_tokens_details": {"reasoning_tokens": 1}}


class AlwaysThinks(SGLang):
    def thought(self, body: JSONObject) -> Said:
        return super().thought({**body, "chat_template_kwargs": {"enable_thinking": True}})


class NeverThinks(SGLang):
    def thought(self, body: JSONObject) -> Said:
        return super().thought({**body, "chat_template_kwargs": {"enable_thinking": False}})


class OneCallOnly(ModelServer):
    def both(self, body: JSONObject) -> Said:
        return Said(calls=[FORECAST])


class NullIds(ModelServer):
    def call_id(self, place: int) -> str | None:
        return None


class SameIds(ModelServer):
    def call_id(self, place: int) -> str | None:
        return "call_0"


class NoIndex(ModelServer):
    def call_deltas(self, said: Said) -> list[JSONObject]:
        deltas = super().call_deltas(said)
        for delta in deltas:
            for piece in delta["tool_calls"]:
                del piece["index"]
        return deltas


class StreamsOtherArguments(VLLM):
    def streamed_arguments(self, arguments: str) -> str:
        return arguments.replace('"days": 3, ', "")


class RefusesToolResults(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        if body["messages"][-1]["role"] == "tool":
            return self.error(400, "Conversation roles must alternate user/assistant/user/assistant/...")
        return super().refusal(body)


class RefusesLongIds(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        if body["messages"][-1]["role"] == "tool":
            return self.error(400, "Tool call id has to be defined and have 9 characters")
        return super().refusal(body)


class NoUsage(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        return None


class ZeroUsage(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


class NegativeUsage(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        return {"prompt_tokens": 60, "completion_tokens": -4, "total_tokens": 56}


class AbsurdUsage(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        usage = super().usage(prompt, said) or {}
        return usage | {"prompt_tokens_details": {"cached_tokens": 10**7}}


class NoCacheReport(SGLang):
    reports_cached = False


class SmallContext(VLLM):
    window = 8_192


class CutsSilently(SGLang):
    window = 1_000

    def refusal(self, body: JSONObject) -> Answer | None:
        return None


class CapsReplies(ModelServer):
    def thought(self, body: JSONObject) -> Said:
        return Said("word " * 48, finish="length")


class AnswersAsAnother(ModelServer):
    def said(self, body: JSONObject) -> Said:
        return replace(super().said(body), model="maker/coder-7b-2026-09")


class OnlyTalks(ModelServer):
    def call(self, body: JSONObject) -> Said:
        return Said("It will be sunny in Lisbon for the next three days, about 21 degrees.")


class BuffersStreams(ModelServer):
    """A proxy between that hands a stream on when it is whole."""

    def thought(self, body: JSONObject) -> Said:
        # So much that also a machine that does much else reads it faster than anything writes.
        return Said(super().thought(body).content * 40)

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        return replace(answer, pieces=[b"".join(answer.pieces)], delay=1.2)


class RefusesKeys(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        return self.error(401, "Incorrect API key provided")


class RefusesParallel(ModelServer):
    """As OpenAI's reasoning models do."""

    def refusal(self, body: JSONObject) -> Answer | None:
        if "parallel_tool_calls" in body:
            text = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
            return self.error(400, text, code="unsupported_parameter")
        return super().refusal(body)


class RefusesNewCap(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        if "max_completion_tokens" in body:
            return self.error(422, "max_completion_tokens: Extra inputs are not permitted")
        return super().refusal(body)


class BusyAtTheEnd(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        if "sheep" in str(body["messages"]):
            return self.error(429, "Rate limit reached for requests per minute")
        return super().refusal(body)


class ThinksTooLong(SGLang):
    def call(self, body: JSONObject) -> Said:
        self._cap = body.get("max_completion_tokens") or body["max_tokens"]
        return Said("", reasoning='I could say {"name": "get_forecast", "arguments": {', finish="length")

    forced = call

    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        usage = super().usage(prompt, said) or {}
        if said.finish != "length":
            return usage
        return usage | {"completion_tokens": self._cap, "total_tokens": usage["prompt_tokens"] + self._cap}


# Each row of the diagnosis table with a server that shows it, and the code of its diagnosis.
WRONG = (
    (VLLMWithoutToolFlags, "tool_flags_missing"),
    (LlamaCppWithoutJinja, "tool_flags_missing"),
    (LeakingXML, "calls_as_text"),
    (LeakingXML, "parser_not_model"),
    (LeakingJSON, "calls_as_text"),
    (LeakingMistral, "calls_as_text"),
    (LeakingPython, "calls_as_text"),
    (LeakingLlama, "calls_as_text"),
    (LeakingDeepSeek, "calls_as_text"),
    (LeakingHarmony, "calls_as_text"),
    (LeakingGemma, "calls_as_text"),
    (StopBesideCalls, "finish_reason_wrong"),
    (DropsCalls, "dropped_call"),
    (BrokenJSON, "malformed_arguments"),
    (ArgumentsAsArray, "malformed_arguments"),
    (EncodedTwice, "malformed_arguments"),
    (TextForNumbers, "argument_types"),
    (PrefixedNames, "unknown_tool_name"),
    (ThinksInContent, "think_in_content"),
    (LoneClosingTag, "think_in_content"),
    (SwallowsAnswers, "answer_in_reasoning"),
    (CallsInsideThinking, "call_in_reasoning"),
    (HidesReasoning, "reasoning_hidden"),
    (OneCallOnly, "single_calls_only"),
    (NullIds, "call_ids"),
    (SameIds, "call_ids"),
    (NoIndex, "call_ids"),
    (StreamsOtherArguments, "stream_differs"),
    (BuffersStreams, "stream_buffered"),
    (RefusesToolResults, "tool_result_refused"),
    (RefusesLongIds, "tool_result_refused"),
    (NoUsage, "usage_missing"),
    (ZeroUsage, "usage_missing"),
    (NegativeUsage, "usage_absurd"),
    (AbsurdUsage, "usage_absurd"),
    (NoCacheReport, "cached_unknown"),
    (SmallContext, "context_too_small"),
    (CutsSilently, "silent_truncation"),
    (CapsReplies, "server_cap"),
    (AnswersAsAnother, "other_model_answered"),
    (OnlyTalks, "no_call"),
    (RefusesKeys, "cannot_ask"),
    (RefusesParallel, "field_refused"),
    (RefusesNewCap, "field_refused"),
    (BusyAtTheEnd, "answers_missing"),
    (FailsOnce, "failed_once"),
    (DropsAStreamOnce, "failed_once"),
    (AlwaysLimited, "rate_limited"),
    (RefusesTheRegion, "access_denied"),
    (CannotStream, "no_streaming"),
    (TinyContext, "context_below_probe"),
    (OutOfMemory, "out_of_memory"),
    (BreaksStreams, "stream_breaks"),
    (DamagesAnswers, "unreadable_answer"),
    (FailsAlways, "server_fails"),
    (StreamsWords, "stream_calls_less"),
    (IgnoresStream, "stream_ignored"),
    (ArgumentsAsObject, "arguments_as_object"),
    (NegativeCost, "cost_absurd"),
    (CountsAlike, "usage_absurd"),
    (HoldsSmallPieces, "stream_buffered"),
    (EndsWithoutReason, "finish_reason_wrong"),
    (ThinksTooLong, "cut_before_call"),
)
