"""ATIF 1.8: one document a run, as the reference models take it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

from lab.engine.formats.exported import (
    Exported,
    Member,
    Shape,
    Spent,
    graded,
    money,
    own_money,
    some,
    spent,
    told,
    whole_sum,
    words_of,
    written,
)
from lab.engine.formats.reading import mapping, plain_text, without
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Item,
    Message,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject

VERSION = "ATIF-v1.8"
# The format has no name for "unknown", and wants one.
_UNKNOWN = "unknown"


class Atif:
    name = "atif"
    title = "ATIF 1.8"
    shape: Shape = "each"
    ending = ".atif.json"
    lost = (
        "failed requests stand in `extra` of the next answer of the model, and count in no metric of a step",
        "a rewritten history stands as a step of the system with the new messages in `extra`",
        "where each step's time is that of the end of the answer, its beginning stands in `extra`",
        "changes of files, sandboxes, pauses and changed limits are only in the lab's own format",
    )

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        for run in runs:
            yield Member(f"{run.file_name}.atif.json", [(written(document(run)) + "\n").encode()])


def document(run: Exported) -> JSONObject:
    """The trajectory as an ATIF document."""
    found = run.trajectory
    steps = _Steps(found)
    return {
        "schema_version": VERSION,
        "session_id": f"run-{run.run}",
        "trajectory_id": f"run-{run.run}-attempt-{run.attempt}",
        "agent": _agent(run),
        "steps": steps.written(),
        "notes": told(found.notes, Atif.lost),
        "final_metrics": _final_metrics(found, len(steps.done)),
        "extra": _extra(run) | some({"failed_requests": steps.failed, "asides": steps.asides}),
    }


def _agent(run: Exported) -> JSONObject:
    harness = run.trajectory.harness
    found = {
        "name": harness.name or run.harness or _UNKNOWN,
        "version": harness.version or run.harness_version or _UNKNOWN,
        "model_name": run.trajectory.model.name or run.model,
        "tool_definitions": list(run.trajectory.tools),
        "extra": some({"family": harness.family, "config": harness.config}),
    }
    return some(found)


def _extra(run: Exported) -> JSONObject:
    """What the format does not model. `instance_id` on top is what its readers look for."""
    found = run.trajectory
    own = {
        "instance_id": run.instance_id,
        "seed": found.seed,
        "exit_reason": found.exit_reason.value if found.exit_reason else "",
        "native_reason": found.native_reason,
        "error": found.error,
        "final_message": found.final_message,
        "statement": found.statement,
        "gradings": [graded(one) for one in found.gradings],
        "limits": found.limits,
        "sampling": found.model.sampling,
        "partial": found.partial or None,
        "steps_recorded": None if found.steps_recorded else False,
        "task": found.task_kept,
        "recorded_as": some({"format": found.origin.format, "sha256": found.origin.sha256}),
        "kept": found.kept,
        "trajectory_lab": run.facts(),
    }
    # An empty patch was recorded as empty.
    return some(own) | ({} if found.patch is None else {"patch": found.patch})


def _final_metrics(found: Trajectory, steps: int) -> JSONObject:
    turns, totals = found.turns, found.totals
    money_spent: Spent = spent(found)
    sums = {
        "total_prompt_tokens": totals.input_tokens,
        "total_completion_tokens": totals.output_tokens,
        "total_cached_tokens": totals.cached_tokens,
    }
    parts = {
        "total_prompt_tokens": [turn.usage.input_total for turn in turns],
        "total_completion_tokens": [turn.usage.output_total for turn in turns],
        "total_cached_tokens": [turn.usage.cache_read for turn in turns],
    }
    counts = {name: whole_sum(parts[name]) if value is None else value for name, value in sums.items()}
    extra = {
        "cost_source": money_spent.source,
        "requests_with_unknown_cost": money_spent.unknown_requests,
        "model_calls": totals.calls if totals.calls is not None else len(turns),
        "seconds": totals.seconds,
    }
    cost = None if money_spent.amount is None else float(money_spent.amount)
    return some({**counts, "total_cost_usd": cost, "total_steps": steps, "extra": some(extra)})


class _Steps:
    """Numbers steps, and puts what is no step where the format has room for it."""

    def __init__(self, found: Trajectory) -> None:
        self._atif = found.origin.format.startswith("ATIF")
        self.done: list[JSONObject] = []
        self.failed: list[JSONObject] = []
        self.asides: list[JSONObject] = []
        for message in found.opening:
            self._message(message, {})
        for item in found.items:
            self._item(item)

    def written(self) -> list[JSONObject]:
        return self.done

    def _add(self, source: str, at: dt.datetime | None, message: str, **fields: Any) -> None:
        step = {"step_id": len(self.done) + 1, "timestamp": _stamp(at), "source": source}
        self.done.append(some(step) | {"message": message} | some(fields))

    def _item(self, item: Item) -> None:
        match item:
            case Turn():
                self._turn(item)
            case Message():
                extra = some({"by": item.by, "reason": item.reason, "kept": item.kept})
                self._message(item.message, extra, item.at)
            case FailedRequest():
                self.failed.append(_failed(item))
            case Rewritten():
                new = some({"reason": item.reason, "messages": list(item.messages), "kept": item.kept})
                self._add(
                    "system", item.at, "The conversation was rewritten.", extra={"history_rewritten": new}
                )
            case Aside():
                aside = {"after_step": len(self.done), "name": item.name, "at": _stamp(item.at)}
                self.asides.append(some(aside | {"kept": item.kept}))

    def _message(self, message: JSONObject, extra: JSONObject, at: dt.datetime | None = None) -> None:
        """A message of the conversation. What the format has no role or field for stands in `extra`."""
        role = message.get("role")
        source = "system" if role in ("system", "developer") else "user"
        more = {} if role in ("system", "user") else {"role": role}
        content = message.get("content")
        more |= without(message, "role", "content") | _unsaid(content)
        self._add(source, at, plain_text(content), extra=extra | some({"message": more}))

    def _turn(self, turn: Turn) -> None:
        extra = _extra_of_turn(turn, atif=self._atif)
        if self.failed:
            extra["failed_requests"], self.failed = self.failed, []
        results = [_result(call) for call in turn.calls if call.observation is not None]
        self._add(
            "agent",
            turn.ended_at or turn.started_at,
            words_of(turn),
            model_name=turn.model,
            reasoning_content=turn.reasoning,
            tool_calls=[_call(call) for call in turn.calls],
            observation={"results": results} if results else None,
            metrics=_metrics(turn),
            llm_call_count=1,
            is_copied_context=turn.copied or None,
            extra=extra,
        )


def _stamp(at: dt.datetime | None) -> str:
    return at.isoformat() if at is not None else ""


def _unsaid(content: Any) -> JSONObject:
    """The content as it stands, where it is more than its text."""
    return {} if content is None or isinstance(content, str) else {"content_parts": content}


def _extra_of_turn(turn: Turn, *, atif: bool) -> JSONObject:
    kept = turn.kept
    extra: JSONObject = {}
    if atif:
        # What an ATIF document had in this place stands there again.
        extra, kept = dict(mapping(kept.get("extra"))), without(kept, "extra")
    rest = without(turn.message, "role", "content", "tool_calls", "reasoning_content")
    own = {
        "finish_reason": turn.finish_reason,
        "response_id": turn.response_id,
        "seconds": turn.seconds,
        "first_token_seconds": turn.first_token_seconds,
        "started_at": _stamp(turn.started_at) if turn.ended_at else "",
        "agent": turn.agent,
        "message": rest | _unsaid(turn.message.get("content")),
        "calls_in_text": bool(turn.calls) and not turn.message.get("tool_calls") or None,
        "kept": kept,
    }
    return extra | some(own)


def _call(call: Call) -> JSONObject:
    extra = {
        "raw_arguments": call.raw_arguments,
        "malformed": call.malformed,
        "synthesised_id": call.synthesised_id or None,
        "started_at": _stamp(call.started_at),
        "kept": call.kept,
    }
    made = {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments}
    return made | some({"extra": some(extra)})


def _result(call: Call) -> JSONObject:
    content = call.message.get("content")
    extra = {
        "exit_code": call.exit_code,
        "failed": call.failed or None,
        "timed_out": call.timed_out or None,
        "submitted": call.submitted or None,
        "seconds": call.seconds,
        "ended_at": _stamp(call.ended_at),
        "output": call.output,
        # As it joined the conversation, where that is more than what the model saw of the result.
        "message": call.message if call.message and content != call.observation else {},
        "role": "" if call.message.get("role") == "tool" else call.message.get("role"),
    }
    made = {"source_call_id": call.id, "content": call.observation}
    return made | some({"extra": some(extra)})


def _metrics(turn: Turn) -> JSONObject:
    usage, said = turn.usage, money(turn)
    own = own_money(turn)
    extra = {
        "reasoning_tokens": usage.reasoning,
        "cache_creation_input_tokens": usage.cache_write,
        "usage_source": "" if usage.source == "absent" else usage.source,
        "cost_source": said.source,
        "cost_usd_by_lab_prices": None if own is None else float(own),
    }
    metrics = {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output_total,
        "cached_tokens": usage.cache_read,
        "cost_usd": None if said.amount is None else float(said.amount),
        "extra": some(extra),
    }
    return some(metrics)


def _failed(item: FailedRequest) -> JSONObject:
    said = money(item)
    fields = {
        "error": item.error,
        "message": item.message,
        "status": item.status,
        "at": _stamp(item.at),
        "seconds": item.seconds,
        "prompt_tokens": item.usage.input_total,
        "completion_tokens": item.usage.output_total,
        "cost_usd": None if said.amount is None else float(said.amount),
        "kept": item.kept,
    }
    return some(fields)
