"""One sample of an Inspect log as a trajectory, under what the log's header says of all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.inspect_conversation import Conversation, from_messages
from lab.engine.formats.inspect_events import EventReader
from lab.engine.formats.inspect_messages import Attachments, read_content, usage_of
from lab.engine.formats.inspect_scores import read_scores
from lab.engine.formats.leftovers import collapsed, without_credentials
from lab.engine.formats.reading import (
    count,
    dollars,
    items,
    mapping,
    moment,
    plain_text,
    seconds,
    text,
    without,
)
from lab.engine.formats.trajectory import (
    Aside,
    HarnessUsed,
    ModelUsed,
    Note,
    Origin,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject

_LIMITS = {
    "context": ExitReason.MAX_CONTEXT_LEN,
    "time": ExitReason.MAX_TIME,
    "working": ExitReason.MAX_TIME,
    "message": ExitReason.MAX_TURNS,
    "turn": ExitReason.MAX_TURNS,
    "token": ExitReason.MAX_TOKENS_TOTAL,
    "cost": ExitReason.MAX_COST,
    "operator": ExitReason.CANCELLED,
}
_STOPS = {
    "stop": ExitReason.AGENT,
    # Of a tool with which agents hand in their answer.
    "tool_calls": ExitReason.AGENT,
    "max_tokens": ExitReason.MAX_TOKENS_PER_TURN,
    "model_length": ExitReason.MAX_CONTEXT_LEN,
}
_READ_OF_SAMPLE = (
    "id", "epoch", "input", "messages", "events", "events_data", "attachments", "scores", "score", "output",
    "started_at", "completed_at", "total_time",
)  # fmt: skip
_READ_OF_EVAL = (
    "model", "model_base_url", "model_generate_config", "packages", "solver", "solver_args", "sandbox",
)  # fmt: skip


@dataclass(frozen=True)
class EvalRead:
    """What a log says of all its samples. `status` is the whole log's."""

    format: str
    harness: HarnessUsed
    model: ModelUsed
    task: str
    status: str
    limits: JSONObject = field(default_factory=dict)
    kept: JSONObject = field(default_factory=dict)


def read_eval(root: JSONObject) -> EvalRead | None:
    """The header of a log, None where it has none."""
    spec = root.get("eval")
    if not isinstance(spec, dict):
        return None
    plan = mapping(root.get("plan"))
    solver = {name: spec[name] for name in ("solver", "solver_args", "sandbox") if spec.get(name)}
    config = mapping(spec.get("config"))
    shared = _without_instances(plan)
    provider, _, name = text(spec.get("model")).partition("/")
    sampling = {**mapping(plan.get("config")), **mapping(spec.get("model_generate_config"))}
    kept = without_credentials({"eval": without(spec, *_READ_OF_EVAL), "status": root.get("status")})
    if root.get("error"):
        kept["error"] = root["error"]
    if shared != plan:
        kept["plan"] = without_credentials(plan)
    return EvalRead(
        format=f"inspect-{count(root.get('version')) or 2}",
        harness=HarnessUsed(
            name="inspect_ai",
            version=text(mapping(spec.get("packages")).get("inspect_ai")),
            config=without_credentials({**solver, **({"plan": shared} if shared else {})}),
        ),
        model=ModelUsed(
            name=name or provider,
            provider=provider if name else "",
            base_url=text(spec.get("model_base_url")),
            sampling={key: value for key, value in sampling.items() if value is not None},
        ),
        task=text(spec.get("task")),
        status=text(root.get("status")),
        limits={key: value for key, value in config.items() if key.endswith("_limit") and value is not None},
        kept=kept,
    )


