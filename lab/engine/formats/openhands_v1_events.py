"""Events of OpenHands V1 as items: answers and their actions, observations, condensing, and the rest."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

from lab.engine.formats.chat_messages import observed, read_arguments, tool_message
from lab.engine.formats.leftovers import unread, without_credentials
from lab.engine.formats.openhands_metrics import ByAnswer, Running
from lab.engine.formats.openhands_view import View
from lab.engine.formats.reading import count, items, mapping, moment, text
from lab.engine.formats.trajectory import Aside, Call, Item, Message, Note, Rewritten, Turn
from lab.engine.llm.base import JSONObject, Usage

# Beside any whose name ends in Event.
_KINDS = frozenset({"Condensation", "CondensationRequest", "UserRejectObservation"})
_COMMON: dict[str, type | tuple[type, ...]] = {"id": str, "timestamp": str, "source": str, "kind": str}
_ACTION = _COMMON | {
    "thought": list,
    "reasoning_content": str,
    "tool_name": str,
    "tool_call_id": str,
    "tool_call": dict,
    "llm_response_id": str,
    "action": dict,
}
_RESULT = _COMMON | {
    "tool_name": str,
    "tool_call_id": str,
    "action_id": str,
    "observation": dict,
    "extended_content": list,
    "error": str,
    "rejection_reason": str,
}


def is_event(value: Any) -> bool:
    event = mapping(value)
    kind = text(event.get("kind"))
    return "id" in event and "timestamp" in event and (kind.endswith("Event") or kind in _KINDS)


class Counted:
    """Running totals by what they are counted for, as the events report them."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self.last: dict[str, JSONObject] = {}

    def added(self, metrics_by_use: JSONObject) -> tuple[Usage, Decimal | None] | None:
        """What one more call of the agent's own model added, None where nothing was."""
        found = None
        for use, metrics in metrics_by_use.items():
            usage, spent = self._running.setdefault(use, Running()).added(mapping(metrics))
            self.last[use] = mapping(metrics)
            if "condenser" not in use and (usage.total is not None or spent is not None):
                found = usage, spent
        return found


