"""tau-bench: results of conversations between an agent and a simulated user, a list of runs in one file.

Labels of these runs count every message from 1, the policy, the user's words and the results of tools
among them; so each message is a step here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.formats.base import Document, Probe
from lab.engine.formats.chat_messages import calls_in
from lab.engine.formats.counted_entries import entry_turn, steps_note
from lab.engine.formats.json_values import Value, values_in
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import count, items, mapping, number, plain_text, text
from lab.engine.formats.swe_bench_report import origin_of
from lab.engine.formats.trajectory import Found, Grading, HarnessUsed, Note, Origin, Problem, Trajectory, Turn
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

_OTHERWISE = "is no run of tau-bench: it needs `task_id`, `reward` and `traj` with messages"
_READ: dict[str, type | tuple[type, ...]] = {"reward": (int, float), "traj": list, "task_id": (int, str)}
_MESSAGE: dict[str, type | tuple[type, ...]] = {
    "role": str,
    "content": str,
    "tool_calls": list,
    "tool_call_id": str,
    "name": str,
    "index": int,
}
_NO_CALL = Note(
    kind="guessed",
    field="traj.tool_calls",
    detail="what came of a call stands in the step after it, where its file has it",
)


class TauBench:
    """Reads runs of tau-bench; each message of `traj` is one step."""

    name = "tau-bench"
    title = "tau-bench: results of conversations with a simulated user (.json)"

    def recognises(self, probe: Probe) -> bool:
        if probe.kind == "jsonl":
            return bool(probe.objects) and all(is_run(one) for one in probe.objects)
        if isinstance(probe.value, list):
            return bool(probe.value) and is_run(probe.value[0])
        return is_run(probe.root)

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON.
        """
        for document in documents:
            for value in values_in(document):
                if value.problem:
                    yield Problem(file=document.path, place=value.place, message=value.problem)
                else:
                    yield from self._in_value(document, value)

    def _in_value(self, document: Document, value: Value) -> Iterator[Found]:
        if not isinstance(value.value, list):
            origin = Origin(format=self.name, file=document.path, place=value.place, sha256=value.sha256)
            yield self._found(document, value.place, value.value, origin)
            return
        for entry, one in enumerate(value.value, start=1):
            place = f"entry {entry}"
            yield self._found(document, place, one, origin_of(self.name, document, value.sha256, place))

    def _found(self, document: Document, place: str, one: Any, origin: Origin) -> Found:
        if not is_run(one):
            return Problem(file=document.path, place=place, message=_OTHERWISE)
        try:
            return _trajectory(origin, one)
        except RecursionError:
            return Problem(file=document.path, place=place, message="is nested too deeply")


def _trajectory(origin: Origin, root: JSONObject) -> Trajectory:
    messages = [mapping(one) for one in root["traj"]]
    first = next((one for one in messages if one.get("role") == "user"), {})
    instruction = text(mapping(mapping(root.get("info")).get("task")).get("instruction"))
    trial = count(root.get("trial"))
    guessed = "task.instruction" if instruction else "the user's first message"
    reward = number(root.get("reward"))
    return Trajectory(
        origin=origin,
        harness=HarnessUsed(name="tau-bench"),
        instance_id=task_name(root["task_id"]),
        statement=instruction or plain_text(first.get("content")),
        # Trials count from 0, seeds from 1.
        seed=trial + 1 if trial is not None else None,
        items=tuple(_turn(place, message) for place, message in enumerate(messages, start=1)),
        final_message=plain_text(messages[-1].get("content")),
        gradings=_gradings(reward),
        notes=(
            steps_note("traj"),
            Note(kind="guessed", field="statement", detail=guessed),
            _NO_CALL,
        ),
        kept={"task_id": root["task_id"], **unread(root, _READ)},
    )


def is_run(value: Any) -> bool:
    root = mapping(value)
    messages = items(root.get("traj"))
    named = isinstance(root.get("task_id"), (int, str)) and not isinstance(root.get("task_id"), bool)
    return named and "reward" in root and bool(messages) and all("role" in mapping(one) for one in messages)


def task_name(task_id: int | str) -> str:
    """What a task is called here: the file has only its number in a list."""
    return f"tau-bench-{task_id}"


def _turn(place: int, message: JSONObject) -> Turn:
    role = text(message.get("role"))
    content = plain_text(message.get("content"))
    kept = {name: one for name, one in unread(message, _MESSAGE).items() if one not in (None, [])}
    if role == "assistant":
        said = {
            name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None
        }
        return Turn(message=said, calls=tuple(calls_in(said, place)), kept=kept)
    speaker = f"tool {text(message.get('name'))}".strip() if role == "tool" else role
    named = {name: message[name] for name in ("tool_call_id",) if name in message}
    return entry_turn(speaker=speaker, content=content, kept={**named, **kept})


def _gradings(reward: float | None) -> tuple[Grading, ...]:
    if reward is None:
        return ()
    outcome = Outcome.RESOLVED if reward >= 1 else Outcome.UNRESOLVED
    return (Grading(rule="tau-bench", outcome=outcome, rewards={"reward": reward}),)
