"""Replay models: the recorded turns of a run, served again, so that something else can be changed for free.

The recording answers as long as the conversation goes as it went then. What comes before the model's first
turn (prompts, tools) is what one changes and is not compared; of the rest, times, addresses and names of
temporary files are no difference.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lab.engine.events import AttemptStarted, ModelCallFinished, ModelCallStarted, Record
from lab.engine.harnesses.conversation import Conversation
from lab.engine.llm.base import JSONObject, Reply, canonical_sha256
from lab.engine.llm.failures import DIVERGED
from lab.engine.llm.local_server import LocalServer, RefusedError

OnDifference = Literal["stop", "follow"]
_AROUND = 60
_SHOWN = 240
_MARKS = ("recorded: ", "asked now: ")


class RecordedTurn(NamedTuple):
    """One reply of a run, with the conversation it answered, without what came before the first turn."""

    step: int
    heard: tuple[JSONObject, ...]
    reply: Reply


@dataclass(frozen=True)
class Recording:
    """The turns of one run's last attempt. `source` says for people which run it is."""

    source: str
    turns: tuple[RecordedTurn, ...]
    on_difference: OnDifference = "stop"


class Difference(NamedTuple):
    """Where a conversation first goes another way than the recorded one. `message` 0: in the tools."""

    step: int
    message: int
    was: str
    now: str

    @property
    def place(self) -> str:
        """ "step 3, message 5"."""
        return f"step {self.step}, message {self.message}" if self.message else f"step {self.step}"

    def told(self) -> str:
        """The difference in words."""
        return f"{self.place}: recorded {self.was}, now {self.now}"

    def beside(self, source: str) -> str:
        """Three lines: what differs from `source`, what was recorded, what is asked now (`parted_lines`)."""
        head = (
            f"the conversation differs from {source}, {self.place}"
            if self.message
            else f"{self.place} of {source} calls a tool that this harness does not offer"
        )
        lines = [head, f"{_MARKS[0]}{self.was}", f"{_MARKS[1]}{self.now}"]
        return "\n".join(line.replace("\n", "⏎") for line in lines)


def parted_lines(message: str) -> tuple[str, str, str] | None:
    """Head, recorded and asked now, of a refusal that tells a difference; None of any other message."""
    lines = message.split("\n")
    if len(lines) != 3 or not all(map(str.startswith, lines[1:], _MARKS)):
        return None
    return lines[0], lines[1].removeprefix(_MARKS[0]), lines[2].removeprefix(_MARKS[1])


def recording_of(
    records: Iterable[Record], *, source: str, on_difference: OnDifference = "stop"
) -> Recording:
    """The recording of a run's records, oldest first; of several attempts the last one that got a reply."""
    conversation = Conversation()
    opening = 0
    asked: tuple[JSONObject, ...] = ()
    turns: list[RecordedTurn] = []
    earlier: list[RecordedTurn] = []
    for record in records:
        event = record.event
        if isinstance(event, AttemptStarted):
            earlier, turns = turns or earlier, []
            opening = len(event.messages)
        elif isinstance(event, ModelCallStarted):
            asked = tuple(conversation.messages[opening:])
        elif isinstance(event, ModelCallFinished):
            turns.append(RecordedTurn(event.step, asked, event.reply))
        conversation.apply(event)
    return Recording(source, tuple(turns or earlier), on_difference)


