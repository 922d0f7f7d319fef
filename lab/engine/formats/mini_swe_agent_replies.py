"""Replies in mini-swe-agent's trajectories, read into turns: chat completions and the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from lab.engine.formats.reading import dollars, items, mapping, moment, plain_text, text, without
from lab.engine.formats.trajectory import Turn
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

_THOUGHTS = ("reasoning_content", "reasoning")
_TEXT_PARTS = ("input_text", "output_text")
_COST = "messages[].extra.cost"
_NO_COST = "0 stands for a cost that could not be computed"


@dataclass(frozen=True)
class Replied:
    """A turn without its calls. `actions` are the commands that the program itself read from the reply, None
    when it does not say; `converted`: the message was made of the Responses API's items. `unknown` has a
    sentence for each field that is not known."""

    turn: Turn
    actions: list[Any] | None = None
    converted: bool = False
    unknown: Mapping[str, str] = field(default_factory=dict)


def chat_reply(raw: JSONObject) -> Replied:
    """An assistant message, with the whole completion in `extra.response`."""
    extra = mapping(raw.get("extra"))
    response = mapping(extra.get("response"))
    choice = mapping(next(iter(items(response.get("choices"))), None))
    message = without(raw, "extra")
    answered = mapping(choice.get("message"))
    said = _first_thought(message, answered)
    kept = _kept_of_chat(response, choice, {**message, **_thought_fields(answered, said)})
    facts = _Facts(extra, response)
    actions = extra.get("actions")
    # The lab's own export says so of a reply that the conversation went on without.
    joined = facts.kept.pop("left_out", False) is not True
    turn = Turn(
        message=message if joined else {},
        reasoning=said,
        finish_reason=text(choice.get("finish_reason")),
        model=text(response.get("model")),
        response_id=text(response.get("id")),
        usage=facts.usage,
        cost_reported=facts.cost,
        # Version 2 writes down when an answer was whole; before there is only the server's own second.
        started_at=None if facts.at else moment(response.get("created")),
        ended_at=facts.at,
        kept={
            **facts.kept,
            **_response(kept, extra.get("response")),
            **({} if joined else {"unread_reply": message}),
        },
    )
    return Replied(turn, actions if isinstance(actions, list) else None, unknown=facts.unknown)


def from_responses_api(raw: JSONObject) -> Replied:
    """A whole response. Its message is put together from the output's items, which are kept as they came."""
    extra = mapping(raw.get("extra"))
    facts = _Facts(extra, raw)
    turn = Turn(
        message=_message_of(raw),
        reasoning=_summaries(raw),
        finish_reason=_finish_reason(raw),
        model=text(raw.get("model")),
        response_id=text(raw.get("id")),
        usage=facts.usage,
        cost_reported=facts.cost,
        started_at=None if facts.at else moment(raw.get("created_at")),
        ended_at=facts.at,
        kept={**facts.kept, "response": without(raw, "extra", "usage")},
    )
    return Replied(turn, converted=True, unknown=facts.unknown)


def unread_reply(extra: JSONObject) -> Replied:
    """A reply that was asked and paid for and did not join the conversation: `kept` holds it whole."""
    response = extra.get("response")
    told = mapping(response)
    choice = mapping(next(iter(items(told.get("choices"))), None))
    if isinstance(told.get("output"), list):
        said, rest = _message_of(told), without(told, "usage")
    else:
        said = mapping(choice.get("message")) or {"role": "assistant", "content": extra.get("model_response")}
        rest = _kept_of_chat(told, choice, said)
    facts = _Facts(extra, told)
    turn = Turn(
        message={},
        reasoning=_first_thought(said, {}) or _summaries(told),
        finish_reason=text(choice.get("finish_reason")) or _finish_reason(told),
        model=text(told.get("model")),
        response_id=text(told.get("id")),
        usage=facts.usage,
        cost_reported=facts.cost,
        ended_at=facts.at,
        kept={**facts.kept, "unread_reply": said, **_response(rest, response)},
    )
    return Replied(turn, actions=[], unknown=facts.unknown)


def chat_message(raw: JSONObject) -> JSONObject:
    """A message as it joined the conversation, in the shape of chat completions."""
    message = without(raw, "extra")
    if raw.get("type") == "function_call_output":
        taken = without(message, "type", "call_id", "output")
        called = {"tool_call_id": raw["call_id"]} if "call_id" in raw else {}
        return {"role": "tool", **called, "content": raw.get("output"), **taken}
    if raw.get("type") == "message":
        return {**without(message, "type"), "content": _chat_content(raw.get("content"))}
    return message