def read_sample(header: EvalRead, sample: JSONObject, origin: Origin) -> Trajectory:
    """
    Raises:
        RecursionError: nested too deeply.
    """
    attachments = Attachments(sample.get("attachments"))
    found = _conversation(sample, attachments)
    notes = list(found.notes)
    instance_id = _instance_id(header, sample, notes)
    gradings = read_scores(sample, attachments, notes)
    output = attachments.resolved(mapping(sample.get("output")))
    reason, native = _ending(header, sample, output, bool(gradings), notes)
    if attachments.missing:
        notes.append(
            Note(
                kind="missing", field="attachments", detail=f"{len(attachments.missing)} texts are not there"
            )
        )
    model = header.model
    events_at = list(_times(sample))
    turns = found.frozen()
    return Trajectory(
        origin=origin,
        harness=header.harness,
        model=ModelUsed(
            name=model.name,
            provider=model.provider,
            base_url=model.base_url,
            sampling={**model.sampling, **found.sampling},
        ),
        instance_id=instance_id,
        statement=_statement(attachments.resolved(sample.get("input"))),
        task_kept=_task_kept(attachments.resolved(without(sample, "events", "messages", "attachments"))),
        seed=count(sample.get("epoch")) or None,
        opening=tuple(found.opening),
        tools=tuple(found.tools),
        items=turns,
        exit_reason=reason,
        native_reason=native,
        error=_error(sample),
        final_message=_final_message(output, turns),
        started_at=moment(sample.get("started_at")) or min(events_at, default=None),
        ended_at=moment(sample.get("completed_at")) or max(events_at, default=None),
        totals=_totals(sample),
        gradings=gradings,
        limits={**header.limits, **_limits(sample)},
        notes=collapsed(notes),
        kept=_kept(header, sample, attachments),
    )


def _conversation(sample: JSONObject, attachments: Attachments) -> Conversation:
    reader = EventReader(sample, attachments)
    found = reader.read(sample.get("events"))
    if any(isinstance(item, Turn) for item in found.frozen()):
        if elsewhere := reader.finish(sample.get("messages")):
            kept: JSONObject = {"messages": elsewhere}
            found.items.append(Aside(name="messages that no event holds", kept=kept))
        return found
    output = attachments.resolved(mapping(sample.get("output")))
    from_log = from_messages(sample.get("messages"), output, attachments)
    if not items(sample.get("events")):
        from_log.notes.append(
            Note(kind="missing", field="events", detail="read from the messages: times and usage of calls")
        )
    # What else happened is known without its place among the messages.
    from_log.items.extend(found.items)
    from_log.notes.extend(found.notes)
    from_log.tools, from_log.sampling = found.tools, found.sampling
    return from_log


def _instance_id(header: EvalRead, sample: JSONObject, notes: list[Note]) -> str:
    """A data set's own id; one that only counts its samples gets the task's name before it."""
    found = sample.get("id")
    number = count(found)
    if isinstance(found, str) and found and not found.isdecimal():
        return found
    if not isinstance(found, str) and number is None:
        notes.append(Note(kind="missing", field="id", detail="the sample has no id"))
        return ""
    joined = f"{header.task}/{number if number is not None else found}" if header.task else f"{found}"
    notes.append(Note(kind="guessed", field="id", detail="the task's name stands before a sample's number"))
    return joined


def _statement(given: Any) -> str:
    """The input's text: where it is a conversation, that of its last message from a user."""
    if isinstance(given, str):
        return given
    asked = [message for message in map(mapping, items(given)) if message.get("role") == "user"]
    return plain_text(read_content(asked[-1].get("content")).said) if asked else ""


def _task_kept(sample: JSONObject) -> JSONObject:
    names = ("target", "choices", "metadata", "files", "setup", "sandbox")
    found = {name: sample[name] for name in names if sample.get(name) not in (None, "", [], {})}
    if not isinstance(sample.get("input"), str) and sample.get("input"):
        found["input"] = sample["input"]
    return found


