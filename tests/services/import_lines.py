"""A format of the import tests' own, and imports of files in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Format, Probe, json_lines
from lab.engine.formats.leaf import Leaf, LeafResults
from lab.engine.formats.trajectory import (
    Found,
    FoundGrading,
    Grading,
    HarnessUsed,
    ModelUsed,
    Origin,
    Problem,
    Trajectory,
    Turn,
)
from lab.engine.llm.usage import read_usage
from lab.engine.verify.base import Outcome, TestOutcome
from lab.models import Import, Run
from lab.services import import_reading, interchange
from lab.services.import_reports import ImportReport


class Lines:
    """JSON lines, each a small trajectory or a verdict."""

    name = "lines"
    title = "lines of a test"

    def recognises(self, probe: Probe) -> bool:
        return any("mind" in one for one in (*probe.objects, probe.root))

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        for document in documents:
            for line in json_lines(document):
                yield self._found(document, line.place, line.value, line.problem, line.sha256)

    def _found(self, document: Document, place: str, value: Any, problem: str, sha256: str) -> Found:
        if problem:
            return Problem(file=document.path, place=place, message=problem)
        if value.get("breaks"):
            raise ZeroDivisionError
        origin = Origin(format="lines", file=document.path, place=place, sha256=sha256)
        if "outcome" in value:
            tests = tuple(TestOutcome(test_id=name, group="fail_to_pass", status="passed") for name in "ab")
            grading = Grading(
                rule="swe-bench",
                outcome=Outcome(value["outcome"]),
                tests=tests if value.get("tests") else (),
            )
            return FoundGrading(
                origin=origin, instance_id=value["mind"], grading=grading, model=value.get("model", "")
            )
        usage = read_usage({"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100})
        cost = value.get("cost")
        return Trajectory(
            origin=origin,
            harness=HarnessUsed(name="loop", version="2", config={"limit": value.get("limit", 5)}),
            model=ModelUsed(name=value.get("model", "openai/gpt-4o")),
            instance_id=value["mind"],
            statement=f"Mend {value['mind']}",
            seed=value.get("seed") if isinstance(value.get("seed"), int) else None,
            items=(
                Turn(
                    message={"role": "assistant", "content": value.get("says", "hello")},
                    usage=usage,
                    cost_reported=cost,
                ),
            ),
            exit_reason=ExitReason.AGENT,
        )


FORMATS: tuple[Format, ...] = (Lines(), Leaf(), LeafResults())


def lines(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def imported(*paths: Path, **options: Any) -> Import:
    return import_reading.import_now(paths=paths, worker="w/1/1", formats=FORMATS, **options)


def report(row: Import) -> ImportReport:
    return interchange.report_of(row)


def runs_of(row: Import) -> list[Run]:
    return list(Run.objects.filter(experiment=row.experiment).order_by("pk"))
