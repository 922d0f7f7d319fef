"""Model servers that answer each request by what it asks for, healthy or with one thing wrong.

They stand for SGLang, vLLM, llama.cpp and hosted APIs in the shapes those send: field names, ids, finish
reasons, usage, error bodies. There is no model behind them: a request is answered by what it asks for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fakes.openai_server import DONE, Answer, FakeOpenAI, JSONObject, Request, event, models, plain

MODEL = "maker/coder-7b"
FORECAST = ("get_forecast", {"city": "Lisbon", "days": 3, "metric": True})
TIDE = ("get_tide", {"harbour": "Cascais"})


@dataclass
class Said:
    """One answer before it gets the server's shape. `calls` are name and arguments (a text: as it is)."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str = ""
    model: str = MODEL


class ModelServer(FakeOpenAI):
    """A healthy hosted API. Others override what they do differently."""

    reasoning_field = "reasoning_content"
    empty_content: str | None = None
    thinks = False
    window = 131_072
    owner = "openai"
    reports_cached = True

    def __init__(self) -> None:
        super().__init__(listed=models({"id": MODEL, "owned_by": self.owner, "max_model_len": self.window}))
        self._asked: set[str] = set()

    def take(self, request: Request) -> Answer:
        if request.path.endswith("/models"):
            return super().take(request)
        self.requests.append(request)
        body = request.body
        refusal = self.refusal(body)
        if refusal is not None:
            return refusal
        said = self.said(body)
        prompt = json.dumps([body["messages"], body.get("tools")])
        usage = self.usage(prompt, said)
        self._asked.add(prompt)
        return self.stream(said, usage) if body.get("stream") else plain(self.whole(said, usage))

    # What is said.

    def said(self, body: JSONObject) -> Said:
        text = body["messages"][-1]["content"]
        if body["messages"][-1]["role"] == "tool":
            return self.after_result(body)
        if not body.get("tools"):
            return self.thought(body) if "sheep" in text else Said("ready")
        if "Call both" in text:
            return self.both(body)
        return self.forced(body) if body.get("tool_choice") == "required" else self.call(body)

    def call(self, body: JSONObject) -> Said:
        return Said(calls=[FORECAST])

    def forced(self, body: JSONObject) -> Said:
        return Said(calls=[FORECAST])

    def both(self, body: JSONObject) -> Said:
        return Said(calls=[FORECAST, TIDE])

    def after_result(self, body: JSONObject) -> Said:
        return Said("Sun, 21 degrees.")

    def thought(self, body: JSONObject) -> Said:
        answer = "All but nine ran away, so nine sheep are left with the farmer today. The answer is 9."
        wanted = (body.get("chat_template_kwargs") or {}).get("enable_thinking", self.thinks)
        return Said(answer, reasoning="All but 9 run away. So 9 stay." if wanted else "")

    def refusal(self, body: JSONObject) -> Answer | None:
        """An error in place of an answer."""
        words = len(body["messages"][-1]["content"].split())
        return self.too_long(words) if words > self.window else None

    def too_long(self, tokens: int) -> Answer:
        text = f"This model's maximum context length is {self.window} tokens. The messages have {tokens}."
        return self.error(400, text, code="context_length_exceeded")

    def error(self, status: int, message: str, **more: Any) -> Answer:
        return plain(
            {"error": {"message": message, "type": "invalid_request_error", "param": None, **more}},
            status=status,
        )

    # How it is said.

    def finish(self, said: Said) -> str:
        return said.finish or ("tool_calls" if said.calls else "stop")

    def call_id(self, place: int) -> str | None:
        return f"call_{place:024x}"

    def message(self, said: Said) -> JSONObject:
        message: JSONObject = {"role": "assistant", "content": said.content or self.empty_content}
        if said.reasoning:
            message[self.reasoning_field] = said.reasoning
        if said.calls:
            message["tool_calls"] = [
                {"id": self.call_id(place), "type": "function", "function": _function(call)}
                for place, call in enumerate(said.calls)
            ]
        return message

    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        tokens = len(prompt) // 4
        written = max(1, len(said.content + said.reasoning + json.dumps(said.calls)) // 4)
        usage: JSONObject = {
            "prompt_tokens": tokens,
            "completion_tokens": written,
            "total_tokens": tokens + written,
        }
        if self.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": tokens if prompt in self._asked else 0}
        if said.reasoning:
            usage["completion_tokens_details"] = {"reasoning_tokens": len(said.reasoning) // 4}
        return usage

    def whole(self, said: Said, usage: JSONObject | None) -> JSONObject:
        choice = {"index": 0, "message": self.message(said), "finish_reason": self.finish(said)}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": said.model}
        return head | {"choices": [choice], "usage": usage}

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": said.model}
        deltas: list[JSONObject] = [{"role": "assistant", "content": ""}]
        deltas += [{self.reasoning_field: piece} for piece in _pieces(said.reasoning)]
        deltas += [{"content": piece} for piece in _pieces(said.content)]
        deltas += self.call_deltas(said)
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": self.finish(said)})
        chunks = [head | {"choices": [choice], "usage": None} for choice in choices]
        if usage is not None:
            chunks.append(head | {"choices": [], "usage": usage})
        return Answer(pieces=[*map(event, chunks), DONE])

    def call_deltas(self, said: Said) -> list[JSONObject]:
        deltas: list[JSONObject] = []
        for place, call in enumerate(said.calls):
            function = _function(call)
            begun = {"index": place, "id": self.call_id(place), "type": "function"}
            deltas.append({"tool_calls": [begun | {"function": {"name": function["name"], "arguments": ""}}]})
            for piece in _pieces(self.streamed_arguments(function["arguments"])):
                deltas.append({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        return deltas

    def streamed_arguments(self, arguments: str) -> str:
        return arguments


def _function(call: tuple[str, Any]) -> JSONObject:
    name, arguments = call
    return {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}


def _pieces(text: str) -> list[str]:
    return re.findall(r".{1,8}", text, re.DOTALL)


class SGLang(ModelServer):
    """SGLang with its parsers: empty content is "", reasoning tokens stand on top of usage, errors bare."""

    owner = "sglang"
    empty_content = ""
    thinks = True

    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        usage = super().usage(prompt, said) or {}
        details = usage.pop("completion_tokens_details", {"reasoning_tokens": 0})
        return usage | {"reasoning_tokens": details["reasoning_tokens"]}

    def error(self, status: int, message: str, **more: Any) -> Answer:
        return plain(
            {"object": "error", "message": message, "type": "BadRequest", "param": None, "code": status},
            status=status,
        )

    def too_long(self, tokens: int) -> Answer:
        return self.error(
            400,
            f"The input ({tokens} tokens) is longer than the model's context length ({self.window} tokens).",
        )


class VLLM(ModelServer):
    """vLLM with its parsers: the field is `reasoning`, ids are its own."""

    owner = "vllm"
    reasoning_field = "reasoning"
    thinks = True

    def call_id(self, place: int) -> str | None:
        return f"chatcmpl-tool-{place:032x}"


class LlamaCpp(ModelServer):
    """llama.cpp's server with --jinja: timings beside usage, an error type of its own for long requests."""

    owner = "llamacpp"

    def whole(self, said: Said, usage: JSONObject | None) -> JSONObject:
        return super().whole(said, usage) | {"timings": {"cache_n": 0, "prompt_n": 20, "predicted_n": 9}}

    def too_long(self, tokens: int) -> Answer:
        text = "the request exceeds the available context size, try increasing it"
        return plain(
            {
                "error": {
                    "code": 400,
                    "message": text,
                    "type": "exceed_context_size_error",
                    "n_ctx": self.window,
                }
            },
            status=400,
        )


class ThinksOfMarkup(SGLang):
    """Its calls are parsed, and it speaks of markup while it thinks."""

    def said(self, body: JSONObject) -> Said:
        thought = "I should emit a <tool_call> block; the format is <function=get_forecast>. Then I wait."
        return replace(super().said(body), reasoning=thought if self._may_think(body) else "")

    def _may_think(self, body: JSONObject) -> bool:
        return bool((body.get("chat_template_kwargs") or {}).get("enable_thinking", self.thinks))


class ThinksOfACall(ThinksOfMarkup):
    """A call is quoted in a fence of the reasoning, also before the last answer."""

    def said(self, body: JSONObject) -> Said:
        call = json.dumps({"name": "get_forecast", "arguments": FORECAST[1]})
        said = super().said(body)
        return replace(said, reasoning=said.reasoning and f"So I call:\n```json\n{call}\n```\nYes.")


class AnswersAboutMarkup(SGLang):
    def after_result(self, body: JSONObject) -> Said:
        return Said("I fixed the parser: it reads `<tool_call>` and `<function=...>`, and drops `</think>`.")


class NamesTheClosingTag(ThinksOfMarkup):
    def after_result(self, body: JSONObject) -> Said:
        return Said("The tag </think> closes it. Sun, 21 degrees.")


class DocumentsAnotherTool(SGLang):
    def after_result(self, body: JSONObject) -> Said:
        call = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
        return Said(f"Done. The README now documents the format:\n```json\n{call}\n```\nAll tests pass.")


class SpeaksBeforeCalls(VLLM):
    """Also a call in Python's form beside the parsed one."""

    def call(self, body: JSONObject) -> Said:
        return Said("get_forecast(city='Lisbon', days=3, metric=True)", calls=[FORECAST])


class KeepsAlive(ModelServer):
    """Comments between the events, as routers send them."""

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        return replace(answer, pieces=[b": PROCESSING\n\n", *answer.pieces])


class TakesOtherWords(ModelServer):
    """Streamed calls in another order of keys, numbers as 3.0."""

    def streamed_arguments(self, arguments: str) -> str:
        given = json.loads(arguments)
        return json.dumps({key: given[key] for key in reversed(given)}, separators=(",", ":"))


class CallsAgain(ModelServer):
    """After a result it calls once more instead of answering."""

    def after_result(self, body: JSONObject) -> Said:
        return Said(calls=[FORECAST])


class CannotForce(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        if body.get("tool_choice") == "required":
            return self.error(400, "tool_choice must be auto or none")
        return super().refusal(body)


class AnswersInParts(ModelServer):
    """Content as a list of parts."""

    def message(self, said: Said) -> JSONObject:
        message = super().message(said)
        return message | {"content": [{"type": "text", "text": said.content}]} if said.content else message


class ThinksLong(SGLang):
    """Its calls come after more thinking than a short cap holds."""

    needs = 2_000

    def call(self, body: JSONObject) -> Said:
        cap = body.get("max_completion_tokens") or body.get("max_tokens") or self.needs
        if cap < self.needs:
            return Said("", reasoning="The user wants the forecast. " * 140, finish="length")
        return Said(reasoning="The user wants the forecast. " * 270, calls=[FORECAST])

    forced = call

    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        usage = super().usage(prompt, said) or {}
        if said.finish != "length":
            return usage
        return usage | {"completion_tokens": 1_024, "total_tokens": usage["prompt_tokens"] + 1_024}


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


class FailsOnce(ModelServer):
    """A hiccup at one of its streams."""

    def refusal(self, body: JSONObject) -> Answer | None:
        if body.get("stream") and sum(bool(call.body.get("stream")) for call in self.calls) == 1:
            return plain({"error": {"message": "CUDA hiccup", "type": "InternalServerError"}}, status=500)
        return super().refusal(body)


class DropsAStreamOnce(ModelServer):
    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        is_first = sum(bool(call.body.get("stream")) for call in self.calls) == 1
        return replace(answer, cut_after=len(answer.pieces[0])) if is_first else answer


class AlwaysLimited(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        answer = self.error(429, "Rate limit reached for requests per day", code="rate_limit_exceeded")
        return replace(answer, headers={"Retry-After": "0"})


class RefusesTheRegion(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        return self.error(403, "Access denied for this region", code="forbidden")


class CannotStream(ModelServer):
    def refusal(self, body: JSONObject) -> Answer | None:
        return self.error(400, "streaming is not supported") if body.get("stream") else super().refusal(body)


class TinyContext(SGLang):
    window = 200

    def refusal(self, body: JSONObject) -> Answer | None:
        cap = body.get("max_completion_tokens") or body.get("max_tokens") or 0
        text = f"Requested token count exceeds the model's maximum context length of {self.window} tokens."
        return self.error(400, text) if cap > self.window else super().refusal(body)


class OutOfMemory(SGLang):
    """It begins each stream and fails then."""

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        error = {
            "object": "error",
            "message": "CUDA out of memory.",
            "type": "InternalServerError",
            "code": 500,
        }
        return Answer(pieces=[super().stream(said, usage).pieces[0], event({"error": error})])


class BreaksStreams(ModelServer):
    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        return replace(answer, cut_after=len(answer.pieces[0]))


class DamagesAnswers(ModelServer):
    """A proxy that says gzip and sends something else."""

    def refusal(self, body: JSONObject) -> Answer | None:
        return Answer(pieces=[b"no gzip at all"], headers={"Content-Encoding": "gzip"})


class FailsAlways(SGLang):
    def refusal(self, body: JSONObject) -> Answer | None:
        return self.error(500, "list index out of range")


class StreamsWords(ModelServer):
    """A model that happens to call only where it is not streamed."""

    def call(self, body: JSONObject) -> Said:
        return Said("Let me think about the weather.") if body.get("stream") else super().call(body)


class IgnoresStream(ModelServer):
    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        return plain(self.whole(said, usage))


class ArgumentsAsObject(ModelServer):
    def message(self, said: Said) -> JSONObject:
        message = super().message(said)
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return message


class NegativeCost(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        return (super().usage(prompt, said) or {}) | {"cost": -3}


class CountsAlike(ModelServer):
    def usage(self, prompt: str, said: Said) -> JSONObject | None:
        counts = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        return counts | {"prompt_tokens_details": {"cached_tokens": 0}}


class HoldsSmallPieces(ModelServer):
    """A proxy that holds back what a model writes a piece each 0.08 s."""

    def thought(self, body: JSONObject) -> Said:
        return Said("nine")

    def said(self, body: JSONObject) -> Said:
        is_count = "Count from" in str(body["messages"])
        return Said("twenty-one, " * 100) if is_count else super().said(body)

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        pieces = list(answer.pieces)
        return replace(answer, pieces=[b"".join(pieces)], delay=min(2.0, 0.08 * len(pieces)))


class EndsWithoutReason(ModelServer):
    """Streams end with the end mark and no finish reason."""

    def stream(self, said: Said, usage: JSONObject | None) -> Answer:
        answer = super().stream(said, usage)
        named = f'"finish_reason": "{self.finish(said)}"'.encode()
        return replace(
            answer, pieces=[piece.replace(named, b'"finish_reason": null') for piece in answer.pieces]
        )


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
