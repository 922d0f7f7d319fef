"""What a file of labels comes to, whoever wrote it, and how foreign values of it are read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from lab.engine.formats.base import parsed
from lab.engine.formats.reading import count
from lab.engine.labels.guideline import DEFAULT
from lab.engine.labels.label import Label
from lab.engine.llm.base import JSONObject

Kind = Literal["label", "adjudication", "judgement"]


class LabelFileError(ValueError):
    """A file of labels cannot be read at all; the text says what is wrong, and the way out."""


@dataclass(frozen=True, kw_only=True)
class RunNamed:
    """How a file names a run: all that is said has to hold; `tasks` are spellings of which one is meant.

    `identity` is that of an imported trajectory (SHA-256), `format` of which format it is.
    """

    tasks: tuple[str, ...] = ()
    identity: str = ""
    format: str = ""
    experiment: str = ""
    arm: str = ""
    seed: int | None = None

    @property
    def words(self) -> str:
        """For people: the task's name first."""
        parts = [self.tasks[0] if self.tasks else "no task named"]
        parts += [f"experiment {self.experiment}"] if self.experiment else []
        parts += [f"arm {self.arm}"] if self.arm else []
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class GuidelineNamed:
    """Under which guideline a file's labels were written. `n` None: its newest version will do."""

    name: str
    taxonomy: str
    definition: str = DEFAULT
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class GuidelineRead:
    """A guideline version as a file brings it whole; `content` is its vocabulary."""

    name: str
    n: int
    definition: str
    root_cause: str
    instructions: str
    taxonomy_n: int
    content: JSONObject


@dataclass(frozen=True, kw_only=True)
class LabelRead:
    """One label of a file. `place` is where it stands there. `annotator` "" is whoever the importer names.

    Of `label`, an event with a `native_category` and no `category` gets the code that is meant, if one is.
    `id`, `parents` and `replaces` link labels of one file. `extras`: what has no place in a label.
    """

    place: str
    run: RunNamed
    guideline: GuidelineNamed
    label: Label
    annotator: str = ""
    annotator_kind: str = "imported"
    kind: Kind = "label"
    id: str = ""
    parents: tuple[str, ...] = ()
    replaces: str = ""
    started_at: datetime | None = None
    submitted_at: datetime | None = None
    lead_seconds: float | None = None
    known: JSONObject = field(default_factory=dict)
    extras: JSONObject = field(default_factory=dict)


class LabelProblem(NamedTuple):
    """A part of a file that is no label; the rest was read."""

    place: str
    message: str


LabelFound = LabelRead | GuidelineRead | LabelProblem


def whole(value: Any) -> int | None:
    """A whole number of 0 or more, also one that a file wrote as text; None for everything else."""
    if isinstance(value, str):
        stripped = value.strip()
        return int(stripped) if stripped.isascii() and stripped.isdigit() and len(stripped) < 16 else None
    return count(value)


def decoded(data: bytes) -> str:
    """Raises: LabelFileError: not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabelFileError(f"is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def json_values(text: str) -> list[tuple[str, Any]]:
    """Each value with its place: of a list its entries, of lines each line, else the document itself.

    A line that is no JSON is a `LabelProblem`.

    Raises:
        LabelFileError: no JSON at all.
    """
    try:
        value = parsed(text)
    except RecursionError:
        raise LabelFileError("is nested too deeply to be read") from None
    except json.JSONDecodeError as error:
        return _lines(text, error)
    if isinstance(value, list):
        return [(f"entry {number}", one) for number, one in enumerate(value, start=1)]
    return [("", value)]


def _lines(text: str, whole_error: json.JSONDecodeError) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    good = 0
    # Not `splitlines`: texts hold other ends of lines than \n.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            found.append((place, parsed(line)))
            good += 1
        except (json.JSONDecodeError, RecursionError) as error:
            message = getattr(error, "msg", "nested too deeply")
            found.append((place, LabelProblem(place, f"is not JSON: {message}")))
    if not good:
        raise LabelFileError(f"is not JSON: line {whole_error.lineno}, {whole_error.msg}")
    return found
