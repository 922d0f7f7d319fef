"""Removes sandboxes that nobody needs any more, as the tick does by itself while the lab runs."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from lab.engine.errors import LabError
from lab.management.supervision import only_one_lab
from lab.services import upkeep


class Command(BaseCommand):
    help = (
        "Kill and remove sandboxes of this lab whose run or process is gone: processes, folders, containers "
        "with this lab's label. With --all, also those of runs that are to go on: for a lab that is stopped."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help="also those of runs; only for a stopped lab")
        parser.add_argument("--json", action="store_true", help="print the labels as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        # Held while it is done: nobody starts a lab meanwhile whose runs would lose theirs.
        stopped = only_one_lab(Path(settings.LAB_DATA_DIR)) if options["all"] else contextlib.nullcontext()
        try:
            with stopped:
                removed = upkeep.reap_sandboxes(all_of_them=options["all"])
        except (LabError, DatabaseError, OSError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({"removed": removed}, indent=2))
        else:
            for label in removed:
                self.stdout.write(f"removed  {label}")
            self.stdout.write(f"{len(removed)} removed" if removed else "nothing was left")
