"""Writes submitted labels to one file, for another lab or in the shape of a published collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.engine.labels.formats.catalogue import WRITTEN
from lab.services import label_exports


class Command(BaseCommand):
    help = (
        "Write labels to one file: `export_labels --format lab-jsonl --out labels.jsonl`. Labels that pages "
        "still hide from whoever labels the same runs are there too: the shell hides nothing."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        names = ", ".join(f"{name} ({title})" for name, title in WRITTEN)
        parser.add_argument("--format", default="lab-jsonl", metavar="NAME", help=names.replace("%", "%%"))
        parser.add_argument("--experiment", type=int, metavar="N", help="of its runs only")
        parser.add_argument("--guideline", type=int, metavar="N", help="under this guideline version only")
        parser.add_argument("--annotator", type=int, metavar="N", help="by this annotator only")
        parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="a new file")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = label_exports.Wanted(
            guideline=options["guideline"], experiment=options["experiment"], annotator=options["annotator"]
        )
        try:
            found = label_exports.export_all(format_name=options["format"], wanted=wanted)
        except InvalidValueError as error:
            raise CommandError(f"--{error}") from error
        out: Path = options["out"]
        target = out / found.file_name if out.is_dir() else out
        try:
            with target.open("xb") as stream:
                stream.write(found.content)
        except OSError as error:
            raise CommandError(f"--out: {target} cannot be written ({error}); name a new file") from error
        more = f", {found.unfit} left out: the format has no place for them" if found.unfit else ""
        self.stdout.write(f"{found.labels} labels{more}: {target}")
