"""Rebuilds the input of every model call of a run from its log and compares it with what was sent."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.harnesses.conversation import check_inputs
from lab.models import Run
from lab.services import log


class Command(BaseCommand):
    help = "Rebuild the input of every model call of a run from its log; exits with 1 when one differs."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=int, help="the run's number, as in its page's address")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        number = options["run"]
        if not Run.objects.filter(pk=number).exists():
            raise CommandError(f"run: {number} is not known; take the number from the run's page")
        check = check_inputs(log.read_records(run_id=number))
        if options["json"]:
            differing = [
                {
                    "seq": one.seq,
                    "attempt": one.attempt,
                    "step": one.step,
                    "request": one.request,
                    "sent": one.sha256_expected,
                    "rebuilt": one.sha256_actual,
                }
                for one in check.differing
            ]
            found = {"run": number, "calls": check.calls, "equal": check.equal, "differing": differing}
            self.stdout.write(json.dumps(found, indent=2))
        else:
            self.stdout.write(f"run {number}: " + "\n".join(check.told()))
        if check.differing:
            sys.exit(1)
