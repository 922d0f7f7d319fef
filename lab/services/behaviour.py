"""How the newest attempt of a run went about it, folded from its log: `RunFacts.behaviour`.

Its fields are those of `lab.analysis.observations.Behaviour`. A call counts when it is started, whatever
became of it; one that was not understood is in `calls`, `tools` and `malformed` and of no kind, because
nothing was executed. `repeats` compares tool and arguments. Waiting is the time from the attempt's beginning
(or its continuation by another worker) to its sandbox, from a failed request to the next try, at most as long
as was planned, and while people had it paused; time that belongs to a dead worker is nobody's. Of runs that
other programs recorded it is unknown. Such a record without any step says nothing: it has no behaviour.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lab.engine.llm.base import JSONObject, canonical_json
from lab.models import RunFacts
from lab.render.kinds import call_kind
from lab.services.payloads import short_text

if TYPE_CHECKING:
    from lab.services.facts import Entry

# Characters that tell calls apart: 48 bits, of thousands of calls none is taken for another.
_DIGEST = 8
# Of a tool's name, which a model may make up.
_NAME_CHARACTERS = 100
_PRECISION = 6


def note(facts: RunFacts, entry: Entry) -> None:
    """Bring `facts.behaviour` up to date with one event.

    Nothing counts before the attempt's first event, which an older release may have rolled up, nor after its
    end.
    """
    if entry.kind == "attempt_started":
        facts.behaviour, facts.behaviour_state = _begun(entry.at)
        return
    handler = _HANDLERS.get(entry.kind)
    if handler is None or facts.behaviour is None or not facts.behaviour_state:
        return
    if entry.kind == "trajectory_imported" and not entry.payload.get("steps_recorded", True):
        facts.behaviour, facts.behaviour_state = None, {}
        return
    behaviour, state = dict(facts.behaviour), dict(facts.behaviour_state)
    handler(behaviour, state, entry)
    if entry.kind == "attempt_ended" and _is_without_steps(behaviour, entry):
        facts.behaviour, facts.behaviour_state = None, {}
        return
    facts.behaviour, facts.behaviour_state = behaviour, state


def _is_without_steps(behaviour: JSONObject, entry: Entry) -> bool:
    """Whether another program's record holds no step; how long such a run waited nobody recorded."""
    recorded_elsewhere = behaviour["waiting_seconds"] is None
    return recorded_elsewhere and not behaviour["calls"] and not entry.payload["steps"]


def _begun(at: dt.datetime) -> tuple[JSONObject, JSONObject]:
    counts = ("calls", "steps_with_calls", "parallel_steps", "malformed", "exit_codes")
    behaviour: JSONObject = {"tools": {}, "kinds": {}}
    behaviour |= dict.fromkeys((*counts, "tests", "edits", "cycles", "repeats"), 0)
    behaviour |= {"failed_commands": None, "tested_after_last_edit": None}
    behaviour |= dict.fromkeys(("model_seconds", "tool_seconds", "waiting_seconds"), 0.0)
    # `step` is the newest with a call and `in_step` how many it has; `seen` holds the calls' digests, one
    # after the other; `unknown` names the times of which a part is missing; `wait` says since when it waits.
    return behaviour, {"step": None, "in_step": 0, "seen": "", "unknown": [], "wait": _wait("sandbox", at)}


def _wait(reason: str, since: dt.datetime, at_most: float | None = None) -> JSONObject:
    return {"for": reason, "since": since.isoformat(), "at_most": at_most}


def _end_wait(behaviour: JSONObject, state: JSONObject, at: dt.datetime) -> None:
    wait, state["wait"] = state["wait"], None
    if wait is None or behaviour["waiting_seconds"] is None:
        return
    seconds = max(0.0, (at - dt.datetime.fromisoformat(wait["since"])).total_seconds())
    if wait["at_most"] is not None:
        seconds = min(seconds, wait["at_most"])
    behaviour["waiting_seconds"] = round(behaviour["waiting_seconds"] + seconds, _PRECISION)


def _add_seconds(behaviour: JSONObject, state: JSONObject, name: str, seconds: float | None) -> None:
    """Add to a time; a part that nobody recorded makes it unknown."""
    if seconds is None and name not in state["unknown"]:
        state["unknown"] = [*state["unknown"], name]
    if name in state["unknown"]:
        behaviour[name] = None
    else:
        behaviour[name] = round((behaviour[name] or 0.0) + (seconds or 0.0), _PRECISION)


