"""Rebuilds the input of every model call of a run from its log and compares it with what was sent."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.harnesses.conversation import InputCheck, RebuiltInput, check_inputs
from lab.models import Event, Run
from lab.services import log, tombstones


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
        purged = _purged(number, check.differing)
        differing = [one for one in check.differing if one.seq not in purged]
        if options["json"]:
            found = {
                "run": number,
                "calls": check.calls,
                "equal": check.equal,
                "purged": [_described(one) for one in check.differing if one.seq in purged],
                "differing": [_described(one) for one in differing],
            }
            self.stdout.write(json.dumps(found, indent=2))
        else:
            self.stdout.write(f"run {number}: " + "\n".join(_told(check, differing, purged)))
        if differing:
            sys.exit(1)


def _purged(run: int, differing: list[RebuiltInput]) -> dict[int, str]:
    """Those of the calls whose input held what a purge has changed since: number -> what is said of it."""
    changed = tombstones.changed_events(run_id=run)
    attempts = dict(Event.objects.filter(run=run, seq__in=changed).values_list("seq", "attempt"))
    return {
        one.seq: changed[seq]
        for one in differing
        for seq in sorted(changed)
        if seq < one.seq and attempts.get(seq) == one.attempt
    }


def _described(one: RebuiltInput) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "attempt": one.attempt,
        "step": one.step,
        "request": one.request,
        "sent": one.sha256_expected,
        "rebuilt": one.sha256_actual,
    }


def _told(check: InputCheck, differing: list[RebuiltInput], purged: dict[int, str]) -> list[str]:
    lines = check.told()[:1] + InputCheck(0, differing).told()[1:]
    if purged:
        reasons = ", ".join(dict.fromkeys(purged.values()))
        lines.append(f"{len(purged)} cannot be rebuilt any more: what they were sent was {reasons}")
    return lines
