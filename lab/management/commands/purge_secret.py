"""Takes a leaked secret out of everything the lab has stored."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.services import purges


class Command(BaseCommand):
    help = (
        "Take a leaked secret out of the database and the stored bodies; tombstones say when, by whom and "
        "why. The secret is asked for, or read from standard input or a file: arguments are seen by others."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--file", help="a file whose whole text is the secret")
        parser.add_argument("--reason", default="", help="why, for whoever meets the tombstones (needed)")
        parser.add_argument("--person", default="", help="who purges (this machine's user)")
        parser.add_argument("--dry-run", action="store_true", help="say what would be found, change nothing")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        reason = options["reason"].strip()
        if not reason and not options["dry_run"]:
            raise CommandError(
                "--reason: nothing was written; say why, such as --reason 'key of the mail server'"
            )
        try:
            secret = purges.Secret(self._value(options["file"]))
        except InvalidValueError as error:
            raise CommandError(str(error)) from None
        if options["dry_run"]:
            found = purges.look(secret=secret)
        else:
            found = purges.purge(secret=secret, person=options["person"] or getpass.getuser(), reason=reason)
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(secret, found), indent=2))
        else:
            self._tell(found, dry=options["dry_run"])
        if not options["dry_run"] and (found.going_on or found.files or not found.gone):
            sys.exit(1)

    def _value(self, file: str | None) -> str:
        if file:
            try:
                return Path(file).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise CommandError(
                    f"--file: {file} cannot be read ({error}); name a readable text file"
                ) from None
        if sys.stdin.isatty():
            return getpass.getpass("The leaked secret (it is not shown): ")
        return sys.stdin.read()

    def _tell(self, found: purges.Found, *, dry: bool) -> None:
        if not found.anything:
            self.stdout.write("Found nowhere in the database and in no stored body.")
        else:
            rows = ", ".join(f"{count} in {table}" for table, count in sorted(found.rows.items()))
            verb = "Would purge" if dry else "Purged"
            bodies = f"{found.bodies} stored bodies"
            self.stdout.write(f"{verb}: rows: {rows or 'none'}; {bodies}; runs: {_listed(found.runs)}.")
        for path in found.files:
            self.stdout.write(
                f"It stands in the file {path} too, which this command leaves alone: mend it yourself."
            )
        if found.going_on:
            self.stdout.write(
                f"Runs that are going on and may store it again: {_listed(set(found.going_on))}. "
                "Cancel them, and purge once more when they have ended."
            )
        if not found.gone:
            self.stdout.write(
                "Old copies may be left in the database's own files, because other processes use it: "
                "stop the lab and purge once more."
            )
        if found.anything and not dry:
            self.stdout.write("Pages of ended runs that are open show it until they are loaded anew.")
            self.stdout.write("Whoever saw it has it still: make the secret worthless where it is valid.")


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


def _as_json(secret: purges.Secret, found: purges.Found) -> dict[str, Any]:
    return {
        "secret_sha256": secret.sha256,
        "rows": found.rows,
        "bodies": found.bodies,
        "runs": sorted(found.runs),
        "events": {str(run): sorted(seqs) for run, seqs in sorted(found.events.items())},
        "files": [str(path) for path in found.files],
        "going_on": found.going_on,
        "no_old_copies": found.gone,
    }
