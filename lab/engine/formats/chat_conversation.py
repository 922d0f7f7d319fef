"""A conversation in the shape of chat completions, message by message, as opening and items."""

from __future__ import annotations

import dataclasses
from typing import Any

from lab.engine.formats.chat_messages import calls_in, observed, read_arguments
from lab.engine.formats.reading import mapping, text
from lab.engine.formats.trajectory import Call, Item, Message, Note, Turn
from lab.engine.llm.base import JSONObject

_RESULTS = frozenset({"tool", "function"})


class ChatConversation:
    """Takes messages in order. What stands before the first answer is `opening`, the rest `items`."""

    def __init__(self) -> None:
        self.opening: list[JSONObject] = []
        self.items: list[Item] = []
        self.notes: list[Note] = []
        self._turn: Turn | None = None
        self._place = -1
        self._turns = 0

    def answer(self, message: JSONObject, turn: Turn) -> None:
        """An answer of the model: `turn` with everything but message, reasoning and calls."""
        self._turns += 1
        calls = calls_in(message, self._turns) or _old_call(message, self._turns)
        reasoning = text(message.get("reasoning_content")) or text(message.get("reasoning"))
        turn = dataclasses.replace(
            turn, message=message, calls=tuple(calls), reasoning=turn.reasoning or reasoning
        )
        self.items.append(turn)
        self._place = len(self.items) - 1
        self._turn = turn

    def joined_as(self, message: JSONObject) -> None:
        """The last answer joined the conversation in this form."""
        if self._turn is None or message == self._turn.message:
            return
        kept = {**self._turn.kept, "response_message": self._turn.message}
        self._put(dataclasses.replace(self._turn, message=message, kept=kept))

    def take(self, message: JSONObject) -> None:
        """A message that is no answer: of the opening, a result of a call, or somebody's."""
        turn = self._turn
        if turn is None:
            self.opening.append(message)
            return
        index = _call_of(turn, message)
        if index is None:
            if text(message.get("role")) in _RESULTS:
                self._note("guessed", "messages.tool_call_id", "a result of no call of the answer before it")
            else:
                self._note("guessed", "messages.role", "who wrote a later message is not said: the harness")
            self.items.append(Message(message=message, reason="observation"))
            return
        calls = list(turn.calls)
        calls[index] = dataclasses.replace(calls[index], message=message, observation=observed(message))
        self._put(dataclasses.replace(turn, calls=tuple(calls)))

    def final_message(self) -> str:
        """What was said last, where no tool was called with it."""
        last = self._turn
        return observed(last.message) if last is not None and not last.calls else ""

    @property
    def has_answers(self) -> bool:
        return self._turn is not None

    def _put(self, turn: Turn) -> None:
        self.items[self._place] = turn
        self._turn = turn

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self.notes.append(Note(kind=kind, field=field, detail=detail))


def _old_call(message: JSONObject, number: int) -> list[Call]:
    """The one call of the form that chat completions had before `tool_calls`."""
    function = mapping(message.get("function_call"))
    if not function:
        return []
    read = read_arguments(function.get("arguments"))
    return [
        Call(
            id=f"call_{number}_0",
            name=text(function.get("name")),
            arguments=read.arguments,
            raw_arguments=read.raw,
            malformed=read.malformed,
            synthesised_id=True,
        )
    ]


def _call_of(turn: Turn, message: JSONObject) -> int | None:
    """The call that a message is the result of: by its id, or by its place where it can have none."""
    waiting = [index for index, call in enumerate(turn.calls) if not call.message]
    role, identifier = text(message.get("role")), message.get("tool_call_id")
    if role == "tool" and identifier:
        return next((index for index in waiting if turn.calls[index].id == identifier), None)
    in_text = not turn.message.get("tool_calls")
    if role in _RESULTS or (role == "user" and in_text):
        return next(iter(waiting), None)
    return None
