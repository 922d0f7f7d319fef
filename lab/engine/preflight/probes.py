"""The questions of a preflight. Each stands for something that runs do; none needs intelligence."""

from __future__ import annotations

from typing import NamedTuple

from lab.engine.llm.base import JSONObject

# Of a tool call and the thinking before it; a reply that is cut says nothing of the server and is asked for
# once more with the larger one.
CALL_TOKENS = 1_024
MOST_CALL_TOKENS = 4 * CALL_TOKENS
_LONG_TOKENS = 800
_PLAIN_TOKENS = 16

TOOL = "get_forecast"
OTHER_TOOL = "get_tide"
# What the prompt asks for, and the types that its schema gives: text, whole number, boolean.
ARGUMENTS: JSONObject = {"city": "Lisbon", "days": 3, "metric": True}

_FORECAST: JSONObject = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Weather forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city."},
                "days": {"type": "integer", "description": "How many days ahead."},
                "metric": {"type": "boolean", "description": "Metric units."},
            },
            "required": ["city", "days", "metric"],
        },
    },
}
_TIDE: JSONObject = {
    "type": "function",
    "function": {
        "name": OTHER_TOOL,
        "description": "Time of the next high tide in a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "Name of the harbour."}},
            "required": ["harbour"],
        },
    },
}
_ASK_FORECAST = f"Call the tool {TOOL} now for the city Lisbon, 3 days, metric true. Do not answer in words."
_ASK_BOTH = (
    f"Call both tools in one reply, they do not depend on each other: {TOOL} for the city Lisbon, 3 days, "
    f"metric true, and {OTHER_TOOL} for the harbour Cascais. Do not answer in words."
)
_THINK = "A farmer has 17 sheep. All but 9 run away. How many are left? Think, then answer with the number."


_COUNT = "Count from one to one hundred in English words, with commas between. Write nothing else."


class Probe(NamedTuple):
    """`name` is stored; `title` and `why` are for people."""

    name: str
    title: str
    why: str


PROBES = {
    probe.name: probe
    for probe in (
        Probe("models", "List of models", "is it an API, is the key right, how much context is there"),
        Probe("plain", "Plain answer", "is the model asked at all, and does the server count its tokens"),
        Probe("auto", "Tool call", "does a call come as a call: what every step of a run needs"),
        Probe("required", "Tool call, forced", "can the model call where the server makes it"),
        Probe("streamed", "Tool call, streamed", "is a streamed call the same as a whole one: runs stream"),
        Probe("parallel", "Two calls in one reply", "can independent calls come together"),
        Probe("result", "Tool result sent back", "does the chat template take the result of a call"),
        Probe("thinking", "Reasoning", "does reasoning come in a field of its own; how fast is the model"),
        Probe("over_limit", "One token too many", "is a request refused that does not fit, or silently cut"),
    )
}

# Asked only where something seen once may be chance.
REPEATED = {
    probe.name: probe
    for probe in (
        Probe("again", "Tool call, asked again", "does the model call each time, or was it chance"),
        Probe("streamed_again", "Tool call, streamed again", "does the stream lack it each time"),
        Probe("third", "Tool call, asked a third time", "does the model call each time, or was it chance"),
        Probe("streamed_third", "Tool call, streamed a third time", "does the stream lack it each time"),
        Probe("long", "Longer answer, streamed", "does a stream come in pieces, or all at its end"),
    )
}


def plain() -> JSONObject:
    """A short answer."""
    return {"messages": [_user("Answer with the single word: ready")], "max_tokens": _PLAIN_TOKENS}


def call(*, required: bool = False) -> JSONObject:
    """A request whose only sensible answer is one call with known arguments."""
    choice = "required" if required else "auto"
    return {"messages": [_user(_ASK_FORECAST)], **_tools(_FORECAST, choice=choice)}


def parallel() -> JSONObject:
    """A request for two calls that do not depend on each other."""
    tools = _tools(_FORECAST, _TIDE)
    return {"messages": [_user(_ASK_BOTH)], **tools, "parallel_tool_calls": True}


def result(assistant: JSONObject, call_id: str) -> JSONObject:
    """The turn after a call: the assistant's message with the call, and the tool's result."""
    answer = {"role": "tool", "tool_call_id": call_id, "content": '{"forecast": "sun, 21 degrees"}'}
    return {"messages": [_user(_ASK_FORECAST), assistant, answer], **_tools(_FORECAST)}


def thinking(cap: int) -> JSONObject:
    """A question that a reasoning model thinks about, at most `cap` tokens long."""
    return {"messages": [_user(_THINK)], "max_tokens": cap}


def long() -> JSONObject:
    """A question whose answer takes a while to write."""
    return {"messages": [_user(_COUNT)], "max_tokens": _LONG_TOKENS}


def over_limit(tokens: int) -> JSONObject:
    """A request of at least so many tokens: a short word each, which no tokenizer joins with the next."""
    return {"messages": [_user("Say ok. " + "zq " * tokens)], "max_tokens": 1}


def _user(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def _tools(*tools: JSONObject, choice: str = "auto") -> JSONObject:
    return {"tools": list(tools), "tool_choice": choice, "max_tokens": CALL_TOKENS}
