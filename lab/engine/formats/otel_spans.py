"""Spans of OpenTelemetry as they are read: attributes in plain JSON, times, and the messages of a model call.

The semantic conventions for generative AI moved their contents several times: one attribute with JSON, an
event with it, an event a message, numbered attributes. All of them are read into chat completions' shape.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.engine.formats.base import parsed
from lab.engine.formats.chat_messages import call_message, tool_message
from lab.engine.formats.reading import items, mapping, text
from lab.engine.llm.base import JSONObject

_DEEPEST = 40
_LARGEST_NANOSECONDS = 2**63
MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
CONTENTS_EVENT = "gen_ai.client.inference.operation.details"
EVALUATION_EVENT = "gen_ai.evaluation.result"


@dataclass(frozen=True)
class Event:
    """An event of a span: name, time, attributes."""

    name: str
    at: dt.datetime | None
    attributes: JSONObject


@dataclass(frozen=True)
class GenAISpan:
    """One span. `operation` is the convention's word ("chat", "execute_tool", "invoke_agent"), "" for others.

    `order` sorts spans as they began. `raw` is the span as it came, without what `attributes` holds.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    operation: str
    start: dt.datetime | None
    end: dt.datetime | None
    order: tuple[int, str]
    error: str
    attributes: JSONObject
    resource: JSONObject
    scope: JSONObject
    events: tuple[Event, ...] = ()
    raw: JSONObject = field(default_factory=dict)

    @property
    def is_model_call(self) -> bool:
        return self.operation in MODEL_OPERATIONS

    @property
    def seconds(self) -> float | None:
        if self.start is None or self.end is None or self.end < self.start:
            return None
        return (self.end - self.start).total_seconds()

    def attribute(self, *names: str) -> Any:
        """The first of these attributes that is there: newer names first."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)


def read_span(body: JSONObject) -> GenAISpan | None:
    """A span from `{"resource", "scope", "span"}` in OTLP's JSON form; None where it has no ids."""
    span = mapping(body.get("span"))
    trace_id, span_id = text(span.get("traceId")).lower(), text(span.get("spanId")).lower()
    if not trace_id or not span_id:
        return None
    attributes = read_attributes(span.get("attributes"))
    start = _nanoseconds(span.get("startTimeUnixNano"))
    return GenAISpan(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text(span.get("parentSpanId")).lower(),
        name=text(span.get("name")),
        operation=_operation(text(span.get("name")), attributes),
        start=_moment(start),
        end=_moment(_nanoseconds(span.get("endTimeUnixNano"))),
        order=(start or 0, span_id),
        error=_error(mapping(span.get("status")), attributes),
        attributes=attributes,
        resource=read_attributes(mapping(body.get("resource")).get("attributes")),
        scope=mapping(body.get("scope")),
        events=tuple(_events(span.get("events"))),
        raw={name: value for name, value in span.items() if name not in ("attributes", "events")},
    )


def read_attributes(value: Any) -> JSONObject:
    """OTLP's list of keys and typed values as a plain object."""
    return {text(one.get("key")): _plain(one.get("value")) for one in map(mapping, items(value))}


def _plain(value: Any, depth: int = 0) -> Any:
    typed = mapping(value)
    if depth > _DEEPEST:
        return None
    if "arrayValue" in typed:
        return [_plain(one, depth + 1) for one in items(mapping(typed["arrayValue"]).get("values"))]
    if "kvlistValue" in typed:
        pairs = map(mapping, items(mapping(typed["kvlistValue"]).get("values")))
        return {text(pair.get("key")): _plain(pair.get("value"), depth + 1) for pair in pairs}
    if "intValue" in typed:
        return _whole(typed["intValue"])
    for name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if name in typed:
            return typed[name]
    return None


def _whole(value: Any) -> Any:
    """64-bit numbers are texts in OTLP's JSON."""
    written = text(value)
    return int(written) if re.fullmatch(r"-?\d{1,19}", written) else value


