"""Healthy model servers that look as if something were wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.fakes.model_shapes import FORECAST, VLLM, ModelServer, Said, SGLang
from tests.fakes.openai_server import Answer, JSONObject


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
