"""Computes the roll-ups of runs anew from their logs, such as those that an older release has made."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from lab.models import Run
from lab.services import facts

_TOLD_EVERY = 100


class Command(BaseCommand):
    help = (
        "Compute the roll-ups that lists and analyses read anew from the logs: without a number those that "
        "an older release made. Each is stored at once, so that the command goes on where it was stopped."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("runs", nargs="*", type=int, metavar="RUN", help="the numbers of some runs")
        parser.add_argument("--all", action="store_true", help="every run, whatever its roll-up says")
        parser.add_argument("--json", action="store_true", help="print what was done as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            numbers = self._chosen(options["runs"], everything=options["all"])
            problems = self._rebuild(numbers)
        except DatabaseError as error:
            raise CommandError(f"database: {error}; `manage.py doctor` says more") from error
        done = len(numbers) - len(problems)
        if options["json"]:
            self.stdout.write(json.dumps({"rebuilt": done, "problems": problems}, indent=2))
        else:
            for run, problem in problems.items():
                self.stdout.write(f"PROBLEM  run {run}: {problem}; `manage.py check_data` says more")
            self.stdout.write(f"{done:,} roll-ups rebuilt" if numbers else "every roll-up is of this release")
        if problems:
            sys.exit(1)

    def _chosen(self, asked: list[int], *, everything: bool) -> list[int]:
        if asked and everything:
            raise CommandError(f"runs: {asked} and --all; name some runs, or all of them")
        if not asked:
            runs = Run.objects.filter(last_seq__gt=0).order_by("pk") if everything else facts.outdated()
            return list(runs.values_list("pk", flat=True))
        known = set(Run.objects.filter(pk__in=asked).values_list("pk", flat=True))
        if missing := [number for number in asked if number not in known]:
            raise CommandError(f"runs: {missing[0]} is not known; take the number from the run's page")
        return list(dict.fromkeys(asked))

    def _rebuild(self, numbers: list[int]) -> dict[int, str]:
        """The runs whose log cannot be read, and why."""
        problems = {}
        for done, number in enumerate(numbers, start=1):
            try:
                facts.rebuild_facts(run_id=number)
            except (KeyError, TypeError, ValueError, ArithmeticError) as error:
                problems[number] = f"its log cannot be read: {type(error).__name__}: {error}"
            if done % _TOLD_EVERY == 0:
                self.stderr.write(f"{done:,} of {len(numbers):,} runs")
        return problems
