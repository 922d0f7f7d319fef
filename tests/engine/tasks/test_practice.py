"""The task set "practice" is what it claims to be: graded here with real pytest and unittest processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unidiff import PatchSet

from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.plans import ACTIONS
from lab.engine.tasks.snapshot import digest_of, snapshot_files
from lab.engine.tasks.spec import TaskSpec

PRACTICE = load_task_set(practice_folder())
TASKS = pytest.mark.parametrize("task", PRACTICE.tasks, ids=lambda task: task.id)
PLANS = [
    pytest.param(task, plan, id=f"{task.id}-{model.removeprefix('scripted/')}-{number}")
    for task in PRACTICE.tasks
    for model, plans in task.plans.items()
    for number, plan in enumerate(plans, start=1)
]

PYTEST_LINE = re.compile(r"^PASSED (\S+)$", re.MULTILINE)
UNITTEST_LINE = re.compile(r"^\w+ \((\S+)\) \.\.\. ok$", re.MULTILINE)


@pytest.fixture
def workspace(tmp_path: Path, task: TaskSpec) -> Path:
    target = tmp_path / "workspace"
    shutil.copytree(task.repository, target, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return target


def apply_patch(patch: str, workspace: Path) -> None:
    subprocess.run(["git", "apply", "-"], cwd=workspace, input=patch, text=True, check=True)


_graded: dict[tuple[str, str], frozenset[str]] = {}


def passed_tests(task: TaskSpec, workspace: Path) -> frozenset[str]:
    """Put the hidden tests in place, run the task's command, return the ids of what passed.

    A state of the files that was graded before is not graded again.
    """
    for path, content in task.verification.test_files.items():
        file = workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    key = (task.id, digest_of(snapshot_files(workspace)))
    if key not in _graded:
        _graded[key] = run_tests(task, workspace)
    return _graded[key]


def run_tests(task: TaskSpec, workspace: Path) -> frozenset[str]:
    command = [sys.executable if word == "python" else word for word in task.verification.command]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=120
    )
    line = PYTEST_LINE if task.verification.runner == "pytest" else UNITTEST_LINE
    return frozenset(line.findall(done.stdout + done.stderr))


def expected_tests(task: TaskSpec) -> set[str]:
    return {*task.verification.fail_to_pass, *task.verification.pass_to_pass}


def actions(steps: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The actions of a plan in their order, parallel ones one after the other."""
    for step in steps:
        [name] = set(step) & set(ACTIONS)
        if name == "parallel":
            yield from actions(step["parallel"])
        else:
            yield name, step[name]


