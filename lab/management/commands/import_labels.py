"""Imports labels from files: the lab's own, and those of published collections."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from lab.render.text import one_line, visible_text
from lab.services import label_imports
from lab.services.errors import FieldErrors

NOT_ALL_READ = 1
_LISTED = 20


class Command(BaseCommand):
    help = (
        "Import labels (the lab's JSON lines or CSV, AgentRx, Who&When, SWE-bench Pro). Labels whose run is "
        "not here are listed; import its trajectory and give the file again. Exits with 1 when any was left."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
        parser.add_argument("--annotator", default="", help="whose they are, where the file does not say")
        parser.add_argument("--experiment", type=int, metavar="N", help="only its runs are meant")

    def handle(self, *args: Any, **options: Any) -> None:
        left = 0
        for path in options["paths"]:
            try:
                found = label_imports.import_labels(
                    name=path.name,
                    data=path.read_bytes(),
                    annotator=options["annotator"],
                    experiment=options["experiment"],
                )
            except (FieldErrors, OSError) as error:
                raise CommandError(str(error)) from error
            left += len(found.missing) + len(found.problems)
            self._tell(path, found)
        if left:
            sys.exit(NOT_ALL_READ)

    def _tell(self, path: Path, found: label_imports.LabelImport) -> None:
        counts = f"{found.new} imported, {found.known} known already"
        judged = f", {found.judgements} of them judgements of a model" if found.judgements else ""
        self.stdout.write(_plain(f"{path.name} ({found.format}): {counts}{judged}"))
        for word, n in found.words.most_common(_LISTED):
            self.stdout.write(_plain(f"category of no code here, kept as written: {word} ({n})"))
        for title, rows in (("not imported", found.missing), ("problem", found.problems)):
            for one in rows[:_LISTED]:
                self.stderr.write(_plain(f"{title}: {one.place} {one.run}: {one.why}"))
            if len(rows) > _LISTED:
                self.stderr.write(f"… and {len(rows) - _LISTED} more")


def _plain(line: str) -> str:
    return one_line(visible_text(line), 400)
