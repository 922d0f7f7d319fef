"""Downloads a task set whose repositories do not come with the lab."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import LabError
from lab.services import task_downloads


class Command(BaseCommand):
    help = "Download a task set; what is there already is not downloaded again."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        known = ", ".join(task_downloads.known_sets())
        parser.add_argument("name", help=f"name of the set: {known}")
        parser.add_argument("--json", action="store_true", help="print name, version and tasks as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            task_set = task_downloads.fetch(options["name"])
        except LabError as error:
            raise CommandError(str(error)) from error
        slugs = list(task_set.tasks.values_list("slug", flat=True))
        if options["json"]:
            facts = {"set": task_set.name, "version": task_set.version, "tasks": slugs}
            self.stdout.write(json.dumps(facts, indent=2))
        else:
            self.stdout.write(f"{task_set}: {', '.join(slugs)}")
