"""Reads a harness out of somebody's own copy, or out of a YAML file, into a version of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.literals import read_text
from lab.engine.harnesses.yaml_reading import LARGEST_YAML
from lab.models import HarnessVersion
from lab.services import harnesses


class Command(BaseCommand):
    help = "Import a harness: its wording from a copy of yours, or all of it from YAML. Nothing of it is run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        sources = parser.add_mutually_exclusive_group(required=True)
        sources.add_argument("--leaf", type=Path, help="top folder of a checkout of FrogNano")
        sources.add_argument("--r2e", type=Path, help="top folder of a checkout of R2E-Gym")
        sources.add_argument("--mini", type=Path, help="a configuration file of mini-swe-agent")
        sources.add_argument(
            "--yaml", type=Path, help="a file as export_harness writes it; - reads from stdin"
        )
        parser.add_argument("--name", help="with --yaml: the harness's name, in place of the file's")
        parser.add_argument("--json", action="store_true", help="print the version as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["name"] and not options["yaml"]:
            raise CommandError("--name: goes with --yaml; other harnesses are named after their revision")
        try:
            version = _imported(options)
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
        commit = version.source.get("commit")
        found = f"commit {commit}, " if commit else "commit unknown, " if "commit" in version.source else ""
        self.stdout.write(f"{version} is stored ({found}digest {(version.digest or '')[:12]}).")
        for note in version.source.get("notes") or ():
            self.stdout.write(note)
        left_out = version.source.get("left_out")
        if left_out:
            self.stdout.write(f"Not carried over: {', '.join(left_out)}.")


def _imported(options: dict[str, Any]) -> HarnessVersion:
    if options["leaf"]:
        return harnesses.import_leaf_harness(checkout=options["leaf"])
    if options["r2e"]:
        return harnesses.import_r2e_harness(checkout=options["r2e"])
    if options["mini"]:
        return harnesses.import_mini_harness(file=options["mini"])
    file: Path = options["yaml"]
    if str(file) == "-":
        return harnesses.store_yaml(text=sys.stdin.read(), name=options["name"])
    text = read_text("--yaml", file, largest=LARGEST_YAML)
    return harnesses.store_yaml(text=text, name=options["name"], file=file.name)
