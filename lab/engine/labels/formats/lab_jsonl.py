"""The lab's own file of labels: JSON lines, first guideline versions with their vocabularies, then labels.

Reading a file and writing what was read gives the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from lab.engine.formats.reading import count, items, mapping, moment, seconds, text
from lab.engine.labels.formats.base import (
    GuidelineNamed,
    GuidelineRead,
    LabelFound,
    LabelProblem,
    LabelRead,
    RunNamed,
)
from lab.engine.labels.label import Label
from lab.engine.labels.taxonomy import Taxonomy
from lab.engine.llm.base import JSONObject

NAME = "lab-jsonl"
TITLE = "The lab's own, whole: JSON lines"
FORMAT = "trajectory-lab-labels-1"
_KINDS = ("label", "adjudication", "judgement")


def recognises(value: Any) -> bool:
    return mapping(value).get("format") == FORMAT


def read(values: list[tuple[str, Any]]) -> Iterator[LabelFound]:
    """The guidelines and labels of a file; a line that is neither is a problem, and the next is read."""
    for place, value in values:
        if isinstance(value, LabelProblem):
            yield value
            continue
        root = mapping(value)
        try:
            yield _guideline(root) if "guideline_version" in root else label_of(place, root)
        except (ValidationError, ValueError) as error:
            yield LabelProblem(place, _why(error))


def _why(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def guideline_line(guideline: GuidelineRead) -> JSONObject:
    return {
        "format": FORMAT,
        "guideline_version": {
            "name": guideline.name,
            "version": guideline.n,
            "definition": guideline.definition,
            "root_cause": guideline.root_cause,
            "instructions": guideline.instructions,
            "taxonomy_version": guideline.taxonomy_n,
            "taxonomy": guideline.content,
        },
    }


def _guideline(root: JSONObject) -> GuidelineRead:
    found = mapping(root["guideline_version"])
    name, n, taxonomy_n = text(found.get("name")), count(found.get("version")), found.get("taxonomy_version")
    if not name or not n or not count(taxonomy_n):
        raise ValueError("guideline_version needs name, version and taxonomy_version")
    return GuidelineRead(
        name=name,
        n=n,
        definition=text(found.get("definition")),
        root_cause=text(found.get("root_cause")),
        instructions=text(found.get("instructions")),
        taxonomy_n=count(taxonomy_n) or 1,
        content=Taxonomy.model_validate(found.get("taxonomy")).model_dump(mode="json"),
    )


def label_line(label: LabelRead) -> JSONObject:
    """Everything of a label. A run is named by its task, and by where it stood, never by a row's number."""
    run = label.run
    return {
        "format": FORMAT,
        "id": label.id,
        "kind": label.kind,
        "run": {
            "task": run.tasks[0] if run.tasks else "",
            "experiment": run.experiment,
            "arm": run.arm,
            "seed": run.seed,
            "imported": run.identity,
        },
        "guideline": {
            "name": label.guideline.name,
            "version": label.guideline.n,
            "definition": label.guideline.definition,
            "taxonomy": label.guideline.taxonomy,
        },
        "annotator": {"name": label.annotator, "kind": label.annotator_kind},
        "label": label.label.model_dump(mode="json", exclude={"next_key"}),
        "started_at": label.started_at.isoformat() if label.started_at else None,
        "submitted_at": label.submitted_at.isoformat() if label.submitted_at else None,
        "lead_seconds": label.lead_seconds,
        "parents": list(label.parents),
        "replaces": label.replaces,
        "known": label.known,
        "extras": label.extras,
    }


def label_of(place: str, root: JSONObject) -> LabelRead:
    """The label of a line, or of a row of the table that says the same.

    Raises:
        ValueError: it is none; the text names the field.
    """
    run, guideline = mapping(root.get("run")), mapping(root.get("guideline"))
    annotator = mapping(root.get("annotator"))
    kind: Any = root.get("kind")
    if kind not in _KINDS:
        raise ValueError(f"kind: {kind!r} is none of {', '.join(_KINDS)}")
    if not text(guideline.get("name")):
        raise ValueError("guideline.name: missing; it says what the categories mean")
    if not text(annotator.get("name")):
        raise ValueError("annotator.name: missing; a label is somebody's")
    label = Label.model_validate(root.get("label"))
    keys = [event.key for event in label.events]
    if len(set(keys)) < len(keys):
        raise ValueError(f"label.events: a key is there twice ({keys})")
    if label.root_cause is not None and label.root_cause.event not in keys:
        raise ValueError(f"label.root_cause.event: {label.root_cause.event} is none of its events ({keys})")
    return LabelRead(
        place=place,
        id=text(root.get("id")),
        kind=kind,
        run=RunNamed(
            tasks=(text(run.get("task")),) if text(run.get("task")) else (),
            experiment=text(run.get("experiment")),
            arm=text(run.get("arm")),
            seed=count(run.get("seed")),
            identity=text(run.get("imported")),
        ),
        guideline=GuidelineNamed(
            name=text(guideline.get("name")),
            n=count(guideline.get("version")),
            definition=text(guideline.get("definition")),
            taxonomy=text(guideline.get("taxonomy")),
        ),
        annotator=text(annotator.get("name"))[:200],
        annotator_kind=text(annotator.get("kind")),
        label=label.model_copy(update={"next_key": max(keys, default=0) + 1}),
        started_at=moment(root.get("started_at")),
        submitted_at=moment(root.get("submitted_at")),
        lead_seconds=seconds(root.get("lead_seconds")),
        parents=tuple(text(one) for one in items(root.get("parents"))),
        replaces=text(root.get("replaces")),
        known=mapping(root.get("known")),
        extras=mapping(root.get("extras")),
    )
