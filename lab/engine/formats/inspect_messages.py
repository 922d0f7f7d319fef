"""Inspect's messages, calls and usage in the lab's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.engine.formats.reading import count, dollars, items, mapping, number, text, without
from lab.engine.formats.trajectory import Turn
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

_REFERENCES = ("attachment://", "tc://")
_FINISH_REASONS = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_READ_OF_MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "function")


class Attachments:
    """Long texts of a sample stand once, under their hash; everything else refers to them."""

    def __init__(self, texts: Any) -> None:
        self._texts = {name: value for name, value in mapping(texts).items() if isinstance(value, str)}
        self.missing: set[str] = set()

    def resolved(self, value: Any) -> Any:
        """The value with the texts in the places of their references; itself where there is none."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        if isinstance(value, dict):
            return {name: self.resolved(inner) for name, inner in value.items()}
        return value

    def _text(self, value: str) -> str:
        if not value.startswith(_REFERENCES):
            return value
        name = value.partition("://")[2]
        if name not in self._texts:
            self.missing.add(name)
            return value
        return self._texts[name]


class Content(NamedTuple):
    """What is said, in the form of chat completions, and what is thought, apart from it."""

    said: Any
    reasoning: str


def read_content(content: Any) -> Content:
    """A text, or a list of parts: texts alone become one text, images keep their place."""
    if isinstance(content, str):
        return Content(content, "")
    said: list[Any] = []
    thought: list[str] = []
    for part in items(content):
        kind = mapping(part).get("type")
        if kind == "reasoning":
            thought.append(text(part.get("summary")) if part.get("redacted") else text(part.get("reasoning")))
        elif kind == "image" and isinstance(part.get("image"), str):
            said.append({"type": "image_url", "image_url": {"url": part["image"]}})
        else:
            said.append(part)
    reasoning = "\n".join(line for line in thought if line)
    if all(mapping(part).get("type") == "text" and isinstance(part.get("text"), str) for part in said):
        return Content("\n".join(part["text"] for part in said), reasoning)
    return Content(said, reasoning)


def chat_message(message: JSONObject) -> JSONObject:
    """A message in the shape of chat completions. A failed tool's is what the model was told of it."""
    role = text(message.get("role")) or "user"
    found: JSONObject = {"role": role, "content": read_content(message.get("content")).said}
    calls = [_chat_call(mapping(call)) for call in items(message.get("tool_calls"))]
    if role == "assistant" and calls:
        found["tool_calls"] = calls
    if role == "tool":
        found["tool_call_id"] = text(message.get("tool_call_id"))
        found["content"] = told(message) or found["content"]
    return found


def _chat_call(call: JSONObject) -> JSONObject:
    function = {"name": text(call.get("function")), "arguments": arguments_text(call.get("arguments"))}
    return {"id": text(call.get("id")), "type": "function", "function": function}


def arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def told(message: JSONObject) -> str:
    """What a model is told of a failed tool: the error's text; "" where there was no error."""
    return text(mapping(message.get("error")).get("message"))


def left_of_message(message: JSONObject) -> JSONObject:
    """What a message holds beside what was said: ids, where it came from, signatures of its thoughts."""
    left = {name: value for name, value in without(message, *_READ_OF_MESSAGE).items() if value is not None}
    thoughts = [part for part in items(message.get("content")) if mapping(part).get("type") == "reasoning"]
    if thoughts:
        left["reasoning"] = thoughts
    return left


def finish_reason(native: Any) -> str:
    """The word of chat completions for a stop reason of Inspect, "" for unknown ones."""
    return _FINISH_REASONS.get(text(native), "")


def usage_of(raw: Any) -> Usage:
    """Inspect counts what came from a cache apart; its first versions had it inside for OpenAI's models."""
    recorded = mapping(raw)
    if not recorded:
        return Usage()
    inside, outside = _translated(recorded)
    counts = inside if _adds_up_without_cache(recorded) else outside
    return read_usage(counts).model_copy(update={"raw": recorded})


def _translated(recorded: Mapping[str, Any]) -> tuple[JSONObject, JSONObject]:
    """The counts in OpenAI's form, where the input contains the cached, and in Anthropic's, where not."""
    read, write = recorded.get("input_tokens_cache_read"), recorded.get("input_tokens_cache_write")
    given, answer = recorded.get("input_tokens"), recorded.get("output_tokens")
    reasoning = {"output_tokens_details": {"reasoning_tokens": recorded.get("reasoning_tokens")}}
    inside = {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": read},
        "output_tokens": answer,
        **reasoning,
    }
    outside: JSONObject = {"input_tokens": given, "output_tokens": answer, **reasoning}
    if read is not None:
        outside["cache_read_input_tokens"] = read
    if write is not None:
        outside["cache_creation_input_tokens"] = write
    return inside, outside


def _adds_up_without_cache(recorded: Mapping[str, Any]) -> bool:
    given, answer, total, read = (
        count(recorded.get(name))
        for name in ("input_tokens", "output_tokens", "total_tokens", "input_tokens_cache_read")
    )
    if given is None or answer is None or total is None or not read:
        return False
    return given + answer == total and read <= given


def turn_of(message: JSONObject, output: JSONObject) -> Turn:
    """The answer in `message`, with what `output` (a ModelOutput) says of it; without its calls."""
    choice = mapping(next(iter(items(output.get("choices"))), None))
    native = text(choice.get("stop_reason"))
    usage = mapping(output.get("usage"))
    kept = without(output, "model", "choices", "usage", "time", "completion", "response_id")
    further = items(output.get("choices"))[1:]
    kept |= {"message": left_of_message(message)} | ({"choices": further} if further else {})
    kept |= without(choice, "message", *(["stop_reason"] if finish_reason(native) == native else []))
    return Turn(
        message=chat_message(message),
        reasoning=read_content(message.get("content")).reasoning,
        finish_reason=finish_reason(native),
        model=text(output.get("model")) or text(message.get("model")),
        response_id=text(output.get("response_id")),
        usage=usage_of(usage),
        cost_reported=dollars(usage.get("total_cost")),
        seconds=_positive(output.get("time")),
        kept={name: value for name, value in kept.items() if value not in (None, {}, [])},
    )


def _positive(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and found >= 0 else None
