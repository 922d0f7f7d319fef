"""Leaf's trajectories, whole ones and those that are still being written, and the rows of its results."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe, load_json
from lab.engine.formats.chat_messages import calls_in, observed
from lab.engine.formats.json_values import values_in
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import count, items, mapping, seconds, text
from lab.engine.formats.rewards import reward_grading
from lab.engine.formats.trajectory import (
    Call,
    Found,
    FoundGrading,
    Grading,
    HarnessUsed,
    Item,
    Message,
    Note,
    Origin,
    Problem,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

FORMAT = "leaf-function-calling"
RULE = "reward"
_EXIT_CODE = re.compile(r"Exit code: (-?\d{1,9})\n")
_STOPPED = re.compile(r"Timed out after [\d.]+s")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("trajectory_format", "trajectory_id", "instance_id", "exit_reason", "error"), str),
    **dict.fromkeys(("final_message", "output_patch", "test_output"), str),
    **dict.fromkeys(("seed", "n_steps"), int),
    **dict.fromkeys(("elapsed_sec", "reward"), (int, float)),
    **dict.fromkeys(("messages", "tools"), list),
    "partial": bool,
}
_ROW: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("instance_id", "trajectory", "error"), str),
    "seed": int,
    "reward": (int, float),
}


class Leaf:
    """Reads one run from one file."""

    name = "leaf"
    title = "Leaf: trajectory_seed-*.json, partial ones too"

    def recognises(self, probe: Probe) -> bool:
        return probe.root.get("trajectory_format") == FORMAT

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON object, or one without messages.
        """
        for document in documents:
            root = mapping(load_json(document))
            if not isinstance(root.get("messages"), list):
                raise FormatError(f"{document.path} has no list `messages`, which holds the conversation")
            try:
                found = _Reading(document, root).trajectory()
            except RecursionError:
                raise FormatError(f"{document.path} is nested too deeply to be read") from None
            yield found


