"""Steps of an ATIF trajectory as items of a conversation, the subagents' where they were called."""

from __future__ import annotations

import dataclasses
from typing import Any

from lab.engine.formats.chat_messages import call_message, observed, read_arguments, tool_message
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import count, dollars, items, mapping, moment, text
from lab.engine.formats.trajectory import Aside, Call, Item, Message, Note, Turn
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

# Subagents that called subagents, and so on; what is deeper is kept raw.
_DEEPEST = 8
_PARTS = (str, list)
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
# Metrics outside the format's own, under the names that servers give them.
_EXTRA_COUNTS = ("reasoning_tokens", "cache_creation_input_tokens", "prompt_tokens_details")


class Conversation:
    """Takes steps in order; afterwards `opening` is what stands before the first answer, `items` the rest.

    `kept` holds what the opening's steps have beside their messages, by number of the step.
    """

    def __init__(
        self, model: str, subagents: list[Any], *, agent: str = "", outer: Conversation | None = None
    ) -> None:
        self.opening: list[JSONObject] = []
        self.items: list[Item] = []
        self.notes: list[Note] = []
        self.kept: JSONObject = {}
        self._model = model
        self._agent = agent
        self._depth: int = outer._depth + 1 if outer else 0
        self._subagents = [one for one in subagents if isinstance(one, dict)]
        # A subagent may refer to one that stands beside it, or further out.
        self._known: list[JSONObject] = [*self._subagents, *(outer._known if outer else ())]
        self._shown: set[int] = outer._shown if outer else set()

    def take(self, steps: list[Any]) -> None:
        for number, step in enumerate(steps, 1):
            if not isinstance(step, dict):
                self._note("lost", f"steps.{number}", "is no object; it is shown as it stands")
                self.items.append(Aside(name="step", kept={"value": step}))
            elif step.get("source") == "agent":
                self._agent_step(number, step)
            elif step.get("source") in ("system", "user"):
                self._other_step(number, step)
            else:
                self._note("lost", f"steps.{number}.source", "is none of system, user and agent")
                self.items.append(Aside(name="step", kept=step, at=moment(step.get("timestamp"))))
        for found in self._subagents:
            if id(found) not in self._shown:
                self._note("guessed", "subagent_trajectories", "no call refers to it; it stands at the end")
                self._subagent(found)

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self.notes.append(Note(kind=kind, field=field, detail=detail))

    def _other_step(self, number: int, step: JSONObject) -> None:
        message = {"role": step["source"], "content": self._content(number, step.get("message"))}
        kept = unread(step, {"step_id": int, "source": str, "message": _PARTS, "timestamp": str})
        kept |= _media(step.get("message"))
        at = moment(step.get("timestamp"))
        if not any(isinstance(item, Turn | Message) for item in self.items):
            self.opening.append(message)
            if at is not None:
                kept["timestamp"] = step["timestamp"]
            if kept:
                self.kept[str(number)] = kept
        else:
            by: Any = "person" if step["source"] == "user" else "harness"
            self.items.append(Message(message=message, by=by, at=at, kept=kept))

    def _content(self, number: int, content: Any) -> Any:
        if isinstance(content, list):
            if _media(content):
                self._note("lost", f"steps.{number}", "pictures and sounds are not in the document")
            return [_part(part) for part in content]
        return content if isinstance(content, str) else ""

    def _agent_step(self, number: int, step: JSONObject) -> None:
        calls = self._calls(number, step)
        calls, apart = self._results(number, calls, step)
        message: JSONObject = {"role": "assistant", "content": self._content(number, step.get("message"))}
        if calls:
            message["tool_calls"] = call_message([(one.id, one.name, one.arguments) for one in calls])
        if step.get("llm_call_count") == 0 and not isinstance(step.get("llm_call_count"), bool):
            self._dispatch(step, message, calls)
        else:
            self.items.append(self._turn(number, step, message, calls))
        self.items.extend(apart)
        for reference in _references(step):
            self._refer(number, reference)

    def _turn(self, number: int, step: JSONObject, message: JSONObject, calls: list[Call]) -> Turn:
        called = count(step.get("llm_call_count"))
        if called is not None and called > 1:
            self._note("guessed", f"steps.{number}.llm_call_count", f"{called} model calls are one turn")
        metrics = mapping(step.get("metrics"))
        return Turn(
            message=message,
            reasoning=text(step.get("reasoning_content")),
            calls=tuple(calls),
            model=text(step.get("model_name")) or self._model,
            usage=_usage(metrics),
            cost_reported=dollars(metrics.get("cost_usd")),
            ended_at=moment(step.get("timestamp")),
            agent=self._agent,
            copied=step.get("is_copied_context") is True,
            kept=_kept_of_turn(step, metrics, called),
        )

    def _dispatch(self, step: JSONObject, message: JSONObject, calls: list[Call]) -> None:
        """A step in which the harness acted without asking the model: its calls and results as messages."""
        at = moment(step.get("timestamp"))
        taken = {"step_id": int, "source": str, "message": str, "timestamp": str}
        self.items.append(Message(message=message, reason="no model call", at=at, kept=unread(step, taken)))
        for call in calls:
            if call.message:
                self.items.append(Message(message=call.message, reason="no model call", at=at))

    def _calls(self, number: int, step: JSONObject) -> list[Call]:
        found: list[Call] = []
        for index, entry in enumerate(items(step.get("tool_calls"))):
            if not isinstance(entry, dict):
                self._note("lost", f"steps.{number}.tool_calls.{index}", "is no object")
                continue
            read = read_arguments(entry.get("arguments"))
            identifier = text(entry.get("tool_call_id"))
            found.append(
                Call(
                    id=identifier or f"call_{number}_{index}",
                    name=text(entry.get("function_name")),
                    arguments=read.arguments,
                    raw_arguments=read.raw,
                    malformed=read.malformed,
                    synthesised_id=not identifier,
                    kept=unread(entry, {"tool_call_id": str, "function_name": str, "arguments": dict}),
                )
            )
        return found

    def _results(self, number: int, calls: list[Call], step: JSONObject) -> tuple[list[Call], list[Message]]:
        """The calls with what came of them, and the results that are of none of them."""
        results = [
            one for one in items(mapping(step.get("observation")).get("results")) if isinstance(one, dict)
        ]
        in_order = bool(calls) and len(results) == len(calls)
        in_order = in_order and not any(text(one.get("source_call_id")) for one in results)
        if in_order:
            self._note("guessed", f"steps.{number}.observation", "results without an id, taken in order")
        apart: list[Message] = []
        for index, result in enumerate(results):
            place = index if in_order else _place_of(calls, text(result.get("source_call_id")))
            content = self._content(number, result.get("content"))
            if place is None:
                apart.append(self._apart(number, step, result, content))
            else:
                calls[place] = _answered(calls[place], result, content)
        return calls, apart

    def _apart(self, number: int, step: JSONObject, result: JSONObject, content: Any) -> Message:
        self._note("guessed", f"steps.{number}.observation", "a result of no call joins as a user message")
        return Message(
            message={"role": "user", "content": content},
            reason="observation",
            at=moment(step.get("timestamp")),
            kept=unread(result, {"content": _PARTS}) | _media(result.get("content")),
        )

    def _refer(self, number: int, reference: JSONObject) -> None:
        wanted = text(reference.get("trajectory_id"))
        place = f"steps.{number}.observation.subagent_trajectory_ref"
        for one in self._known:
            if wanted and text(one.get("trajectory_id")) == wanted:
                if id(one) in self._shown:
                    self._note(
                        "guessed", place, f"{wanted} is referred to again; it stands at the first place"
                    )
                else:
                    self._subagent(one)
                return
        path = text(reference.get("trajectory_path"))
        self._note("missing", place, f"the subagent's trajectory {path or wanted} is not in the document")

    def _subagent(self, found: JSONObject) -> None:
        """Adds a subagent's own conversation: its turns, and what is no turn as asides."""
        self._shown.add(id(found))
        agent = mapping(found.get("agent"))
        name = text(found.get("trajectory_id")) or text(agent.get("name")) or "subagent"
        if self._depth >= _DEEPEST:
            self._note("lost", "subagent_trajectories", f"{name} is nested too deeply to be read")
            self.items.append(Aside(name="subagent", kept={"agent": name, "trajectory": found}))
            return
        model = text(agent.get("model_name")) or self._model
        inner = Conversation(model, items(found.get("subagent_trajectories")), agent=name, outer=self)
        inner.take(items(found.get("steps")))
        rest = unread(found, {"steps": list, "subagent_trajectories": list})
        kept = {"agent": name, "trajectory": rest, "opening": inner.opening, "steps": inner.kept}
        self.items.append(Aside(name="subagent", kept=kept))
        self.items.extend(_as_subagent(name, item) for item in inner.items)
        self.notes.extend(inner.notes)


