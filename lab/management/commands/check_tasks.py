"""Checks that tasks can be graded: F2P tests fail without a patch, everything passes with the gold patch."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine import registry
from lab.engine.errors import InvalidValueError, LabError
from lab.engine.image_wait import said
from lab.engine.sandboxes.base import Progress
from lab.models import Task, TaskSet
from lab.render.text import one_line
from lab.services import isolation, tasks

_WORDS = {True: "valid    ", False: "INVALID  ", None: "UNCHECKED"}


class _Finding(NamedTuple):
    """`valid` is None where the task could not be checked; `problems` say why it is not known to be valid."""

    task: str
    valid: bool | None
    problems: list[str]


class Command(BaseCommand):
    help = (
        "Read a task set into the lab and check it; exits with 1 when a task is invalid, "
        "with 2 when one could not be checked."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("set", nargs="?", default="practice", help="name of a task set, or its folder")
        parser.add_argument(
            "--sandbox",
            choices=sorted(registry.PROVIDERS),
            help="default: what runs of each task get (LAB_SANDBOX; docker where the task brings an image)",
        )
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            task_set = _task_set(options["set"])
            kinds = _kinds(task_set, options["sandbox"])
        except LabError as error:
            raise CommandError(str(error)) from error
        findings: list[_Finding] = []
        for task, kind in kinds:
            finding = self._checked(task, kind)
            findings.append(finding)
            if not options["json"]:
                self._say(finding)
        if options["json"]:
            used = ", ".join(dict.fromkeys(kind for _, kind in kinds))
            found = {"set": str(task_set), "sandbox": used, "tasks": [each._asdict() for each in findings]}
            self.stdout.write(json.dumps(found, indent=2))
        if any(finding.valid is False for finding in findings):
            sys.exit(1)
        if any(finding.valid is None for finding in findings):
            sys.exit(2)

    def _checked(self, task: Task, kind: str) -> _Finding:
        """What was found; a task whose sandbox cannot be had keeps no other from being checked."""
        try:
            result = tasks.check_task(
                task=task, provider=isolation.provider(kind), progress=self._say_progress()
            )
        except LabError as error:
            return _Finding(task.slug, None, [str(error)])
        return _Finding(task.slug, result.valid, list(result.problems))

    def _say(self, finding: _Finding) -> None:
        self.stdout.write(f"{_WORDS[finding.valid]}  {finding.task}")
        for problem in finding.problems:
            self.stdout.write(f"           {problem}")

    def _say_progress(self) -> Progress:
        """Says what is done, and how far it is once a second."""
        next_line = 0.0

        def say(what: str, done: int | None, total: int | None) -> None:
            nonlocal next_line
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + 1.0
                self.stderr.write(one_line(said(what, done, total), 160))

        return say


def _kinds(task_set: TaskSet, asked: str | None) -> list[tuple[Task, str]]:
    """Each task with the kind of sandbox it is checked in.

    Raises:
        InvalidValueError: the kind asked for does not work here.
        IsolationMissingError: that of some task does not.
    """
    checked = list(task_set.tasks.all())
    if asked:
        missing = isolation.provider(asked).available()
        if missing:
            raise InvalidValueError("--sandbox", asked, f"does not work here: {missing}")
        return [(task, asked) for task in checked]
    ours = tasks.is_practice(task_set)
    isolation.check(tasks=checked, lab_commands_only=ours)
    return [
        (task, isolation.sandbox_kind(lab_commands_only=ours, brings_image=task.brings_image))
        for task in checked
    ]


def _task_set(name: str) -> TaskSet:
    """The set of this name that was read last, or the one in this folder; practice is read anew."""
    if name == "practice":
        return tasks.sync_practice()
    if (Path(name) / "set.toml").is_file():
        return tasks.sync_task_set(folder=Path(name).absolute())
    found = TaskSet.objects.filter(name=name).order_by("-pk").first()
    if found is None:
        known = ", ".join(sorted(set(TaskSet.objects.values_list("name", flat=True)))) or "practice"
        raise CommandError(
            f"set: {name!r} is not known; choose one of {known}, or give a folder with set.toml"
        )
    return found
