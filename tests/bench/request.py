"""What the next request costs to build, by family, at step 10 and at step 150. Prints one JSON object.

Each family drives its own loop over a conversation of real tool calls in a real sandbox; only the model is a
script without a server. Measured is all from the moment a request is due to the bytes to send and their hash:
what people asked for, the family's decision about its history (R2E-Gym's condenses), the cap of the turn, the
body, its encoding. A figure is the best of the rounds for the median of ten requests that end at that step.

Targets: the request for step 150 takes at most 5 ms, and from step 10 to step 150 its time grows no faster
than the bytes of the conversation that its attempt has come to. Where a family condenses, that is more than
what is still sent: `request_ratio` says by how much the requests themselves grew. With `--quick` nothing is
judged, since there is no step 150.

    python -m tests.bench.request [--rounds 5] [--quick]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from lab.engine import registry
from lab.engine.checkpoint import Checkpoint
from lab.engine.events import AttemptStarted, Event, HistoryRewritten, Record
from lab.engine.harnesses.base import HarnessConfig, PromptFacts, Session
from lab.engine.harnesses.clock import WallClock
from lab.engine.harnesses.conversation import Conversation
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.spending import Spending
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.limits import Limits
from lab.engine.llm.base import Cost, JSONObject, ModelConfig, Price, Reply, ToolCall, Usage
from lab.engine.llm.bodies import BodyEncoder
from lab.engine.llm.client import Answer, ModelClient
from lab.engine.redact import Redactor
from lab.engine.resume import Standing
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.sinks import ListSink
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from tests.bench import figures
from tests.bench.figures import Target

EARLY, LATE = 10, 150
_AROUND = 10
MOST_MILLISECONDS = 5.0
STATEMENT = "Durations such as 1h30m are refused; they should be read.\n" * 40
# 2 KB of output a step, in lines that no limit of lines cuts: R2E-Gym condenses from about step 45 on.
COMMAND = "head -c 2000 /dev/zero | tr '\\0' x | fold -w 80"


def native(tool: str) -> Callable[[int], Reply]:
    """Replies with one native call each, and a few words."""

    def reply(step: int) -> Reply:
        call = ToolCall(id=f"call_{step}", name=tool, arguments=json.dumps({"command": COMMAND}))
        return Reply(content=f"Step {step}: I look at the next lines.", tool_calls=(call,))

    return reply


def written(step: int) -> Reply:
    """A reply with one call as XML."""
    block = f"<function=execute_bash>\n<parameter=cmd>{COMMAND}</parameter>\n</function>"
    return Reply(content=f"Step {step}: I look at the next lines.\n{block}")


FAMILIES: dict[str, Callable[[int], Reply]] = {
    "leaf-compatible": native("Bash"),
    "r2e": written,
    "mini": native("bash"),
}

CONDENSES = "r2e"


class Script:
    """Answers in a model's place, and keeps when each request was due and ready, and its size."""

    def __init__(self, replies: Callable[[int], Reply]) -> None:
        self.due = 0.0
        self.milliseconds: list[float] = []
        self.conversation_bytes: list[int] = []
        self.request_bytes: list[int] = []
        self._replies = replies
        self._encoder = BodyEncoder()
        self._added = 0

    def ask(self, *, step: int, body: JSONObject, **_: object) -> Answer:
        """Take the request as `ModelClient.ask` does, up to the point where it would be sent."""
        encoded = self._encoder.encode(body)
        self.milliseconds.append((time.perf_counter() - self.due) * 1e3)
        self.conversation_bytes.append(self._added)
        self.request_bytes.append(len(encoded.content))
        total = estimated_tokens(body["messages"])
        usage = Usage(input_total=total, output_total=60, source="provider")
        reply = self._replies(step).model_copy(update={"usage": usage, "finish_reason": "stop"})
        return Answer(reply, 1, Cost(amount=None, basis="unknown"))

    def count(self, event: Event) -> None:
        """The bytes that have joined the conversation, whatever a family takes out of it again."""
        messages = event.messages if isinstance(event, AttemptStarted) else [getattr(event, "message", None)]
        if not isinstance(event, HistoryRewritten):
            self._added += sum(len(json.dumps(message)) for message in messages if message)


class Gate(Checkpoint):
    """The checkpoint of an attempt, which marks the moment in which the next request is due."""

    script: Script

    def before_request(self) -> None:
        """Called by the loop first of all."""
        self.script.due = time.perf_counter()
        super().before_request()


