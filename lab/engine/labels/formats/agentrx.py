"""AgentRx: every error of a failed run with its category, and a pointer to the one that is the root cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab.engine.formats.reading import items, mapping, text
from lab.engine.formats.tau_bench import task_name
from lab.engine.labels.formats.base import (
    GuidelineNamed,
    LabelFound,
    LabelProblem,
    LabelRead,
    RunNamed,
    whole,
)
from lab.engine.labels.label import ErrorEvent, Label, Owner, RootCause
from lab.engine.llm.base import JSONObject

NAME = "agentrx"
TITLE = "AgentRx: all errors, categories and the root cause"
GUIDELINE = GuidelineNamed(name="AgentRx root cause", taxonomy="agentrx", definition="first_unrecoverable")
_FAILURE = (
    "failure_id",
    "step_number",
    "step_reason",
    "failure_category",
    "category_reason",
    "failed_agent",
)
_ROOT = ("trajectory_id", "failures", "root_cause", "failure_summary")
# Who is no agent: an error of theirs is not the agent's fault, and whose it is the file does not say.
_PEOPLE = frozenset({"user", "human"})


def recognises(value: Any) -> bool:
    return "trajectory_id" in mapping(value) and "failures" in mapping(value)


def read(values: list[tuple[str, Any]]) -> Iterator[LabelFound]:
    """A label for each run; one of which an error or the pointer cannot be read is a problem as a whole."""
    for place, value in values:
        if isinstance(value, LabelProblem):
            yield value
            continue
        root = mapping(value)
        try:
            yield _label(place, root)
        except ValueError as error:
            yield LabelProblem(place, f"trajectory_id {root.get('trajectory_id')!r}: {error}")


def _label(place: str, root: JSONObject) -> LabelRead:
    name = root.get("trajectory_id")
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise ValueError("is no name of a run")
    keys = _keys(root)
    events = tuple(_event(key, mapping(one)) for key, one in zip(keys, items(root["failures"]), strict=True))
    pointed = mapping(root.get("root_cause"))
    key = whole(pointed.get("failure_id"))
    if key not in keys:
        raise ValueError(
            f"root_cause.failure_id {pointed.get('failure_id')!r} is none of its failures ({keys})"
        )
    cause = next(event for event in events if event.key == key)
    return LabelRead(
        place=place,
        run=RunNamed(tasks=(str(name), task_name(name))),
        guideline=GUIDELINE,
        label=Label(
            owner=None if cause.agent.casefold() in _PEOPLE else Owner.AGENT,
            events=events,
            root_cause=RootCause(event=cause.key, reason=text(pointed.get("reason_for_root_cause"))),
            note=text(root.get("failure_summary")),
            next_key=max(keys) + 1,
        ),
        extras=_extras(root, keys),
    )


def _keys(root: JSONObject) -> list[int]:
    found = []
    for place, one in enumerate(items(root["failures"]), start=1):
        key = whole(mapping(one).get("failure_id"))
        if not key:
            raise ValueError(f"failures[{place}].failure_id is no whole number from 1")
        if key in found:
            raise ValueError(f"failures[{place}].failure_id {key} is there twice")
        found.append(key)
    return found


def _event(key: int, failure: JSONObject) -> ErrorEvent:
    step = whole(failure.get("step_number"))
    if not step:
        raise ValueError(
            f"failure {key}: step_number {failure.get('step_number')!r} is no whole number from 1"
        )
    return ErrorEvent(
        key=key,
        step=step,
        native_category=text(failure.get("failure_category"))[:200],
        note=text(failure.get("step_reason")),
        category_reason=text(failure.get("category_reason")),
        agent=text(failure.get("failed_agent"))[:200],
    )


def _extras(root: JSONObject, keys: list[int]) -> JSONObject:
    """What the file says beside; a pointer that is written as text stays so when it is written again."""
    extras: JSONObject = {"trajectory_id": root["trajectory_id"]}
    rest = {name: value for name, value in root.items() if name not in _ROOT}
    pointed = mapping(root.get("root_cause"))
    if isinstance(pointed.get("failure_id"), str):
        extras["root_failure_id"] = pointed["failure_id"]
    more = {
        str(key): left
        for key, one in zip(keys, items(root["failures"]), strict=True)
        if (left := {name: value for name, value in mapping(one).items() if name not in _FAILURE})
    }
    return {**extras, **({"more": rest} if rest else {}), **({"of_failures": more} if more else {})}


def write(label: LabelRead, names: Mapping[str, str]) -> JSONObject | None:
    """The label as its collection writes it; `names`: code -> AgentRx's name of it. None without root cause.

    A category for which AgentRx has no name keeps the label's own word.
    """
    said = label.label
    if said.root_cause is None:
        return None
    extras = label.extras
    of_failures = mapping(extras.get("of_failures"))
    failures = [
        {
            "failure_id": event.key,
            "step_number": event.step,
            "step_reason": event.note,
            "failure_category": event.native_category or names.get(event.category, event.category),
            "category_reason": event.category_reason,
            "failed_agent": event.agent,
            **mapping(of_failures.get(str(event.key))),
        }
        for event in said.events
    ]
    return {
        "trajectory_id": extras.get("trajectory_id", label.run.tasks[0]),
        "failures": failures,
        "root_cause": {
            "failure_id": extras.get("root_failure_id", said.root_cause.event),
            "reason_for_root_cause": said.root_cause.reason,
        },
        "failure_summary": said.note,
        **mapping(extras.get("more")),
    }