class ReplayServer(LocalServer):
    """Serves a recording to one attempt. `answered` turns were served before, by an earlier worker child.

    `opening` is the number of messages before the first turn. A request that is sent again gets the same
    turn. `difference` is the first one that was met, None for none so far.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        model: str,
        opening: int,
        answered: int = 0,
        chunk_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            [{"id": model, "object": "model", "owned_by": "replay"}], chunk_seconds=chunk_seconds
        )
        self.difference: Difference | None = None
        self._recording = recording
        self._model = model
        self._opening = opening
        self._next = answered
        self._last = ""

    def answer(self, body: JSONObject) -> JSONObject:
        """The recorded turn that is due.

        Raises:
            RefusedError: there is none, or the conversation has gone another way.
        """
        digest = canonical_sha256(body)
        if digest != self._last:
            self._check(body, self._next)
            self._next, self._last = self._next + 1, digest
        return self._completion(self._recording.turns[self._next - 1])

    def _check(self, body: JSONObject, place: int) -> None:
        turns, source = self._recording.turns, self._recording.source
        if place >= len(turns):
            count = f"{len(turns)} turn{'' if len(turns) == 1 else 's'}"
            self._refuse(f"the recording of {source} has {count}, and one more is asked for")
        turn = turns[place]
        if self.difference is None:
            heard = body["messages"][self._opening :]
            self.difference = first_difference(turn, heard) or _other_tools(turn, body)
        # One that follows goes on: the harness answers a call of an unknown tool as it always does.
        if self.difference is not None and self._recording.on_difference == "stop":
            self._refuse(self.difference.beside(source))

    @staticmethod
    def _refuse(why: str) -> None:
        raise RefusedError(400, why, kind=DIVERGED)

    def _completion(self, turn: RecordedTurn) -> JSONObject:
        reply = turn.reply
        message: JSONObject = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message[reply.reasoning_field or "reasoning_content"] = reply.reasoning
        if reply.refusal:
            message["refusal"] = reply.refusal
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in reply.tool_calls
            ]
        finish = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
        name = f"{self._recording.source} {turn.step}"
        return {
            "id": f"replay-{hashlib.sha256(name.encode()).hexdigest()[:24]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": reply.usage.raw,
        }


def _other_tools(turn: RecordedTurn, body: JSONObject) -> Difference | None:
    """That the turn calls tools which the request does not offer; one that offers none reads text."""
    offered = sorted(tool["function"]["name"] for tool in body.get("tools") or [])
    unknown = sorted({call.name for call in turn.reply.tool_calls} - set(offered))
    if not unknown or not offered:
        return None
    return Difference(turn.step, 0, f"calls {', '.join(unknown)}", f"tools {', '.join(offered)}")


def first_difference(turn: RecordedTurn, heard: Sequence[JSONObject]) -> Difference | None:
    """Where the conversation since the first turn differs from the one that the turn answered."""
    for place in range(max(len(turn.heard), len(heard))):
        if turn.heard[place : place + 1] == tuple(heard[place : place + 1]):
            # Most are the same word for word, and looking for what is volatile takes its time.
            continue
        was = _comparable(turn.heard[place]) if place < len(turn.heard) else "no such message"
        now = _comparable(heard[place]) if place < len(heard) else "no such message"
        if was != now:
            return Difference(turn.step, place + 1, *_excerpts(was, now))
    return None


# What differs between two runs of the same command: durations, clock times and dates, addresses, ids of
# processes and objects, temporary and sandbox folders.
_VOLATILE = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (r"\b\d+(?:\.\d+)? ?(?:seconds|sec|s|ms|µs)\b", "<duration>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        (r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
        (r"\bpid[ =:]+\d+", "<pid>"),
        (r"(?:/[\w.+-]+)*/(?:process|bubblewrap)-[\w-]+-[0-9a-f]{8}/workspace", "<workspace>"),
        (r"/tmp/[\w.+-]+", "<temporary>"),  # noqa: S108 # a pattern of what programs print
    )
)


def _comparable(message: JSONObject) -> str:
    """The message as text: role, content without what is volatile, and calls without their ids."""
    calls = [
        [call.get("function", {}).get("name"), _loaded(call.get("function", {}).get("arguments"))]
        for call in message.get("tool_calls") or []
        if isinstance(call, dict)
    ]
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    for pattern, shown in _VOLATILE:
        text = pattern.sub(shown, text)
    called = json.dumps(calls, sort_keys=True, ensure_ascii=False) if calls else ""
    return f"{message.get('role')}: {text}{called}"


def _loaded(arguments: Any) -> Any:
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments


def _excerpts(was: str, now: str) -> tuple[str, str]:
    """Both texts around the first place where they differ."""
    start = max(0, len(os.path.commonprefix([was, now])) - _AROUND)
    mark = "…" if start else ""
    return mark + was[start : start + _SHOWN], mark + now[start : start + _SHOWN]
