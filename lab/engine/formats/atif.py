"""ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import atif
from pydantic import ValidationError

from lab.engine.formats.atif_own import is_own, restored
from lab.engine.formats.atif_steps import Conversation
from lab.engine.formats.base import Document, Probe
from lab.engine.formats.json_values import Value, found_in
from lab.engine.formats.leftovers import collapsed, parted, unread, without_credentials
from lab.engine.formats.reading import count, dollars, items, mapping, moment, plain_text, text
from lab.engine.formats.trajectory import (
    Found,
    HarnessUsed,
    ModelUsed,
    Note,
    Origin,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject

_KNOWN = re.compile(r"ATIF-v1\.[0-8]")
_MOST_REFUSALS = 20
# What converters of sessions write beside an agent's configuration.
_OF_THE_RUN = ("agent_ids", "cwd", "cwds", "git", "git_branch", "git_branches", "session_id")
_NAMES_OF_TASK = ("instance_id", "task_id", "task_name")


class Atif:
    name = "atif"
    title = "ATIF 1.0 to 1.8"

    def recognises(self, probe: Probe) -> bool:
        return is_atif(probe.root) or any(map(is_atif, probe.objects))

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        return found_in(documents, is_atif, read_atif, otherwise="is no object with an ATIF schema_version")


def is_atif(value: Any) -> bool:
    return text(mapping(value).get("schema_version")).startswith("ATIF")


def read_atif(document: Document, value: Value) -> Trajectory:
    root: JSONObject = value.value
    agent = mapping(root.get("agent"))
    notes = [*_version_notes(root), *_refusals(root)]
    model = text(agent.get("model_name"))
    config, of_the_run = parted(without_credentials(mapping(agent.get("extra"))), _OF_THE_RUN)
    conversation = Conversation(model, items(root.get("subagent_trajectories")))
    conversation.take(_in_order(items(root.get("steps")), notes))
    notes += collapsed(conversation.notes)
    times = _times(items(root.get("steps")))
    if times:
        notes.append(Note(kind="guessed", field="steps.timestamp", detail="taken as the end of each answer"))
    statement = next((one for one in conversation.opening if one["role"] == "user"), {})
    if statement:
        notes.append(Note(kind="guessed", field="statement", detail="the first message of the user"))
    if text(root.get("continued_trajectory_ref")):
        detail = f"the run goes on in {root['continued_trajectory_ref']}"
        notes.append(Note(kind="missing", field="continued_trajectory_ref", detail=detail))
    turns = [item for item in conversation.items if isinstance(item, Turn) and not item.agent]
    found = Trajectory(
        origin=Origin(
            format=root["schema_version"], file=document.path, place=value.place, sha256=value.sha256
        ),
        harness=HarnessUsed(
            name=text(agent.get("name")),
            version=text(agent.get("version")),
            config=config,
        ),
        model=ModelUsed(name=model or next((turn.model for turn in turns if turn.model), "")),
        instance_id=_instance_id(root),
        statement=plain_text(statement.get("content")),
        opening=tuple(conversation.opening),
        tools=tuple(one for one in items(agent.get("tool_definitions")) if isinstance(one, dict)),
        items=tuple(conversation.items),
        final_message=_final_message(turns),
        started_at=min(times, default=None),
        ended_at=max(times, default=None),
        totals=_totals(mapping(root.get("final_metrics"))),
        notes=tuple(notes),
        kept=_kept(root, agent, of_the_run, conversation.kept),
    )
    return restored(found, root) if is_own(root) else found


def _version_notes(root: JSONObject) -> list[Note]:
    version = root["schema_version"]
    if _KNOWN.fullmatch(version):
        return []
    return [Note(kind="guessed", field="schema_version", detail=f"{version!r} is unknown; read as ATIF-v1.8")]


def _refusals(root: JSONObject) -> list[Note]:
    """What the reference models refuse, by field. The document is read all the same."""
    try:
        atif.Trajectory.model_validate(root)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        return []
    notes = [
        Note(
            kind="missing" if one["type"] == "missing" else "guessed",
            field=".".join(map(str, one["loc"])) or "steps",
            detail=f"the reference models refuse it: {one['msg']}",
        )
        for one in found[:_MOST_REFUSALS]
    ]
    if len(found) > _MOST_REFUSALS:
        detail = f"the reference models refuse {len(found) - _MOST_REFUSALS} more fields"
        notes.append(Note(kind="guessed", field="", detail=detail))
    return notes


def _in_order(steps: list[Any], notes: list[Note]) -> list[Any]:
    """The steps by their numbers, where each has one of its own; otherwise as they stand."""
    numbers = [count(mapping(step).get("step_id")) for step in steps]
    known = [number for number in numbers if number is not None]
    if len(set(known)) < len(steps) or known == sorted(known):
        return steps
    notes.append(Note(kind="guessed", field="steps.step_id", detail="out of order; sorted by number"))
    return [step for _, step in sorted(zip(known, steps, strict=True), key=lambda pair: pair[0])]


def _times(steps: list[Any]) -> list[Any]:
    found = (moment(mapping(step).get("timestamp")) for step in steps)
    return [one for one in found if one is not None]


def _instance_id(root: JSONObject) -> str:
    extra = mapping(root.get("extra"))
    return next((text(extra[name]) for name in _NAMES_OF_TASK if text(extra.get(name))), "")


def _final_message(turns: list[Turn]) -> str:
    """What the model said last, where it called no tool with it."""
    return plain_text(turns[-1].message.get("content")) if turns and not turns[-1].calls else ""


def _totals(metrics: JSONObject) -> Totals:
    return Totals(
        cost=dollars(metrics.get("total_cost_usd")),
        input_tokens=count(metrics.get("total_prompt_tokens")),
        output_tokens=count(metrics.get("total_completion_tokens")),
        cached_tokens=count(metrics.get("total_cached_tokens")),
        steps=count(metrics.get("total_steps")),
    )


def _kept(root: JSONObject, agent: JSONObject, of_the_run: JSONObject, opening: JSONObject) -> JSONObject:
    kept = unread(
        root,
        {
            "schema_version": str,
            "agent": dict,
            "steps": list,
            "subagent_trajectories": list,
            "final_metrics": dict,
        },
    )
    of_agent = unread(
        agent, {"name": str, "version": str, "model_name": str, "tool_definitions": list, "extra": dict}
    )
    if of_the_run:
        of_agent["extra"] = of_the_run
    metrics = unread(
        mapping(root.get("final_metrics")),
        {
            "total_prompt_tokens": (int, float),
            "total_completion_tokens": (int, float),
            "total_cached_tokens": (int, float),
            "total_cost_usd": (int, float),
            "total_steps": (int, float),
        },
    )
    for name, rest in (("agent", of_agent), ("final_metrics", metrics), ("opening", opening)):
        if rest:
            kept[name] = rest
    return kept
