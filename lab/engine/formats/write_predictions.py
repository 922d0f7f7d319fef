"""Predictions as SWE-bench's harness reads them: one line a run that has recorded a patch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab.engine.formats.exported import Exported, Member, Shape, safe_name, written
from lab.engine.llm.base import JSONObject


class Predictions:
    name = "swe-bench"
    title = "SWE-bench predictions"
    shape: Shape = "one"
    ending = ".jsonl"
    lost = (
        "a line has a task, a name and a patch, and no place for anything else",
        "SWE-bench takes one line a task and name: repeats have the number of their seed in the name",
        "runs that have recorded no patch are left out; an empty patch is a line",
    )

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        yield Member("predictions.jsonl", _lines(runs))


def _lines(runs: Iterable[Exported]) -> Iterator[bytes]:
    for run in runs:
        if run.trajectory.patch is not None:
            yield (written(prediction(run)) + "\n").encode()


def prediction(run: Exported) -> JSONObject:
    """One line; the name holds harness, model, arm and seed, so that no two lines of an export are one.

    The harness of SWE-bench makes a folder of that name.
    """
    parts = (
        f"{run.harness}-{run.harness_version}",
        run.model,
        f"{run.experiment}{run.arm}",
        f"seed-{run.seed}",
    )
    name = "__".join(filter(None, map(safe_name, parts)))
    return {
        "instance_id": run.instance_id,
        "model_name_or_path": name,
        "model_patch": run.trajectory.patch,
    }
