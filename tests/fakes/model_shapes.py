"""Model servers that answer each request by what it asks for, healthy or with one thing wrong.

They stand for SGLang, vLLM, llama.cpp and hosted APIs in the shapes those send: field names, ids, finish
reasons, usage, error bodies. There is no model behind them: a request is answered by what it asks for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
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
