"""SWE-agent's `.traj` files: 0.6, 0.7, 1.x, and those that hold a conversation alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Probe, parsed
from lab.engine.formats.json_values import Value, found_in
from lab.engine.formats.leftovers import collapsed, unread, without_credentials
from lab.engine.formats.reading import count, dollars, items, mapping, text, without
from lab.engine.formats.swe_agent_steps import Steps
from lab.engine.formats.trajectory import Found, HarnessUsed, ModelUsed, Note, Origin, Totals, Trajectory
from lab.engine.llm.base import JSONObject

_EXITS = {
    "submitted": ExitReason.AGENT,
    "exit_command": ExitReason.AGENT,
    "exit_forfeit": ExitReason.AGENT,
    "exit_total_execution_time": ExitReason.MAX_TIME,
    "exit_command_timeout": ExitReason.MAX_TIME,
    "exit_context": ExitReason.MAX_CONTEXT_LEN,
    "exit_cost": ExitReason.MAX_COST,
    "exit_format": ExitReason.FORMAT_ERRORS,
    "exit_api": ExitReason.LLM_QUERY_ERROR,
    "exit_environment_error": ExitReason.INFRASTRUCTURE_ERROR,
    "exit_error": ExitReason.INTERNAL_ERROR,
}
_LIMITS = ("per_instance_cost_limit", "per_instance_call_limit", "total_cost_limit", "max_input_tokens")
_TOOL_LIMITS = ("execution_timeout", "total_execution_timeout", "max_consecutive_execution_timeouts")
_SAMPLING = ("temperature", "top_p", "max_output_tokens", "completion_kwargs")
# The names of environments that name no task.
_NO_TASK = frozenset({"", "main", "swe_main"})


class SweAgent:
    name = "swe-agent"
    title = "SWE-agent .traj"

    def recognises(self, probe: Probe) -> bool:
        return is_trajectory(probe.root) or any(map(is_trajectory, probe.objects))

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        return found_in(
            documents, is_trajectory, _read, otherwise="holds neither a trajectory with info nor a history"
        )


def is_trajectory(value: Any) -> bool:
    root = mapping(value)
    if "trajectory_format" in root or "schema_version" in root:
        return False
    if isinstance(root.get("trajectory"), list) and ("info" in root or "history" in root):
        return True
    history = [one for one in items(root.get("history"))[:10] if isinstance(one, dict)]
    return any("role" in one and ("message_type" in one or "agent" in one) for one in history)


class _Configuration(NamedTuple):
    """What `replay_config` says, as text or as an object; `problem` why it could not be read."""

    root: JSONObject
    problem: str

    @property
    def agent(self) -> JSONObject:
        return mapping(self.root.get("agent"))

    @property
    def model(self) -> JSONObject:
        return mapping(self.agent.get("model"))

    @property
    def tools(self) -> JSONObject:
        return mapping(self.agent.get("tools"))

    @property
    def task(self) -> JSONObject:
        return mapping(self.root.get("problem_statement"))


def _configuration(value: Any) -> _Configuration:
    if isinstance(value, str):
        try:
            value = parsed(value)
        except (ValueError, RecursionError) as error:
            return _Configuration({}, f"is not JSON: {error}")
    if value is not None and not isinstance(value, dict):
        return _Configuration({}, f"is a {type(value).__name__} and no object")
    return _Configuration(without_credentials(value or {}), "")


def _read(document: Document, value: Value) -> Trajectory:
    root: JSONObject = value.value
    info = mapping(root.get("info"))
    configuration = _configuration(root.get("replay_config"))
    status = text(info.get("exit_status"))
    steps = Steps(items(root.get("history")), items(root.get("trajectory")))
    steps.take(submitted=status == "submitted")
    notes = list(steps.notes)
    if configuration.problem:
        notes.append(Note(kind="lost", field="replay_config", detail=configuration.problem))
    others = len(items(root.get("attempts")))
    if others:
        detail = f"{others} attempts of an agent that tries again: the best one is the run, all are shown raw"
        notes.append(Note(kind="lost", field="attempts", detail=detail))
    version = text(info.get("swe_agent_version"))
    exit_reason = _exit_reason(status, notes)
    instance_id = _instance_id(document, root, configuration, notes)
    totals = _totals(mapping(info.get("model_stats")), bool(items(root.get("trajectory"))), notes)
    submission = info.get("submission")
    return Trajectory(
        origin=Origin(
            format=f"swe-agent-{version}" if version else "swe-agent-traj",
            file=document.path,
            place=value.place,
            sha256=value.sha256,
        ),
        harness=HarnessUsed(
            name="SWE-agent",
            version=version,
            family="swe-agent" if steps.has_native_calls else "",
            config=unread(configuration.agent, {"model": dict, "name": str}),
        ),
        model=_model(configuration.model),
        instance_id=instance_id,
        statement=text(configuration.task.get("text")),
        task_kept=_task(configuration),
        opening=tuple(steps.opening),
        items=tuple(steps.items),
        exit_reason=exit_reason,
        native_reason=status,
        patch=submission if isinstance(submission, str) else None,
        totals=totals,
        limits=_limits(configuration),
        notes=collapsed(notes),
        kept=_kept(root, info, configuration, steps),
    )


def _exit_reason(status: str, notes: list[Note]) -> ExitReason | None:
    """The lab's word; of `submitted (exit_cost)` the reason for which the harness submitted."""
    if not status:
        notes.append(Note(kind="missing", field="info.exit_status", detail="no end is recorded"))
        return None
    inner = (
        status.removeprefix("submitted (").removesuffix(")") if status.startswith("submitted (") else status
    )
    found = _EXITS.get(inner)
    if found is None:
        notes.append(Note(kind="lost", field="info.exit_status", detail=f"{status!r} is no known reason"))
    return found


