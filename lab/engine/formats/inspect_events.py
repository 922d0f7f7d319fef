"""The conversation of a sample of Inspect as its events tell it, with whose each call of a model is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from lab.engine.formats.inspect_conversation import Conversation
from lab.engine.formats.inspect_messages import Attachments, chat_message, turn_of
from lab.engine.formats.reading import count, items, mapping, moment, seconds, text, without
from lab.engine.formats.trajectory import Aside, FailedRequest, Note, Rewritten, Turn
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
_REQUEST_MESSAGES = ("messages", "contents", "input", "tools", "system")


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
        self._seen: set[str] = set()

    def read(self, events: Any) -> Conversation:
        for event in items(events):
            if isinstance(event, dict):
                self._event(event, inside=())
        return self.found

    def finish(self, messages: Any) -> list[JSONObject]:
        """Joins what was said after the last answer, which only the sample's own messages hold.

        Returns what else they hold and no event does: its place among the answers is not known.
        """
        raw = [message for message in items(messages) if isinstance(message, dict)]
        known = [text(message.get("id")) in self._seen for message in raw]
        after = len(known) - known[::-1].index(True) if True in known else len(known)
        for message in raw[after:]:
            if text(message.get("id")) and message.get("role") != "assistant":
                self.found.join(self._attachments.resolved(message))
        return [
            self._attachments.resolved(message)
            for place, message in enumerate(raw)
            if text(message.get("id"))
            and not known[place]
            and (place < after or message.get("role") == "assistant")
        ]

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
        self._seen |= {text(message.get("id")) for message in before}
        kept = self._follow(scope, before, event)
        output = self._attachments.resolved(mapping(event.get("output")))
        choice = mapping(next(iter(items(output.get("choices"))), None))
        answer = mapping(choice.get("message"))
        self._seen.add(text(answer.get("id")))
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
