"""Labels from files become records of this lab: once however often, and none of them is lost silently.

What cannot be put to a run is listed, and can be imported later from the same file: what is there by then
is found again and not doubled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.labels.formats.base import (
    GuidelineNamed,
    GuidelineRead,
    LabelFileError,
    LabelProblem,
    LabelRead,
)
from lab.engine.labels.formats.catalogue import read_labels
from lab.engine.labels.label import ErrorEvent, Label, StepRef
from lab.engine.llm.base import JSONObject
from lab.models import Annotation, Annotator, Event, Experiment, GuidelineVersion, Role, Run
from lab.services import (
    known_facts,
    label_guidelines,
    label_matching,
    label_rows,
    labels,
    taxonomies,
)
from lab.services.access import for_role
from lab.services.annotators import imported_annotator
from lab.services.errors import FieldErrors
from lab.services.imported_arms import Cleaner
from lab.services.known_secrets import redactor
from lab.services.locks import one_at_a_time

MOST_BYTES = 256 * 1024 * 1024
# Whose a file's labels are where neither it nor the importer says so.
_USUAL = {"agentrx": "AgentRx", "who-and-when": "Who&When"}


class Left(NamedTuple):
    """A label that was not imported: where it stands, which run it names, and why."""

    place: str
    run: str
    why: str


@dataclass
class LabelImport:
    """What a file came to. `missing`: their runs are not here yet. `words`: categories of no code here, with
    how often; they are kept as the file wrote them."""

    format: str
    new: int = 0
    known: int = 0
    replaced: int = 0
    judgements: int = 0
    missing: list[Left] = field(default_factory=list)
    problems: list[Left] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    annotators: Counter[str] = field(default_factory=Counter)
    guidelines: list[str] = field(default_factory=list)


@for_role(Role.OPERATOR)
def import_file(
    *, by: User, name: str, data: bytes, annotator: str = "", experiment: int | None = None
) -> LabelImport:
    """Read a file of labels. `annotator`: whose they are where the file does not say.

    `experiment`: only its runs are meant.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "file", "annotator" or "experiment": nothing was imported.
    """
    return import_labels(name=name, data=data, annotator=annotator, experiment=experiment)


def import_labels(
    *, name: str, data: bytes, annotator: str = "", experiment: int | None = None
) -> LabelImport:
    """As `import_file`, for the machine's shell.

    Raises:
        FieldErrors: see there.
    """
    if len(data) > MOST_BYTES:
        raise FieldErrors({"file": f"{name} is {len(data):,} bytes, more than {MOST_BYTES:,}; split it"})
    if len(annotator) > 200:
        raise FieldErrors({"annotator": f"annotator: {len(annotator)} characters; a name has at most 200"})
    chosen = Experiment.objects.filter(pk=experiment).first() if experiment is not None else None
    if experiment is not None and chosen is None:
        raise FieldErrors({"experiment": f"experiment: {experiment} is no experiment of this lab"})
    try:
        format_name, found = read_labels(data)
    except LabelFileError as error:
        raise FieldErrors({"file": f"{name} {error}"}) from error
    usual = annotator.strip() or _USUAL.get(format_name, "") or name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    reading = _Reading(LabelImport(format_name), usual, chosen)
    with transaction.atomic():
        one_at_a_time("imports")
        for one in found:
            reading.take(one)
        reading.link()
    return reading.report


class _Reading:
    """One file, label by label."""

    def __init__(self, report: LabelImport, usual: str, experiment: Experiment | None) -> None:
        self.report = report
        self._usual, self._experiment = usual, experiment
        self._cleaner = Cleaner(redactor())
        self._by_id: dict[str, Annotation] = {}
        self._links: list[tuple[Annotation, LabelRead]] = []
        self._brought: dict[tuple[str, int], GuidelineVersion] = {}
        self._versions: dict[GuidelineNamed, GuidelineVersion] = {}

    def take(self, one: LabelRead | GuidelineRead | LabelProblem) -> None:
        if isinstance(one, LabelProblem):
            self.report.problems.append(Left(one.place, "", one.message))
            return
        if isinstance(one, GuidelineRead):
            try:
                self._brought[one.name, one.n] = label_guidelines.of_file(one)
            except LabError as error:
                self.report.problems.append(Left("", one.name, str(error)))
            return
        try:
            with transaction.atomic():
                self._label(one)
        except label_matching.NoRunError as error:
            self.report.missing.append(Left(one.place, one.run.words, str(error)))
        except LabError as error:
            self.report.problems.append(Left(one.place, one.run.words, str(error)))

    def _label(self, read: LabelRead) -> None:
        run = label_matching.find(read.run, experiment=self._experiment)
        guideline = self._guideline(read.guideline)
        label, words = self._resolved(read.label, run, guideline)
        name = self._cleaner.text(read.annotator or self._usual, 200)
        mine = _earlier(run, guideline, read.kind, name)
        extras = self._extras(read, guideline)
        known = next((one for one in mine if _same(one, read, label, extras)), None)
        if known is not None:
            self.report.known += 1
            self._remember(known, read)
            return
        row = Annotation(
            run=run,
            guideline=guideline,
            kind=read.kind,
            annotator=imported_annotator(name),
            started_at=read.started_at,
            submitted_at=read.submitted_at or timezone.now(),
            lead_seconds=read.lead_seconds,
            # A lab's own label keeps what was known when it was submitted.
            known=read.known if read.id else known_facts.as_json(run),
            extras=extras,
        )
        if not read.id:
            # A collection's label of the same run under the same name: its newer edition.
            row.replaces = next(iter(label_rows.current(_imported(mine))[-1:]), None)
        label_rows.write(row, label)
        self._count(row, words)
        self._remember(row, read)

    def _count(self, row: Annotation, words: list[str]) -> None:
        report = self.report
        report.new += 1
        report.replaced += row.replaces is not None
        report.judgements += row.kind == Annotation.Kind.JUDGEMENT
        report.annotators[row.annotator.name] += 1
        report.words.update(words)
        said = str(row.guideline)
        if said not in report.guidelines:
            report.guidelines.append(said)

    def _remember(self, row: Annotation, read: LabelRead) -> None:
        if read.id:
            self._by_id[read.id] = row
        if read.parents or read.replaces:
            self._links.append((row, read))

    def _guideline(self, wanted: GuidelineNamed) -> GuidelineVersion:
        if wanted.n is not None and (wanted.name, wanted.n) in self._brought:
            return self._brought[wanted.name, wanted.n]
        if wanted not in self._versions:
            self._versions[wanted] = label_guidelines.named(wanted)
        return self._versions[wanted]

    def _resolved(self, label: Label, run: Run, guideline: GuidelineVersion) -> tuple[Label, list[str]]:
        """The label with codes of the guideline's vocabulary and with what the steps are in the run's log."""
        label = Label.model_validate(self._cleaner.json(label.model_dump(mode="json")))
        counted = labels.steps_of(run.pk)
        first = _first_events(run)
        words: list[str] = []
        events = []
        for event in label.events:
            _check_step(event, counted)
            coded, word = _coded(event, guideline)
            words += [word] if word else []
            events.append(coded.model_copy(update={"seq": first.get((event.attempt, event.step))}))
        for step in label.alternatives:
            _check_step(step, counted)
        alternatives = tuple(
            step.model_copy(update={"seq": first.get((step.attempt, step.step))})
            for step in label.alternatives
        )
        return label.model_copy(update={"events": tuple(events), "alternatives": alternatives}), words

    def _extras(self, read: LabelRead, guideline: GuidelineVersion) -> JSONObject:
        extras = self._cleaner.json(read.extras)
        native = extras.get("native_category")
        if isinstance(native, str) and "category" not in extras:
            code = taxonomies.find_code(guideline.taxonomy_version, native)
            extras |= {"category": code} if code else {}
            self.report.words.update([] if code else [native])
        if read.annotator_kind not in ("", Annotator.Kind.IMPORTED):
            extras["annotator_kind"] = read.annotator_kind
        return extras

    def link(self) -> None:
        """Tie what the file ties together, once all of it is read."""
        for row, read in self._links:
            for parent in read.parents:
                self._tie(row, read, parent)
            earlier = self._by_id.get(read.replaces)
            taken = earlier is not None and Annotation.objects.filter(replaces=earlier).exists()
            if earlier is not None and row.replaces_id is None and not taken:
                Annotation.objects.filter(pk=row.pk).update(replaces=earlier)
                self.report.replaced += 1
            elif read.replaces and earlier is None:
                why = f"the label {read.replaces} that it replaces is not here; this one was imported"
                self.report.problems.append(Left(read.place, read.run.words, why))

    def _tie(self, row: Annotation, read: LabelRead, parent: str) -> None:
        if (found := self._by_id.get(parent)) is not None:
            row.parents.add(found)
            return
        why = f"the label {parent} that it decides on is not here; this one was imported"
        self.report.problems.append(Left(read.place, read.run.words, why))


def _earlier(run: Run, guideline: GuidelineVersion, kind: str, name: str) -> list[Annotation]:
    """What somebody of this name said of the run under this guideline, the oldest first."""
    rows = Annotation.objects.filter(
        run=run, guideline=guideline, kind=kind, state=Annotation.State.SUBMITTED, annotator__name=name
    )
    return list(rows.select_related("annotator").prefetch_related("events").order_by("pk"))


def _imported(rows: list[Annotation]) -> list[Annotation]:
    return [one for one in rows if one.annotator.kind == Annotator.Kind.IMPORTED]


def _same(row: Annotation, read: LabelRead, label: Label, extras: JSONObject) -> bool:
    if read.submitted_at is not None and row.submitted_at != read.submitted_at:
        return False
    there = label_rows.read(row)
    own = {name: value for name, value in extras.items() if name != "annotator_kind"}
    kept = {name: value for name, value in row.extras.items() if name != "annotator_kind"}
    return own == kept and _said(there) == _said(label)


def _said(label: Label) -> JSONObject:
    """What a label says, whatever key its next event would get and in whichever order its events stand."""
    said: JSONObject = label.model_dump(mode="json", exclude={"next_key"})
    said["events"] = sorted(said["events"], key=lambda event: event["key"])
    return said


def _first_events(run: Run) -> dict[tuple[int, int], int]:
    started = Event.objects.filter(run=run, kind="model_call_started", step__gte=1)
    rows = started.order_by().values_list("attempt", "step").annotate(first=Min("seq"))
    return {(attempt, step): first for attempt, step, first in rows}


def _check_step(wanted: StepRef, counted: dict[int, int]) -> None:
    steps = counted.get(wanted.attempt)
    if steps is None:
        raise InvalidValueError("attempt", wanted.attempt, "is not recorded in the run")
    if wanted.step > steps:
        raise InvalidValueError("step", wanted.step, f"the run has {steps} steps in attempt {wanted.attempt}")


def _coded(event: ErrorEvent, guideline: GuidelineVersion) -> tuple[ErrorEvent, str]:
    """The event with a code of the vocabulary, and its word where there is none for it."""
    version = guideline.taxonomy_version
    if event.category and taxonomies.content_of(version).code(event.category) is not None:
        return event, ""
    word = event.native_category or event.category
    if not word:
        return event, ""
    code = taxonomies.find_code(version, word)
    kept = event.model_copy(update={"category": code or "", "native_category": word})
    return kept, "" if code else word
