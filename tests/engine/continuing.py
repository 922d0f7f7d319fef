"""Runs an attempt whole, cuts its log somewhere, and continues it as another worker child would."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lab.engine.attempt import AttemptResult, AttemptSpec
from lab.engine.events import (
    Event,
    ModelCallFinished,
    ModelCallStarted,
    PatchCaptured,
    Record,
    ToolCallFinished,
    ToolCallInterrupted,
    WorkspaceChanged,
)
from lab.engine.harnesses.conversation import messages_after, rebuild_inputs
from lab.engine.harnesses.spending import Spending
from lab.engine.runner import run_attempt
from lab.engine.sinks import ListSink
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import Answer, FakeOpenAI, Request

E = TypeVar("E")
MakeSpec = Callable[[FakeOpenAI], AttemptSpec]
Script = Sequence[Sequence[Answer]]


class ByStep(FakeOpenAI):
    """Answers by the place in the conversation, whoever asks; `script` has the tries of each step in order.

    `asked` says how many tries of a step an earlier worker child made.
    """

    def __init__(self, script: Script, asked: Counter[int] | None = None) -> None:
        super().__init__()
        self.script = script
        self.tries = Counter(asked or {})
        self._turn = threading.Lock()

    def take(self, request: Request) -> Answer:
        with self._turn:
            self.requests.append(request)
            step = 1 + sum(message["role"] == "assistant" for message in request.body["messages"])
            self.tries[step] += 1
            tries = self.script[min(step, len(self.script)) - 1]
            return tries[min(self.tries[step], len(tries)) - 1]


@dataclass
class Told:
    """An attempt from its first record to its end, by however many worker children."""

    result: AttemptResult
    records: list[Record]
    blobs: dict[str, bytes]

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def patch(self) -> str:
        (captured,) = self.of(PatchCaptured)
        return captured.patch


def tell(
    make: MakeSpec,
    script: Script,
    *,
    before: Told | None = None,
    cut: int = 0,
    sink: ListSink | None = None,
    steering: Steering | None = None,
    stop: StopSignal | None = None,
    reading: Callable[[str], bytes] | None = None,
    serving: Callable[[Script, Counter[int]], FakeOpenAI] = ByStep,
    **changed: object,
) -> Told:
    """Run the script's attempt, or continue it after the first `cut` records of what was told before.

    `reading` stands for the stored blobs, `serving` makes the server of the script and the tries made before;
    `changed` are fields of the specification.
    """
    history = before.records[:cut] if before else []
    sink = sink or ListSink(first_seq=len(history) + 1)
    if before:
        sink.blobs.update(before.blobs)
    asked = Counter(record.event.step for record in history if isinstance(record.event, ModelCallStarted))
    with serving(script, asked) as server:
        spec = dataclasses.replace(
            make(server), history=tuple(history), read_blob=reading or sink.blobs.__getitem__, **changed
        )
        result = run_attempt(spec, sink, stop or StopSignal(), steering=steering)
    return Told(result, [*history, *sink.records], sink.blobs)


def cuts(told: Told) -> Iterator[int]:
    """Every place at which a log can end: after each record, but never within a group."""
    for place in range(1, len(told.records)):
        if not isinstance(told.records[place].event, WorkspaceChanged):
            yield place


def require_same(told: Told, whole: Told, *, cut: int) -> None:
    """That a continued attempt came to what the uninterrupted one came to, doing nothing twice."""
    assert told.result == whole.result
    assert [record.seq for record in told.records] == list(range(1, len(told.records) + 1))
    assert told.kinds[0] == "attempt_started"
    assert told.kinds[cut : cut + 2].count("attempt_continued") == 1
    assert told.patch == whole.patch
    assert messages_after(told.records) == messages_after(whole.records)
    hashes = {event.step: event.body_sha256 for event in whole.of(ModelCallStarted)}
    assert all(event.body_sha256 == hashes[event.step] for event in told.of(ModelCallStarted))
    rebuilt = list(rebuild_inputs(told.records))
    assert all(one.sha256_expected == one.sha256_actual for one in rebuilt)
    _require_once(told)
    assert _tokens(told) == _tokens(whole)


def _require_once(told: Told) -> None:
    for kind in ("attempt_started", "patch_captured", "verification_finished", "attempt_ended"):
        assert told.kinds.count(kind) == 1, kind
    replies = [event.step for event in told.of(ModelCallFinished)]
    assert replies == list(range(1, len(replies) + 1))
    done = [(event.step, event.index) for event in told.of(ToolCallFinished)]
    assert len(done) == len(set(done))
    requests = [(event.step, event.request) for event in told.of(ModelCallStarted)]
    assert len(requests) == len(set(requests))
    again = [(event.step, event.index) for event in told.of(ToolCallInterrupted)]
    assert set(again) <= set(done)


def _tokens(told: Told) -> int:
    spending = Spending()
    for event in told.events:
        spending.apply(event)
    return spending.tokens