class LeafResults:
    """Reads `results.jsonl`: a verdict for each instance and seed, of which the last row counts."""

    name = "leaf-results"
    title = "Leaf: results.jsonl"

    def recognises(self, probe: Probe) -> bool:
        rows = probe.objects or ((probe.root,) if probe.root else ())
        return bool(rows) and all(
            row.get("status") in ("completed", "failed")
            and {"instance_id", "seed"} <= row.keys()
            and bool({"reward", "exit_reason", "error"} & row.keys())
            for row in rows
        )

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON.
        """
        for document in documents:
            rows: dict[tuple[str, int | None], FoundGrading] = {}
            for value in values_in(document):
                row = mapping(value.value)
                origin = Origin(format=self.name, file=document.path, place=value.place, sha256=value.sha256)
                instance = text(row.get("instance_id"))
                if value.problem or not instance:
                    message = value.problem or "names no instance"
                    yield Problem(file=document.path, place=value.place, message=message)
                    continue
                found = _graded(row, origin)
                # Another attempt of the same job has its row further down.
                rows.pop((instance, found.seed), None)
                rows[instance, found.seed] = found
            yield from rows.values()


def _graded(row: JSONObject, origin: Origin) -> FoundGrading:
    kept = unread(row, _ROW)
    grading = reward_grading(row.get("reward"), rule=RULE, kept=kept)
    if row.get("status") == "failed" or grading is None:
        failed = row.get("status") == "failed"
        grading = Grading(
            rule=RULE,
            # A failed job was never graded: it was given up, and counts as its own kind.
            outcome=Outcome.INFRASTRUCTURE if failed else Outcome.UNPARSED,
            detail=text(row.get("error")) or ("the job failed" if failed else "no reward is recorded"),
            kept=kept,
        )
    return FoundGrading(
        origin=origin,
        instance_id=text(row.get("instance_id")),
        grading=grading,
        seed=count(row.get("seed")),
        harness="Leaf",
        trajectory=text(row.get("trajectory")),
    )


class _Reading:
    """Takes one document apart."""

    def __init__(self, document: Document, root: JSONObject) -> None:
        self._document = document
        self._root = root
        self._notes: dict[str, Note] = {}
        self._opening: list[JSONObject] = []
        self._items: list[Item] = []
        self._calls: dict[int, list[Call]] = {}
        # Places of calls of the last reply without a result.
        self._waiting: list[int] = []

    def trajectory(self) -> Trajectory:
        for number, message in enumerate(items(self._root["messages"]), start=1):
            if isinstance(message, dict):
                self._read(message)
            else:
                self._note("lost", f"messages[{number - 1}]", "is no object")
        left = self._compare_steps()
        root, partial = self._root, self._root.get("partial") is True
        if any(isinstance(item, Turn) for item in self._items):
            self._note("missing", "steps[]", "usage, cost and times of a call are not part of this format")
        self._note("missing", "model", "the model stands in config.json beside the trajectories")
        grading = reward_grading(root.get("reward"), rule=RULE, log=text(root.get("test_output")))
        log = text(root.get("test_output"))
        ungraded = {"test_output": log} if log and grading is None else {}
        patch = root.get("output_patch")
        return Trajectory(
            origin=self._origin(partial),
            harness=HarnessUsed(name="Leaf", family="leaf"),
            instance_id=text(root.get("instance_id")),
            statement=self._statement(),
            seed=count(root.get("seed")),
            opening=tuple(self._opening),
            tools=tuple(tool for tool in items(root.get("tools")) if isinstance(tool, dict)),
            items=self._found_items(),
            exit_reason=self._exit_reason(),
            native_reason=text(root.get("exit_reason")),
            error=text(root.get("error")),
            final_message=text(root.get("final_message")),
            patch=patch if isinstance(patch, str) and not (partial and not patch) else None,
            totals=Totals(steps=count(root.get("n_steps")), seconds=seconds(root.get("elapsed_sec"))),
            gradings=(grading,) if grading else (),
            partial=partial,
            notes=tuple(self._notes.values()),
            # What tests printed is not for everybody, as all that is recorded of a task.
            task_kept=ungraded,
            kept={
                **unread(root, {**_FIELDS, "steps": list}),
                **({"steps": left} if left else {}),
            },
        )

    def _note(self, kind: Any, field: str, detail: str) -> None:
        self._notes.setdefault(field, Note(kind=kind, field=field, detail=detail))

    def _origin(self, partial: bool) -> Origin:
        name = text(self._root.get("trajectory_id"))
        if partial and name:
            digest = hashlib.sha256(f"{FORMAT}\n{name}".encode("utf-8", "surrogatepass")).hexdigest()
        else:
            digest = self._document.sha256()
        return Origin(format=FORMAT, file=self._document.path, sha256=digest)

    def _statement(self) -> str:
        """The task's text is the first user message, as it is."""
        prompt = next((one for one in self._opening if one.get("role") == "user"), None)
        return "" if prompt is None else observed(prompt)

    def _exit_reason(self) -> ExitReason | None:
        """Leaf's words are the lab's."""
        word = text(self._root.get("exit_reason"))
        if not word:
            return None
        try:
            return ExitReason(word)
        except ValueError:
            self._note("lost", "exit_reason", f"the lab has no word for {word[:200]}")
            return None

    # The conversation.

    def _read(self, message: JSONObject) -> None:
        role = message.get("role")
        if role == "assistant":
            place = len(self._items)
            step = 1 + sum(isinstance(item, Turn) for item in self._items)
            self._items.append(Turn(message=message, reasoning=text(message.get("reasoning_content"))))
            self._calls[place] = calls_in(message, step)
            self._waiting = list(range(len(self._calls[place])))
        elif role == "tool" and self._take_result(message):
            return
        elif self._items:
            if role == "tool":
                self._note("guessed", "messages[]", "a result that belongs to no call is kept as a message")
            self._items.append(Message(message=message))
        else:
            self._opening.append(message)

    def _take_result(self, message: JSONObject) -> bool:
        if not self._calls:
            return False
        calls, name = self._calls[max(self._calls)], text(message.get("tool_call_id"))
        place = next((one for one in self._waiting if not name or calls[one].id == name), None)
        if place is None:
            return False
        self._waiting.remove(place)
        calls[place] = self._with_result(calls[place], message)
        return True

    def _with_result(self, call: Call, message: JSONObject) -> Call:
        observation = observed(message)
        code, stopped = None, False
        if call.name == "Bash":
            told, stopped = _EXIT_CODE.match(observation), bool(_STOPPED.match(observation))
            code = int(told[1]) if told else None
            self._note(
                "guessed", "messages[].content", "exit codes and time-outs are read from the observations"
            )
        return dataclasses.replace(
            call, observation=observation, message=message, exit_code=code, timed_out=stopped
        )

    def _found_items(self) -> tuple[Item, ...]:
        found = list(self._items)
        for place, calls in self._calls.items():
            turn = found[place]
            if isinstance(turn, Turn):
                found[place] = dataclasses.replace(turn, calls=tuple(calls))
        return tuple(found)

    def _compare_steps(self) -> list[Any]:
        """`steps` says the same once more. Where one says something else, it is kept at its turn; returned
        are those that have none."""
        steps = items(self._root.get("steps"))
        places = [place for place, item in enumerate(self._items) if isinstance(item, Turn)]
        for place, raw in zip(places, steps, strict=False):
            turn = self._items[place]
            if isinstance(turn, Turn) and not self._says_the_same(mapping(raw), turn, self._calls[place]):
                self._items[place] = dataclasses.replace(turn, kept={"step": raw})
        return steps[len(places) :]

    def _says_the_same(self, step: JSONObject, turn: Turn, calls: Sequence[Call]) -> bool:
        seen = [(call.name, call.observation) for call in calls if call.observation is not None]
        told = [
            (mapping(one).get("tool"), mapping(one).get("observation"))
            for one in items(step.get("observations"))
        ]
        return step.get("assistant") == turn.message and told == seen and len(step) <= 3