class _Facts:
    """What `extra` and the response say of a call: usage, cost, time. `kept` is the rest of `extra`."""

    def __init__(self, extra: JSONObject, response: JSONObject) -> None:
        usage = response.get("usage")
        self.usage = read_usage(usage) if isinstance(usage, dict) else Usage()
        self.at = moment(extra.get("timestamp"))
        self.unknown: dict[str, str] = {}
        self.cost = self._cost(extra, mapping(usage))
        self.kept = without(extra, "actions", "response", "model_response", "interrupt_type", "n_actions")
        if self.at is not None:
            self.kept.pop("timestamp", None)
        if self.cost is not None and dollars(extra.get("cost")) == self.cost:
            self.kept.pop("cost", None)

    def _cost(self, extra: JSONObject, usage: JSONObject) -> Decimal | None:
        """The program's own sum, else the server's. It writes 0 for what it could not price."""
        told = dollars(extra.get("cost"))
        if told == 0:
            self.unknown[_COST] = _NO_COST
            return None
        return dollars(usage.get("cost")) if told is None else told


def _first_thought(*messages: Mapping[str, Any]) -> str:
    return next((text(one.get(name)) for one in messages for name in _THOUGHTS if text(one.get(name))), "")


def _thought_fields(message: JSONObject, said: str) -> JSONObject:
    return {name: said for name in _THOUGHTS if said and message.get(name) == said}


def _kept_of_chat(response: JSONObject, choice: JSONObject, known: Mapping[str, Any]) -> JSONObject:
    """What of a completion stands nowhere else: without what the turn and its message hold already, and
    without nulls."""
    kept = _left(response, "id", "model", "usage")
    answered = mapping(choice.get("message"))
    rest = {name: value for name, value in answered.items() if value is not None and value != known.get(name)}
    first = {**_left(choice, "finish_reason"), "message": rest} if choice else {}
    if not rest:
        first.pop("message", None)
    others = items(response.get("choices"))[1:]
    if choice:
        kept["choices"] = [first, *others]
        if not first and not others:
            del kept["choices"]
    return kept


def _left(source: JSONObject, *texts: str) -> JSONObject:
    """Without these fields, where they are texts or objects as expected, and without nulls."""
    return {
        name: value
        for name, value in source.items()
        if value is not None and not (name in texts and isinstance(value, (str, dict)))
    }


def _response(rest: JSONObject, response: Any) -> JSONObject:
    """The part to keep of a response, or all of one that is no object: a program's description of it."""
    if isinstance(response, dict) or response is None:
        return {"response": rest} if rest else {}
    return {"response": response}


def _message_of(response: JSONObject) -> JSONObject:
    """The assistant message that a response's items come to."""
    output = [mapping(item) for item in items(response.get("output"))]
    said = [plain_text(item.get("content")) for item in output if item.get("type") == "message"]
    calls = [
        {
            "id": item.get("call_id") or item.get("id"),
            "type": "function",
            "function": {"name": item.get("name"), "arguments": item.get("arguments")},
        }
        for item in output
        if item.get("type") == "function_call"
    ]
    message: JSONObject = {"role": "assistant", "content": "\n".join(said) if said else None}
    return {**message, "tool_calls": calls} if calls else message


def _summaries(response: JSONObject) -> str:
    """The summaries of the reasoning, which is mostly all of it that a server shows."""
    found = []
    for item in map(mapping, items(response.get("output"))):
        if item.get("type") == "reasoning":
            found += [plain_text(item.get("summary")), plain_text(item.get("content"))]
    return "\n\n".join(one for one in found if one)


def _finish_reason(response: JSONObject) -> str:
    """A response's status, which says `incomplete` where a completion says `length`."""
    status = text(response.get("status"))
    reason = mapping(response.get("incomplete_details")).get("reason")
    return "length" if status == "incomplete" and reason == "max_output_tokens" else status


def _chat_content(content: Any) -> Any:
    parts = items(content)
    if parts and all(mapping(part).get("type") in _TEXT_PARTS for part in parts):
        return plain_text(parts)
    return content
