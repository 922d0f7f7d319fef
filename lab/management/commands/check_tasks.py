"""Checks that tasks can be graded: F2P tests fail without a patch, everything passes with the gold patch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import LabError
from lab.models import TaskSet
from lab.services import isolation, tasks


class Command(BaseCommand):
    help = "Check a task set; exits with 1 when a task is invalid."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("set", nargs="?", default="practice", help="name of a task set, or its folder")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            task_set = _task_set(options["set"])
            kind = isolation.sandbox_kind(lab_commands_only=tasks.is_practice(task_set))
            place = isolation.provider(kind)
            findings = [tasks.check_task(task=task, provider=place) for task in task_set.tasks.all()]
        except LabError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            facts = [
                {"task": finding.task_id, "valid": finding.valid, "problems": list(finding.problems)}
                for finding in findings
            ]
            found = {"set": str(task_set), "sandbox": kind, "tasks": facts}
            self.stdout.write(json.dumps(found, indent=2))
        else:
            for finding in findings:
                self.stdout.write(f"{'valid  ' if finding.valid else 'INVALID'}  {finding.task_id}")
                for problem in finding.problems:
                    self.stdout.write(f"         {problem}")
        if not all(finding.valid for finding in findings):
            sys.exit(1)


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
