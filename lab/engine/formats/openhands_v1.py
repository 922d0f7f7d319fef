"""OpenHands V1: the events of a conversation, one a line, or a file each in a folder beside its state."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe
from lab.engine.formats.json_values import values_in
from lab.engine.formats.leftovers import collapsed, parted, unread, without_credentials
from lab.engine.formats.openhands_metrics import ByAnswer, total_cost
from lab.engine.formats.openhands_v1_events import Events, is_event, metrics_in
from lab.engine.formats.reading import count, items, mapping, plain_text, text
from lab.engine.formats.trajectory import (
    Found,
    HarnessUsed,
    Item,
    ModelUsed,
    Note,
    Origin,
    Problem,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject

_SAMPLING = ("temperature", "top_p", "top_k", "max_output_tokens", "reasoning_effort", "seed")
# By the code of the error that broke the conversation off.
_ERRORS = (
    ("MaxIterations", ExitReason.MAX_TURNS),
    ("Budget", ExitReason.MAX_COST),
    ("ContextWindow", ExitReason.MAX_CONTEXT_LEN),
    ("LLM", ExitReason.LLM_QUERY_ERROR),
    ("Workspace", ExitReason.INFRASTRUCTURE_ERROR),
)
# Of what an agent is told beside its prompt.
_OF_THE_RUN = ("current_datetime",)
_NUMBER = re.compile(r"\d+")


class OpenHandsV1:
    name = "openhands-v1"
    title = "OpenHands V1 events"

    def recognises(self, probe: Probe) -> bool:
        first = items(probe.value)[:5]
        return (
            is_event(probe.root)
            or _is_state(probe.root)
            or any(map(is_event, probe.objects))
            or (bool(first) and all(map(is_event, first)))
        )

    def grouping(self, document: Document, probe: Probe) -> str:
        """Events in a folder of files belong together, with the state beside or above them."""
        if probe.kind == "json" and (is_event(probe.root) or _is_state(probe.root)):
            folder = document.folder
            above, _, name = folder.rpartition("/")
            return f"{above if name == 'events' else folder}/conversation"
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        events: list[Any] = []
        state: JSONObject = {}
        digest = hashlib.sha256()
        ordered = sorted(documents, key=_number)
        for document in ordered:
            try:
                for value in values_in(document):
                    if value.problem:
                        yield Problem(file=document.path, place=value.place, message=value.problem)
                    elif _is_state(value.value):
                        state = value.value
                    else:
                        events += value.value if isinstance(value.value, list) else [value.value]
            except FormatError as error:
                if len(documents) == 1:
                    raise
                yield Problem(file=document.path, place="", message=str(error))
                continue
            digest.update(document.sha256().encode())
        if not events and not state:
            return
        whole = ordered[0].sha256() if len(ordered) == 1 else digest.hexdigest()
        try:
            yield _trajectory(ordered[0].path, whole, events, state)
        except RecursionError:
            yield Problem(file=ordered[0].path, place="", message="is nested too deeply")


def _number(document: Document) -> tuple[int, str]:
    """Files of events are numbered; the state, which has no number, comes first."""
    found = _NUMBER.search(document.name)
    return (int(found.group()[:18]) if found else -1, document.path)


def _is_state(value: Any) -> bool:
    root = mapping(value)
    agent = mapping(root.get("agent"))
    return isinstance(agent.get("llm"), dict) and ("execution_status" in root or "persistence_dir" in root)


def _trajectory(file: str, sha256: str, given: list[Any], state: JSONObject) -> Trajectory:
    by_answer = ByAnswer()
    for metrics in metrics_in(state).values():
        by_answer.take(mapping(metrics))
    events = Events(by_answer)
    events.take(given)
    state = state or events.state
    events.counted.added(metrics_in(state))
    notes = [*events.notes, *_remarks(events)]
    status = text(state.get("execution_status")) or events.status
    exit_reason, native = _ending(status, events, notes)
    found = _with_submission(events.items) if exit_reason is ExitReason.AGENT else tuple(events.items)
    statement = next((one for one in events.opening if one.get("role") == "user"), {})
    if statement:
        notes.append(Note(kind="guessed", field="statement", detail="the first message of the user"))
    times = _times(found)
    agent = mapping(state.get("agent"))
    return Trajectory(
        origin=Origin(format="openhands-v1", file=file, sha256=sha256),
        harness=HarnessUsed(
            name="OpenHands",
            version=text(state.get("version")) or text(agent.get("version")),
            config=_parted(agent)[0],
        ),
        model=_model(mapping(agent.get("llm")), events),
        statement=plain_text(statement.get("content")),
        opening=tuple(events.opening),
        tools=tuple(events.tools),
        items=found,
        exit_reason=exit_reason,
        native_reason=native,
        error=text(events.error.get("detail")),
        final_message=_final_message(found),
        started_at=min(times, default=None),
        ended_at=max(times, default=None),
        totals=_totals(events),
        limits={"max_iterations": state["max_iterations"]} if count(state.get("max_iterations")) else {},
        notes=collapsed(notes),
        kept=_kept(state, events),
    )


def _remarks(events: Events) -> Iterator[Note]:
    turns = [one for one in events.items if isinstance(one, Turn)]
    if any(call.observation is not None for turn in turns for call in turn.calls):
        detail = "what the harness adds to an output for the model is not recorded"
        yield Note(kind="missing", field="observation.content", detail=detail)
    if _times(events.items):
        detail = "times without a zone are taken as UTC, as the end of each answer"
        yield Note(kind="guessed", field="timestamp", detail=detail)
    if any(turn.usage.total is not None for turn in turns):
        detail = "from running totals where no count names its answer"
        yield Note(kind="guessed", field="usage", detail=detail)


def _ending(status: str, events: Events, notes: list[Note]) -> tuple[ExitReason | None, str]:
    code = text(events.error.get("code"))
    if code and status != "finished":
        reason = next((reason for words, reason in _ERRORS if words in code), None)
        if reason is None:
            notes.append(
                Note(kind="lost", field="code", detail=f"{code!r} is no reason that the lab has a word for")
            )
        return reason, code
    if status == "finished":
        return ExitReason.AGENT, status
    if not status and events.last_action == "finish":
        return ExitReason.AGENT, "finish"
    detail = f"{status!r} does not say why it ended" if status else ""
    notes.append(Note(kind="missing", field="execution_status", detail=detail))
    return None, status


def _with_submission(found: list[Item]) -> tuple[Item, ...]:
    """The items, with the last call that finished marked as such."""
    for place in range(len(found) - 1, -1, -1):
        turn = found[place]
        if not isinstance(turn, Turn):
            continue
        if turn.calls and turn.calls[-1].name == "finish":
            calls = (*turn.calls[:-1], dataclasses.replace(turn.calls[-1], submitted=True))
            return (*found[:place], dataclasses.replace(turn, calls=calls), *found[place + 1 :])
        break
    return tuple(found)


def _final_message(found: Sequence[Item]) -> str:
    last = next((one for one in reversed(found) if isinstance(one, Turn)), None)
    if last is None:
        return ""
    if not last.calls:
        return plain_text(last.message.get("content"))
    return text(last.calls[-1].arguments.get("message")) if last.calls[-1].submitted else ""


def _times(found: Sequence[Item]) -> list[Any]:
    times: list[Any] = []
    for one in found:
        times.append(one.ended_at if isinstance(one, Turn) else one.at)
        times += [call.ended_at for call in one.calls] if isinstance(one, Turn) else []
    return [time for time in times if time is not None]


def _model(llm: JSONObject, events: Events) -> ModelUsed:
    counted = (text(metrics.get("model_name")) for metrics in events.counted.last.values())
    return ModelUsed(
        name=text(llm.get("model")) or next((name for name in counted if name), ""),
        base_url=text(llm.get("base_url")),
        sampling={name: llm[name] for name in _SAMPLING if llm.get(name) is not None},
    )


def _totals(events: Events) -> Totals:
    """The last totals, summed over what is counted apart: the agent's model, the condenser's."""
    metrics = list(events.counted.last.values())
    costs = [cost for one in metrics if (cost := total_cost(one)) is not None]
    tokens = [mapping(one.get("accumulated_token_usage")) for one in metrics]

    def summed(name: str) -> int | None:
        known = [found for one in tokens if (found := count(one.get(name))) is not None]
        return sum(known) if known else None

    return Totals(
        cost=sum(costs, Decimal(0)) if costs else None,
        input_tokens=summed("prompt_tokens"),
        output_tokens=summed("completion_tokens"),
        cached_tokens=summed("cache_read_tokens"),
    )


def _parted(agent: JSONObject) -> tuple[JSONObject, JSONObject]:
    """The agent's configuration, and what its context says of this conversation alone."""
    config: JSONObject = without_credentials(unread(agent, {"llm": dict}))
    context, of_the_run = parted(mapping(config.get("agent_context")), _OF_THE_RUN)
    return config | ({"agent_context": context} if of_the_run else {}), of_the_run


def _kept(state: JSONObject, events: Events) -> JSONObject:
    kept = without_credentials(
        unread(state, {"agent": dict, "max_iterations": int, "execution_status": str, "stats": dict})
    )
    agent = mapping(state.get("agent"))
    llm = without_credentials(unread(mapping(agent.get("llm")), {"model": str}))
    context = _parted(agent)[1]
    parts = {"state": kept, "llm": llm, "agent_context": context, "system": events.system}
    return {name: part for name, part in parts.items() if part}
