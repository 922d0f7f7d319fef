"""Says whether the lab can work on this machine, and what to do where it cannot."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from lab.services import doctor

MARKS: dict[doctor.State, str] = {
    "ok": "ok     ",
    "absent": "absent ",
    "warning": "warning",
    "problem": "PROBLEM",
}


class Command(BaseCommand):
    help = (
        "Say what works on this machine (sandboxes and their isolation, database, broker, disk, port), each "
        "tried, and how to get the rest. Exits with 1 when something needed does not work."
    )
    # It must run where nothing else does.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = doctor.examine()
        if options["json"]:
            self.stdout.write(json.dumps([finding._asdict() for finding in findings], indent=2))
        else:
            for finding in findings:
                self.stdout.write(f"{MARKS[finding.state]}  {finding.check}: {finding.message}")
                if finding.remedy:
                    self.stdout.write(f"         → {finding.remedy}")
        if any(finding.state == "problem" for finding in findings):
            sys.exit(1)
