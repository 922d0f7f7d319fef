"""The conversation of a sample of Inspect while it is put together, and as its messages alone tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.engine.formats.inspect_messages import (
    Attachments,
    arguments_text,
    chat_message,
    left_of_message,
    read_content,
    told,
    turn_of,
)
from lab.engine.formats.reading import items, mapping, moment, plain_text, seconds, text, without
from lab.engine.formats.trajectory import (
    Call,
    Item,
    Message,
    Note,
    Speaker,
    Turn,
)
from lab.engine.llm.base import JSONObject

_READ_OF_TOOL = (
    "event", "type", "id", "function", "arguments", "result", "timestamp", "completed", "events",
    "working_time",
)  # fmt: skip


@dataclass
class Conversation:
    """What a sample's record comes to. `later` are calls whose result has not been seen, by their id."""

    opening: list[JSONObject] = field(default_factory=list)
    tools: list[JSONObject] = field(default_factory=list)
    sampling: JSONObject = field(default_factory=dict)
    items: list[Item | Asked] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    later: dict[str, list[Called]] = field(default_factory=dict)

    def frozen(self) -> tuple[Item, ...]:
        return tuple(item.turn() if isinstance(item, Asked) else item for item in self.items)

    def ask(self, turn: Turn, message: JSONObject) -> None:
        """Adds an answer of the model with the calls in it."""
        step = sum(isinstance(item, Asked) for item in self.items)
        calls = [Called(_call(mapping(call), f"call_{step}_{at}")) for at, call in _calls(message)]
        for called in calls:
            self.later.setdefault(called.call.id, []).append(called)
        self.items.append(Asked(turn, calls))

    def answered(self, call_id: str) -> Called | None:
        """The oldest call of this id whose result has not joined the conversation."""
        return next((one for one in self.later.get(call_id, ()) if not one.joined), None)

    def join(self, raw: JSONObject) -> None:
        """Adds a message that stands between two answers."""
        called = self.answered(text(raw.get("tool_call_id"))) if raw.get("role") == "tool" else None
        if called is not None:
            called.join(raw)
            return
        speaker: Speaker = "person" if raw.get("source") in ("input", "operator") else "harness"
        self.items.append(Message(message=chat_message(raw), by=speaker, kept=left_of_message(raw)))


@dataclass
class Called:
    """A call while its result is still to come, from an event and from the conversation."""

    call: Call
    joined: bool = False
    ran: bool = False
    output: str | None = None

    def join(self, raw: JSONObject) -> None:
        self.joined = True
        message = chat_message(raw)
        left = left_of_message(raw)
        said = plain_text(message["content"])
        output = plain_text(read_content(raw.get("content")).said)
        kept = {**self.call.kept, **({"message": left} if left else {})}
        if told(raw) and output and output != said:
            kept["content"] = output
        self.call = dataclasses.replace(
            self.call,
            message=message,
            observation=said,
            failed=self.call.failed or bool(mapping(raw.get("error"))),
            timed_out=self.call.timed_out or mapping(raw.get("error")).get("type") == "timeout",
            kept=kept,
        )

    def take(self, event: JSONObject) -> None:
        """Takes what a tool event says. What the model saw of it may follow as a message."""
        self.ran = True
        error = mapping(event.get("error"))
        result = event.get("result")
        output = plain_text(result) if isinstance(result, (str, list)) else arguments_text(result)
        recorded = result is not None or bool(error)
        seen = self.call.observation if self.joined else (told(event) or output if recorded else None)
        self.output = output if recorded else None
        left = {name: value for name, value in without(event, *_READ_OF_TOOL).items() if value is not None}
        self.call = dataclasses.replace(
            self.call,
            observation=seen,
            failed=self.call.failed or bool(error) or event.get("failed") is True,
            timed_out=self.call.timed_out or error.get("type") == "timeout",
            started_at=moment(event.get("timestamp")),
            ended_at=moment(event.get("completed")),
            seconds=seconds(event.get("working_time")),
            kept={**self.call.kept, **left},
        )
        if seen is not None and not self.call.message:
            message = {"role": "tool", "tool_call_id": self.call.id, "content": seen}
            self.call = dataclasses.replace(self.call, message=message)

    def frozen(self) -> Call:
        whole = None if self.output == self.call.observation else self.output
        return dataclasses.replace(self.call, output=whole)


@dataclass
class Asked:
    """An answer while results of its calls are still to come."""

    started: Turn
    calls: list[Called]

    def turn(self) -> Turn:
        return dataclasses.replace(self.started, calls=tuple(called.frozen() for called in self.calls))


def _calls(message: JSONObject) -> Iterator[tuple[int, Any]]:
    return enumerate(call for call in items(message.get("tool_calls")) if isinstance(call, dict))


def _call(raw: JSONObject, made_id: str) -> Call:
    arguments = raw.get("arguments")
    wrong = text(raw.get("parse_error"))
    if not wrong and not isinstance(arguments, dict):
        wrong = "arguments are no object"
    left = without(raw, "id", "function", "arguments", "parse_error", "type")
    return Call(
        id=text(raw.get("id")) or made_id,
        name=text(raw.get("function")),
        arguments=mapping(arguments),
        raw_arguments=arguments_text(arguments),
        malformed=wrong,
        synthesised_id=not text(raw.get("id")),
        kept={name: value for name, value in left.items() if value is not None},
    )


def from_messages(messages: Any, output: JSONObject, attachments: Attachments) -> Conversation:
    """The conversation of a sample without events. Usage is known where the model was asked once."""
    found = Conversation()
    raw = [attachments.resolved(message) for message in items(messages) if isinstance(message, dict)]
    answers = sum(message.get("role") == "assistant" for message in raw)
    for message in raw:
        if message.get("role") == "assistant":
            known = output if answers == 1 else without(output, "usage", "choices", "time", "response_id")
            found.ask(turn_of(message, known), message)
        elif not found.items and message.get("role") != "tool":
            found.opening.append(chat_message(message))
        else:
            found.join(message)
    return found
