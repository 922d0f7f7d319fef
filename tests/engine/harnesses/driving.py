"""Drives a harness against a fake server and a real sandbox, and keeps everything that happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

from lab.engine import registry
from lab.engine.checkpoint import Checkpoint
from lab.engine.events import AttemptStarted, Event, Record
from lab.engine.harnesses.base import Ending, Family, HarnessConfig, PromptFacts, Session
from lab.engine.harnesses.clock import WallClock
from lab.engine.harnesses.conversation import Conversation, check_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.spending import Spending
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.llm.client import ModelClient
from lab.engine.redact import Redactor
from lab.engine.resume import Standing
from lab.engine.sandboxes.base import Sandbox
from lab.engine.sinks import ListSink
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, stream, usage_chunk

PRESET = load_preset("leaf-compatible")
FACTS = PromptFacts("Fix the bug.")
E = TypeVar("E")


def call(name: str, arguments: JSONObject | str, identity: str = "") -> tuple[str, str, str]:
    """A tool call of a reply; text is sent as the raw arguments."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return name, raw, identity


def bash(command: str, **more: Any) -> tuple[str, str, str]:
    return call("Bash", {"command": command, **more})


def calls(
    *wanted: tuple[str, str, str],
    content: str = "",
    reasoning: str = "",
    reasoning_field: str = "reasoning_content",
    finish: str = "tool_calls",
    prompt: int | None = 100,
    completion: int = 20,
    cost: str | None = None,
    **options: Any,
) -> Answer:
    """A streamed reply with these tool calls; `prompt` None leaves the usage out."""
    chunks: list[Any] = []
    if reasoning:
        chunks.append(delta(**{reasoning_field: reasoning}))
    if content:
        chunks.append(delta(content=content))
    for index, (name, raw, identity) in enumerate(wanted):
        function = {"name": name, "arguments": raw}
        chunks.append(
            delta(
                tool_calls=[
                    {
                        "index": index,
                        "id": identity or f"call_{index}_{abs(hash(raw)) % 10_000}",
                        "type": "function",
                        "function": function,
                    }
                ]
            )
        )
    chunks.append(delta(finish=finish))
    if prompt is not None:
        chunks.append(
            usage_chunk(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
        )
    return stream(*chunks, **options)


@dataclass
class Driven:
    """A finished drive. `raised` is what left the family instead of an ending."""

    ending: Ending | None
    sink: ListSink
    server: FakeOpenAI
    raised: BaseException | None = None
    changed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return self.sink.records

    def note_change(self, *, step: int, index: int, call_id: str) -> list[Event]:
        self.changed.append((step, index))
        return []

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.sink.events if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.sink.events]

    @property
    def reason(self) -> str:
        assert self.ending is not None, self.raised
        return self.ending.reason.value

    def sent(self, number: int) -> JSONObject:
        """The body of the number-th request, from 0."""
        return self.server.calls[number].body


class _Log:
    """Appends events and follows them, as the runner does."""

    def __init__(self, spent_usd_before: Decimal, on_event: Callable[[Event], None] | None) -> None:
        self.sink = ListSink()
        self.folds: list[Callable[[Event], None]] = []
        self.conversation = Conversation()
        self.spending = Spending(spent_usd_before)
        self.on_event = on_event

    def emit(self, *events: Event) -> list[Record]:
        records = self.sink.append_all(events)
        for record in records:
            for apply in (self.conversation.apply, self.spending.apply, *self.folds):
                apply(record.event)
            if self.on_event is not None:
                self.on_event(record.event)
        return records


def run(sandbox: Sandbox, *answers: Answer, **options: Any) -> Driven:
    """Drive a harness against a server that gives these answers; `options` are those of `drive`."""
    with FakeOpenAI(*answers) as server:
        driven = drive(server, sandbox, **options)
    # Whatever happens, the log alone gives each request as it was sent.
    assert check_inputs(driven.records).differing == []
    return driven


def ended(driven: Driven) -> tuple[str, str]:
    """Why the run ended, in the lab's word and in the family's."""
    assert driven.ending is not None, driven.raised
    return driven.ending.reason.value, driven.ending.native_reason


def drive(
    server: FakeOpenAI,
    sandbox: Sandbox,
    *,
    config: HarnessConfig = PRESET,
    limits: Limits | None = None,
    model: JSONObject | None = None,
    stop: StopSignal | None = None,
    steering: Steering | None = None,
    spent_usd_before: Decimal = Decimal(0),
    retry_seconds: float = 20.0,
    on_event: Callable[[Event], None] | None = None,
    facts: PromptFacts = FACTS,
) -> Driven:
    """Run the family of `config` until it ends."""
    limits, stop = limits or config.limits, stop or StopSignal()
    family = registry.family(config.family)
    configured = _configured(server, model)
    log = _Log(spent_usd_before, on_event)
    driven = Driven(None, log.sink, server)
    log.emit(_started(family, config, configured, limits, facts))
    checkpoint, clock = _checkpoint(log, steering or Steering(), stop, limits, family, config)
    with ModelClient(
        configured,
        api_key="",
        emit=log.emit,
        draft=log.sink.draft,
        stop=stop,
        retry_seconds=retry_seconds,
        first_wait=0.05,
        gate=checkpoint,
    ) as client:
        session = Session(
            config=config,
            model=configured,
            client=client,
            sandbox=sandbox,
            emit=log.emit,
            follow=log.folds.append,
            stop=stop,
            clock=clock,
            conversation=log.conversation,
            redactor=Redactor({}),
            checkpoint=checkpoint,
            changed=driven.note_change,
            spending=log.spending,
            standing=Standing(),
        )
        _finish(driven, family, session)
    return driven


def _checkpoint(
    log: _Log, steering: Steering, stop: StopSignal, limits: Limits, family: Family, config: HarnessConfig
) -> tuple[Checkpoint, WallClock]:
    clock = WallClock(limits.max_total_time_sec, stop)
    checkpoint = Checkpoint(
        steering=steering,
        stop=stop,
        clock=clock,
        spending=log.spending,
        limits=limits,
        emit=log.emit,
        message_of=lambda text: family.person_message(config, text),
    )
    return checkpoint, clock


def _configured(server: FakeOpenAI, changed: JSONObject | None) -> ModelConfig:
    fields = {"name": "fake", "model_id": "fake", "base_url": server.base_url, "price": {"basis": "unknown"}}
    return ModelConfig.model_validate({**fields, **(changed or {})})


def _started(
    family: Family, config: HarnessConfig, model: ModelConfig, limits: Limits, facts: PromptFacts
) -> AttemptStarted:
    return AttemptStarted(
        task={},
        harness={},
        model={},
        limits={},
        seed=1,
        messages=family.opening(config, facts, limits),
        parameters=family.parameters(config, model, limits),
        lab_version="0",
    )


def _finish(driven: Driven, family: Family, session: Session) -> None:
    try:
        driven.ending = family.drive(session)
    except Exception as error:
        driven.raised = error
    finally:
        session.clock.close()