def _operation(name: str, attributes: JSONObject) -> str:
    said = text(attributes.get("gen_ai.operation.name"))
    if said:
        return said
    # Before the conventions named operations, a call was whatever named its model.
    is_call = any(key in attributes for key in ("gen_ai.request.model", "gen_ai.response.model"))
    first = name.partition(" ")[0]
    if first in MODEL_OPERATIONS or first in AGENT_OPERATIONS or first == "execute_tool":
        return first
    if "gen_ai.tool.name" in attributes:
        return "execute_tool"
    return "chat" if is_call else ""


def _error(status: JSONObject, attributes: JSONObject) -> str:
    if status.get("code") not in (2, "STATUS_CODE_ERROR"):
        return ""
    return text(status.get("message")) or text(attributes.get("error.type")) or "error"


def _nanoseconds(value: Any) -> int | None:
    found = _whole(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < _LARGEST_NANOSECONDS:
        return None
    return found


def _moment(nanoseconds: int | None) -> dt.datetime | None:
    if nanoseconds is None:
        return None
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return dt.datetime.fromtimestamp(seconds, dt.UTC) + dt.timedelta(microseconds=rest // 1000)


def _events(value: Any) -> Iterator[Event]:
    for one in map(mapping, items(value)):
        at = _moment(_nanoseconds(one.get("timeUnixNano")))
        yield Event(text(one.get("name")), at, read_attributes(one.get("attributes")))


@dataclass(frozen=True)
class Contents:
    """What went into a model call and what came out, where that was recorded: messages of chat completions.

    `reasoning` is what the model thought aloud. `taken` are the attributes and events this was read from.
    """

    before: tuple[JSONObject, ...] = ()
    answer: JSONObject | None = None
    reasoning: str = ""
    finish_reason: str = ""
    tools: tuple[JSONObject, ...] = ()
    taken: frozenset[str] = frozenset()


_CONTENTS = (
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
)


def contents_of(span: GenAISpan) -> Contents:
    """The messages of a model call, whichever way its program recorded them."""
    found: JSONObject = {}
    for event in span.events:
        if event.name == CONTENTS_EVENT:
            found |= {name: event.attributes[name] for name in _CONTENTS if name in event.attributes}
    found |= {name: span.attributes[name] for name in _CONTENTS if name in span.attributes}
    if found:
        return _from_messages({name: _decoded(value) for name, value in found.items()})
    by_event = [event for event in span.events if event.name in _EVENT_ROLES or event.name == "gen_ai.choice"]
    if by_event:
        return _from_events(by_event)
    return _from_numbers(span.attributes)


def _decoded(value: Any) -> Any:
    """JSON in a text, or the value itself where it came structured."""
    if not isinstance(value, str):
        return value
    try:
        return parsed(value)
    except (json.JSONDecodeError, RecursionError):
        return value


def _from_messages(found: JSONObject) -> Contents:
    system = _system(found.get("gen_ai.system_instructions"))
    before = [*system, *_messages(found.get("gen_ai.input.messages"))]
    outputs = list(map(mapping, items(found.get("gen_ai.output.messages"))))
    first = outputs[0] if outputs else {}
    made = list(_messages([first])) if first else []
    return Contents(
        before=tuple(before),
        answer=made[0] if made else None,
        reasoning=_texts(first.get("parts"), "reasoning"),
        finish_reason=text(first.get("finish_reason")),
        tools=tuple(map(_tool, map(mapping, items(found.get("gen_ai.tool.definitions"))))),
        taken=frozenset({*found, CONTENTS_EVENT}),
    )


def _system(value: Any) -> list[JSONObject]:
    words = value if isinstance(value, str) else _texts(value, "text")
    return [{"role": "system", "content": words}] if words else []


def _messages(value: Any) -> Iterator[JSONObject]:
    for message in map(mapping, items(value)):
        parts = list(map(mapping, items(message.get("parts"))))
        yield from _message(text(message.get("role")) or "user", parts, message)


def _message(role: str, parts: list[JSONObject], message: JSONObject) -> Iterator[JSONObject]:
    """One message of the convention; its tool responses are messages of their own."""
    words = _texts(parts, "text") or text(message.get("content"))
    calls = [part for part in parts if part.get("type") == "tool_call"]
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    other = [part for part in parts if part.get("type") in _ATTACHED]
    if role == "assistant" or calls:
        made: JSONObject = {"role": "assistant", "content": words}
        if calls:
            made["tool_calls"] = call_message([_call(part, at) for at, part in enumerate(calls, start=1)])
        yield made
    elif words or other or not answers:
        yield {"role": role, "content": [{"type": "text", "text": words}, *other] if other else words}
    for part in answers:
        # `result` is what an older version called it.
        yield tool_message(text(part.get("id")), _words(part.get("response", part.get("result"))))


_ATTACHED = frozenset({"blob", "file", "uri", "generic", "image", "audio"})


def _call(part: JSONObject, index: int) -> tuple[str, str, JSONObject]:
    arguments = _decoded(part.get("arguments"))
    return text(part.get("id")) or f"call_{index}", text(part.get("name")), mapping(arguments)


def _texts(parts: Any, kind: str) -> str:
    found = [part for part in map(mapping, items(parts)) if part.get("type") == kind]
    return "\n".join(text(part.get("content")) for part in found if part.get("content"))


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tool(definition: JSONObject) -> JSONObject:
    """A definition as chat completions sends it; the convention leaves the outer object out."""
    if "function" in definition:
        return definition
    return {"type": "function", "function": {k: v for k, v in definition.items() if k != "type"}}


# Releases 1.28 to 1.36: an event a message.
_EVENT_ROLES: Mapping[str, str] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def _from_events(found: Iterable[Event]) -> Contents:
    before: list[JSONObject] = []
    answer: JSONObject | None = None
    finish = ""
    for event in found:
        if event.name == "gen_ai.choice":
            answer = _plain_message("assistant", mapping(_decoded(event.attributes.get("message"))))
            finish = text(event.attributes.get("finish_reason"))
        else:
            before.append(_plain_message(_EVENT_ROLES[event.name], event.attributes))
    taken = frozenset({*_EVENT_ROLES, "gen_ai.choice"})
    return Contents(tuple(before), answer, finish_reason=finish, taken=taken)


def _plain_message(role: str, attributes: JSONObject) -> JSONObject:
    message: JSONObject = {
        "role": text(attributes.get("role")) or role,
        "content": text(attributes.get("content")),
    }
    calls = items(_decoded(attributes.get("tool_calls")))
    if calls:
        message["tool_calls"] = calls
    if attributes.get("id") and message["role"] == "tool":
        message["tool_call_id"] = text(attributes["id"])
    return message


_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,6})\.(.+)")


