"""What happened in a sample of Inspect: its events, or its messages where no events are recorded."""

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
from lab.engine.formats.reading import count, items, mapping, moment, plain_text, seconds, text, without
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Item,
    Message,
    Note,
    Rewritten,
    Speaker,
    Turn,
)
from lab.engine.llm.base import JSONObject

# More tries of one request than any program makes: the count itself is kept.
_MOST_RETRIES = 100
# A request with more is no conversation: its references run in circles.
_MOST_MESSAGES = 100_000
_NOT_THE_AGENT = ("scorers", "scorer")
_CANCELLED = "Cancelled by "
_READ_OF_MODEL = (
    "event", "model", "input", "input_refs", "tools", "output", "error", "timestamp", "completed", "pending",
    "call", "traceback_ansi",
)  # fmt: skip
_READ_OF_TOOL = (
    "event", "type", "id", "function", "arguments", "result", "timestamp", "completed", "events",
    "working_time",
)  # fmt: skip
_REQUEST_MESSAGES = ("messages", "contents", "input", "tools", "system")


@dataclass
class Conversation:
    """What a sample's record comes to. `later` are calls whose result has not been seen, by their id."""

    opening: list[JSONObject] = field(default_factory=list)
    tools: list[JSONObject] = field(default_factory=list)
    sampling: JSONObject = field(default_factory=dict)
    items: list[Item | _Asked] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    later: dict[str, list[_Called]] = field(default_factory=dict)

    def frozen(self) -> tuple[Item, ...]:
        return tuple(item.turn() if isinstance(item, _Asked) else item for item in self.items)

    def ask(self, turn: Turn, message: JSONObject) -> None:
        """Adds an answer of the model with the calls in it."""
        step = sum(isinstance(item, _Asked) for item in self.items)
        calls = [_Called(_call(mapping(call), f"call_{step}_{at}")) for at, call in _calls(message)]
        for called in calls:
            self.later.setdefault(called.call.id, []).append(called)
        self.items.append(_Asked(turn, calls))

    def answered(self, call_id: str) -> _Called | None:
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
class _Called:
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
class _Asked:
    """An answer while results of its calls are still to come."""

    started: Turn
    calls: list[_Called]

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


@dataclass
class _Scope:
    """A conversation within a sample: the agent's own, or a subagent's. `raw` is it as last sent."""

    agent: str
    raw: list[JSONObject] = field(default_factory=list)
    begun: bool = False