class Events:
    """Takes events in order; afterwards `opening`, `tools` and `items` hold the conversation.

    `status` is the last execution status, `error` the event that says why the conversation broke off, and
    `state` the last whole state.
    """

    def __init__(self, by_answer: ByAnswer) -> None:
        self.opening: list[JSONObject] = []
        self.tools: list[JSONObject] = []
        self.items: list[Item] = []
        self.notes: list[Note] = []
        self.system: JSONObject = {}
        self.status = ""
        self.error: JSONObject = {}
        self.state: JSONObject = {}
        self.counted = Counted()
        self._by_answer = by_answer
        self._view = View()
        self._turn_at: dict[int, Turn] = {}
        self._answers: dict[str, int] = {}
        self._first_event: dict[int, Any] = {}
        self._calls: dict[str, tuple[int, int]] = {}
        self._actions: dict[str, tuple[int, int]] = {}
        self._pending: list[tuple[Usage, Decimal | None]] = []
        # Whether what an answer used is counted before its event, decided by the first one.
        self._counted_before: bool | None = None

    @property
    def last_action(self) -> str:
        turns = list(self._turn_at.values())
        return turns[-1].calls[-1].name if turns and turns[-1].calls else ""

    def take(self, events: list[Any]) -> None:
        for event in events:
            for metrics in metrics_in(mapping(event)).values():
                self._by_answer.take(mapping(metrics))
        for number, event in enumerate(events):
            if not isinstance(event, dict):
                self._note("lost", f"events.{number}", "is no object; it is shown as it stands")
                self.items.append(Aside(name="event", kept={"value": event}))
            else:
                self._event(text(event.get("kind")), event)

    def _event(self, kind: str, event: JSONObject) -> None:
        if kind == "SystemPromptEvent":
            self._system(event)
        elif kind == "MessageEvent":
            self._message(event)
        elif kind == "ActionEvent":
            self._action(event)
        elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            self._result(kind, event)
        elif kind == "Condensation":
            self._condensation(event)
        elif kind == "ConversationStateUpdateEvent":
            self._update(event)
        else:
            if kind == "ConversationErrorEvent":
                self.error = event
            self._aside(kind, event)

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self.notes.append(Note(kind=kind, field=field, detail=detail))

    def _aside(self, kind: str, event: JSONObject) -> None:
        at = moment(event.get("timestamp"))
        self.items.append(Aside(name=kind or "event", kept=without_credentials(event), at=at))

    def _system(self, event: JSONObject) -> None:
        prompts = [event.get("system_prompt"), event.get("dynamic_context")]
        content = _content([one for one in prompts if isinstance(one, dict)])
        self.tools = [one for one in items(event.get("tools")) if mapping(one).get("type") == "function"]
        if items(event.get("tools")) and not self.tools:
            self.system["tools"] = event["tools"]
            self._note("missing", "SystemPromptEvent.tools", "tools are named without their parameters")
        self._said(event, {"role": "system", "content": content}, "harness")

    def _said(self, event: JSONObject, message: JSONObject, by: Any, reason: str = "") -> None:
        self._view.add(event.get("id"), message)
        if not self._turn_at:
            self.opening.append(message)
            return
        kept = unread(event, {**_COMMON, "llm_message": dict, "error": str, "tool_call_id": str})
        at = moment(event.get("timestamp"))
        self.items.append(Message(message=message, by=by, reason=reason, at=at, kept=_filled(kept)))

    def _message(self, event: JSONObject) -> None:
        said = mapping(event.get("llm_message"))
        content = _content([*items(said.get("content")), *items(event.get("extended_content"))])
        if isinstance(said.get("content"), str):
            content = said["content"]
        role = text(said.get("role"))
        if event.get("source") == "agent" or role == "assistant":
            kept = _filled(unread(event, {**_COMMON, "llm_message": dict, "llm_response_id": str}))
            rest = _filled(unread(said, {"role": str, "content": (list, str), "reasoning_content": str}))
            kept |= {"llm_message": rest} if rest else {}
            message = {"role": "assistant", "content": content}
            self._begin(event, message, text(said.get("reasoning_content")), kept)
            return
        by = "person" if event.get("source") == "user" else "harness"
        self._said(event, {"role": role or "user", "content": content}, by)

    def _begin(self, event: JSONObject, message: JSONObject, reasoning: str, kept: JSONObject) -> int:
        """A new turn; its place among the items."""
        identifier = text(event.get("llm_response_id"))
        if self._counted_before is None:
            self._counted_before = bool(self._pending)
        usage, cost = self._pending[-1] if self._pending else (Usage(), None)
        if len(self._pending) > 1:
            detail = "calls of the model are counted that have no answer in the file"
            self._note("missing", "stats", detail)
        self._pending = []
        turn = Turn(
            message=message,
            reasoning=reasoning,
            response_id=identifier,
            usage=self._by_answer.usage(identifier) or usage,
            cost_reported=cost,
            ended_at=moment(event.get("timestamp")),
            seconds=self._by_answer.seconds(identifier),
            kept=kept,
        )
        self._view.add(event.get("id"), message)
        self.items.append(turn)
        place = len(self.items) - 1
        self._turn_at[place] = turn
        self._first_event[place] = event.get("id")
        if identifier:
            self._answers[identifier] = place
        return place

    def _action(self, event: JSONObject) -> None:
        identifier = text(event.get("llm_response_id"))
        place = self._answers.get(identifier) if identifier else None
        if place is None:
            message = {"role": "assistant", "content": _content(items(event.get("thought")))}
            place = self._begin(event, message, text(event.get("reasoning_content")), {})
        else:
            self._view.add(event.get("id"), None)
        turn = self._turn_at[place]
        call = _call_of(event, f"call_{len(self._turn_at)}_{len(turn.calls)}")
        told = {"name": call.name, "arguments": call.raw_arguments}
        made = [*turn.message.get("tool_calls", ()), {"id": call.id, "type": "function", "function": told}]
        message = {**turn.message, "tool_calls": made}
        self._view.replace(self._first_event[place], message)
        self._put(place, dataclasses.replace(turn, message=message, calls=(*turn.calls, call)))
        self._calls[call.id] = (place, len(turn.calls))
        if text(event.get("id")):
            self._actions[event["id"]] = (place, len(turn.calls))

    def _put(self, place: int, turn: Turn) -> None:
        self._turn_at[place] = turn
        self.items[place] = turn

    def _result(self, kind: str, event: JSONObject) -> None:
        observation = mapping(event.get("observation"))
        content = _result_content(kind, event, observation)
        place = self._actions.get(text(event.get("action_id"))) or self._calls.get(
            text(event.get("tool_call_id"))
        )
        if place is None:
            if kind == "AgentErrorEvent":
                self._note("guessed", "AgentErrorEvent", "an error of no call joins as a user message")
                self._said(event, {"role": "user", "content": content}, "harness", "error")
            else:
                self._note("missing", "ActionEvent", "the action of an observation is not in the file")
                self._aside(kind, event)
            return
        turn = self._turn_at[place[0]]
        call = turn.calls[place[1]]
        message = tool_message(call.id, content)
        self._view.add(event.get("id"), message)
        rest = _filled(unread(event, _RESULT))
        details = _filled(unread(observation, {"content": (list, str), "is_error": bool}))
        rest |= {"observation": details} if details else {}
        answered = dataclasses.replace(
            call,
            observation=observed(message),
            message=message,
            exit_code=_exit_code(observation),
            timed_out=observation.get("timeout") is True,
            failed=kind != "ObservationEvent" or observation.get("is_error") is True,
            ended_at=moment(event.get("timestamp")),
            kept={**call.kept, **({"result": rest} if rest else {})},
        )
        calls = (*turn.calls[: place[1]], answered, *turn.calls[place[1] + 1 :])
        self._put(place[0], dataclasses.replace(turn, calls=calls))

    def _condensation(self, event: JSONObject) -> None:
        forgotten = {one for one in items(event.get("forgotten_event_ids")) if isinstance(one, str)}
        summary, offset = text(event.get("summary")), count(event.get("summary_offset"))
        messages = self._view.condense(forgotten, summary, offset)
        self._note(
            "guessed", "Condensation", "the conversation afterwards is put together from the events left"
        )
        at = moment(event.get("timestamp"))
        kept = unread(event, _COMMON)
        self.items.append(Rewritten(reason="condensation", messages=messages, at=at, kept=kept))

    def _update(self, event: JSONObject) -> None:
        key, value = text(event.get("key")), event.get("value")
        if key == "execution_status":
            self.status = text(value)
        elif key == "full_state":
            self.state = mapping(value)
            self.status = text(self.state.get("execution_status")) or self.status
        added = self.counted.added(metrics_in(event))
        if added is not None:
            self._attribute(added)
        self._aside("stats" if key == "stats" else "state", event)

    def _attribute(self, added: tuple[Usage, Decimal | None]) -> None:
        """What was counted is the next answer's, or the last one's where the counts come afterwards."""
        if self._counted_before is not False:
            self._pending.append(added)
            return
        place = max(self._turn_at)
        turn = self._turn_at[place]
        if turn.usage.total is None:
            turn = dataclasses.replace(turn, usage=added[0])
        self._put(place, dataclasses.replace(turn, cost_reported=turn.cost_reported or added[1]))


