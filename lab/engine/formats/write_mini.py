"""mini-swe-agent 1.1: one file a run, `<task>/<task>.traj.json` as that program names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.exported import (
    Exported,
    Member,
    Shape,
    graded,
    money,
    some,
    spent,
    told,
    words_of,
    written,
)
from lab.engine.formats.reading import mapping
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

VERSION = "mini-swe-agent-1.1"
_EXIT_STATUS: dict[ExitReason, str] = {
    ExitReason.AGENT: "Submitted",
    ExitReason.MAX_TURNS: "LimitsExceeded",
    ExitReason.MAX_COST: "LimitsExceeded",
    ExitReason.MAX_TOKENS_TOTAL: "LimitsExceeded",
    ExitReason.MAX_TIME: "TimeExceeded",
    ExitReason.MAX_CONTEXT_LEN: "LimitsExceeded",
    ExitReason.FORMAT_ERRORS: "RepeatedFormatError",
}
# The arguments that hold a command, by the tools of the lab's harnesses.
_COMMANDS = ("command", "cmd")


class MiniSweAgent:
    name = "mini-swe-agent"
    title = "mini-swe-agent 1.1"
    shape: Shape = "each"
    ending = ".traj.json"
    lost = (
        "calls of tools other than a shell have their arguments as JSON in the place of a command",
        "messages are all that were ever said; where they were rewritten stands in `info.trajectory_lab`",
        "the time of a message is that of its end; when a request was sent is not there",
        "the cost of the run is null where it is not known, which the program itself would write as 0",
        "changes of files, sandboxes, pauses and changed limits are only in the lab's own format",
    )

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        for run in runs:
            name = f"{run.file_name}/{run.file_name}.traj.json"
            yield Member(name, [(written(document(run)) + "\n").encode()])


def document(run: Exported) -> JSONObject:
    """The trajectory as a document of mini-swe-agent's."""
    found = run.trajectory
    messages = _Messages(found)
    return {
        "info": _info(run, messages),
        "messages": [*messages.done, *_exit(found)],
        "trajectory_format": VERSION,
        "instance_id": run.instance_id,
    }


def _info(run: Exported, messages: _Messages) -> JSONObject:
    found = run.trajectory
    amount = spent(found).amount
    calls = found.totals.calls if found.totals.calls is not None else len(found.turns)
    own = {
        "notes": told(found.notes, MiniSweAgent.lost),
        **run.facts(),
        "seed_recorded": found.seed,
        "gradings": [graded(one) for one in found.gradings],
        "partial": found.partial or None,
        "failed_requests": messages.failed,
        "rewritten": messages.rewritten,
        "asides": messages.asides,
        "kept": found.kept,
    }
    info: JSONObject = {
        "model_stats": {"instance_cost": None if amount is None else float(amount), "api_calls": calls},
        "config": _config(run),
        "mini_version": found.harness.version if run.trajectory.harness.name == "mini-swe-agent" else "",
        "exit_status": _status(found),
    }
    if found.patch is not None:
        info["submission"] = found.patch
    return info | some({"exception_str": found.error}) | {"trajectory_lab": some(own)}


def _config(run: Exported) -> JSONObject:
    """The configuration in its three sections. One that was recorded by the program is written as it was."""
    found = run.trajectory
    recorded = found.harness.config
    sections = ("agent", "model", "environment")
    own = found.origin.format.startswith("mini-swe-agent") and recorded.keys() <= set(sections)
    shared = recorded if own else {"agent": recorded}
    of_the_run = mapping(found.kept.get("config")) if own else {}
    config = {name: {**mapping(shared.get(name)), **mapping(of_the_run.get(name))} for name in sections}
    config["model"] |= {
        "model_name": found.model.name or run.model,
        "model_kwargs": {**mapping(config["model"].get("model_kwargs")), **found.model.sampling},
        **some({"tools": list(found.tools)}),
    }
    return config


def _status(found: Trajectory) -> str | None:
    """The program's own word for why the run ended, None where it is not known why or has not."""
    if found.native_reason and found.origin.format.startswith("mini-swe-agent"):
        return found.native_reason
    if found.exit_reason is None:
        return found.native_reason or None
    last = found.items[-1] if found.items else None
    if isinstance(last, FailedRequest) and last.error == "context_overflow":
        # There the program knows this limit only from a server that refused.
        return "ContextWindowExceededError"
    return _EXIT_STATUS.get(found.exit_reason) or found.native_reason or found.exit_reason.value


