"""The messages of mini-swe-agent's trajectories: replies, results of commands, and what came between them.

A reply is a chat completion's message or a whole response of the Responses API; its commands are native tool
calls, or stand in its text. From version 2 on `extra` holds what a message was made of; before, a return code
or a time-out is only told by the words that the model saw.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab.engine.formats.leftovers import unread
from lab.engine.formats.mini_swe_agent_replies import (
    Replied,
    chat_message,
    chat_reply,
    from_responses_api,
    unread_reply,
)
from lab.engine.formats.reading import items, mapping, moment, plain_text, text, without
from lab.engine.formats.trajectory import Call, Item, Message, Note, Turn
from lab.engine.harnesses.arguments import parse_arguments
from lab.engine.harnesses.fenced_calls import commands_in
from lab.engine.llm.base import JSONObject

TOOL = "bash"
_RETURN_CODE = re.compile(
    r"(?:<exception>.{0,2000}?</exception>\n)?<returncode>(-?\d{1,9})</returncode>", re.S
)
_RESULT: dict[str, type | tuple[type, ...]] = {
    "returncode": int,
    "raw_output": str,
    "timestamp": (int, float, str),
    "exception_info": str,
}
_NOT_RUN = "action was not executed"
# Words of a harness, and what the lab calls them.
_REASONS = {"FormatError": "format_error"}
_BY_A_PERSON = ("UserInterruption", "UserRejection", "UserNewTask")


@dataclass(frozen=True)
class Wording:
    """How commands stand in the text of a reply that has them nowhere else, and how a time-out begins."""

    form: Literal["fence", "element"] = "fence"
    tag: str = ""
    stopped: str = ""


@dataclass
class _Waiting:
    """A call without its result: the item it belongs to, and its place there."""

    item: int
    call: int
    id: str


class Conversation:
    """Reads messages one after the other; afterwards `items()` and what else was found."""

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._items: list[Item] = []
        self._calls: dict[int, list[Call]] = {}
        self._waiting: list[_Waiting] = []
        self._steps = 0
        self.exit: JSONObject = {}
        self.notes: dict[str, Note] = {}

    def items(self) -> tuple[Item, ...]:
        """What was read, in order, every call with its result."""
        found = list(self._items)
        for place, calls in self._calls.items():
            turn = found[place]
            if isinstance(turn, Turn):
                found[place] = dataclasses.replace(turn, calls=tuple(calls))
        return tuple(found)

    def note(self, kind: Literal["guessed", "lost", "missing"], field: str, detail: str) -> None:
        self.notes.setdefault(field, Note(kind=kind, field=field, detail=detail))

    def read(self, raw: JSONObject) -> None:
        """Take the next message after the opening."""
        extra = mapping(raw.get("extra"))
        if is_reply(raw):
            self._reply(raw)
        elif raw.get("role") == "exit":
            self._exit(raw, extra)
        elif raw.get("role") == "tool" or raw.get("type") == "function_call_output":
            self._result(raw, extra)
        elif text(extra.get("interrupt_type")):
            self._interrupt(raw, extra)
        elif "actions" in extra:
            self._join(raw, extra, by="person")
        elif self._waiting:
            self._result(raw, extra)
        else:
            self._answer(raw, extra)

    def submit(self, submission: str, markers: Sequence[str]) -> None:
        """The last command submitted; of several calls in the last turn the one that prints the marker."""
        if not self._calls:
            return
        calls = self._calls[max(self._calls)]
        naming = (place for place, call in enumerate(calls) if any(one in _command(call) for one in markers))
        found = next(naming, None)
        if found is None:
            found = len(calls) - 1
            self.note("guessed", "info.exit_status", "the last command is taken for the one that submitted")
        call = calls[found]
        changes: dict[str, Any] = {"submitted": True}
        if self.exit and (call.observation is None or call.kept.get("exception_info") == _NOT_RUN):
            # Nobody was shown it: the run ended with what the command printed after the marker.
            changes |= {"observation": submission, "message": {}, "exit_code": 0, "failed": False}
        calls[found] = dataclasses.replace(call, **changes)

    # Replies.

    def _reply(self, raw: JSONObject) -> None:
        replied = from_responses_api(raw) if _is_response(raw) else chat_reply(raw)
        if replied.converted:
            self.note("guessed", "messages[].output", "items of the Responses API read as chat messages")
        self._add(replied)
        calls = self._native_calls(replied) or self._text_calls(replied)
        self._expect(calls)

    def _add(self, replied: Replied) -> None:
        self._steps += 1
        self._items.append(replied.turn)
        self._waiting = []
        for field, detail in replied.unknown.items():
            self.note("missing", field, detail)
        if replied.turn.started_at is not None:
            self.note(
                "guessed",
                "messages[].extra.response.created",
                "taken for the time of asking, in whole seconds; when an answer was whole is not recorded",
            )

    def _expect(self, calls: list[Call]) -> None:
        if calls:
            place = len(self._items) - 1
            self._calls[place] = calls
            self._waiting = [_Waiting(place, number, call.id) for number, call in enumerate(calls)]

    def _native_calls(self, replied: Replied) -> list[Call]:
        calls: list[Call] = []
        for number, raw in enumerate(items(replied.turn.message.get("tool_calls")), start=1):
            called, function = mapping(raw), mapping(mapping(raw).get("function"))
            arguments = function.get("arguments")
            written = text(arguments)
            parsed, malformed = (
                parse_arguments(written) if not isinstance(arguments, dict) else (arguments, "")
            )
            identifier = text(called.get("id"))
            calls.append(
                Call(
                    id=identifier or self._made_id(number),
                    name=text(function.get("name")),
                    arguments=parsed,
                    raw_arguments=written,
                    malformed=malformed,
                    synthesised_id=not identifier,
                )
            )
        return calls

    def _text_calls(self, replied: Replied) -> list[Call]:
        """What `extra.actions` names, else the one command in the text."""
        if replied.actions is None:
            found = self._commands(plain_text(replied.turn.message.get("content")))
            actions: list[JSONObject] = [{"command": one} for one in found] if len(found) == 1 else []
        else:
            actions = [one for one in map(mapping, replied.actions) if isinstance(one.get("command"), str)]
        return [self._text_call(action, number) for number, action in enumerate(actions, start=1)]

    def _text_call(self, action: JSONObject, number: int) -> Call:
        identifier = text(action.get("tool_call_id"))
        return Call(
            id=identifier or self._made_id(number),
            name=TOOL,
            arguments={"command": action["command"]},
            raw_arguments=action["command"],
            synthesised_id=not identifier,
            kept=unread(action, {"command": str, "tool_call_id": str}),
        )

    def _commands(self, content: str) -> list[str]:
        if not self._wording.tag:
            return []
        return commands_in(content, tag=self._wording.tag, form=self._wording.form)

    def _made_id(self, number: int) -> str:
        return f"call_{self._steps}_{number}"

    # What came of the calls.

    def _result(self, raw: JSONObject, extra: JSONObject) -> None:
        waiting = self._waiting_for(text(raw.get("tool_call_id")) or text(raw.get("call_id")))
        if waiting is None:
            self.note("guessed", "messages[]", "a result that belongs to no call is kept as a message")
            self._join(raw, extra)
            return
        calls = self._calls[waiting.item]
        calls[waiting.call] = self._with_result(calls[waiting.call], raw, extra)

    def _waiting_for(self, identifier: str) -> _Waiting | None:
        """The call with this id, for a result without one the first; it waits no more."""
        for place, waiting in enumerate(self._waiting):
            if not identifier or waiting.id == identifier:
                return self._waiting.pop(place)
        return None

    def _with_result(self, call: Call, raw: JSONObject, extra: JSONObject) -> Call:
        message = chat_message(raw)
        observation = plain_text(message.get("content"))
        if not extra:
            return self._told_result(call, message, observation)
        code, exception = extra.get("returncode"), text(extra.get("exception_info"))
        output = extra.get("raw_output")
        kept = unread(extra, _RESULT)
        if exception:
            kept["exception_info"] = exception
        timed_out = text(extra.get("exception_type")) == "TimeoutExpired" or "timed out after" in exception
        ran = exception != _NOT_RUN
        return dataclasses.replace(
            call,
            observation=observation,
            message=message,
            output=output if isinstance(output, str) and ran else None,
            exit_code=code if _is_code(code) and not exception else None,
            failed=bool(exception),
            timed_out=timed_out,
            # Results are written down together, after the last command of a reply.
            ended_at=None if self._waiting else moment(extra.get("timestamp")),
            kept={**call.kept, **kept},
        )

    def _told_result(self, call: Call, message: JSONObject, observation: str) -> Call:
        """Of a message without `extra`: as far as its words tell."""
        stopped = bool(self._wording.stopped) and observation.startswith(self._wording.stopped)
        told = _RETURN_CODE.match(observation)
        if told or stopped:
            self.note(
                "guessed", "messages[].content", "return codes and time-outs are read from the observations"
            )
        return dataclasses.replace(
            call,
            observation=observation,
            message=message,
            exit_code=int(told[1]) if told and not stopped else None,
            failed=stopped,
            timed_out=stopped,
        )

    # What is neither reply nor result.

    def _answer(self, raw: JSONObject, extra: JSONObject) -> None:
        """A message that follows no command: the answer to a reply that was not understood."""
        last = self._items[-1] if self._items else None
        unread = isinstance(last, Turn) and not last.calls and not self._calls.get(len(self._items) - 1)
        self._join(raw, extra, reason=_REASONS["FormatError"] if unread else "")

    def _interrupt(self, raw: JSONObject, extra: JSONObject) -> None:
        kind = text(extra.get("interrupt_type"))
        person = kind in _BY_A_PERSON
        if not person and ("response" in extra or "model_response" in extra or "cost" in extra):
            self._add(unread_reply(extra))
            extra = without(extra, "response", "model_response", "cost")
        self._waiting = []
        self._join(
            raw,
            without(extra, "interrupt_type"),
            by="person" if person else "harness",
            reason=_REASONS.get(kind, kind),
        )

    def _exit(self, raw: JSONObject, extra: JSONObject) -> None:
        self.exit = {**without(raw, "role", "extra"), "extra": extra}
        self._waiting = []

    def _join(
        self,
        raw: JSONObject,
        extra: JSONObject,
        *,
        by: Literal["harness", "person"] = "harness",
        reason: str = "",
    ) -> None:
        message = chat_message(raw)
        at = moment(extra.get("timestamp"))
        kept = extra if at is None else without(extra, "timestamp")
        self._items.append(Message(message=message, by=by, reason=reason, at=at, kept=kept))


def is_reply(raw: Mapping[str, Any]) -> bool:
    """Whether a message is a model's."""
    return raw.get("role") == "assistant" or _is_response(raw)


def is_opening(raw: Mapping[str, Any]) -> bool:
    """Whether a message may stand before the first reply: a plain one of the prompt."""
    extra = mapping(raw.get("extra"))
    marks = ("interrupt_type", "actions", "response", "raw_output")
    plain = raw.get("role") in ("system", "developer", "user")
    return plain and not is_reply(raw) and not any(mark in extra for mark in marks)


def _is_response(raw: Mapping[str, Any]) -> bool:
    return raw.get("object") == "response" or ("role" not in raw and isinstance(raw.get("output"), list))


def _is_code(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _command(call: Call) -> str:
    return text(call.arguments.get("command"))