def act(steps: list[dict[str, Any]], workspace: Path) -> int:
    """Do what a plan writes and edits; return how many edits did not match exactly once."""
    refused = 0
    for name, what in actions(steps):
        if name == "write":
            file = workspace / what["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(what["content"], encoding="utf-8")
        elif name == "edit":
            file = workspace / what["path"]
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if text.count(what["old"]) == 1:
                file.write_text(text.replace(what["old"], what["new"]), encoding="utf-8")
            else:
                refused += 1
    return refused


def test_the_set_has_eight_tasks_of_rising_difficulty() -> None:
    order = ["easy", "medium", "hard"]
    ranks = [order.index(task.difficulty) for task in PRACTICE.tasks]
    assert len(ranks) == 8
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


def test_the_set_keeps_the_promises_of_its_traits() -> None:
    traits = {task.id: task.trait for task in PRACTICE.tasks if task.trait}
    two_files = [task for task in PRACTICE.tasks if task.trait == "two files"]
    assert len(two_files) >= 2
    assert all(len(PatchSet(task.gold_patch)) == 2 for task in two_files)
    assert {"tempting wrong cause", "punishes a regression"} <= set(traits.values())
    assert {task.verification.runner for task in PRACTICE.tasks} == {"pytest", "unittest"}


@TASKS
def test_a_task_is_well_formed(task: TaskSpec) -> None:
    assert practice_folder() / task.id / "repository" == task.repository
    assert task.verification.pass_to_pass
    files = [file for file in task.repository.rglob("*") if file.is_file() and file.suffix in {".py", ".md"}]
    assert 100 <= sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 400
    assert (task.repository / "README.md").is_file()
    assert not any(file.path.startswith("tests/") for file in PatchSet(task.gold_patch))
    for test_id in expected_tests(task):
        assert not re.search(r"\s", test_id)


@TASKS
def test_hidden_tests_reach_neither_the_repository_nor_the_statement(task: TaskSpec) -> None:
    for test_id in task.verification.fail_to_pass:
        name = re.split(r"::|\.", test_id.partition("[")[0])[-1]
        assert name not in task.statement
        for file in task.repository.rglob("*.py"):
            assert f"def {name}(" not in file.read_text(encoding="utf-8"), file


@TASKS
def test_the_repositorys_own_tests_pass_before_anything_is_changed(task: TaskSpec, workspace: Path) -> None:
    bare = task.model_copy(update={"verification": task.verification.model_copy(update={"test_files": {}})})
    passed = passed_tests(bare, workspace)
    assert passed
    assert passed <= set(task.verification.pass_to_pass)


@TASKS
def test_without_a_patch_every_fail_to_pass_test_fails_and_the_others_pass(
    task: TaskSpec, workspace: Path
) -> None:
    assert passed_tests(task, workspace) == set(task.verification.pass_to_pass)


@TASKS
def test_with_the_gold_patch_everything_passes(task: TaskSpec, workspace: Path) -> None:
    apply_patch(task.gold_patch, workspace)
    assert passed_tests(task, workspace) == expected_tests(task)


@pytest.mark.parametrize(("task", "plan"), PLANS)
def test_a_plan_earns_the_verdict_it_announces(task: TaskSpec, plan: dict[str, Any], workspace: Path) -> None:
    act(plan["steps"], workspace)
    resolved = expected_tests(task) <= passed_tests(task, workspace)
    assert ("resolved" if resolved else "unresolved") == plan["expected"]


@TASKS
def test_the_solver_works_with_care_and_the_struggler_does_not(task: TaskSpec, tmp_path: Path) -> None:
    assert set(task.plans) == {"scripted/solver", "scripted/struggler"}
    for number, plan in enumerate(task.plans["scripted/solver"]):
        assert plan["expected"] == "resolved"
        assert 6 <= len(plan["steps"]) <= 14
        target = tmp_path / str(number)
        shutil.copytree(task.repository, target)
        assert act(plan["steps"], target) == 0
        assert {"run", "edit", "finish"} <= {name for name, _ in actions(plan["steps"])}
    assert len(task.plans["scripted/solver"]) == len(task.plans["scripted/struggler"]) == 2
    assert any(plan["expected"] == "unresolved" for plan in task.plans["scripted/struggler"])


def test_every_plan_ends_with_its_only_finish() -> None:
    for task in PRACTICE.tasks:
        for plan in [plan for plans in task.plans.values() for plan in plans]:
            assert [name for name, _ in actions(plan["steps"])].count("finish") == 1
            assert "finish" in plan["steps"][-1]


def test_the_struggler_shows_every_way_of_going_wrong(tmp_path: Path) -> None:
    seen: set[str] = set()
    for task in PRACTICE.tasks:
        for number, plan in enumerate(task.plans["scripted/struggler"]):
            names = [name for name, _ in actions(plan["steps"])]
            target = tmp_path / f"{task.id}-{number}"
            shutil.copytree(task.repository, target)
            seen |= {"an edit that does not match"} if act(plan["steps"], target) else set()
            seen |= {"a malformed call"} if "malformed" in names else set()
            seen |= {"no edit at all"} if not {"edit", "write"} & set(names) else set()
            seen |= {"a long run"} if len(plan["steps"]) >= 40 else set()
            seen |= {"luck"} if plan["expected"] == "resolved" else set()
            if plan["expected"] == "unresolved" and not set(task.verification.pass_to_pass) <= passed_tests(
                task, target
            ):
                seen.add("a regression")
    assert seen == {
        "an edit that does not match",
        "a malformed call",
        "no edit at all",
        "a long run",
        "luck",
        "a regression",
    }
