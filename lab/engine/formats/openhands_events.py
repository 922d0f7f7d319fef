"""The history of an OpenHands V0 run as items: actions of the model, what came of them, and the rest."""

from __future__ import annotations

import dataclasses
from typing import Any

from lab.engine.formats.chat_messages import calls_in, tool_message
from lab.engine.formats.leftovers import unread
from lab.engine.formats.openhands_metrics import ByAnswer, Running
from lab.engine.formats.openhands_view import View
from lab.engine.formats.reading import count, items, mapping, moment, text
from lab.engine.formats.trajectory import Aside, Call, Item, Message, Note, Rewritten, Turn
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

# Actions that no model asked for, or that are no part of its conversation.
_ASIDE = frozenset(
    {
        "start", "null", "pause", "resume", "stop", "change_agent_state", "recall", "condensation_request",
        "loop_recovery",
    }
)  # fmt: skip
_EVENT: dict[str, type | tuple[type, ...]] = {
    "id": int,
    "timestamp": str,
    "source": str,
    "action": str,
    "observation": str,
    "args": dict,
    "content": str,
    "message": str,
    "cause": int,
    "tool_call_metadata": dict,
    "llm_metrics": dict,
}
# More events than any run has.
_MOST_FORGOTTEN = 1_000_000
_GIVEN_UP = ("timed out", "no new output")


