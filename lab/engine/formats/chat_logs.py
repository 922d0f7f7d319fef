"""Logs of single requests to a chat-completions server, joined into conversations.

A request whose messages begin with those of an earlier one and go on with an answer belongs to the same
conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from lab.engine.formats.chat_conversation import ChatConversation
from lab.engine.formats.json_values import Value
from lab.engine.formats.leftovers import collapsed, unread, without_credentials
from lab.engine.formats.reading import dollars, items, mapping, moment, plain_text, seconds, text, without
from lab.engine.formats.trajectory import (
    FailedRequest,
    HarnessUsed,
    ModelUsed,
    Note,
    Origin,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject
from lab.engine.llm.usage import read_usage

_LOG: dict[str, type | tuple[type, ...]] = {
    "messages": list,
    "tools": list,
    "kwargs": dict,
    "response": dict,
    "request": dict,
    "timestamp": (int, float, str),
    "latency_sec": (int, float),
}
_NO_SAMPLING = (
    "messages",
    "tools",
    "model",
    "base_url",
    "api_base",
    "extra_body",
    "extra_headers",
    "metadata",
    # Whose request it was: runs of one model differ in them.
    "user",
    "prompt_cache_key",
    "safety_identifier",
)


class Log(NamedTuple):
    """One log: the request's messages and settings, the response, and where it stood.

    `digests` are those of the first n messages, for each n.
    """

    file: str
    value: Value
    root: JSONObject
    messages: list[JSONObject]
    settings: JSONObject
    digests: list[bytes]


def is_log(value: Any) -> bool:
    root = mapping(value)
    request = mapping(root.get("request")) or root
    messages = items(request.get("messages"))
    return isinstance(root.get("response"), dict) and any("role" in mapping(one) for one in messages)


def log_of(file: str, value: Value) -> Log:
    """
    Raises:
        RecursionError: a message is nested too deeply.
    """
    root: JSONObject = value.value
    request = mapping(root.get("request"))
    settings = without_credentials(request or {**mapping(root.get("kwargs")), **_tools(root)})
    messages = [one for one in items((request or root).get("messages")) if isinstance(one, dict)]
    return Log(file, value, root, messages, settings, _digests(messages))


def _tools(root: JSONObject) -> JSONObject:
    return {"tools": root["tools"]} if items(root.get("tools")) else {}


def joined(logs: list[Log]) -> Iterator[Trajectory]:
    """The conversations in the order of their first requests; by time where every log has one."""
    times = [moment(log.root.get("timestamp")) for log in logs]
    known = [time for time in times if time is not None]
    if len(known) == len(logs):
        order = sorted(range(len(logs)), key=lambda place: (known[place], place))
        logs = [logs[place] for place in order]
    conversations: list[_Joined] = []
    waiting: dict[bytes, _Joined] = {}
    for log in logs:
        again = waiting.get(log.digests[-1])
        found = waiting.pop(log.digests[-1]) if again is not None and again.failed else None
        for count in range(len(log.messages) - 1, -1, -1):
            if found is not None:
                break
            if log.messages[count].get("role") == "assistant" and log.digests[count] in waiting:
                found = waiting.pop(log.digests[count])
        if found is None:
            found = _Joined(log)
            conversations.append(found)
        found.take(log)
        waiting[log.digests[-1]] = found
    for conversation in conversations:
        yield conversation.trajectory()


def _digests(messages: list[JSONObject]) -> list[bytes]:
    """What a message says counts, not how it is written."""
    chain = hashlib.sha256()
    found = [chain.digest()]
    for message in messages:
        said = [message.get("role"), plain_text(message.get("content")), message.get("tool_call_id")]
        called = [mapping(mapping(one).get("function")) for one in items(message.get("tool_calls"))]
        calls = [[one.get("name"), one.get("arguments")] for one in called]
        chain.update(json.dumps([said, calls]).encode())
        found.append(chain.digest())
    return found


class _Joined:
    """One conversation, log by log. `failed`: its last request has no answer, and may be made again."""

    failed = False

    def __init__(self, log: Log) -> None:
        self._conversation = ChatConversation()
        self._logs = 0
        self._messages = 0
        self._digest = hashlib.sha256()
        self._first = self._last = log
        self._settings = log.settings
        self._raw = 0
        self._times: list[Any] = []

    def take(self, log: Log) -> None:
        added = log.messages[self._messages :]
        for message in added:
            if message.get("role") != "assistant":
                self._conversation.take(message)
            elif message is added[0] and self._logs:
                self._conversation.joined_as(message)
            else:
                # An answer whose own log is not there.
                self._conversation.answer(message, Turn(message={}))
        self._messages = len(log.messages)
        self._digest.update(log.value.sha256.encode())
        self._last = log
        self._logs += 1
        self._answer(log)

    def _answer(self, log: Log) -> None:
        response = mapping(log.root.get("response"))
        choice = mapping(next(iter(items(response.get("choices"))), None))
        message = {name: value for name, value in mapping(choice.get("message")).items() if value is not None}
        ended = moment(log.root.get("timestamp"))
        took = seconds(log.root.get("latency_sec"))
        usage = response.get("usage")
        self._times += [ended] if ended is not None else []
        counted = read_usage(usage if isinstance(usage, dict) else None)
        # A cost of 0 is what a model without a price costs.
        cost = dollars(log.root.get("cost")) or None
        kept = self._kept(log, response, choice)
        self.failed = not message
        if not message:
            error = mapping(response.get("error"))
            said = text(error.get("message")) or text(response.get("error")) or "the response holds no answer"
            failed = FailedRequest(
                error="server", message=said, usage=counted, cost_reported=cost,
                at=ended, seconds=took, kept=kept,
            )  # fmt: skip
            self._conversation.items.append(failed)
            return
        turn = Turn(
            message={},
            finish_reason=text(choice.get("finish_reason")),
            model=text(response.get("model")),
            response_id=text(response.get("id")),
            usage=counted,
            cost_reported=cost,
            ended_at=ended,
            seconds=took,
            kept=kept,
        )
        self._conversation.answer({"role": "assistant", **message}, turn)

    def _kept(self, log: Log, response: JSONObject, choice: JSONObject) -> JSONObject:
        """What a log holds beside its conversation; settings where they differ from the last ones."""
        kept = unread(log.root, _LOG)
        if dollars(kept.get("cost")):
            del kept["cost"]
        # The messages as they were before they were rewritten as text: those that are new.
        raw = items(kept.get("raw_messages"))
        if raw:
            kept["raw_messages"] = raw[self._raw :]
            self._raw = len(raw)
        rest = unread(response, {"id": str, "model": str, "object": str, "choices": list, "usage": dict})
        others = (
            {"choices": items(response.get("choices"))[1:]} if len(items(response.get("choices"))) > 1 else {}
        )
        rest = {name: value for name, value in rest.items() if value is not None} | others
        of_choice = unread(choice, {"message": dict, "finish_reason": str, "index": int})
        if log.settings != self._settings:
            self._settings = log.settings
            kept["settings"] = log.settings
        of_choice = {name: value for name, value in of_choice.items() if value not in (None, {})}
        return kept | ({"response": rest} if rest else {}) | ({"choice": of_choice} if of_choice else {})

    def trajectory(self) -> Trajectory:
        first, last = self._first, self._last
        settings = first.settings
        response = mapping(first.root.get("response"))
        notes = list(self._conversation.notes)
        if self._logs > 1:
            detail = f"{self._logs} logs joined: each one's messages go on from the one before"
            notes.append(Note(kind="guessed", field="messages", detail=detail))
        whole = first.value.sha256 if self._logs == 1 else self._digest.hexdigest()
        statement = next((one for one in self._conversation.opening if one.get("role") == "user"), {})
        if statement:
            notes.append(Note(kind="guessed", field="statement", detail="the first message of the user"))
        return Trajectory(
            origin=Origin(format="completion-log", file=first.file, place=_place(first, last), sha256=whole),
            harness=HarnessUsed(name=""),
            model=ModelUsed(
                name=text(response.get("model")) or text(settings.get("model")),
                base_url=text(settings.get("base_url")) or text(settings.get("api_base")),
                sampling={
                    name: value
                    for name, value in without(settings, *_NO_SAMPLING).items()
                    if value is not None
                },
            ),
            statement=plain_text(statement.get("content")),
            opening=tuple(self._conversation.opening),
            tools=tuple(one for one in items(settings.get("tools")) if isinstance(one, dict)),
            items=tuple(self._conversation.items),
            final_message=self._conversation.final_message(),
            started_at=min(self._times, default=None),
            ended_at=max(self._times, default=None),
            notes=collapsed(notes),
            kept={name: settings[name] for name in _NO_SAMPLING[5:] if settings.get(name) is not None},
        )


def _place(first: Log, last: Log) -> str:
    if first is last or first.file == last.file:
        return first.value.place if first is last else f"{first.value.place} to {last.value.place}"
    return f"to {last.file}"
