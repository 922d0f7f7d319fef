"""What the lab itself wrote into `extra` of an ATIF document, put back into its place."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import ValidationError

from lab.engine.errors import ExitReason
from lab.engine.formats.reading import count, dollars, items, mapping, moment, number, seconds, text, without
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    Note,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.verify.base import Outcome, TestOutcome

_OF_RUN = (
    "seed", "exit_reason", "native_reason", "error", "final_message", "statement", "gradings", "limits",
    "sampling", "steps_recorded", "task", "kept", "patch", "instance_id", "failed_requests", "asides",
    "partial",
)  # fmt: skip
_OF_TURN = (
    "finish_reason", "response_id", "seconds", "first_token_seconds", "started_at", "agent", "message",
    "calls_in_text", "kept", "failed_requests",
)  # fmt: skip
_OF_CALL = ("raw_arguments", "malformed", "synthesised_id", "started_at", "kept")
_OF_RESULT = (
    "exit_code", "failed", "timed_out", "submitted", "seconds", "ended_at", "output", "message", "role",
)  # fmt: skip
_OF_METRICS = (
    "reasoning_tokens", "cache_creation_input_tokens", "usage_source", "cost_source",
    "cost_usd_by_lab_prices",
)  # fmt: skip


def is_own(root: JSONObject) -> bool:
    return "trajectory_lab" in mapping(root.get("extra"))


def restored(found: Trajectory, root: JSONObject) -> Trajectory:
    """A trajectory that was read from a document of the lab's own, with what the format has no place for."""
    extra = mapping(root.get("extra"))
    opening, all_items = _conversation(found, extra)
    notes = [note for note in found.notes if note.field != "statement"]
    agent = mapping(mapping(root.get("agent")).get("extra"))
    metrics = mapping(mapping(root.get("final_metrics")).get("extra"))
    cost = found.totals.cost if metrics.get("cost_source") == "reported" else None
    kept = without(found.kept, "extra", "opening", "final_metrics") | mapping(extra.get("kept"))
    named = "" if found.harness.name == "unknown" else found.harness.name
    version = "" if found.harness.version == "unknown" else found.harness.version
    return dataclasses.replace(
        found,
        harness=HarnessUsed(
            name=named, version=version, family=text(agent.get("family")), config=mapping(agent.get("config"))
        ),
        model=dataclasses.replace(found.model, sampling=mapping(extra.get("sampling"))),
        statement=text(extra.get("statement")),
        task_kept=mapping(extra.get("task")),
        seed=count(extra.get("seed")) or None,
        opening=tuple(opening),
        items=tuple(all_items),
        exit_reason=_exit_reason(extra),
        native_reason=text(extra.get("native_reason")),
        error=text(extra.get("error")),
        final_message=text(extra.get("final_message")),
        patch=extra["patch"] if isinstance(extra.get("patch"), str) else None,
        gradings=tuple(_gradings(items(extra.get("gradings")), notes)),
        limits=mapping(extra.get("limits")),
        steps_recorded=extra.get("steps_recorded") is not False,
        totals=dataclasses.replace(found.totals, cost=cost),
        notes=tuple(notes),
        kept=kept | without(extra, *_OF_RUN),
    )


def _exit_reason(extra: JSONObject) -> ExitReason | None:
    named = text(extra.get("exit_reason"))
    return ExitReason(named) if named in set(ExitReason) else None


def _conversation(found: Trajectory, extra: JSONObject) -> tuple[list[JSONObject], list[Item]]:
    """Each step is one message of the opening or one item; what is neither stands between by its number."""
    asides: dict[int, list[Item]] = {}
    for one in items(extra.get("asides")):
        aside = mapping(one)
        made = Aside(
            name=text(aside.get("name")), kept=mapping(aside.get("kept")), at=moment(aside.get("at"))
        )
        asides.setdefault(count(aside.get("after_step")) or 0, []).append(made)
    opening: list[JSONObject] = []
    all_items: list[Item] = list(asides.pop(0, []))
    kept_of_opening = mapping(found.kept.get("opening"))
    step = 0
    for message in found.opening:
        step += 1
        kept = mapping(kept_of_opening.get(str(step)))
        spoken = _message(Message(message=message, at=moment(kept.get("timestamp")), kept=kept))
        if isinstance(spoken, Message) and "by" not in mapping(kept.get("extra")):
            opening.append(spoken.message)
        else:
            all_items.append(spoken)
        all_items += asides.pop(step, [])
    for item in found.items:
        step += 1
        all_items += _item(item)
        all_items += asides.pop(step, [])
    all_items += [aside for left in asides.values() for aside in left]
    all_items += [_failed(mapping(one)) for one in items(extra.get("failed_requests"))]
    return opening, all_items


def _item(item: Item) -> list[Item]:
    if isinstance(item, Message):
        return [_message(item)]
    if not isinstance(item, Turn):
        return [item]
    failed = items(mapping(item.kept.get("extra")).get("failed_requests"))
    return [*(_failed(mapping(one)) for one in failed), _turn(item)]


def _message(item: Message) -> Message | Rewritten:
    extra = mapping(item.kept.get("extra"))
    rewritten = mapping(extra.get("history_rewritten"))
    if rewritten:
        messages = (one for one in items(rewritten.get("messages")) if isinstance(one, dict))
        return Rewritten(
            reason=text(rewritten.get("reason")),
            messages=tuple(messages),
            at=item.at,
            kept=mapping(rewritten.get("kept")),
        )
    by: Any = "person" if extra.get("by") == "person" else "harness"
    rest = without(extra, "by", "reason", "kept", "message")
    kept = mapping(extra.get("kept")) | ({"extra": rest} if rest else {})
    kept |= without(item.kept, "extra", "timestamp")
    message = _whole(item.message, mapping(extra.get("message")))
    return Message(message=message, by=by, reason=text(extra.get("reason")), at=item.at, kept=kept)