class Events:
    """Takes events in order; afterwards `opening`, `tools` and `items` hold the conversation."""

    def __init__(self, by_answer: ByAnswer) -> None:
        self.opening: list[JSONObject] = []
        self.tools: list[JSONObject] = []
        self.items: list[Item] = []
        self.notes: list[Note] = []
        self.system: JSONObject = {}
        self.last_action = ""
        self._by_answer = by_answer
        self._running = Running()
        self._view = View()
        # Where the call of an action stands: the turn's place in items, the call's in the turn.
        self._actions: dict[Any, tuple[int, int]] = {}
        self._turn_at: dict[int, Turn] = {}
        self._claimed: dict[int, set[int]] = {}
        self._answers: dict[str, int] = {}
        self._turns = 0

    def take(self, history: list[Any]) -> None:
        for number, event in enumerate(_flat(history)):
            if not isinstance(event, dict):
                self._note("lost", f"history.{number}", "is no object; it is shown as it stands")
                self.items.append(Aside(name="event", kept={"value": event}))
            elif isinstance(event.get("observation"), str):
                self._observation(event)
            else:
                self._action(event)

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self.notes.append(Note(kind=kind, field=field, detail=detail))

    def _action(self, event: JSONObject) -> None:
        action, source = text(event.get("action")), text(event.get("source"))
        args = mapping(event.get("args"))
        if action == "system":
            self._system(event, args)
        elif action == "condensation":
            self._condensation(event, args)
        elif action == "message" and source != "agent":
            self._said(event, {"role": "user", "content": _content(args)}, by_person=source == "user")
        elif not action or action in _ASIDE or source != "agent":
            self._aside(action or "event", event)
        else:
            self.last_action = action
            self._answer(event, action, args)

    def _aside(self, name: str, event: JSONObject) -> None:
        self._view.add(event.get("id"), None)
        self.items.append(Aside(name=name, kept=event, at=moment(event.get("timestamp"))))

    def _system(self, event: JSONObject, args: JSONObject) -> None:
        message = {"role": "system", "content": text(args.get("content"))}
        self.tools = [one for one in items(args.get("tools")) if isinstance(one, dict)]
        self.system = unread(args, {"content": str, "tools": list})
        self._said(event, message, by_person=False)

    def _said(self, event: JSONObject, message: JSONObject, *, by_person: bool, reason: str = "") -> None:
        self._view.add(event.get("id"), message)
        if not self._turns:
            self.opening.append(message)
            return
        by: Any = "person" if by_person else "harness"
        at = moment(event.get("timestamp"))
        kept = unread(event, _EVENT)
        self.items.append(Message(message=message, by=by, reason=reason, at=at, kept=kept))

    def _answer(self, event: JSONObject, action: str, args: JSONObject) -> None:
        metadata = mapping(event.get("tool_call_metadata"))
        response = mapping(metadata.get("model_response"))
        identifier = text(response.get("id"))
        usage, cost = self._running.added(mapping(event.get("llm_metrics")))
        place = self._answers.get(identifier) if identifier else None
        if place is None:
            place = self._turn(event, action, args, usage, cost)
            if identifier:
                self._answers[identifier] = place
        else:
            self._view.add(event.get("id"), None)
        self._attach_action(event, action, args, place, text(metadata.get("tool_call_id")))

    def _turn(self, event: JSONObject, action: str, args: JSONObject, usage: Usage, cost: Any) -> int:
        self._turns += 1
        response = mapping(mapping(event.get("tool_call_metadata")).get("model_response"))
        identifier = text(response.get("id"))
        choice = mapping(next(iter(items(response.get("choices"))), None))
        message = _message_of(mapping(choice.get("message")))
        calls: list[Call] = []
        if message:
            calls = calls_in(message, self._turns)
        else:
            message, calls = self._answer_in_text(action, args)
        reported = response.get("usage")
        known = self._by_answer.usage(identifier) or usage
        turn = Turn(
            message=message,
            reasoning=text(message.get("reasoning_content")) or text(message.get("reasoning")),
            calls=tuple(calls),
            finish_reason=text(choice.get("finish_reason")),
            model=text(response.get("model")),
            response_id=identifier,
            usage=read_usage(reported) if isinstance(reported, dict) and reported else known,
            cost_reported=cost,
            ended_at=moment(event.get("timestamp")),
            seconds=self._by_answer.seconds(identifier),
            kept=_kept_of_response(response, choice),
        )
        self._view.add(event.get("id"), message)
        self.items.append(turn)
        self._turn_at[len(self.items) - 1] = turn
        return len(self.items) - 1

    def _answer_in_text(self, action: str, args: JSONObject) -> tuple[JSONObject, list[Call]]:
        """An answer whose own form is not recorded: its thought, and its action as a call."""
        if action == "message":
            return {"role": "assistant", "content": _content(args)}, []
        self._note(
            "guessed", "action", "the answer itself is not recorded: its thought, and its action as a call"
        )
        arguments = {name: value for name, value in args.items() if name != "thought"}
        call = Call(id=f"call_{self._turns}_0", name=action, arguments=arguments, synthesised_id=True)
        return {"role": "assistant", "content": text(args.get("thought"))}, [call]

    def _attach_action(
        self, event: JSONObject, action: str, args: JSONObject, place: int, call_id: str
    ) -> None:
        turn = self._turn_at[place]
        claimed = self._claimed.setdefault(place, set())
        free = [index for index in range(len(turn.calls)) if index not in claimed]
        wanted = [index for index in free if turn.calls[index].id == call_id]
        index = next(iter(wanted or free), None)
        kept = {"action": action, **unread(event, _EVENT)}
        rest = _args_beside(args, turn)
        kept |= {"args": rest} if rest else {}
        if index is None:
            # An answer without a call: an agent's message.
            if kept.keys() != {"action"}:
                kept = {**turn.kept, "event": kept}
                self._put(place, dataclasses.replace(turn, kept=kept))
            return
        claimed.add(index)
        if isinstance(event.get("id"), (int, str)):
            self._actions[event["id"]] = (place, index)
        self._change(place, index, kept={**turn.calls[index].kept, **kept})

    def _change(self, place: int, index: int, **changes: Any) -> None:
        turn = self._turn_at[place]
        calls = list(turn.calls)
        calls[index] = dataclasses.replace(calls[index], **changes)
        self._put(place, dataclasses.replace(turn, calls=tuple(calls)))

    def _put(self, place: int, turn: Turn) -> None:
        self._turn_at[place] = turn
        self.items[place] = turn

    def _observation(self, event: JSONObject) -> None:
        place = self._call_of(event)
        kind = event["observation"]
        content = text(event.get("content"))
        if place is None:
            if kind == "error":
                self._note("guessed", "history.error", "an error of no action joins as a user message")
                self._said(event, {"role": "user", "content": content}, by_person=False, reason="error")
            else:
                self._aside(f"observation {kind}", event)
            return
        turn_place, index = place
        call = self._turn_at[turn_place].calls[index]
        message = tool_message(call.id, content)
        if call.synthesised_id:
            message = {"role": "user", "content": content}
        self._view.add(event.get("id"), message)
        extras = mapping(event.get("extras"))
        exit_code, given_up = _exit_code(extras)
        rest = {"observation": kind, **unread(event, {**_EVENT, "message": object})}
        self._change(
            turn_place,
            index,
            observation=content,
            message=message,
            exit_code=exit_code,
            timed_out=given_up,
            failed=kind in ("error", "user_rejected"),
            ended_at=moment(event.get("timestamp")),
            kept={**call.kept, "result": rest},
        )

    def _call_of(self, event: JSONObject) -> tuple[int, int] | None:
        cause = event.get("cause")
        if isinstance(cause, (int, str)) and cause in self._actions:
            place = self._actions[cause]
        else:
            wanted = text(mapping(event.get("tool_call_metadata")).get("tool_call_id"))
            found = self._last_call(wanted)
            if found is None:
                return None
            place = found
        call = self._turn_at[place[0]].calls[place[1]]
        return place if call.observation is None else None

    def _last_call(self, identifier: str) -> tuple[int, int] | None:
        if not identifier:
            return None
        for place in sorted(self._turn_at, reverse=True)[:20]:
            for index, call in enumerate(self._turn_at[place].calls):
                if call.id == identifier:
                    return place, index
        return None

    def _condensation(self, event: JSONObject, args: JSONObject) -> None:
        listed = args.get("forgotten_event_ids")
        start, end = count(args.get("forgotten_events_start_id")), count(args.get("forgotten_events_end_id"))
        forgotten = {one for one in items(listed) if isinstance(one, (int, str))}
        if not forgotten and start is not None and end is not None:
            forgotten = set(range(start, min(end, start + _MOST_FORGOTTEN) + 1))
        messages = self._view.condense(
            forgotten, text(args.get("summary")), count(args.get("summary_offset"))
        )
        self._note(
            "guessed", "condensation", "the conversation afterwards is put together from the events left"
        )
        at = moment(event.get("timestamp"))
        self.items.append(Rewritten(reason="condensation", messages=messages, at=at, kept={"args": args}))


