"""Predictions: the patches of a run as SWE-bench grades them, without a verdict.

A JSON object by instance (`preds.json`), a list, or one a line; SWE-bench Pro calls the patch `patch`, beside
a `prefix` that names the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.engine.formats.base import Document, Probe
from lab.engine.formats.json_values import Value, values_in
from lab.engine.formats.reading import mapping, text
from lab.engine.formats.swe_bench_report import origin_of
from lab.engine.formats.trajectory import Found, FoundGrading, Origin, Problem


class SweBenchPredictions:
    """Reads patches, each to be put to its trajectory or to stand as a run without steps."""

    name = "swe-bench-predictions"
    title = "SWE-bench: predictions (preds.json, .jsonl)"

    def recognises(self, probe: Probe) -> bool:
        if probe.kind == "jsonl":
            return bool(probe.objects) and all(_is_prediction(one) for one in probe.objects)
        if isinstance(probe.value, list):
            return bool(probe.value) and all(_is_prediction(mapping(one)) for one in probe.value)
        if _is_prediction(probe.root):
            return True
        return bool(probe.root) and all(_is_prediction(mapping(one)) for one in probe.root.values())

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON.
        """
        for document in documents:
            for value in values_in(document):
                yield from self._in_value(document, value)

    def _in_value(self, document: Document, value: Value) -> Iterator[Found]:
        if value.problem:
            yield Problem(file=document.path, place=value.place, message=value.problem)
        elif isinstance(value.value, list):
            for number, one in enumerate(value.value, start=1):
                place = f"entry {number}"
                yield self._found(document, place, one, origin_of(self.name, document, value.sha256, place))
        elif _is_prediction(mapping(value.value)):
            origin = Origin(format=self.name, file=document.path, place=value.place, sha256=value.sha256)
            yield self._found(document, value.place, value.value, origin)
        else:
            for instance, one in mapping(value.value).items():
                origin = origin_of(self.name, document, value.sha256, instance)
                yield self._found(document, instance, one, origin, instance)

    def _found(self, document: Document, place: str, one: Any, origin: Origin, instance: str = "") -> Found:
        prediction = mapping(one)
        name = text(prediction.get("instance_id")) or instance
        patch = prediction.get("model_patch", prediction.get("patch"))
        if not name or not isinstance(patch, str):
            message = "holds no patch" if name else "names no instance"
            return Problem(file=document.path, place=place, message=message)
        model = text(prediction.get("model_name_or_path")) or text(prediction.get("prefix"))
        return FoundGrading(
            origin=origin,
            instance_id=name,
            grading=None,
            # With the sign that Portkey puts before it, it would be another model than its trajectories'.
            model=model.removeprefix("@"),
            patch=patch,
        )


def _is_prediction(one: Mapping[str, Any]) -> bool:
    # A task's own record has a patch too, the right one.
    return "model_patch" in one or ("patch" in one and "prefix" in one)
