"""Reads the arguments of a tool call, whatever the model wrote, and spots calls in another form."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any, NamedTuple

from lab.engine.llm.base import JSONObject, Reply, without_surrogates
from lab.engine.llm.leaks import leak_of, leaked_call

# Deeper structures break JSON writers downstream; no tool takes any.
_DEEPEST = 50


class ParsedArguments(NamedTuple):
    """`malformed` says why the text was not understood, "" when it was; `arguments` is then `{}`."""

    arguments: JSONObject
    malformed: str


def parse_arguments(raw: str) -> ParsedArguments:
    """The arguments as an object: strict JSON, no NaN, lone surrogates replaced."""
    if not raw.strip():
        return ParsedArguments({}, "the arguments are empty")
    try:
        value = json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        return ParsedArguments({}, "nested too deeply")
    except ValueError as error:
        return ParsedArguments({}, f"not valid JSON: {error}")
    if not isinstance(value, dict):
        return ParsedArguments({}, f"{_KINDS.get(type(value), 'something')} instead of a JSON object")
    try:
        return ParsedArguments(_clean(value, 0), "")
    except RecursionError:
        return ParsedArguments({}, "nested too deeply")


_KINDS: dict[type, str] = {
    str: "a JSON string",
    list: "a JSON array",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _clean(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key, depth): _clean(item, depth + 1) for key, item in value.items()}
    return value


_FORMS = {
    "native": "native calls",
    "markup": "markup",
    "json": "a call in JSON",
    "python": "a call in Python's form",
    "fence": "a fenced command",
}
# What people read for a protocol: the form of the calls that it takes.
PROTOCOL_WORDS = {
    "native": "native calls",
    "xml": "calls as XML in the text",
    "fenced": "one fenced command in the text",
}
# How far behind the beginning of what was found the opening of a harness's own calls may stand.
_INDENT = 8


def unread_form(
    reply: Reply,
    *,
    protocol: str = "native",
    opening: str = "",
    tools: Collection[str] = (),
    parses: bool = False,
) -> str:
    """The form of what looks like a call in a reply of which none was taken: a key of the forms, "" for none.

    `opening` is how this harness's own calls begin in a text: those are broken, and in no other form.
    `parses`: native calls of this conversation were parsed before.
    """
    if reply.tool_calls:
        return "" if protocol == "native" else "native"
    if protocol == "native":
        leak = leaked_call(reply.content, tools, fences=True, parses=parses)
    else:
        # A model that was trained for another format calls the tools by the names of that one.
        leak = leaked_call(reply.content, fences=True) or leaked_call(reply.content, tools)
    if leak is None:
        return ""
    own = reply.content.find(opening) if opening else -1
    return "" if 0 <= own <= leak.start + _INDENT else leak.kind


def form_words(form: str) -> str:
    """What people read for a form of calls, as `unread_form` gives it."""
    return _FORMS.get(form, form)


def protocol_notes(
    reply: Reply,
    *,
    protocol: str = "native",
    form: str = "",
    taken: int = 0,
    tools: Collection[str] = (),
    parses: bool = False,
) -> list[str]:
    """What in the reply does not fit the protocol; empty when all fits.

    `form` is what `unread_form` says of it, `taken` how many calls were understood as such; `tools` and
    `parses` as there.
    """
    notes = [_other_form(form, protocol)] if form else []
    if not taken and not reply.tool_calls:
        if _calls_in_reasoning(reply, protocol, tools, parses=parses):
            notes.append("the reasoning holds what looks like a tool call; calls are taken from content only")
        if reply.finish_reason == "tool_calls":
            notes.append("the server said tool_calls and sent none: a call was dropped")
    if reply.tool_calls and protocol == "native":
        if reply.finish_reason == "stop":
            notes.append("the reply holds tool calls under finish reason stop; they were taken all the same")
        left = len(reply.tool_calls) - taken
        if taken and left > 0:
            notes.append(f"the reply holds {len(reply.tool_calls)} calls; this harness takes one a reply")
    elif reply.tool_calls and taken:
        notes.append("the server sent native tool calls too; this harness takes calls from the text only")
    if reply.finish_reason not in _ORDINARY and not reply.cut_by_length:
        notes.append(f"the server gave the finish reason {reply.finish_reason or 'none at all'}")
    return notes


def _calls_in_reasoning(reply: Reply, protocol: str, tools: Collection[str], *, parses: bool) -> bool:
    if protocol != "native":
        return leaked_call(reply.reasoning) is not None
    found = leak_of(reply, tools, parses=parses)
    return found is not None and found[0] == "reasoning"


def _other_form(form: str, protocol: str) -> str:
    if protocol == "native":
        return (
            f"the reply holds what looks like a tool call written as text ({form_words(form)}); this harness "
            "takes native calls only: the server's tool-call parser may be missing or the wrong one, "
            "or the model was trained for another format"
        )
    return (
        f"the reply holds what looks like a tool call in another form ({form_words(form)}); this harness "
        f"takes {PROTOCOL_WORDS.get(protocol, protocol)} only: the model may have been trained for "
        "another format, or the server's tool-call parser takes calls out of the text"
    )


_ORDINARY = frozenset({"stop", "tool_calls"})
