"""Verdicts alone: maps of instances to true or false."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.engine.formats.base import Document, Probe
from lab.engine.formats.swe_bench_report import load_object, origin_of
from lab.engine.formats.trajectory import Found, FoundGrading, Grading, Problem
from lab.engine.verify.base import Outcome

# The file does not say how it was graded.
RULE = "results-map"


class ResultsMap:
    """Reads `{instance: true}`; null is an instance without a verdict."""

    name = "results-map"
    title = "results map: instances with true or false"

    def recognises(self, probe: Probe) -> bool:
        verdicts = probe.root.values()
        return any(isinstance(one, bool) for one in verdicts) and all(
            one is None or isinstance(one, bool) for one in verdicts
        )

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON object.
        """
        for document in documents:
            digest = document.sha256()
            # Whose results these are, stands nowhere else.
            results = document.name.removesuffix(".json")
            for instance, verdict in load_object(document).items():
                if not isinstance(verdict, bool) or not instance:
                    message = "has neither true nor false" if instance else "is a verdict without an instance"
                    yield Problem(file=document.path, place=instance, message=message)
                    continue
                yield FoundGrading(
                    origin=origin_of(self.name, document, digest, instance),
                    instance_id=instance,
                    harness=results,
                    grading=Grading(rule=RULE, outcome=Outcome.RESOLVED if verdict else Outcome.UNRESOLVED),
                )
