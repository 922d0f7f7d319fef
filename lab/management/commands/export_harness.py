"""Writes a version of a harness as YAML, which import_harness reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.services import harnesses


class Command(BaseCommand):
    help = "Write a harness as YAML: `export_harness leaf-compatible@1 --output FILE`."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("harness", metavar="NAME[@VERSION]", help="a harness; its newest version, or one")
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="a new file; default: standard output"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        output: Path | None = options["output"]
        try:
            version = harnesses.find_version(name=options["harness"])
            text = harnesses.export_yaml(version=version)
        except InvalidValueError as error:
            raise CommandError(str(error)) from error
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise CommandError(f"--output: {str(output)!r} is there already; name a new file") from None
        except OSError as error:
            raise CommandError(
                f"--output: {str(output)!r} cannot be written ({error.strerror}); name another file"
            ) from None
        self.stdout.write(f"{version} is written to {output}.")