def _from_numbers(attributes: JSONObject) -> Contents:
    """Numbered attributes, as programs wrote them before the conventions held contents."""
    sides: dict[str, dict[int, JSONObject]] = {"prompt": {}, "completion": {}}
    taken: set[str] = set()
    for name, value in attributes.items():
        found = _NUMBERED.fullmatch(name)
        if found:
            side, number, rest = found.groups()
            sides[side].setdefault(int(number), {})[rest] = value
            taken.add(name)
    before = tuple(_numbered(sides["prompt"][at], "user") for at in sorted(sides["prompt"]))
    answers = [sides["completion"][at] for at in sorted(sides["completion"])]
    answer = _numbered(answers[0], "assistant") if answers else None
    finish = text(answers[0].get("finish_reason")) if answers else ""
    return Contents(before, answer, finish_reason=finish, taken=frozenset(taken))


_NUMBERED_CALL = re.compile(r"tool_calls\.(\d{1,4})\.(id|name|arguments)")


def _numbered(fields: JSONObject, role: str) -> JSONObject:
    calls: dict[int, JSONObject] = {}
    for name, value in fields.items():
        found = _NUMBERED_CALL.fullmatch(name)
        if found:
            calls.setdefault(int(found[1]), {})[found[2]] = value
    message: JSONObject = {
        "role": text(fields.get("role")) or role,
        "content": _words(fields.get("content") or ""),
    }
    if calls:
        message["tool_calls"] = call_message([_call(calls[at], at + 1) for at in sorted(calls)])
    if fields.get("tool_call_id"):
        message["tool_call_id"] = text(fields["tool_call_id"])
    return message
