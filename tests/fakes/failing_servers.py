"""Model servers that refuse, fail or break off, and those whose answers have a wrong form."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.fakes.model_shapes import ModelServer, Said, SGLang
from tests.fakes.openai_server import Answer, JSONObject, event, plain


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