def _flat(history: list[Any]) -> list[Any]:
    """Early releases paired each action with its observation."""
    if history and all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        return [event for pair in history for event in pair]
    return history


def _content(args: JSONObject) -> Any:
    pictures = [one for one in items(args.get("image_urls")) if isinstance(one, str)]
    said = text(args.get("content"))
    if not pictures:
        return said
    return [
        {"type": "text", "text": said},
        *({"type": "image_url", "image_url": {"url": one}} for one in pictures),
    ]


def _message_of(message: JSONObject) -> JSONObject:
    """An answer's message without the fields that its server left empty."""
    return (
        {"role": "assistant"}
        | {name: value for name, value in message.items() if value is not None and name != "role"}
        if message
        else {}
    )


def _kept_of_response(response: JSONObject, choice: JSONObject) -> JSONObject:
    kept = unread(response, {"id": str, "model": str, "choices": list, "usage": dict, "object": str})
    rest = unread(choice, {"message": dict, "finish_reason": str, "index": int})
    others = items(response.get("choices"))[1:]
    kept = {name: value for name, value in kept.items() if value is not None}
    return kept | ({"choice": rest} if rest else {}) | ({"choices": others} if others else {})


def _args_beside(args: JSONObject, turn: Turn) -> JSONObject:
    """What an action's arguments hold beside those of its calls and the answer's own text."""
    said = turn.message.get("content")
    known = [*(value for call in turn.calls for value in call.arguments.values()), said]
    return {
        name: value for name, value in args.items() if value not in known and value not in (None, "", {}, [])
    }


def _exit_code(extras: JSONObject) -> tuple[int | None, bool]:
    """The exit code, and whether the command was given up: -1 is a command that was still running."""
    metadata = mapping(extras.get("metadata"))
    code = metadata.get("exit_code", extras.get("exit_code"))
    if isinstance(code, bool) or not isinstance(code, int) or abs(code) > 2**31:
        return None, False
    if code == -1:
        return None, any(words in text(metadata.get("suffix")) for words in _GIVEN_UP)
    return code, False
