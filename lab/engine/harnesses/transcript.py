"""What each message of the conversation is, as a fold over events, for families that rewrite history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.engine.events import (
    AttemptStarted,
    Event,
    HarnessMessage,
    HistoryRewritten,
    MessageSent,
    ModelCallFinished,
    ToolCallFinished,
)
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.llm.base import JSONObject, Reply

Kind = Literal["opening", "reply", "answer", "person"]


@dataclass(frozen=True)
class Part:
    """One message: who it is from, its estimated tokens, and whether it belongs to a failed exchange.

    An exchange is a reply with what the harness answered; it failed when nothing of the reply was understood.
    """

    kind: Kind
    tokens: int
    is_failed: bool = False
    is_rewritten: bool = False


class Transcript:
    """The parts of the conversation, one for each of its messages and in their order.

    `messages` are those before the first event that is followed.
    """

    def __init__(self, messages: Sequence[JSONObject], is_format_error: Callable[[Reply], bool]) -> None:
        self.parts = [_part("opening", message) for message in messages]
        self._is_format_error = is_format_error
        self._is_failed = False

    def apply(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, AttemptStarted):
            self.parts = [_part("opening", message) for message in event.messages]
        elif isinstance(event, ModelCallFinished):
            self._is_failed = self._is_format_error(event.reply)
            self._add("reply", event.message)
        elif isinstance(event, ToolCallFinished | HarnessMessage):
            self._add("answer", event.message)
        elif isinstance(event, MessageSent):
            self._add("person", event.message)
        elif isinstance(event, HistoryRewritten):
            self._rewrite(event)

    def failed_exchanges(self) -> list[int]:
        """The places of messages that an understood reply has made needless; empty until there is one."""
        if self._is_failed:
            return []
        return [place for place, part in enumerate(self.parts) if part.is_failed]

    def old_answers(self) -> list[int]:
        """The places of the harness's answers that are as they were made, oldest first, without the last."""
        answers = [place for place, part in enumerate(self.parts) if part.kind == "answer"]
        return [place for place in answers[:-1] if not self.parts[place].is_rewritten]

    def _add(self, kind: Kind, message: JSONObject) -> None:
        if message:
            part = _part(kind, message)
            self.parts.append(replace(part, is_failed=self._is_failed and kind != "person"))

    def _rewrite(self, event: HistoryRewritten) -> None:
        if event.messages:
            self.parts = [_part("opening", message) for message in event.messages]
            return
        for place, message in event.replaced.items():
            if message and place < len(self.parts):
                self.parts[place] = replace(
                    self.parts[place], tokens=estimated_tokens([message]), is_rewritten=True
                )
        gone = {place for place, message in event.replaced.items() if not message}
        if gone:
            self.parts = [part for place, part in enumerate(self.parts) if place not in gone]


def _part(kind: Kind, message: JSONObject) -> Part:
    return Part(kind, estimated_tokens([message]))
