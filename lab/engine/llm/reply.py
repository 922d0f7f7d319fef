"""Puts one reply together from the chunks of a stream, or from the one answer of a server without streams."""

from __future__ import annotations

import json
import secrets
from typing import Any

from lab.engine.llm.base import JSONObject, Reply, ToolCall, clean_json, without_surrogates
from lab.engine.llm.usage import read_usage

REASONING_FIELDS = ("reasoning_content", "reasoning")


class _Text:
    """Text that grows by deltas. Its end can be looked at again and again without joining all of it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def end(self, characters: int) -> str:
        """The last characters."""
        found: list[str] = []
        missing = characters
        for piece in reversed(self._pieces):
            if missing <= 0:
                break
            found.append(piece[-missing:])
            missing -= len(piece)
        return "".join(reversed(found))


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = _Text()


class ReplyBuilder:
    """Merges deltas, tool calls by their index; a missing index or id is made good."""

    def __init__(self) -> None:
        self.content = _Text()
        self.reasoning = _Text()
        self.refusal = _Text()
        self.reasoning_field = ""
        self.finish_reason = ""
        self.characters = 0
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._model = ""
        self._response_id = ""
        self._usage: JSONObject | None = None
        self._timings: JSONObject | None = None

    @property
    def has_anything(self) -> bool:
        return bool(self.characters or self._calls or self.finish_reason)

    @property
    def usage_object(self) -> JSONObject | None:
        """The last usage object that was not null, with llama.cpp's timings beside it."""
        if self._usage is None and self._timings is None:
            return None
        timings = {} if self._timings is None else {"timings": self._timings}
        usage: JSONObject = clean_json({**(self._usage or {}), **timings})
        return usage

    def add_chunk(self, chunk: JSONObject) -> None:
        """Take one `chat.completion.chunk`, or a whole `chat.completion`."""
        self._take_envelope(chunk)
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        if isinstance(choice.get("usage"), dict):
            self._usage = choice["usage"]
        if choice.get("finish_reason"):
            self.finish_reason = _finish_text(choice["finish_reason"])
        delta = choice.get("delta")
        message = choice.get("message")
        if delta and isinstance(delta, dict):
            self._take_delta(delta)
        elif isinstance(message, dict):
            self._take_delta(_numbered(message))

    def _take_envelope(self, chunk: JSONObject) -> None:
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        if isinstance(chunk.get("timings"), dict):
            self._timings = chunk["timings"]
        if not self._model and isinstance(chunk.get("model"), str):
            self._model = chunk["model"]
        if not self._response_id and isinstance(chunk.get("id"), str):
            self._response_id = chunk["id"]

    def _take_delta(self, delta: JSONObject) -> None:
        self._grow(self.content, _plain_text(delta.get("content")))
        self._grow(self.refusal, _plain_text(delta.get("refusal")))
        for field in REASONING_FIELDS:
            piece = delta.get(field)
            # A server that fills both fields sends the same text twice: the first one seen is kept.
            if isinstance(piece, str) and piece and self.reasoning_field in ("", field):
                self.reasoning_field = field
                self._grow(self.reasoning, piece)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for piece in calls:
                if isinstance(piece, dict):
                    self._take_call(piece)

    def _grow(self, text: _Text, piece: str) -> None:
        if piece:
            self.characters += len(piece)
            text.add(piece)

    def _take_call(self, piece: JSONObject) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id = piece["id"] if isinstance(piece.get("id"), str) else ""
        name = function["name"] if isinstance(function.get("name"), str) else ""
        call = self._call_for(piece.get("index"), call_id, name)
        call.id = call.id or call_id
        # Some servers repeat the whole name in each delta, others send it in pieces.
        if name and name != call.name:
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, (dict, list)):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._grow(call.arguments, arguments if isinstance(arguments, str) else "")

    def _call_for(self, index: Any, call_id: str, name: str) -> _Call:
        if isinstance(index, int) and not isinstance(index, bool):
            call = self._by_index.get(index)
            # Servers exist that send index 0 for every parallel call: another id with a name is another call.
            if call is None or (name and call_id and call.id and call_id != call.id):
                call = self._by_index[index] = self._new_call()
            return call
        known = next((call for call in self._calls if call_id and call.id == call_id), None)
        if known is not None:
            return known
        if not self._calls or call_id or (name and self._calls[-1].name):
            return self._new_call()
        return self._calls[-1]

    def _new_call(self) -> _Call:
        call = _Call()
        self._calls.append(call)
        return call

    def newest_calls(self, characters: int) -> str:
        """The last characters of what has arrived of tool calls, one a line, for people to watch."""
        lines = (f"{call.name} {call.arguments.end(characters)}" for call in self._calls)
        return "\n".join(lines)[-characters:]

    def calls_text(self) -> str:
        """What has arrived of tool calls, one a line, for people to watch."""
        return "\n".join(f"{call.name} {call.arguments}" for call in self._calls)

    def partial_text(self) -> str:
        """Everything that arrived, for the record of a reply that never became whole."""
        parts = [str(self.reasoning), str(self.content), str(self.refusal), self.calls_text()]
        return without_surrogates("\n".join(part for part in parts if part))

    def build(self, *, first_token_seconds: float | None, seconds: float) -> Reply:
        return Reply(
            content=without_surrogates(str(self.content)),
            reasoning=without_surrogates(str(self.reasoning)),
            reasoning_field=self.reasoning_field,
            refusal=without_surrogates(str(self.refusal)),
            tool_calls=self._finished_calls(),
            finish_reason=self.finish_reason,
            model=without_surrogates(self._model),
            response_id=without_surrogates(self._response_id),
            usage=read_usage(self.usage_object),
            first_token_seconds=first_token_seconds,
            seconds=seconds,
        )

    @property
    def looks_whole(self) -> bool:
        """Whether whole calls are there, or an answer whose tokens were counted, as only its end is."""
        if not self._calls:
            return bool(self.content) and self.usage_object is not None
        return all(call.name and _is_object(str(call.arguments)) for call in self._calls)

    def _finished_calls(self) -> tuple[ToolCall, ...]:
        seen: set[str] = set()
        finished: list[ToolCall] = []
        for call in self._calls:
            call_id = without_surrogates(call.id)
            synthesised = not call_id or call_id in seen
            if synthesised:
                call_id = f"call_{secrets.token_hex(12)}"
            seen.add(call_id)
            finished.append(
                ToolCall(
                    id=call_id,
                    name=without_surrogates(call.name),
                    arguments=without_surrogates(str(call.arguments)),
                    synthesised_id=synthesised,
                )
            )
        return tuple(finished)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _numbered(message: JSONObject) -> JSONObject:
    """A whole message as a delta: each of its calls is one by itself, whatever ids the server gave them."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    numbered = [{**call, "index": place} for place, call in enumerate(calls) if isinstance(call, dict)]
    return {**message, "tool_calls": numbered}


def _plain_text(value: Any) -> str:
    """Text of a content field: a string, or a list of parts as some servers send it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(
            part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def _finish_text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("type", "")
    return str(value)
