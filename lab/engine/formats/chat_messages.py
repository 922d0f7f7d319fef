"""Messages and tool calls in the shape of chat completions, as many formats hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.engine.formats.base import parsed
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import items, mapping, plain_text, text
from lab.engine.formats.trajectory import Call
from lab.engine.llm.base import JSONObject


class Arguments(NamedTuple):
    """Arguments of a call: the object, the text that came, and why that text was not understood."""

    arguments: JSONObject
    raw: str
    malformed: str


def read_arguments(value: Any) -> Arguments:
    """Arguments that came as text, as in chat completions, or as an object. An empty text is no argument."""
    if isinstance(value, dict):
        return Arguments(value, "", "")
    if value is None:
        return Arguments({}, "", "")
    if not isinstance(value, str):
        return Arguments({}, json.dumps(value), f"is a {type(value).__name__} and no object")
    if not value.strip():
        return Arguments({}, value, "")
    try:
        found = parsed(value)
    except RecursionError:
        return Arguments({}, value, "is nested too deeply")
    except ValueError as error:
        return Arguments({}, value, f"is not JSON: {error}")
    if not isinstance(found, dict):
        return Arguments({}, value, f"is JSON, but a {type(found).__name__} and no object")
    return Arguments(found, value, "")


def calls_in(message: JSONObject, step: int) -> list[Call]:
    """The calls of an assistant message in order, without what came of them.

    A call without an id gets `call_<step>_<index>`. What is no call at all is passed over: it stays in the
    message.
    """
    return [
        _call(entry, step, index)
        for index, entry in enumerate(items(message.get("tool_calls")))
        if isinstance(entry, dict)
    ]


def _call(entry: JSONObject, step: int, index: int) -> Call:
    function = mapping(entry.get("function"))
    read = read_arguments(function.get("arguments"))
    return Call(
        id=text(entry.get("id")) or f"call_{step}_{index}",
        name=text(function.get("name")),
        arguments=read.arguments,
        raw_arguments=read.raw,
        malformed=read.malformed,
        synthesised_id=not text(entry.get("id")),
        kept=unread(entry, {"id": str, "function": dict, "type": str, "index": int}),
    )


def call_message(calls: Sequence[tuple[str, str, JSONObject]]) -> list[JSONObject]:
    """`tool_calls` of an assistant message from ids, names and arguments."""
    return [
        {
            "id": identifier,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for identifier, name, arguments in calls
    ]


def tool_message(call_id: str, content: Any) -> JSONObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def observed(message: JSONObject) -> str:
    """What a model saw of a message with a result."""
    return plain_text(message.get("content"))
