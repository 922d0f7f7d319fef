"""Patches as SWE-bench's harness reads them."""

from __future__ import annotations

import json

from lab.engine.formats.trajectory import HarnessUsed, Origin, Trajectory
from lab.engine.formats.write_predictions import Predictions
from lab.engine.llm.base import JSONObject
from tests.engine.formats.made_trajectories import exported


def patched(patch: str | None, **changes: object) -> Trajectory:
    origin = Origin(format="trajectory-lab", file="", sha256="")
    return Trajectory(origin=origin, harness=HarnessUsed(name="leaf"), patch=patch, **changes)  # type: ignore[arg-type]


def lines(*found: Trajectory, **changes: object) -> list[JSONObject]:
    (member,) = Predictions().members([exported(one, **changes) for one in found])
    assert member.name == "predictions.jsonl"
    return [json.loads(line) for line in b"".join(member.pieces).splitlines()]


def test_a_line_has_task_name_and_patch_and_nothing_else() -> None:
    (line,) = lines(patched("diff\n", instance_id="django__django-1"))
    assert line == {
        "instance_id": "django__django-1",
        "model_name_or_path": "leaf-compatible-4__cedar__3A__seed-1",
        "model_patch": "diff\n",
    }


def test_repeats_of_a_task_have_names_of_their_own() -> None:
    first, second = lines(patched("a"), patched("b"))
    assert first["model_name_or_path"] == second["model_name_or_path"]
    (third,) = lines(patched("b"), seed=2)
    assert third["model_name_or_path"] != first["model_name_or_path"]


def test_an_empty_patch_is_a_line_and_none_is_not() -> None:
    (line,) = lines(patched(None), patched(""))
    assert line["model_patch"] == ""


def test_a_task_without_a_recorded_name_has_that_of_the_lab() -> None:
    assert lines(patched("a"))[0]["instance_id"] == "click-1"