def _trajectory_imported(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    state["wait"] = behaviour["waiting_seconds"] = None
    if entry.payload["times"] == "not_recorded":
        # Calls may say how long they took all the same.
        behaviour["model_seconds"] = behaviour["tool_seconds"] = None


def _attempt_continued(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    state["wait"] = _wait("sandbox", entry.at)


def _sandbox_started(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    wait = state["wait"]
    if entry.payload["purpose"] == "agent" and wait is not None and wait["for"] == "sandbox":
        _end_wait(behaviour, state, entry.at)


def _paused(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    _end_wait(behaviour, state, entry.at)
    state["wait"] = _wait("pause", entry.at)


def _resumed(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    wait = state["wait"]
    if wait is not None and wait["for"] == "pause":
        _end_wait(behaviour, state, entry.at)


def _model_call_started(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    _end_wait(behaviour, state, entry.at)


def _model_call_ended(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    payload = entry.payload
    _add_seconds(behaviour, state, "model_seconds", (payload.get("reply") or payload).get("seconds"))
    if payload.get("retry_in") is not None:
        state["wait"] = _wait("retry", entry.at, payload["retry_in"])


def _model_call_interrupted(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    _add_interrupted(behaviour, state, "model_seconds", entry.payload)


def _tool_call_interrupted(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    _add_interrupted(behaviour, state, "tool_seconds", entry.payload)


def _add_interrupted(behaviour: JSONObject, state: JSONObject, name: str, payload: JSONObject) -> None:
    # What a dead worker had in flight took nobody's time; what another program left out is unknown.
    seconds = payload.get("seconds")
    if seconds is not None or behaviour["waiting_seconds"] is None:
        _add_seconds(behaviour, state, name, seconds)


def _tool_call_started(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    payload = entry.payload
    _end_wait(behaviour, state, entry.at)
    if payload.get("again"):
        return
    behaviour["calls"] += 1
    _count(behaviour, "tools", short_text(payload["tool"])[:_NAME_CHARACTERS])
    _count_step(behaviour, state, payload["step"])
    understood = bool(payload.get("executor")) and not payload.get("malformed")
    said = payload["arguments"] if understood else payload.get("raw_arguments")
    digest = _digest(payload["tool"], said)
    if _holds(state["seen"], digest):
        behaviour["repeats"] += 1
    else:
        state["seen"] += digest
    if understood:
        _count_kind(behaviour, payload)
    else:
        behaviour["malformed"] += 1


def _count(behaviour: JSONObject, name: str, key: str) -> None:
    counts: Mapping[str, int] = behaviour[name]
    behaviour[name] = {**counts, key: counts.get(key, 0) + 1}


def _count_step(behaviour: JSONObject, state: JSONObject, step: int) -> None:
    if state["step"] != step:
        state["step"], state["in_step"] = step, 0
    state["in_step"] += 1
    behaviour["steps_with_calls"] += state["in_step"] == 1
    behaviour["parallel_steps"] += state["in_step"] == 2


def _count_kind(behaviour: JSONObject, payload: JSONObject) -> None:
    arguments = payload["arguments"]
    plain = arguments.get("$plain", arguments)
    texts = {name: short_text(value) for name, value in plain.items()}
    kind = call_kind(short_text(payload["tool"]), short_text(payload.get("executor")), texts)
    _count(behaviour, "kinds", kind)
    if kind == "edit":
        behaviour["edits"] += 1
        behaviour["tested_after_last_edit"] = False
    elif kind == "test":
        behaviour["tests"] += 1
        if behaviour["tested_after_last_edit"] is False:
            behaviour["cycles"] += 1
            behaviour["tested_after_last_edit"] = True


def _digest(tool: Any, arguments: Any) -> str:
    """Of a long text the payload holds its hash, so that this is of the whole call whatever its length."""
    data = hashlib.sha256(canonical_json([tool, arguments])).digest()
    return base64.b64encode(data)[:_DIGEST].decode()


def _holds(seen: str, digest: str) -> bool:
    """Whether one of the digests that stand one after the other is this one."""
    at = seen.find(digest)
    while at >= 0 and at % _DIGEST:
        at = seen.find(digest, at + 1)
    return at >= 0


def _tool_call_finished(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    _add_seconds(behaviour, state, "tool_seconds", entry.payload["seconds"])
    code = entry.payload.get("exit_code")
    if code is not None:
        behaviour["exit_codes"] += 1
        behaviour["failed_commands"] = (behaviour["failed_commands"] or 0) + (code != 0)


def _agent_ended(behaviour: JSONObject, state: JSONObject, entry: Entry) -> None:
    wait = state["wait"]
    if wait is not None and wait["for"] != "sandbox":
        _end_wait(behaviour, state, entry.at)
    state["wait"] = None
    if entry.kind == "attempt_ended":
        state.clear()


_HANDLERS: dict[str, Callable[[JSONObject, JSONObject, Entry], None]] = {
    "trajectory_imported": _trajectory_imported,
    "attempt_continued": _attempt_continued,
    "sandbox_started": _sandbox_started,
    "paused": _paused,
    "resumed": _resumed,
    "model_call_started": _model_call_started,
    "model_call_finished": _model_call_ended,
    "model_call_failed": _model_call_ended,
    "model_call_interrupted": _model_call_interrupted,
    "tool_call_started": _tool_call_started,
    "tool_call_finished": _tool_call_finished,
    "tool_call_interrupted": _tool_call_interrupted,
    "patch_captured": _agent_ended,
    "attempt_ended": _agent_ended,
}