def _instance_id(
    document: Document, root: JSONObject, configuration: _Configuration, notes: list[Note]
) -> str:
    recorded = text(configuration.task.get("id"))
    if recorded:
        return recorded
    environment = text(root.get("environment"))
    if environment not in _NO_TASK:
        notes.append(Note(kind="guessed", field="instance_id", detail="the name of the environment"))
        return environment
    name, _, ending = document.name.rpartition(".")
    if name and ending == "traj" and items(root.get("trajectory")):
        notes.append(Note(kind="guessed", field="instance_id", detail="from the file's name"))
        return name
    return ""


def _totals(stats: JSONObject, has_steps: bool, notes: list[Note]) -> Totals:
    """The counts of the whole run. Where all are 0 beside steps, nobody counted: a replay, a person."""
    counts = [dollars(stats.get("instance_cost")), *map(count, _sent_and_received(stats))]
    calls = count(stats.get("api_calls"))
    if has_steps and stats and not any(counts):
        notes.append(
            Note(kind="missing", field="info.model_stats", detail="cost and tokens were not counted")
        )
        return Totals(calls=calls or None)
    if has_steps:
        notes.append(Note(kind="missing", field="usage", detail="recorded for the whole run alone"))
    sent, received = map(count, _sent_and_received(stats))
    return Totals(
        cost=dollars(stats.get("instance_cost")), input_tokens=sent, output_tokens=received, calls=calls
    )


def _sent_and_received(stats: JSONObject) -> tuple[Any, Any]:
    return stats.get("tokens_sent"), stats.get("tokens_received")


def _model(model: JSONObject) -> ModelUsed:
    return ModelUsed(
        name=text(model.get("name")),
        base_url=text(model.get("api_base")),
        sampling={name: model[name] for name in _SAMPLING if model.get(name) not in (None, {})},
    )


def _limits(configuration: _Configuration) -> JSONObject:
    found = {name: configuration.model.get(name) for name in _LIMITS}
    found |= {name: configuration.tools.get(name) for name in _TOOL_LIMITS}
    found["max_requeries"] = configuration.agent.get("max_requeries")
    return {name: limit for name, limit in found.items() if limit is not None}


def _task(configuration: _Configuration) -> JSONObject:
    kept = unread(configuration.task, {"id": str, "text": str})
    if configuration.root.get("env") is not None:
        kept["env"] = configuration.root["env"]
    return kept


def _kept(root: JSONObject, info: JSONObject, configuration: _Configuration, steps: Steps) -> JSONObject:
    kept = unread(root, {"trajectory": list, "history": list, "info": dict, "replay_config": (dict, str)})
    config = unread(configuration.root, {"agent": dict, "problem_statement": dict, "env": object})
    # Runs of a batch name their agent after the instance.
    if named := text(configuration.agent.get("name")):
        config["agent"] = {"name": named}
    parts = {
        "info": unread(info, {"exit_status": str, "submission": str, "swe_agent_version": str}),
        "replay_config": config,
        "model": without(configuration.model, "name", "api_base", *_SAMPLING),
        "opening": steps.opening_rest(),
        "agent": {"name": steps.agent} if steps.agent else {},
    }
    if configuration.problem:
        parts["replay_config"] = {"text": root.get("replay_config")}
    return kept | {name: part for name, part in parts.items() if part}