def _ending(
    header: EvalRead, sample: JSONObject, output: JSONObject, graded: bool, notes: list[Note]
) -> tuple[ExitReason | None, str]:
    """Why the sample ended, and Inspect's word for it."""
    limit = mapping(sample.get("limit")) or _limit_event(sample)
    if kind := text(limit.get("type")):
        if kind not in _LIMITS:
            notes.append(Note(kind="guessed", field="limit.type", detail=f"{kind} is no limit of the lab"))
        return _LIMITS.get(kind), kind
    if sample.get("error"):
        asked = any(text(event.get("error")) for event in _events(sample, "model"))
        return (ExitReason.LLM_QUERY_ERROR if asked else ExitReason.INTERNAL_ERROR), "error"
    stop = text(mapping(next(iter(items(output.get("choices"))), None)).get("stop_reason"))
    finished = graded or bool(sample.get("completed_at")) or header.status == "success"
    if not finished or stop not in _STOPS:
        return None, stop
    detail = "no limit and no error is recorded: the last answer's stop reason says why it ended"
    notes.append(Note(kind="guessed", field="limit", detail=detail))
    return _STOPS[stop], stop


def _events(sample: JSONObject, kind: str) -> Iterator[JSONObject]:
    for event in items(sample.get("events")):
        if isinstance(event, dict) and event.get("event") == kind:
            yield event


def _limit_event(sample: JSONObject) -> JSONObject:
    return next(_events(sample, "sample_limit"), {})


def _error(sample: JSONObject) -> str:
    error = sample.get("error")
    return text(mapping(error).get("message")) or text(error)


def _final_message(output: JSONObject, turns: tuple[Any, ...]) -> str:
    choice = mapping(next(iter(items(output.get("choices"))), None))
    said = plain_text(read_content(mapping(choice.get("message")).get("content")).said)
    if said:
        return said
    last = next((item for item in reversed(turns) if isinstance(item, Turn) and not item.agent), None)
    return plain_text(last.message.get("content")) if last is not None and not last.calls else ""


def _times(sample: JSONObject) -> Iterator[dt.datetime]:
    events = [event for event in items(sample.get("events")) if isinstance(event, dict)]
    for event in (*events[:1], *events[-1:]):
        for name in ("timestamp", "completed"):
            if (at := moment(event.get(name))) is not None:
                yield at


def _totals(sample: JSONObject) -> Totals:
    """The counts of all models of a sample together, where each of them says them."""
    raw = [usage for usage in mapping(sample.get("model_usage")).values() if isinstance(usage, dict)]
    usages = [usage_of(usage) for usage in raw]
    costs = [dollars(usage.get("total_cost")) for usage in raw]
    known_costs = [cost for cost in costs if cost is not None]
    return Totals(
        cost=sum(known_costs[1:], known_costs[0]) if known_costs and len(known_costs) == len(costs) else None,
        input_tokens=_sum([usage.input_total for usage in usages]),
        output_tokens=_sum([usage.output_total for usage in usages]),
        cached_tokens=_sum([usage.cache_read for usage in usages]),
        seconds=seconds(sample.get("total_time")),
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [number for number in counts if number is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _limits(sample: JSONObject) -> JSONObject:
    return {
        name: value for name, value in sample.items() if name.endswith("_limit") and count(value) is not None
    }


def _kept(header: EvalRead, sample: JSONObject, attachments: Attachments) -> JSONObject:
    left = without(sample, *_READ_OF_SAMPLE, "target", "choices", "metadata", "files", "setup", "sandbox")
    resolved = attachments.resolved(left)
    found = {name: value for name, value in resolved.items() if value not in (None, [], {}, "")}
    return {**header.kept, **({"sample": found} if found else {})}


def _without_instances(value: Any) -> Any:
    """A plan without the names of its tools' own instances, which are drawn anew for each log."""
    if isinstance(value, list):
        return [_without_instances(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without_instances(inner) for name, inner in value.items()}
    if found.get("type") == "tool" and isinstance(found.get("params"), dict):
        found["params"] = without(found["params"], "instance")
    return found
