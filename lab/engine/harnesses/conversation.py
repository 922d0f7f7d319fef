"""The conversation as a fold over events: the live session and a later reader use the same code.

What a model was asked is never stored as a whole. It is the opening of the attempt plus each message that an
event added, which is what makes the input of every call rebuildable from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lab.engine.events import (
    AttemptStarted,
    Event,
    HarnessMessage,
    HistoryRewritten,
    MessageSent,
    ModelCallFinished,
    ModelCallStarted,
    Record,
    ToolCallFinished,
)
from lab.engine.llm.base import JSONObject, canonical_sha256


def cap_field(parameters: JSONObject) -> str:
    """The field that caps a turn: the old name only where the model's own settings use it."""
    return "max_tokens" if "max_tokens" in parameters else "max_completion_tokens"


_ADDS_MESSAGE = ModelCallFinished | ToolCallFinished | HarnessMessage | MessageSent


class Conversation:
    """The messages and request parameters after some events."""

    def __init__(self) -> None:
        self.messages: list[JSONObject] = []
        self.parameters: JSONObject = {}

    def apply(self, event: Event) -> None:
        """Take one event in; those that do not touch the conversation change nothing."""
        if isinstance(event, AttemptStarted):
            self.messages = list(event.messages)
            self.parameters = dict(event.parameters)
        elif isinstance(event, HistoryRewritten):
            self.messages = rewritten(self.messages, event)
        elif isinstance(event, _ADDS_MESSAGE) and event.message:
            self.messages.append(event.message)

    def body(self, cap: int | None) -> JSONObject:
        """The body of the next request, complete as sent. `cap` is the turn's cap in tokens, None: none sent.

        The list of messages is the conversation's own, not a copy.
        """
        body = {**self.parameters, "messages": self.messages}
        if cap is not None:
            body[cap_field(self.parameters)] = cap
        return body


def rewritten(messages: list[JSONObject], event: HistoryRewritten) -> list[JSONObject]:
    """The conversation after the event; messages it does not name stay the same objects."""
    if event.messages:
        return list(event.messages)
    changed = [event.replaced.get(place, message) for place, message in enumerate(messages)]
    return [message for message in changed if message]


class RebuiltInput(NamedTuple):
    """The input of one model request, from the log. `seq` is that of its `model_call_started`."""

    seq: int
    body: JSONObject
    sha256_expected: str
    sha256_actual: str
    attempt: int
    step: int
    request: int

    @property
    def is_equal(self) -> bool:
        """Whether this is what was sent."""
        return self.sha256_expected == self.sha256_actual


def messages_after(records: Iterable[Record]) -> list[JSONObject]:
    """The conversation after these records; with several attempts, that of the last."""
    conversation = Conversation()
    for record in records:
        conversation.apply(record.event)
    return conversation.messages


class InputCheck(NamedTuple):
    """`equal` requests of a log are rebuilt as they were sent; `differing` are the others, without bodies."""

    equal: int
    differing: list[RebuiltInput]

    @property
    def calls(self) -> int:
        return self.equal + len(self.differing)

    def told(self) -> list[str]:
        """The findings in words, one a line."""
        lines = [f"{self.equal} of {self.calls} model calls are rebuilt as they were sent"]
        for one in self.differing:
            lines.append(
                f"event {one.seq} (attempt {one.attempt}, step {one.step}, request {one.request}) differs: "
                f"sent {one.sha256_expected}, rebuilt {one.sha256_actual}"
            )
        return lines


def check_inputs(records: Iterable[Record]) -> InputCheck:
    """Rebuild the input of every request of these records and compare it with the hash of what was sent."""
    equal, differing = 0, []
    for one in rebuild_inputs(records):
        if one.is_equal:
            equal += 1
        else:
            differing.append(one._replace(body={}))
    return InputCheck(equal, differing)


def rebuild_inputs(records: Iterable[Record]) -> Iterator[RebuiltInput]:
    """The body of every model request, tries within a step included, with the logged hash and its own."""
    conversation = Conversation()
    for record in records:
        event = record.event
        if isinstance(event, ModelCallStarted):
            body = conversation.body(event.max_tokens)
            body["messages"] = list(conversation.messages)
            yield RebuiltInput(
                record.seq,
                body,
                event.body_sha256,
                canonical_sha256(body),
                record.attempt,
                event.step,
                event.request,
            )
        conversation.apply(event)
