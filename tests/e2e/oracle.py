"""What must hold of a run, whatever happened to the processes that worked on it.

`problems` gives a sentence for each thing that does not. It looks at what the lab holds and never at
how it came about, so that one oracle judges every fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.e2e.stories import Story

_CALL_ENDS = ("model_call_finished", "model_call_failed", "model_call_interrupted")
_TOOL_ENDS = ("tool_call_finished", "tool_call_interrupted")
# Services write these about a run whose attempt has ended.
_AFTER_AN_ATTEMPT = ("run_ended", "control_asked")


def problems(story: Story, unharmed: Story | None = None) -> list[str]:
    """What is wrong with a run that should have ended; compared with an unharmed one, also in what it did."""
    found = [text for check in _CHECKS for text in check(story)]
    if unharmed is not None:
        found += _did_the_same(story, unharmed)
    return [f"run {story.run}: {text}" for text in found]


def _ended(story: Story) -> Iterator[str]:
    if story.status != "ended":
        yield f"its status is {story.status}"
    if story.kinds.count("run_ended") != 1 or story.kinds[-1:] != ["run_ended"]:
        yield f"its log does not end with its only run_ended: … {', '.join(story.kinds[-3:])}"
    elif story.events[-1]["exit_reason"] != story.exit_reason:
        yield f"its exit reason is {story.exit_reason}, its log says {story.events[-1]['exit_reason']}"


def _numbered(story: Story) -> Iterator[str]:
    seqs = [event["seq"] for event in story.events]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"its numbers have gaps or doubles: {seqs}"
    if story.last_seq != len(seqs):
        yield f"last_seq is {story.last_seq} of {len(seqs)} events"


def _one_at_a_time(story: Story) -> Iterator[str]:
    """Attempts follow one another, and so do the leases within one."""
    numbers = [event["attempt"] for event in story.events if event["kind"] not in _AFTER_AN_ATTEMPT]
    if numbers != sorted(numbers):
        yield "events of two attempts stand between one another"
    for attempt in sorted(set(numbers)):
        kinds = [event["kind"] for event in story.events if event["attempt"] == attempt]
        if kinds.count("attempt_started") != 1 and "model_call_started" in kinds:
            yield f"attempt {attempt} has {kinds.count('attempt_started')} attempt_started"
        if kinds.count("attempt_ended") != 1:
            yield f"attempt {attempt} has {kinds.count('attempt_ended')} attempt_ended"
        elif after := set(kinds[kinds.index("attempt_ended") + 1 :]) - set(_AFTER_AN_ATTEMPT):
            yield f"attempt {attempt} goes on after its end: {', '.join(sorted(after))}"
    tokens = [append["token"] for append in story.appends if append["token"] is not None]
    if tokens != sorted(tokens):
        yield f"a former lease wrote after a newer one: {tokens}"


def _paired(story: Story) -> Iterator[str]:
    """Every start has exactly one end, before the next start."""
    yield from _paired_kind(story, "model_call_started", _CALL_ENDS, ("step", "request"))
    yield from _paired_kind(story, "tool_call_started", _TOOL_ENDS, ("step", "index", "call_id"))


def _paired_kind(story: Story, start: str, ends: tuple[str, ...], names: tuple[str, ...]) -> Iterator[str]:
    going_on: dict[str, Any] | None = None
    for event in story.of(start, *ends):
        if event["kind"] == start:
            if going_on is not None:
                yield f"event {going_on['seq']} ({start}) has no end before the next at {event['seq']}"
            going_on = event
        elif going_on is None:
            yield f"event {event['seq']} ({event['kind']}) ends what had not started"
        else:
            if any(event[name] != going_on[name] for name in names):
                yield f"event {event['seq']} ({event['kind']}) ends another than event {going_on['seq']}"
            going_on = None
    if going_on is not None:
        yield f"event {going_on['seq']} ({start}) has no end"


def _nothing_repeated(story: Story) -> Iterator[str]:
    """Each step of an attempt has one finished call, each of its tool calls one result, all in order."""
    for attempt in range(1, story.last_attempt + 1):
        finished = story.of("model_call_finished", attempt=attempt)
        steps = [event["step"] for event in finished]
        if steps != list(range(1, len(steps) + 1)):
            yield f"attempt {attempt}: the finished model calls are of steps {steps}"
        results = [
            (event["step"], event["index"]) for event in story.of("tool_call_finished", attempt=attempt)
        ]
        asked = [
            (event["step"], index)
            for event in finished
            for index in range(1, len(event["reply"]["tool_calls"]) + 1)
        ]
        if twice := [place for place, times in Counter(results).items() if times > 1]:
            yield f"attempt {attempt}: calls {twice} have more than one result"
        # Whoever asks for the next step has the results of all before.
        needed = [(step, index) for step, index in asked if step < len(steps)]
        if results != asked[: len(results)] or len(results) < len(needed):
            yield f"attempt {attempt}: the results are of calls {results}, asked for were {asked}"
        for kind in ("attempt_started", "patch_captured", "verification_finished"):
            if (times := len(story.of(kind, attempt=attempt))) > 1:
                yield f"attempt {attempt}: {times} {kind}"


def _marked(story: Story) -> Iterator[str]:
    """What was in flight when a worker died is interrupted, and marked when it is done again."""
    for start, end in (
        ("model_call_started", "model_call_interrupted"),
        ("tool_call_started", "tool_call_interrupted"),
    ):
        broken_off: dict[str, Any] | None = None
        for event in story.of(start, *(_CALL_ENDS if end in _CALL_ENDS else _TOOL_ENDS)):
            if event["kind"] == start:
                again = broken_off is not None and broken_off["attempt"] == event["attempt"]
                if bool(event.get("again")) != again:
                    yield f"event {event['seq']} ({start}): again is {event.get('again')}, not {again}"
            broken_off = event if event["kind"] == end else None
    for number, event in enumerate(story.of("attempt_continued"), start=1):
        if story.last_attempt == 1 and event["continuation"] != number:
            yield f"event {event['seq']}: continuation {event['continuation']} is the {number}th"


def _adds_up(story: Story) -> Iterator[str]:
    """Costs and tokens: calls = roll-up = log, and what is unknown is counted."""
    ends = story.of(*_CALL_ENDS)
    if (seqs := [event["seq"] for event in ends]) != sorted(call["seq"] for call in story.calls):
        yield f"its calls are not those of its log, which has {seqs}"
    costs = [event["cost"]["amount"] for event in ends]
    known = sum((Decimal(cost) for cost in costs if cost is not None), Decimal(0))
    for where, amount in (("its calls", story.cost_of_calls), ("its facts", story.facts["cost"] or 0)):
        if abs(Decimal(amount) - known) > Decimal("1E-9") * max(1, len(ends)):
            yield f"{where} cost {amount}, its log {known}"
    if story.facts["cost_unknown"] != costs.count(None):
        yield f"{story.facts['cost_unknown']} costs are counted as unknown of {costs.count(None)}"
    if story.facts != story.folded:
        differing = {name for name, value in story.folded.items() if story.facts[name] != value}
        yield f"its roll-up is not what its log gives: {', '.join(sorted(differing))}"


def _rebuilt(story: Story) -> Iterator[str]:
    if wrong := [seq for seq, equal in story.inputs if not equal]:
        yield f"the inputs of the model calls {wrong} built from the log are not what was sent"
    if len(story.inputs) != len(story.of("model_call_started")):
        yield f"{len(story.inputs)} inputs of {len(story.of('model_call_started'))} calls can be built again"


def _nothing_left(story: Story) -> Iterator[str]:
    if story.drafts:
        yield "a draft is left"
    if story.unseen:
        yield f"{story.unseen} things that were asked for are unseen"
    for attempt in story.attempts:
        if attempt["lease_until"] is not None or attempt["ended_at"] is None:
            yield f"attempt {attempt['n']} is open, or its lease is"


def _did_the_same(story: Story, unharmed: Story) -> Iterator[str]:
    if (story.exit_reason, story.verdict) != (unharmed.exit_reason, unharmed.verdict):
        yield f"it ended {story.exit_reason}, {story.verdict}: {_last_error(story)}"
    if story.patch != unharmed.patch:
        yield "its patch is another"
    if story.conversation != unharmed.conversation:
        pairs = zip(story.conversation, unharmed.conversation, strict=False)
        differing = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
        yield f"its conversation is another from message {differing} on ({len(story.conversation)} messages)"
    if story.last_attempt == 1 and (paid := _paid(story)) != _paid(unharmed):
        yield f"its finished calls cost {paid}, those of an unharmed run {_paid(unharmed)}"


def _paid(story: Story) -> Decimal:
    return sum((Decimal(event["cost"]["amount"]) for event in story.of("model_call_finished")), Decimal(0))


def _last_error(story: Story) -> str:
    return next(
        (event["error"] for event in reversed(story.of("attempt_ended")) if event["error"]), "no error"
    )


_CHECKS = (
    _ended,
    _numbered,
    _one_at_a_time,
    _paired,
    _nothing_repeated,
    _marked,
    _adds_up,
    _rebuilt,
    _nothing_left,
)