def _as_subagent(agent: str, item: Item) -> Item:
    """A message within a subagent's conversation is none of the main one."""
    if not isinstance(item, Message):
        return item
    kept = {"agent": agent, "message": item.message, "by": item.by, "reason": item.reason, "kept": item.kept}
    return Aside(name="subagent message", kept=kept, at=item.at)


def _place_of(calls: list[Call], identifier: str) -> int | None:
    """The first call of this id that has no result yet."""
    if not identifier:
        return None
    wanted = (index for index, call in enumerate(calls) if call.id == identifier and not call.message)
    return next(wanted, None)


def _answered(call: Call, result: JSONObject, content: Any) -> Call:
    rest = unread(result, {"source_call_id": str, "content": _PARTS}) | _media(result.get("content"))
    kept = {**call.kept, **({"result": rest} if rest else {})}
    if result.get("content") is None:
        return dataclasses.replace(call, kept=kept)
    message = tool_message(call.id, content)
    return dataclasses.replace(call, observation=observed(message), message=message, kept=kept)


def _references(step: JSONObject) -> list[JSONObject]:
    results = items(mapping(step.get("observation")).get("results"))
    found = [items(mapping(one).get("subagent_trajectory_ref")) for one in results]
    return [reference for some in found for reference in some if isinstance(reference, dict)]


