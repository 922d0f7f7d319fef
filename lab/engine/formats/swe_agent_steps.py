"""Turns of a SWE-agent file: its list of steps laid beside its conversation.

The conversation (`history`) holds what joined it, the list (`trajectory`) every answer of the model, also
those that were asked for again and left the conversation. Where both hold an answer, the message is the
conversation's and the program's whole output the list's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from lab.engine.formats.base import parsed
from lab.engine.formats.chat_messages import calls_in, observed, tool_message
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import items, mapping, plain_text, seconds, text
from lab.engine.formats.trajectory import Aside, Call, Item, Message, Note, Rewritten, Turn
from lab.engine.llm.base import JSONObject

_CONTENT = (str, list)
# In the words of later releases, and in the last line of an output of earlier ones.
_CANCELLED = "was cancelled because it took more than"
_TIMED_OUT = "EXECUTION TIMED OUT"
_EXIT_WORDS = ("Exit due to", "Exiting due to")
# Early releases wrote the reason as if it were a command.
_EXIT_ACTIONS = frozenset({"exit_context", "exit_cost", "exit_error", "exit_format", "exit_api"})
_STEP: dict[str, type | tuple[type, ...]] = {
    "action": str,
    "observation": str,
    "response": str,
    "thought": str,
    "execution_time": (int, float),
    "state": (dict, str),
    "reasoning_content": str,
    "query": list,
    "messages": list,
    "extra_info": dict,
}


@dataclasses.dataclass
class _Exchange:
    """An answer in the conversation, at `place`, with what followed until the next one."""

    place: int
    answer: JSONObject
    after: list[JSONObject]


def chat_message(entry: JSONObject) -> JSONObject:
    """An item of the history as the model got it."""
    message: JSONObject = {"role": text(entry.get("role")), "content": entry.get("content")}
    if not isinstance(message["content"], _CONTENT):
        message["content"] = ""
    ids = [one for one in items(entry.get("tool_call_ids")) if isinstance(one, str)]
    if message["role"] == "tool" and ids:
        return tool_message(ids[0], message["content"])
    if items(entry.get("tool_calls")):
        message["tool_calls"] = entry["tool_calls"]
    return message


def rest_of(entry: JSONObject) -> JSONObject:
    """What an item of the history has beside its message."""
    rest = unread(
        entry,
        {
            "role": str,
            "content": _CONTENT,
            "tool_calls": list,
            "tool_call_ids": list,
            "message_type": str,
            "agent": str,
            "action": str,
        },
    )
    # In text protocols an answer is its thought and then the action.
    if plain_text(entry.get("content")).startswith(text(rest.get("thought")).rstrip()):
        rest.pop("thought", None)
    return rest


class Steps:
    """Reads both lists; afterwards `opening` is what stands before the first answer, `items` the rest."""

    def __init__(self, history: list[Any], steps: list[Any]) -> None:
        self.notes: list[Note] = []
        self.items: list[Item] = []
        self._history = [entry for entry in history if isinstance(entry, dict)]
        self._steps = [step for step in steps if isinstance(step, dict)]
        for name, given, taken in (("history", history, self._history), ("trajectory", steps, self._steps)):
            for entry in given if len(given) > len(taken) else ():
                if not isinstance(entry, dict):
                    self._note("lost", name, "an entry is no object; it is shown as it stands")
                    self.items.append(Aside(name=name, kept={"value": entry}))
        self._first = next((i for i, entry in enumerate(self._history) if _is_answer(entry)), None)
        start = len(self._history) if self._first is None else self._first
        self._before = self._history[:start]
        if not self._history and self._steps:
            asked = [one for one in items(_query(self._steps[0])) if isinstance(one, dict)]
            self._before = list(itertools.takewhile(lambda one: not _is_answer(one), asked))
        self.opening = [chat_message(entry) for entry in self._before]
        self.agent = text(self._history[0].get("agent")) if self._history else ""
        self.has_native_calls = False
        self._mistakes: list[JSONObject] = []
        self._number = 0

    def opening_rest(self) -> JSONObject:
        found = {str(i): rest_of(entry) for i, entry in enumerate(self._before)}
        return {place: rest for place, rest in found.items() if rest}

    def take(self, *, submitted: bool) -> None:
        exchanges = self._exchanges()
        same_number = len(exchanges) == len(self._steps)
        for index, step in enumerate(self._steps):
            exchange = exchanges[0] if exchanges else None
            if index == len(self._steps) - 1 and not submitted and _is_exit(step):
                self._exit(step, exchange)
                exchanges = exchanges[1:]
            elif exchange is not None and (same_number or _belong(step, exchange)):
                exchanges = exchanges[1:]
                self._turn(step, exchange)
            elif self._history:
                self._mistake(step, self._steps[index + 1 : index + 2], exchange)
            else:
                self._turn_without_history(step)
        if exchanges and self._steps:
            self._note("missing", "trajectory", f"{len(exchanges)} answers stand in the history alone")
        for exchange in exchanges:
            self._turn({}, exchange)
        if submitted:
            self._mark_submission()

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self.notes.append(Note(kind=kind, field=field, detail=detail))

    def _exchanges(self) -> list[_Exchange]:
        found: list[_Exchange] = []
        for place, entry in enumerate(self._history[len(self._before) :], len(self._before)):
            if _is_answer(entry) or not found:
                found.append(_Exchange(place, entry, []))
            else:
                found[-1].after.append(entry)
        return found

    def _turn(self, step: JSONObject, exchange: _Exchange) -> None:
        self._number += 1
        message = chat_message(exchange.answer)
        calls = calls_in(message, self._number)
        self.has_native_calls = self.has_native_calls or bool(calls)
        action = text(step.get("action")) or text(exchange.answer.get("action"))
        if calls:
            calls[0] = dataclasses.replace(calls[0], kept={**calls[0].kept, **_named("action", action)})
        elif action.strip():
            calls = [self._parsed_call(action)]
        if calls:
            calls[0] = dataclasses.replace(
                calls[0],
                timed_out=self._timed_out(text(step.get("observation"))),
                output=step["observation"] if isinstance(step.get("observation"), str) else None,
                seconds=seconds(step.get("execution_time")) or None,
            )
        calls, apart = self._answered(calls, exchange.after)
        if calls and calls[0].observation is None:
            # The last command's output is in the list alone: no answer came after it.
            calls[0] = dataclasses.replace(calls[0], observation=calls[0].output)
        kept = {**rest_of(exchange.answer), **self._kept_of(step, exchange.place)}
        if not calls:
            kept |= {**_named("action", action), **_named("observation", text(step.get("observation")))}
        self.items.append(
            Turn(
                message=message,
                reasoning=_reasoning(step, exchange.answer),
                calls=tuple(calls),
                agent=self._agent_of(exchange.answer),
                kept=kept,
            )
        )
        self.items.extend(apart)
        if self._mistakes:
            self._mistakes = []
            self._rewrite(self._history[: exchange.place + 1 + len(exchange.after)], [])

    def _timed_out(self, observation: str) -> bool:
        cancelled = observation.startswith("The command") and _CANCELLED in observation
        found = cancelled or observation.strip().rpartition("\n")[2].startswith(_TIMED_OUT)
        if found:
            self._note("guessed", "observation", "the words of an output say that the command was given up")
        return found

    def _agent_of(self, entry: JSONObject) -> str:
        name = text(entry.get("agent"))
        return "" if name == self.agent else name

    def _parsed_call(self, action: str) -> Call:
        self._note("guessed", "action", "an action in text is a call of bash; its id is made up")
        identifier = f"call_{self._number}_0"
        return Call(
            id=identifier,
            name="bash",
            arguments={"command": action},
            raw_arguments=action,
            synthesised_id=True,
        )

    def _answered(self, calls: list[Call], after: Sequence[JSONObject]) -> tuple[list[Call], list[Message]]:
        """The calls with the messages that say what came of them, and the other messages."""
        apart: list[Message] = []
        for entry in after:
            message = chat_message(entry)
            place = _call_of(calls, message)
            if place is None:
                reason = text(entry.get("message_type"))
                apart.append(Message(message=message, reason=reason, kept=rest_of(entry)))
                continue
            rest = rest_of(entry)
            kept = {**calls[place].kept, **({"result": rest} if rest else {})}
            calls[place] = dataclasses.replace(
                calls[place], message=message, observation=observed(message), kept=kept
            )
        return calls, apart

    def _mistake(self, step: JSONObject, following: list[JSONObject], exchange: _Exchange | None) -> None:
        """An answer that was asked for again: it is in the list of steps and left the conversation."""
        self._number += 1
        place = exchange.place if exchange is not None else len(self._history)
        response = text(step.get("response"))
        message = {"role": "assistant", "content": response}
        kept = self._kept_of(step, place)
        for name in ("action", "observation", "thought"):
            if text(step.get(name)) not in ("", response):
                kept[name] = step[name]
        self.items.append(Turn(message=message, reasoning=text(step.get("reasoning_content")), kept=kept))
        query = items(_query(following[0])) if following else []
        asked_again = [mapping(one) for one in query[-2:]]
        if len(asked_again) < 2 or plain_text(asked_again[0].get("content")) != response:
            self._note("missing", "query", "what was said to an answer that was asked for again")
            self._mistakes.append({})
            return
        reprimand = chat_message(asked_again[1])
        if self._mistakes:
            self._rewrite(self._history[:place], [message, reprimand])
        else:
            self.items.append(Message(message=reprimand, reason="requery"))
        self._mistakes.append(reprimand)

    def _rewrite(self, entries: list[JSONObject], more: list[JSONObject]) -> None:
        messages = (*map(chat_message, entries), *more)
        self.items.append(Rewritten(reason="requery", messages=messages))

    def _turn_without_history(self, step: JSONObject) -> None:
        self._number += 1
        action = text(step.get("action"))
        calls: tuple[Call, ...] = ()
        apart: tuple[Message, ...] = ()
        observation = step["observation"] if isinstance(step.get("observation"), str) else None
        shown = {"role": "user", "content": observation}
        if action.strip():
            took = seconds(step.get("execution_time")) or None
            call = dataclasses.replace(self._parsed_call(action), seconds=took, output=observation)
            if observation is not None:
                call = dataclasses.replace(call, observation=observation, message=shown)
            calls = (call,)
        elif observation:
            apart = (Message(message=shown, reason="observation"),)
        if observation:
            self._note("guessed", "observation", "without a history: the words around an output are unknown")
        message = {"role": "assistant", "content": text(step.get("response"))}
        kept = self._kept_of(step, None)
        if text(step.get("thought")) not in ("", message["content"]):
            kept["thought"] = step["thought"]
        reasoning = text(step.get("reasoning_content"))
        self.items.append(Turn(message=message, reasoning=reasoning, calls=calls, kept=kept))
        self.items.extend(apart)

    def _exit(self, step: JSONObject, exchange: _Exchange | None) -> None:
        """The harness's own last step, which says why it stopped: no answer of the model."""
        kept: JSONObject = {"step": unread(step, {"query": list, "messages": list})}
        if exchange is not None:
            kept["history"] = [exchange.answer, *exchange.after]
        self.items.append(Aside(name="exit", kept=kept))

    def _mark_submission(self) -> None:
        """The run was submitted by its last call, if that call says so."""
        last = self.items[-1] if self.items else None
        if not isinstance(last, Turn) or not last.calls:
            return
        call = last.calls[-1]
        words = text(call.arguments.get("command")).split()
        if call.name == "submit" or words[:1] == ["submit"]:
            calls = (*last.calls[:-1], dataclasses.replace(call, submitted=True))
            self.items[-1] = dataclasses.replace(last, calls=calls)

    def _kept_of(self, step: JSONObject, place: int | None) -> JSONObject:
        kept = unread(step, _STEP)
        state = _state(step.get("state"))
        kept |= {"state": state} if state else {}
        kept |= {"extra_info": step["extra_info"]} if mapping(step.get("extra_info")) else {}
        if place is not None:
            kept |= self._query_changes(items(_query(step)), place)
        return kept

    def _query_changes(self, query: list[Any], place: int) -> JSONObject:
        """The messages of a request that differ from the conversation: shortened or dropped for the model."""
        if not query or query == [{}]:
            return {}
        expected = self._history
        if self._mistakes and self._mistakes[-1]:
            expected = self._history[:place]
            query = query[: max(0, len(query) - 2)]
        if len(query) < place:
            return {"query": query}
        changes = {
            str(i): one for i, one in enumerate(query) if i >= len(expected) or not _alike(one, expected[i])
        }
        return {"query_changes": changes} if changes else {}