def _whole(message: JSONObject, more: JSONObject) -> JSONObject:
    """A message with the fields, parts and role that the format has no place for."""
    found = message | without(more, "content_parts")
    return found | ({"content": more["content_parts"]} if "content_parts" in more else {})


def _turn(turn: Turn) -> Turn:
    extra = mapping(turn.kept.get("extra"))
    metrics = mapping(mapping(turn.kept.get("metrics")).get("extra"))
    kept = mapping(extra.get("kept"))
    rest = without(extra, *_OF_TURN)
    kept = kept | ({"extra": rest} if rest else {}) | without(turn.kept, "extra", "metrics", "llm_call_count")
    calls = tuple(_call(call) for call in turn.calls)
    message = _whole(turn.message, mapping(extra.get("message")))
    if extra.get("calls_in_text") is True:
        message = without(message, "tool_calls")
    elif calls and "tool_calls" in message:
        message = message | {"tool_calls": [_told(call) for call in calls]}
    started, ended = moment(extra.get("started_at")), turn.ended_at
    return dataclasses.replace(
        turn,
        message={} if "left_out_reply" in kept else message,
        calls=calls,
        finish_reason=text(extra.get("finish_reason")),
        response_id=text(extra.get("response_id")),
        usage=_usage(turn.usage, metrics),
        cost_reported=turn.cost_reported if metrics.get("cost_source") == "reported" else None,
        started_at=started,
        ended_at=ended,
        seconds=seconds(extra.get("seconds")),
        first_token_seconds=seconds(extra.get("first_token_seconds")),
        agent=text(extra.get("agent")),
        kept=kept | _beside(metrics),
    )


def _beside(metrics: JSONObject) -> JSONObject:
    rest = without(metrics, *_OF_METRICS)
    return {"metrics": {"extra": rest}} if rest else {}


def _usage(usage: Usage, metrics: JSONObject) -> Usage:
    source = text(metrics.get("usage_source"))
    return usage.model_copy(update={"source": source}) if source in ("provider", "estimated") else usage


def _told(call: Call) -> JSONObject:
    arguments = call.raw_arguments or json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _call(call: Call) -> Call:
    extra, result = mapping(call.kept.get("extra")), mapping(call.kept.get("result"))
    of_result = mapping(result.get("extra"))
    kept = mapping(extra.get("kept"))
    for name, rest in (("extra", without(extra, *_OF_CALL)), ("result", without(of_result, *_OF_RESULT))):
        kept = kept | ({name: rest} if rest else {})
    message = mapping(of_result.get("message")) or call.message
    if message and text(of_result.get("role")):
        message = without(message, "tool_call_id") | {"role": of_result["role"]}
    code = number(of_result.get("exit_code"))
    return dataclasses.replace(
        call,
        raw_arguments=text(extra.get("raw_arguments")),
        malformed=text(extra.get("malformed")),
        synthesised_id=extra.get("synthesised_id") is True,
        message=message,
        output=of_result["output"] if isinstance(of_result.get("output"), str) else None,
        exit_code=int(code) if code is not None and abs(code) < 2**31 else None,
        failed=of_result.get("failed") is True,
        timed_out=of_result.get("timed_out") is True,
        submitted=of_result.get("submitted") is True,
        started_at=moment(extra.get("started_at")),
        ended_at=moment(of_result.get("ended_at")),
        seconds=seconds(of_result.get("seconds")),
        kept=kept,
    )


def _failed(failed: JSONObject) -> FailedRequest:
    status = count(failed.get("status"))
    usage = Usage(
        input_total=count(failed.get("prompt_tokens")), output_total=count(failed.get("completion_tokens"))
    )
    known = usage.input_total is not None or usage.output_total is not None
    return FailedRequest(
        error=text(failed.get("error")),
        message=text(failed.get("message")),
        status=status,
        usage=usage.model_copy(update={"source": "provider"}) if known else usage,
        cost_reported=dollars(failed.get("cost_usd")),
        at=moment(failed.get("at")),
        seconds=seconds(failed.get("seconds")),
        kept=mapping(failed.get("kept")),
    )


def _gradings(given: list[Any], notes: list[Note]) -> list[Grading]:
    found: list[Grading] = []
    for place, one in enumerate(given):
        said = mapping(one)
        try:
            tests = tuple(TestOutcome.model_validate(test) for test in items(said.get("tests")))
            outcome = Outcome(text(said.get("outcome")))
        except (ValidationError, ValueError):
            detail = "no verdict as the lab writes it"
            notes.append(Note(kind="lost", field=f"extra.gradings.{place}", detail=detail))
            continue
        rewards = {
            name: value for name, value in mapping(said.get("rewards")).items() if number(value) is not None
        }
        found.append(
            Grading(
                rule=text(said.get("rule")),
                outcome=outcome,
                tests=tests,
                rewards={name: float(value) for name, value in rewards.items()},
                detail=text(said.get("detail")),
                log=text(said.get("log")),
                seconds=seconds(said.get("seconds")),
                kept=mapping(said.get("kept")),
            )
        )
    return found
