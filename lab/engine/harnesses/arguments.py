"""Reads the arguments of a tool call, whatever the model wrote, and spots calls written as plain text."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from lab.engine.llm.base import JSONObject, Reply, without_surrogates

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


_MARKUP = re.compile(r"<tool_call>|<function=|\[TOOL_CALLS\]|<\|tool|<｜(?:DSML｜|tool)|<invoke name=")  # noqa: RUF001
_FENCE = re.compile(
    r"^ {0,3}(?:```|~~~)(?:bash|sh|shell|console|mswea_bash_command|tool_code|tool_call)\s*$", re.M
)
_JSON_CALL = re.compile(r'"name"\s*:\s*"\w+"\s*,\s*"(?:arguments|parameters)"\s*:')


def protocol_notes(reply: Reply) -> list[str]:
    """What in the reply does not fit a protocol of native tool calls; empty when all fits."""
    notes = []
    if not reply.tool_calls:
        for what, expression in (
            ("markup", _MARKUP),
            ("a fenced command", _FENCE),
            ("a call in JSON", _JSON_CALL),
        ):
            if expression.search(reply.content):
                notes.append(
                    f"the reply holds what looks like a tool call written as text ({what}); this harness "
                    "takes native calls only: the server's tool-call parser may be missing or the wrong one, "
                    "or the model was trained for another format"
                )
                break
        if _MARKUP.search(reply.reasoning):
            notes.append(
                "the reasoning holds what looks like a tool call; servers parse calls from content only"
            )
        if reply.finish_reason == "tool_calls":
            notes.append("the server said tool_calls and sent none: a call was dropped")
    elif reply.finish_reason == "stop":
        notes.append("the reply holds tool calls under finish reason stop; they were executed")
    if reply.finish_reason not in _ORDINARY and not reply.cut_by_length:
        notes.append(f"the server gave the finish reason {reply.finish_reason or 'none at all'}")
    return notes


_ORDINARY = frozenset({"stop", "tool_calls"})
