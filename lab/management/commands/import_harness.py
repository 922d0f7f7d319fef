"""Reads a harness's wording out of somebody's checkout into a version of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.services import harnesses


class Command(BaseCommand):
    help = "Import prompt and tool schemas of Leaf from a checkout; nothing of it is run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--leaf", type=Path, required=True, help="top folder of a checkout of FrogNano")
        parser.add_argument("--json", action="store_true", help="print the version as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            version = harnesses.import_leaf_harness(checkout=options["leaf"])
        except InvalidValueError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            facts = {
                "harness": version.harness.name,
                "version": version.version,
                "digest": version.digest,
                "source": version.source,
            }
            self.stdout.write(json.dumps(facts, indent=2))
            return
        commit = version.source.get("commit") or "unknown"
        self.stdout.write(f"{version} is stored (commit {commit}, digest {(version.digest or '')[:12]}).")