def _part(part: Any) -> Any:
    """A content part in the shape of chat completions; a picture is named by its path."""
    found = mapping(part)
    if found.get("type") == "text":
        return {"type": "text", "text": text(found.get("text"))}
    if found.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": text(mapping(found.get("source")).get("path"))}}
    return part


def _media(content: Any) -> JSONObject:
    """The parts as they stood, where they are more than text."""
    if any(mapping(part).get("type") != "text" for part in items(content)):
        return {"content_parts": content}
    return {}


def _usage(metrics: JSONObject) -> Usage:
    """Prompt tokens include the cached ones, and completion tokens the reasoning."""
    raw = {name: metrics[name] for name in _COUNTS if metrics.get(name) is not None}
    extra = mapping(metrics.get("extra"))
    raw |= {name: extra[name] for name in _EXTRA_COUNTS if extra.get(name) is not None}
    return read_usage(raw or None)


def _kept_of_turn(step: JSONObject, metrics: JSONObject, called: int | None) -> JSONObject:
    taken: dict[str, type | tuple[type, ...]] = {
        "step_id": int,
        "source": str,
        "message": _PARTS,
        "reasoning_content": str,
        "tool_calls": list,
        "model_name": str,
        "timestamp": str,
        "metrics": dict,
        "observation": dict,
        "is_copied_context": bool,
    }
    kept = unread(step, taken)
    if called == 1:
        kept.pop("llm_call_count", None)
    kept |= _media(step.get("message"))
    measured = unread(metrics, dict.fromkeys((*_COUNTS, "cost_usd"), (int, float)))
    observation = unread(mapping(step.get("observation")), {"results": list})
    for name, rest in (("metrics", measured), ("observation", observation)):
        if rest:
            kept[name] = rest
    lost = [one for one in items(step.get("tool_calls")) if not isinstance(one, dict)]
    kept |= {"tool_calls": lost} if lost else {}
    stamp = step.get("timestamp")
    if isinstance(stamp, str) and moment(stamp) is None:
        kept["timestamp"] = stamp
    return kept
