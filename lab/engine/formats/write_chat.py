"""Chat-completions JSONL for training: conversations with a reward, and a loss mask that names own turns.

A line is one conversation as the model saw it. Where the harness rewrote it, what was there before is a
sample by itself, and the next one begins with the new messages, none of which is to be learned from again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lab.engine.formats.exported import Exported, Member, Shape, reward, some, words_of, written
from lab.engine.formats.trajectory import Item, Message, Rewritten, Turn
from lab.engine.llm.base import JSONObject


class Chat:
    name = "chat"
    title = "Chat completions for training"
    shape: Shape = "one"
    ending = ".jsonl"
    lost = (
        "failed requests, times, tokens and cost are not there",
        "replies that the harness left out of the conversation are not there, nor are turns of subagents; "
        "`notes` counts them",
        "of a verdict only outcome and rewards are there, no test",
    )

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        yield Member("chat.jsonl", _lines(runs))


def _lines(runs: Iterable[Exported]) -> Iterator[bytes]:
    for run in runs:
        for sample in samples(run):
            yield (written(sample) + "\n").encode()


@dataclass
class _Segment:
    """A conversation that grows: messages, and for each whether it is the model's own turn."""

    messages: list[JSONObject] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    left_out: int = 0
    of_subagents: int = 0

    def add(self, message: Mapping[str, object], own: int = 0, reasoning: str = "") -> None:
        if message:
            self.messages.append(dict(message))
            self.mask.append(own)
            self.reasoning.append(reasoning)

    def take(self, item: Item) -> None:
        if isinstance(item, Message):
            self.add(item.message)
        elif isinstance(item, Turn) and item.agent:
            self.of_subagents += 1
        elif isinstance(item, Turn):
            self._turn(item)

    def _turn(self, turn: Turn) -> None:
        self.left_out += not turn.message and bool(words_of(turn))
        # What was copied from an earlier trajectory is learned from there.
        thought = "" if turn.message.get("reasoning_content") else turn.reasoning
        self.add(turn.message, own=0 if turn.copied else 1, reasoning=thought)
        for call in turn.calls:
            self.add(call.message)


def samples(run: Exported) -> Iterator[JSONObject]:
    """The conversations of a run that hold a turn of the model, oldest first, numbered from 1."""
    found = run.trajectory
    segment = _Segment()
    for message in found.opening:
        segment.add(message)
    number = 0
    for item in found.items:
        if not isinstance(item, Rewritten):
            segment.take(item)
            continue
        if any(segment.mask):
            number += 1
            yield _sample(run, segment, number)
        segment = _Segment()
        for message in item.messages:
            segment.add(message)
    if any(segment.mask):
        yield _sample(run, segment, number + 1)


def _sample(run: Exported, segment: _Segment, number: int) -> JSONObject:
    grading = run.grading
    counted = {
        "replies_left_out": segment.left_out or None,
        "turns_of_subagents_left_out": segment.of_subagents or None,
    }
    own = {
        "tools": list(run.trajectory.tools),
        # What the model thought, where it is no part of its message: one text a message.
        "reasoning": segment.reasoning if any(segment.reasoning) else None,
        "rewards": dict(grading.rewards) if grading else {},
        "outcome": grading.outcome.value if grading else "",
        "exit_reason": run.trajectory.exit_reason.value if run.trajectory.exit_reason else "",
        "notes": some(counted),
    }
    return {
        "id": f"run-{run.run}-{number}",
        "instance_id": run.instance_id,
        "messages": segment.messages,
        "loss_mask": segment.mask,
        # Null where nothing was decided, which is no 0.
        "reward": reward(grading),
        **some(own),
        "run": run.facts(),
    }
