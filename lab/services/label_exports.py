"""Labels as files: the lab's own, which another lab takes over whole, and those of published collections.

Labels that a person may not see yet are left out, and how many is said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db.models import QuerySet

from lab.engine.errors import InvalidValueError
from lab.engine.key_shapes import masked
from lab.engine.labels.formats import agentrx, lab_csv, lab_jsonl, who_and_when
from lab.engine.labels.formats.base import GuidelineNamed, Kind, LabelRead
from lab.engine.labels.formats.catalogue import WRITTEN
from lab.engine.llm.base import JSONObject
from lab.models import Annotation, GuidelineVersion, Role
from lab.services import label_guidelines, label_matching, label_rows, label_visibility, taxonomies
from lab.services.access import for_role
from lab.services.known_secrets import redactor

_KINDS: dict[str, Kind] = {"label": "label", "adjudication": "adjudication", "judgement": "judgement"}
_ENDINGS = {"lab-jsonl": "jsonl", "lab-csv": "csv", "agentrx": "json", "who-and-when": "jsonl"}
_TYPES = {"jsonl": "application/jsonl", "csv": "text/csv; charset=utf-8", "json": "application/json"}


class LabelExport(NamedTuple):
    """A file on its way out. `labels` are in it; `hidden` were left out since their reader may not see them
    yet, `unfit` since the format has no place for them (no root cause, or a model's judgement)."""

    file_name: str
    content_type: str
    content: bytes
    labels: int
    hidden: int
    unfit: int


class Wanted(NamedTuple):
    """Which labels: None is any."""

    guideline: int | None = None
    experiment: int | None = None
    annotator: int | None = None


ANY = Wanted()


@for_role(Role.VIEWER)
def export(*, by: User, format_name: str, wanted: Wanted = ANY) -> LabelExport:
    """The labels that this person may see.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
        InvalidValueError: no such format.
    """
    found = list(_rows(wanted))
    hidden = label_visibility.hidden_runs(by, {row.run_id for row in found})
    seen = [row for row in found if row.run_id not in hidden or row.annotator.person_id == by.pk]
    return _export(format_name, seen, hidden=len(found) - len(seen))


def export_all(*, format_name: str, wanted: Wanted = ANY) -> LabelExport:
    """Every label, for the machine's shell, whose owner can read the database.

    Raises:
        InvalidValueError: no such format.
    """
    return _export(format_name, list(_rows(wanted)), hidden=0)


@for_role(Role.VIEWER)
def counts(*, by: User) -> tuple[int, int]:
    """How many submitted records this person may see, and how many are hidden from them."""
    rows = Annotation.objects.filter(state=Annotation.State.SUBMITTED)
    found = list(rows.values_list("run_id", "annotator__person_id"))
    hidden = label_visibility.hidden_runs(by, {run for run, _ in found})
    seen = sum(run not in hidden or person == by.pk for run, person in found)
    return seen, len(found) - seen


def _rows(wanted: Wanted) -> QuerySet[Annotation]:
    rows = Annotation.objects.filter(state=Annotation.State.SUBMITTED).order_by("pk")
    if wanted.guideline is not None:
        rows = rows.filter(guideline=wanted.guideline)
    if wanted.experiment is not None:
        rows = rows.filter(run__experiment=wanted.experiment)
    if wanted.annotator is not None:
        rows = rows.filter(annotator=wanted.annotator)
    related = (
        "run__task",
        "run__arm",
        "run__experiment",
        "annotator",
        "guideline__guideline",
        "guideline__taxonomy_version__taxonomy",
    )
    return rows.select_related(*related).prefetch_related("events", "parents")


def _export(format_name: str, rows: Sequence[Annotation], *, hidden: int) -> LabelExport:
    writers: dict[str, Callable[[Sequence[Annotation]], tuple[str, int]]] = {
        "lab-jsonl": _jsonl,
        "lab-csv": lambda found: ("".join(lab_csv.write(_reads(found))), len(found)),
        "agentrx": _agentrx,
        "who-and-when": _who_and_when,
    }
    if format_name not in writers:
        names = ", ".join(name for name, _ in WRITTEN)
        raise InvalidValueError("format", format_name, f"is no format of labels; choose one of {names}")
    text, written = writers[format_name](rows)
    ending = _ENDINGS[format_name]
    return LabelExport(
        file_name=f"labels-{format_name}.{ending}",
        content_type=_TYPES[ending],
        content=text.encode("utf-8", "surrogatepass"),
        labels=written,
        hidden=hidden,
        unfit=len(rows) - written,
    )


def _jsonl(rows: Sequence[Annotation]) -> tuple[str, int]:
    versions = {row.guideline_id: row.guideline for row in rows}
    brought = (label_guidelines.brought(versions[pk]) for pk in sorted(versions))
    lines: list[JSONObject] = [lab_jsonl.guideline_line(one) for one in brought]
    lines += [lab_jsonl.label_line(one) for one in _reads(rows)]
    return "".join(_line(one) for one in lines), len(rows)


def _line(value: JSONObject) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _agentrx(rows: Sequence[Annotation]) -> tuple[str, int]:
    names: dict[int, dict[str, str]] = {}
    found = []
    for row, read in zip(rows, _reads(rows), strict=True):
        if row.guideline_id not in names:
            names[row.guideline_id] = _names_in_agentrx(row.guideline)
        written = None if read.kind == "judgement" else agentrx.write(read, names[row.guideline_id])
        found += [written] if written is not None else []
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n", len(found)


def _names_in_agentrx(guideline: GuidelineVersion) -> dict[str, str]:
    """Code -> what AgentRx calls it, where one of its categories says the same."""
    version = guideline.taxonomy_version
    theirs = taxonomies.content_of(taxonomies.newest("agentrx"))
    names: dict[str, str] = {}
    for code in taxonomies.content_of(version).codes:
        for translated in taxonomies.translate(version, code.id, "agentrx")[:1]:
            found = theirs.code(translated)
            names |= {code.id: found.name} if found is not None else {}
    return names


def _who_and_when(rows: Sequence[Annotation]) -> tuple[str, int]:
    found = []
    for row, read in zip(rows, _reads(rows), strict=True):
        written = None if read.kind == "judgement" else who_and_when.write(read)
        if written is not None:
            found.append(_line({"question": row.run.task.statement, **written}))
    return "".join(found), len(found)


def _reads(rows: Sequence[Annotation]) -> list[LabelRead]:
    """The rows as files hold them, without secrets; ids are made of what they say, the same in every lab."""
    redacts = redactor()
    ids: dict[int, str] = {}
    reads = []
    for row in rows:
        read = _read(row)
        line = masked(redacts.json(lab_jsonl.label_line(read)))
        read = lab_jsonl.label_of("", line)
        ids[row.pk] = _id(read)
        reads.append(read)
    return [_linked(row, read, ids) for row, read in zip(rows, reads, strict=True)]


def _id(read: LabelRead) -> str:
    said = {name: value for name, value in lab_jsonl.label_line(read).items() if name not in _LINKS}
    text = json.dumps(said, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


_LINKS = ("id", "parents", "replaces")


def _linked(row: Annotation, read: LabelRead, ids: dict[int, str]) -> LabelRead:
    parents = tuple(sorted(ids[one.pk] for one in row.parents.all() if one.pk in ids))
    replaces = ids.get(row.replaces_id or 0, "")
    fields = {name: getattr(read, name) for name in read.__dataclass_fields__}
    return LabelRead(**{**fields, "id": ids[row.pk], "parents": parents, "replaces": replaces})


def _read(row: Annotation) -> LabelRead:
    extras = dict(row.extras)
    kind = str(extras.pop("annotator_kind", row.annotator.kind))
    version = row.guideline
    return LabelRead(
        place="",
        run=label_matching.named(row.run),
        guideline=GuidelineNamed(
            name=version.guideline.name,
            n=version.n,
            definition=version.definition,
            taxonomy=version.taxonomy_version.taxonomy.slug,
        ),
        label=label_rows.read(row),
        annotator=row.annotator.name,
        annotator_kind=kind,
        kind=_KINDS[row.kind],
        started_at=row.started_at,
        submitted_at=row.submitted_at,
        lead_seconds=row.lead_seconds,
        known=row.known,
        extras=extras,
    )