def drive(preset: str, sandbox: Sandbox, *, steps: int) -> tuple[Script, int]:
    """One attempt of so many steps: its figures, and how often its history was rewritten."""
    config = load_preset(preset)
    family = registry.family(config.family)
    limits = Limits(max_steps=steps, max_context_tokens=None)
    model = ModelConfig(name="bench", model_id="bench", base_url="", price=Price(basis="unknown"))
    script, sink, stop = Script(FAMILIES[preset]), ListSink(), StopSignal()
    conversation, spending, clock = Conversation(), Spending(Decimal(0)), WallClock(None, stop)
    folds: list[Callable[[Event], None]] = [conversation.apply, spending.apply, script.count]

    def emit(*events: Event) -> list[Record]:
        records = sink.append_all(events)
        for record in records:
            for apply in folds:
                apply(record.event)
        return records

    gate = Gate(
        steering=Steering(),
        stop=stop,
        clock=clock,
        spending=spending,
        limits=limits,
        emit=emit,
        message_of=lambda text: family.person_message(config, text),
    )
    gate.script = script
    emit(_started(config, limits, model))
    session = Session(
        config=config,
        model=model,
        client=cast(ModelClient, script),
        sandbox=sandbox,
        emit=emit,
        follow=folds.append,
        stop=stop,
        clock=clock,
        conversation=conversation,
        redactor=Redactor({}),
        checkpoint=gate,
        changed=lambda **_: [],
        spending=spending,
        standing=Standing(),
    )
    ending = family.drive(session)
    clock.close()
    if len(script.milliseconds) != steps:
        raise RuntimeError(f"{preset} made {len(script.milliseconds)} requests and ended: {ending}")
    return script, sum(isinstance(event, HistoryRewritten) for event in sink.events)


def _started(config: HarnessConfig, limits: Limits, model: ModelConfig) -> AttemptStarted:
    family = registry.family(config.family)
    return AttemptStarted(
        task={},
        harness={},
        model={},
        limits={},
        seed=1,
        messages=family.opening(config, PromptFacts(STATEMENT), limits),
        parameters=family.parameters(config, model, limits),
        lab_version="0",
    )


@contextmanager
def real_sandbox() -> Iterator[Sandbox]:
    with tempfile.TemporaryDirectory() as folder:
        sandbox = registry.provider("process").start(SandboxSpec(label="bench", scratch=Path(folder)))
        try:
            yield sandbox
        finally:
            sandbox.stop()


def measure(rounds: int, steps: int) -> tuple[dict[str, Any], list[Target]]:
    """The figures of each family, and what they are held to."""
    found: dict[str, Any] = {}
    targets: list[Target] = []
    early = min(EARLY, steps // 2)
    with real_sandbox() as sandbox:
        for preset in FAMILIES:
            driven = [drive(preset, sandbox, steps=steps) for _ in range(rounds)]
            first, last = (min(_around(script, step) for script, _ in driven) for step in (early, steps))
            script, rewritten = driven[0]
            if preset == CONDENSES and not rewritten:
                raise RuntimeError(f"{preset} condensed nothing: its request is not what is to be measured")
            grown = script.conversation_bytes[steps - 1] / script.conversation_bytes[early - 1]
            found[preset] = {
                f"step_{early}_ms": round(first, 3),
                f"step_{steps}_ms": round(last, 3),
                "time_ratio": round(last / first, 2),
                "conversation_ratio": round(grown, 2),
                "request_ratio": round(script.request_bytes[steps - 1] / script.request_bytes[early - 1], 2),
                "ratio_of_ratios": round(last / first / grown, 3),
                "conversation_kilobytes": round(script.conversation_bytes[steps - 1] / 1e3),
                "history_rewritten": rewritten,
            }
            why = "" if steps == LATE else f"there was no step {LATE}"
            judged = {
                f"{preset}: milliseconds of the request for step {LATE}": (last, MOST_MILLISECONDS),
                f"{preset}: growth of the time over growth of the conversation": (last / first / grown, 1.0),
            }
            targets += [
                Target(name, None if why else value, limit, why) for name, (value, limit) in judged.items()
            ]
    return found, targets


def _around(script: Script, step: int) -> float:
    return statistics.median(script.milliseconds[max(0, step - _AROUND) : step])


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=5)
    before = figures.probe()
    found, targets = measure(chosen.rounds, 60 if chosen.quick else LATE)
    figures.report({"families": found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
