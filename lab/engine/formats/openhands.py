"""OpenHands V0: `output.jsonl` of its evaluations, a run a line, and a trajectory as a list of events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats import openhands_v1_events as v1
from lab.engine.formats.base import Document, Probe
from lab.engine.formats.json_values import Value, found_in
from lab.engine.formats.leftovers import collapsed, parted, unread, without_credentials
from lab.engine.formats.openhands_events import Events
from lab.engine.formats.openhands_metrics import ByAnswer, total_cost
from lab.engine.formats.reading import count, items, mapping, text
from lab.engine.formats.trajectory import (
    Found,
    Grading,
    HarnessUsed,
    Item,
    ModelUsed,
    Note,
    Origin,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

_SAMPLING = ("temperature", "top_p", "top_k", "max_output_tokens", "reasoning_effort", "seed")
_LIMITS = ("max_iterations", "max_budget_per_task")
_OF_THE_RUN = ("start_time", "eval_output_dir")
# Words of the error with which a run ended. What none of them tells stays unknown.
_ENDINGS = (
    ("maximum iteration", ExitReason.MAX_TURNS),
    ("budget", ExitReason.MAX_COST),
    ("contextwindow", ExitReason.MAX_CONTEXT_LEN),
    ("context window", ExitReason.MAX_CONTEXT_LEN),
    ("litellm.", ExitReason.LLM_QUERY_ERROR),
    ("llmnoresponse", ExitReason.LLM_QUERY_ERROR),
    ("agentruntime", ExitReason.INFRASTRUCTURE_ERROR),
)


class OpenHands:
    name = "openhands"
    title = "OpenHands V0 output.jsonl"

    def recognises(self, probe: Probe) -> bool:
        return any(map(_is_run, (probe.root, *probe.objects))) or _is_history(probe.value)

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        return found_in(
            documents,
            lambda value: _is_run(value) or _is_history(value),
            _read,
            otherwise="is no run: no history beside an instance_id",
        )


def _is_run(value: Any) -> bool:
    root = mapping(value)
    has_history = isinstance(root.get("history"), list) and "instance_id" in root
    return has_history and ("test_result" in root or "agent_class" in mapping(root.get("metadata")))


def _is_history(value: Any) -> bool:
    first = [mapping(one) for one in items(value)[:5]]
    return bool(first) and all(
        "source" in one and ("action" in one or "observation" in one) and "timestamp" in one for one in first
    )


def _read(document: Document, value: Value) -> Trajectory:
    root: JSONObject = value.value if isinstance(value.value, dict) else {"history": value.value}
    metadata, metrics = mapping(root.get("metadata")), mapping(root.get("metrics"))
    by_answer = ByAnswer()
    by_answer.take(metrics)
    events = _events(root, by_answer)
    events.take(items(root.get("history")))
    found = _with_submission(events)
    notes = [*events.notes, *_remarks(root, events, by_answer)]
    error = text(root.get("error"))
    exit_reason, native = _ending(error, events.last_action, notes)
    result = mapping(root.get("test_result"))
    llm = mapping(metadata.get("llm_config"))
    return Trajectory(
        origin=Origin(
            format="openhands-v0" if isinstance(events, Events) else "openhands-v1",
            file=document.path,
            place=value.place,
            sha256=value.sha256,
        ),
        harness=HarnessUsed(
            name="OpenHands",
            version=text(events.system.get("openhands_version")),
            config=parted(_configuration(metadata), _OF_THE_RUN)[0],
        ),
        model=_model(llm),
        instance_id=text(root.get("instance_id")),
        statement=text(mapping(root.get("instance")).get("problem_statement"))
        or text(root.get("instruction")),
        task_kept=_task(root, result),
        opening=tuple(events.opening),
        tools=tuple(events.tools),
        items=found,
        exit_reason=exit_reason,
        native_reason=native,
        error=error,
        final_message=_final_message(found),
        patch=_patch(root, result),
        started_at=min(_times(found), default=None),
        ended_at=max(_times(found), default=None),
        totals=_totals(metrics),
        gradings=_gradings(root, result),
        limits={name: metadata[name] for name in _LIMITS if metadata.get(name) is not None},
        notes=collapsed(notes),
        kept=_kept(root, events, llm),
    )


def _events(root: JSONObject, by_answer: ByAnswer) -> Events | v1.Events:
    """Evaluations of V1 write the same lines around the events of V1."""
    first = items(root.get("history"))[:5]
    return v1.Events(by_answer) if any(map(v1.is_event, first)) else Events(by_answer)


def _with_submission(events: Events | v1.Events) -> tuple[Item, ...]:
    """The items, with the call that finished the run marked as such."""
    last = events.items[-1] if events.items else None
    if events.last_action != "finish" or not isinstance(last, Turn) or not last.calls:
        return tuple(events.items)
    calls = (*last.calls[:-1], dataclasses.replace(last.calls[-1], submitted=True))
    return (*events.items[:-1], dataclasses.replace(last, calls=calls))


def _remarks(root: JSONObject, events: Events | v1.Events, by_answer: ByAnswer) -> Iterator[Note]:
    if any(call.observation is not None for turn in _turns(events.items) for call in turn.calls):
        detail = "what the harness adds to an output for the model is not recorded"
        yield Note(kind="missing", field="history.content", detail=detail)
    if _times(events.items):
        detail = "times without a zone are taken as UTC, as the end of each answer"
        yield Note(kind="guessed", field="history.timestamp", detail=detail)
    unknown = by_answer.answers() - {turn.response_id for turn in _turns(events.items)}
    if unknown:
        detail = f"answers that the metrics count and the history does not hold: {len(unknown)}"
        yield Note(kind="missing", field="history", detail=detail)
    if not root.get("metrics"):
        yield Note(kind="missing", field="metrics")


def _turns(found: Sequence[Item]) -> list[Turn]:
    return [one for one in found if isinstance(one, Turn)]


def _times(found: Sequence[Item]) -> list[Any]:
    times = [one.ended_at if isinstance(one, Turn) else one.at for one in found]
    times += [call.ended_at for turn in _turns(found) for call in turn.calls]
    return [one for one in times if one is not None]


def _ending(error: str, last_action: str, notes: list[Note]) -> tuple[ExitReason | None, str]:
    if error:
        known = (reason for words, reason in _ENDINGS if words in error.lower())
        reason = next(known, None)
        if reason is None:
            notes.append(
                Note(kind="lost", field="error", detail="tells no reason that the lab has a word for")
            )
        return reason, error.partition("\n")[0][:200]
    if last_action in ("finish", "reject"):
        return ExitReason.AGENT, last_action
    notes.append(Note(kind="missing", field="error", detail="neither finished nor ended by an error"))
    return None, ""


def _configuration(metadata: JSONObject) -> JSONObject:
    found: JSONObject = without_credentials(unread(metadata, {"llm_config": dict}))
    return found


def _model(llm: JSONObject) -> ModelUsed:
    return ModelUsed(
        name=text(llm.get("model")),
        base_url=text(llm.get("base_url")),
        sampling={name: llm[name] for name in _SAMPLING if llm.get(name) is not None},
    )


def _final_message(found: Sequence[Item]) -> str:
    turns = _turns(found)
    if not turns or not turns[-1].calls:
        return text(turns[-1].message.get("content")) if turns else ""
    last = turns[-1].calls[-1]
    return text(last.arguments.get("message")) if last.submitted else ""


def _patch(root: JSONObject, result: JSONObject) -> str | None:
    patch = result.get("git_patch", root.get("git_patch"))
    return patch if isinstance(patch, str) else None


def _totals(metrics: JSONObject) -> Totals:
    tokens = mapping(metrics.get("accumulated_token_usage"))
    return Totals(
        cost=total_cost(metrics),
        input_tokens=count(tokens.get("prompt_tokens")),
        output_tokens=count(tokens.get("completion_tokens")),
        cached_tokens=count(tokens.get("cache_read_tokens")),
        calls=len(items(metrics.get("token_usages"))) or None,
    )


def _gradings(root: JSONObject, result: JSONObject) -> tuple[Grading, ...]:
    report = mapping(root.get("report")) or mapping(result.get("report"))
    if not isinstance(report.get("resolved"), bool):
        return ()
    outcome = Outcome.RESOLVED if report["resolved"] else Outcome.UNRESOLVED
    kept = unread(report, {"resolved": bool})
    if left := unread(result, {"git_patch": str, "report": dict}):
        kept["test_result"] = left
    return (Grading(rule="report", outcome=outcome, kept=kept),)


def _task(root: JSONObject, result: JSONObject) -> JSONObject:
    """What is recorded of the task, and what tests printed where there is no grading to keep it with."""
    kept = unread(mapping(root.get("instance")), {"problem_statement": str, "instance_id": str})
    left = unread(result, {"git_patch": str})
    return kept | ({"test_result": left} if left and not _gradings(root, result) else {})


def _kept(root: JSONObject, events: Events | v1.Events, llm: JSONObject) -> JSONObject:
    kept = unread(
        root,
        {
            "instance_id": str,
            "history": list,
            "metadata": dict,
            "metrics": dict,
            "error": str,
            "instance": dict,
            "instruction": str,
            "test_result": dict,
            "git_patch": str,
        },
    )
    said = [one.get("content") for one in events.opening]
    metrics = unread(
        mapping(root.get("metrics")),
        {"token_usages": list, "response_latencies": list, "accumulated_token_usage": dict},
    )
    parts = {
        "instruction": "" if root.get("instruction") in said else text(root.get("instruction")),
        "metrics": {name: value for name, value in metrics.items() if value not in (None, [], {})},
        "llm_config": without_credentials(
            {name: value for name, value in llm.items() if value is not None and name not in _SAMPLING}
        ),
        "system": events.system,
        "metadata": parted(_configuration(mapping(root.get("metadata"))), _OF_THE_RUN)[1],
    }
    return kept | {name: part for name, part in parts.items() if part}