def _exit(found: Trajectory) -> list[JSONObject]:
    if found.partial:
        return []
    extra = {"exit_status": _status(found) or ""}
    if found.patch is not None:
        extra["submission"] = found.patch
    return [{"role": "exit", "content": found.patch or found.final_message, "extra": extra}]


class _Messages:
    """The conversation in order, and what joined no message, with its place among them."""

    def __init__(self, found: Trajectory) -> None:
        self.done: list[JSONObject] = [dict(message) for message in found.opening]
        self.failed: list[JSONObject] = []
        self.rewritten: list[JSONObject] = []
        self.asides: list[JSONObject] = []
        for item in found.items:
            self._item(item)

    def _item(self, item: Item) -> None:
        place = {"before_message": len(self.done)}
        match item:
            case Turn():
                self._turn(item)
            case Message():
                self.done.append({**item.message, **some({"extra": _extra_of_message(item)})})
            case FailedRequest():
                self.failed.append(
                    place | some({"error": item.error, "message": item.message, **_time(item.at)})
                )
            case Rewritten():
                new = {"reason": item.reason, "messages": list(item.messages), "kept": item.kept}
                self.rewritten.append(place | some(new))
            case Aside():
                self.asides.append(place | some({"name": item.name, "kept": item.kept}))

    def _turn(self, turn: Turn) -> None:
        message = dict(turn.message) or {"role": "assistant", "content": words_of(turn)}
        if turn.reasoning and "reasoning_content" not in message:
            message["reasoning_content"] = turn.reasoning
        actions = [{"command": _command(call), "tool_call_id": call.id} for call in turn.calls]
        extra = {
            "actions": actions,
            "response": _response(turn),
            "cost": None if (amount := money(turn).amount) is None else float(amount),
            **_time(turn.ended_at or turn.started_at),
            **some({"agent": turn.agent, "copied": turn.copied or None, "kept": turn.kept}),
            **({} if turn.message else {"left_out": True}),
        }
        self.done.append({**message, "extra": extra})
        self.done.extend(_result(call) for call in turn.calls if call.observation is not None)


def _extra_of_message(item: Message) -> JSONObject:
    interrupt = {"format_error": "FormatError"}.get(item.reason, "")
    if item.by == "person":
        interrupt = "UserInterruption"
    return some({"interrupt_type": interrupt, "reason": item.reason, "kept": item.kept, **_time(item.at)})


def _response(turn: Turn) -> JSONObject:
    """What is known of the server's answer, under its names."""
    usage = turn.usage
    counted = {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output_total,
        "total_tokens": usage.total,
        "prompt_tokens_details": some(
            {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
        ),
        "completion_tokens_details": some({"reasoning_tokens": usage.reasoning}),
    }
    choice = {"index": 0, "message": turn.message, "finish_reason": turn.finish_reason}
    return some(
        {
            "id": turn.response_id,
            "object": "chat.completion",
            "created": None if turn.started_at is None else int(turn.started_at.timestamp()),
            "model": turn.model,
            "choices": [choice] if turn.message else [],
            "usage": usage.raw or some(counted),
        }
    )


def _command(call: Call) -> str:
    for name in _COMMANDS:
        if isinstance(value := call.arguments.get(name), str):
            return value
    return f"{call.name} {written(call.arguments)}"


def _result(call: Call) -> JSONObject:
    message = call.message or {"role": "tool", "tool_call_id": call.id, "content": call.observation}
    extra: JSONObject = {
        "raw_output": call.observation if call.output is None else call.output,
        "returncode": call.exit_code,
        **_time(call.ended_at),
        **some({"kept": call.kept, "submitted": call.submitted or None}),
    }
    if call.timed_out:
        extra |= {"exception_type": "TimeoutExpired", "exception_info": "the command timed out"}
    elif call.failed:
        extra["exception_info"] = "the call failed"
    return {**message, "extra": extra}


def _time(at: Any) -> JSONObject:
    return {} if at is None else {"timestamp": at.timestamp()}