class EventReader:
    """Reads the events of one sample in their order."""

    def __init__(self, sample: JSONObject, attachments: Attachments) -> None:
        self.found = Conversation()
        self._attachments = attachments
        data = mapping(sample.get("events_data"))
        self._pool = items(data.get("messages"))
        self._spans: dict[str, JSONObject] = {}
        self._steps: list[JSONObject] = []
        self._scopes: dict[str, _Scope] = {}
        self._compacted = ""

    def read(self, events: Any) -> Conversation:
        for event in items(events):
            if isinstance(event, dict):
                self._event(event, inside=())
        return self.found

    def _event(self, event: JSONObject, inside: tuple[str, ...]) -> None:
        kind = text(event.get("event"))
        self._follow_spans(event, kind)
        if kind == "model":
            self._model(event, inside)
        elif kind == "tool":
            self._tool(event, inside)
        else:
            if kind == "compaction":
                self._compacted = f"compaction ({text(event.get('type')) or 'summary'})"
            self._aside(kind or "event", without(event, "event", "timestamp", "events"), event)
            # Older logs nest what a subtask did.
            self._nested(event, (*inside, text(event.get("name"))))

    def _nested(self, event: JSONObject, inside: tuple[str, ...]) -> None:
        for inner in items(event.get("events")):
            if isinstance(inner, dict):
                self._event(inner, inside)

    def _aside(self, name: str, kept: JSONObject, event: JSONObject) -> None:
        at = moment(event.get("timestamp"))
        self.found.items.append(Aside(name=name, kept=self._attachments.resolved(kept), at=at))

    # --- whose an event is

    def _follow_spans(self, event: JSONObject, kind: str) -> None:
        if kind == "span_begin" and isinstance(event.get("id"), str):
            self._spans[event["id"]] = event
        elif kind == "step" and event.get("action") == "begin":
            self._steps.append(event)
        elif kind == "step" and event.get("action") == "end" and self._steps:
            self._steps.pop()

    def _ancestors(self, event: JSONObject) -> list[JSONObject]:
        """The spans an event is in, the innermost first."""
        found: list[JSONObject] = []
        seen: set[str] = set()
        at = event.get("span_id")
        while isinstance(at, str) and at in self._spans and at not in seen:
            seen.add(at)
            found.append(self._spans[at])
            at = self._spans[at].get("parent_id")
        return found or self._steps[::-1]

    def _agent(self, event: JSONObject, inside: tuple[str, ...]) -> str | None:
        """Whose call of a model it is: "" the agent's, a name a subagent's, None nobody's (a scorer's)."""
        spans = self._ancestors(event)
        kinds = [text(span.get("type")) for span in spans]
        if any(kind in _NOT_THE_AGENT for kind in kinds) or event.get("role") == "grader":
            return None
        if inside:
            return inside[-1] or "subtask"
        agents = [text(span.get("name")) for span in spans if span.get("type") in ("agent", "subtask")]
        if "tool" in kinds or len(agents) > 1:
            return agents[0] if agents else text(spans[kinds.index("tool")].get("name")) or "tool"
        return ""

    # --- calls of a model

    def _model(self, event: JSONObject, inside: tuple[str, ...]) -> None:
        agent = self._agent(event, inside)
        if agent is None:
            self._aside("model call of a scorer", without(event, "event", "timestamp"), event)
            return
        scope = self._scopes.setdefault(agent, _Scope(agent))
        before = self._input(event)
        kept = self._follow(scope, before, event)
        output = self._attachments.resolved(mapping(event.get("output")))
        choice = mapping(next(iter(items(output.get("choices"))), None))
        answer = mapping(choice.get("message"))
        self._retries(event)
        if event.get("error") or not answer:
            self._failure(event, output)
            scope.raw = before
            return
        self.found.ask(self._turn(event, answer, output, agent, kept), answer)
        scope.raw = [*before, {**answer, "role": "assistant"}]

    def _input(self, event: JSONObject) -> list[JSONObject]:
        """The messages that were sent, which newer logs keep once for all calls."""
        given = list(items(event.get("input")))
        for pair in items(event.get("input_refs")):
            first, end = (count(at) for at in (*items(pair), None, None)[:2])
            if first is not None and end is not None and len(given) < _MOST_MESSAGES:
                given.extend(self._pool[first:end])
        return [message for message in given if isinstance(message, dict)]

    def _follow(self, scope: _Scope, sent: list[JSONObject], event: JSONObject) -> JSONObject:
        """Adds what joined the conversation since the last answer. A subagent's is kept with its answer."""
        known = scope.raw
        grown = len(sent) >= len(known) and all(map(_same, known, sent))
        new = [self._attachments.resolved(message) for message in (sent[len(known) :] if grown else sent)]
        begun, scope.begun = scope.begun, True
        if scope.agent:
            for message in new:
                if message.get("role") == "tool" and (called := self._open(message)):
                    called.join(message)
            others = [chat_message(message) for message in new if message.get("role") != "tool"]
            return {"joined" if grown and begun else "opening": others} if others else {}
        if not begun:
            self.found.opening = [chat_message(message) for message in new]
            self._request(event)
        elif grown:
            for message in new:
                self.found.join(message)
        else:
            self._rewritten(new, event)
        return {}

    def _open(self, message: JSONObject) -> Any:
        return self.found.answered(text(message.get("tool_call_id")))

    def _rewritten(self, new: list[JSONObject], event: JSONObject) -> None:
        for message in new:
            if message.get("role") == "tool" and (called := self._open(message)):
                called.join(message)
        reason, self._compacted = self._compacted or "the next request has another history", ""
        messages = tuple(chat_message(message) for message in new)
        at = moment(event.get("timestamp"))
        self.found.items.append(Rewritten(reason=reason, messages=messages, at=at))

    def _request(self, event: JSONObject) -> None:
        tools = self._attachments.resolved(items(event.get("tools")))
        self.found.tools = [
            {"type": "function", "function": without(tool, "options")}
            for tool in tools
            if isinstance(tool, dict)
        ]
        config = self._attachments.resolved(mapping(event.get("config")))
        self.found.sampling = {name: value for name, value in config.items() if value is not None}

    def _retries(self, event: JSONObject) -> None:
        retries = count(event.get("retries")) or 0
        if retries:
            self.found.notes.append(
                Note(kind="missing", field="events.model.retries", detail="why a try failed is not recorded")
            )
        for _ in range(min(retries, _MOST_RETRIES)):
            message = "the program tried again; why is not recorded"
            at = moment(event.get("timestamp"))
            self.found.items.append(FailedRequest(error="not_recorded", message=message, at=at))

    def _failure(self, event: JSONObject, output: JSONObject) -> None:
        words = text(self._attachments.resolved(event.get("error"))) or text(output.get("error"))
        pending = event.get("pending") is True
        error = "cancelled" if words.startswith(_CANCELLED) else "not_recorded"
        self.found.items.append(
            FailedRequest(
                error="interrupted" if pending else error,
                message=words or "no answer is recorded",
                at=moment(event.get("completed")) or moment(event.get("timestamp")),
                kept=self._left(event),
            )
        )

    def _turn(
        self, event: JSONObject, answer: JSONObject, output: JSONObject, agent: str, kept: JSONObject
    ) -> Turn:
        turn = turn_of(answer, output)
        return dataclasses.replace(
            turn,
            model=turn.model or text(event.get("model")),
            started_at=moment(event.get("timestamp")),
            ended_at=moment(event.get("completed")),
            seconds=turn.seconds if turn.seconds is not None else seconds(event.get("working_time")),
            agent=agent,
            # What came out of Inspect's own cache was paid for in an earlier run.
            copied=event.get("cache") == "read",
            kept={**self._left(event), **turn.kept, **kept},
        )

    def _left(self, event: JSONObject) -> JSONObject:
        """What a model event holds beside the answer. The conversation is not repeated with every request."""
        left = without(event, *_READ_OF_MODEL)
        call = mapping(event.get("call"))
        if call:
            request = without(mapping(call.get("request")), *_REQUEST_MESSAGES)
            left["call"] = {**without(call, "request", "call_refs", "call_key"), "request": request}
        found = {name: value for name, value in left.items() if value is not None}
        resolved: JSONObject = self._attachments.resolved(found)
        return resolved

    # --- calls of a tool

    def _tool(self, event: JSONObject, inside: tuple[str, ...]) -> None:
        call_id = text(event.get("id"))
        calls = self.found.later.get(call_id, [])
        called = next((one for one in calls if not one.ran), None)
        if called is None:
            self._aside("tool", without(event, "event", "timestamp", "events"), event)
        else:
            called.take(self._attachments.resolved(without(event, "events")))
        self._nested(event, (*inside, text(event.get("function"))))


def _same(one: JSONObject, other: JSONObject) -> bool:
    """Whether it is the same message in two requests; where ids are recorded they decide."""
    if one.get("id") and other.get("id"):
        return bool(one["id"] == other["id"])
    fields = ("role", "content", "tool_calls", "tool_call_id")
    return all(one.get(name) == other.get(name) for name in fields)
