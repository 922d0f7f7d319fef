"""Who&When: who made the decisive mistake, at which entry of the log (counted from 0), and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.engine.formats.reading import mapping, text
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

NAME = "who-and-when"
TITLE = "Who&When: decisive agent, step (from 0) and reason"
# Its labels name no category; the vocabulary is that of the other labels on the same logs.
GUIDELINE = GuidelineNamed(
    name="Who&When decisive error", taxonomy="agentrx", definition="sufficient_correction"
)
_READ = ("question_ID", "question", "history", "mistake_agent", "mistake_step", "mistake_reason")


def recognises(value: Any) -> bool:
    return "mistake_step" in mapping(value) or "mistake_agent" in mapping(value)


def read(values: list[tuple[str, Any]]) -> Iterator[LabelFound]:
    """A label for each document; one without a usable step or a name of its run is a problem."""
    for place, value in values:
        yield value if isinstance(value, LabelProblem) else _label(place, mapping(value))


def _label(place: str, root: JSONObject) -> LabelFound:
    step = whole(root.get("mistake_step"))
    task = text(root.get("question_ID"))
    if step is None:
        return LabelProblem(
            place,
            f"mistake_step {root.get('mistake_step')!r} is no whole number; it is the entry's number, from 0",
        )
    if not task:
        return LabelProblem(place, "question_ID is missing, which names the run")
    reason = text(root.get("mistake_reason"))
    event = ErrorEvent(key=1, step=step + 1, agent=text(root.get("mistake_agent"))[:200], note=reason)
    return LabelRead(
        place=place,
        run=RunNamed(tasks=(task,)),
        guideline=GUIDELINE,
        label=Label(owner=Owner.AGENT, events=(event,), root_cause=RootCause(event=1), next_key=2),
        extras={name: value for name, value in root.items() if name not in _READ},
    )


def write(label: LabelRead) -> JSONObject | None:
    """The label as its collection writes it, without the log; None where no root cause is named."""
    root = label.label.root
    if root is None or label.label.root_cause is None:
        return None
    return {
        **label.extras,
        "question_ID": label.run.tasks[0],
        "mistake_agent": root.agent,
        "mistake_step": str(root.step - 1),
        "mistake_reason": root.note or label.label.root_cause.reason,
    }