def metrics_in(event: JSONObject) -> JSONObject:
    """The metrics that an event or a whole state reports, by what they are counted for."""
    value = mapping(event.get("value")) if "value" in event else event
    stats = mapping(value.get("stats")) or value
    return mapping(stats.get("usage_to_metrics"))


def _call_of(event: JSONObject, otherwise: str) -> Call:
    told = mapping(event.get("tool_call"))
    read = read_arguments(told.get("arguments", event.get("action")))
    action = mapping(event.get("action"))
    beside = {
        name: value
        for name, value in action.items()
        if value not in (None, "", False) and read.arguments.get(name) != value
    }
    kept = _filled(unread(event, _ACTION))
    identifier = text(told.get("id")) or text(event.get("tool_call_id"))
    return Call(
        id=identifier or otherwise,
        name=text(told.get("name")) or text(event.get("tool_name")),
        arguments=read.arguments,
        raw_arguments=read.raw,
        malformed=read.malformed,
        synthesised_id=not identifier,
        kept=kept | ({"action": beside} if beside else {}),
    )


def _content(parts: list[Any]) -> Any:
    """Content as a text, or as parts in the shape of chat completions where there are pictures."""
    known = [one for one in parts if isinstance(one, dict)]
    if not any(items(one.get("image_urls")) for one in known):
        return "\n".join(text(one.get("text")) for one in known)
    found: list[JSONObject] = []
    for one in known:
        urls = [url for url in items(one.get("image_urls")) if isinstance(url, str)]
        found += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        if not urls:
            found.append({"type": "text", "text": text(one.get("text"))})
    return found


def _result_content(kind: str, event: JSONObject, observation: JSONObject) -> Any:
    if kind == "AgentErrorEvent":
        return text(event.get("error"))
    if kind == "UserRejectObservation":
        return f"Action rejected: {text(event.get('rejection_reason'))}"
    given = observation.get("content", observation.get("output"))
    if isinstance(given, str):
        return given
    return _content([*items(given), *items(event.get("extended_content"))])


def _exit_code(observation: JSONObject) -> int | None:
    code = observation.get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) and 0 <= code < 2**31 else None


def _filled(kept: JSONObject) -> JSONObject:
    """Without what is empty, as fields are that an event of this kind leaves at their defaults."""
    return {name: value for name, value in kept.items() if value not in (None, "", [], {})}