def _named(name: str, value: str) -> JSONObject:
    return {name: value} if value else {}


def _is_answer(entry: JSONObject) -> bool:
    return entry.get("role") == "assistant" and entry.get("is_demo") is not True


def _query(step: JSONObject) -> Any:
    return step["query"] if "query" in step else step.get("messages")


def _belong(step: JSONObject, exchange: _Exchange) -> bool:
    return text(step.get("response")) == plain_text(exchange.answer.get("content")) and text(
        step.get("action")
    ) == text(exchange.answer.get("action"))


def _is_exit(step: JSONObject) -> bool:
    action, thought = text(step.get("action")).strip(), text(step.get("thought"))
    if action:
        return action in _EXIT_ACTIONS and not text(step.get("response"))
    return thought == text(step.get("response")) and thought.startswith(_EXIT_WORDS)


def _call_of(calls: list[Call], message: JSONObject) -> int | None:
    """Which call a message is the result of: by its id, or of an action in text the user message after it."""
    for place, call in enumerate(calls):
        if call.message:
            continue
        if message.get("tool_call_id") == call.id:
            return place
        if call.synthesised_id and message["role"] in ("user", "tool"):
            return place
    return None


def _reasoning(step: JSONObject, answer: JSONObject) -> str:
    blocks = (text(mapping(one).get("thinking")) for one in items(answer.get("thinking_blocks")))
    return text(step.get("reasoning_content")) or "\n".join(block for block in blocks if block)


def _state(value: Any) -> Any:
    """A state is an object, in early releases as JSON text; what is no JSON stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        found = parsed(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict) else value


def _alike(one: Any, other: JSONObject) -> bool:
    """Whether two entries are the same message; where a cache may begin is no part of it."""
    found = mapping(one)
    return all(found.get(name) == other.get(name) for name in ("role", "tool_calls", "tool_call_ids")) and (
        plain_text(found.get("content")) == plain_text(other.get("content"))
    )
