"""What an import tells people at its end: how many, what was guessed or lost, what could not be read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lab.engine.formats.trajectory import Note, Problem
from lab.engine.llm.base import clean_json
from lab.engine.redact import storable

# Of a kind so many are named; all are counted.
MOST_SHOWN = 200
_LONGEST_TEXT = 600


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FormatCount(_Part):
    """What was found of one format. `files` were recognised as it."""

    name: str
    title: str = ""
    files: int = 0
    imported: int = 0
    known: int = 0
    gradings: int = 0
    # Of those the ones that became runs without steps.
    verdict_only: int = 0
    problems: int = 0


class NoteCount(_Part):
    """What was guessed, lost or missing at one field of a format, in how many runs, and one of them."""

    kind: str
    format: str
    field: str
    detail: str = ""
    runs: int = 0
    example_run: int | None = None
    example_file: str = ""


class ProblemLine(_Part):
    """A part of a file that could not be read: `place` as "line 3", "" for all of it."""

    file: str
    place: str = ""
    message: str = ""


class Unrecognised(_Part):
    """Files whose content no format knows, by the ending of their names, with some of them."""

    ending: str
    files: int = 0
    examples: list[str] = Field(default_factory=list)


class KnownBefore(_Part):
    """Trajectories that were there: where, how many, and one of them."""

    experiment: int | None = None
    trajectories: int = 0
    example_run: int | None = None
    example_file: str = ""


class Renumbered(_Part):
    """A run that could not have the seed its file says: another one of the same arm and task had it."""

    run: int
    file: str
    recorded: int
    given: int
    other_run: int | None = None


class Contradiction(_Part):
    """A recorded verdict beside another one of the same run; the newer one counts."""

    run: int
    file: str
    place: str = ""
    before: str
    now: str


class Gradings(_Part):
    """Verdicts that stood apart from their trajectories: put beside a run, known, or a run of their own."""

    attached: int = 0
    known: int = 0
    verdict_only: int = 0
    contradicting: list[Contradiction] = Field(default_factory=list)
    contradicting_count: int = 0
    # Those of which several runs could be meant, each with why.
    unattached: list[ProblemLine] = Field(default_factory=list)
    unattached_count: int = 0


class ImportReport(_Part):
    """The whole report; lists are cut after 200, counts are of all."""

    files: int = 0
    imported: int = 0
    known: int = 0
    partial: int = 0
    formats: list[FormatCount] = Field(default_factory=list)
    notes: list[NoteCount] = Field(default_factory=list)
    problems: list[ProblemLine] = Field(default_factory=list)
    problem_count: int = 0
    unrecognised: list[Unrecognised] = Field(default_factory=list)
    unrecognised_count: int = 0
    known_before: list[KnownBefore] = Field(default_factory=list)
    renumbered: list[Renumbered] = Field(default_factory=list)
    renumbered_count: int = 0
    gradings: Gradings = Field(default_factory=Gradings)


class ReportWriter:
    """Gathers a report while an import is read. The same files in the same lab make the same report."""

    def __init__(self) -> None:
        self.report = ImportReport()
        self._formats: dict[str, FormatCount] = {}
        self._notes: dict[tuple[str, str, str], NoteCount] = {}
        self._known: dict[int | None, KnownBefore] = {}
        self._unrecognised: dict[str, Unrecognised] = {}
        self.recognised: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """The figures that are shown while it goes on."""
        report = self.report
        gradings = report.gradings.attached + report.gradings.known + report.gradings.verdict_only
        return {
            "imported": report.imported,
            "known": report.known,
            "gradings": gradings,
            "verdict_only": report.gradings.verdict_only,
            "problems": report.problem_count,
            "files": report.files,
            "unread_files": report.unrecognised_count,
        }

    def file(self, name: str, title: str) -> None:
        self.of_format(name, title).files += 1

    def of_format(self, name: str, title: str = "") -> FormatCount:
        if name not in self._formats:
            self._formats[name] = FormatCount(name=_text(name), title=title)
            self.report.formats.append(self._formats[name])
        return self._formats[name]

    def notes(self, notes: tuple[Note, ...], *, format_name: str, run: int, file: str) -> None:
        """Count what a reader did not take as it stood, once for each run and field."""
        for key, note in {(note.kind, note.field): note for note in reversed(notes)}.items():
            kind, field = key
            count = self._notes.get((kind, format_name, field))
            if count is None:
                count = NoteCount(kind=kind, format=_text(format_name), field=_text(field))
                count.detail, count.example_run, count.example_file = _text(note.detail), run, _text(file)
                self._notes[kind, format_name, field] = count
                self.report.notes.append(count)
            count.runs += 1

    def problem(self, problem: Problem, format_name: str = "") -> None:
        self.report.problem_count += 1
        if format_name:
            self.of_format(format_name).problems += 1
        if len(self.report.problems) < MOST_SHOWN:
            self.report.problems.append(_line(problem.file, problem.place, problem.message))

    def unrecognised(self, path: str) -> None:
        name = path.rsplit("/", 1)[-1]
        ending = f".{name.rsplit('.', 1)[1].lower()}"[:16] if "." in name[1:] else ""
        found = self._unrecognised.get(ending)
        if found is None:
            found = self._unrecognised[ending] = Unrecognised(ending=_text(ending))
            self.report.unrecognised.append(found)
        found.files += 1
        self.report.unrecognised_count += 1
        if len(found.examples) < 5:
            found.examples.append(_text(path))

    def known(self, *, experiment: int | None, run: int, file: str) -> None:
        self.report.known += 1
        found = self._known.get(experiment)
        if found is None:
            found = KnownBefore(experiment=experiment, example_run=run, example_file=_text(file))
            self._known[experiment] = found
            self.report.known_before.append(found)
        found.trajectories += 1

    def renumbered(self, **values: Any) -> None:
        self.report.renumbered_count += 1
        if len(self.report.renumbered) < MOST_SHOWN:
            values["file"] = _text(values["file"])
            self.report.renumbered.append(Renumbered(**values))

    def contradiction(self, *, run: int, file: str, place: str, before: str, now: str) -> None:
        gradings = self.report.gradings
        gradings.contradicting_count += 1
        if len(gradings.contradicting) < MOST_SHOWN:
            gradings.contradicting.append(
                Contradiction(run=run, file=_text(file), place=_text(place), before=before, now=now)
            )

    def unattached(self, file: str, place: str, why: str) -> None:
        gradings = self.report.gradings
        gradings.unattached_count += 1
        if len(gradings.unattached) < MOST_SHOWN:
            gradings.unattached.append(_line(file, place, why))

    def to_json(self) -> dict[str, Any]:
        return self.report.model_dump(mode="json")


def _line(file: str, place: str, message: str) -> ProblemLine:
    return ProblemLine(file=_text(file), place=_text(place), message=_text(message))


def _text(value: str) -> str:
    return storable(str(clean_json(value)))[:_LONGEST_TEXT]
