"""Loads the sample lab into this lab, or removes it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from lab.engine.errors import LabError
from lab.services import sample
from lab.services.sample import SampleState

_EVERY = 12


class Command(BaseCommand):
    help = "Load recorded runs to look at, marked “demo”, or remove them without a trace."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=["load", "remove"])

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] == "load":
                self._load()
            else:
                removed = sample.clear()
                self.stdout.write(f"Removed {removed.runs} demo runs and {removed.bodies} stored bodies.")
        except (LabError, OSError) as error:
            raise CommandError(str(error)) from error

    def _load(self) -> None:
        def say(now: SampleState) -> None:
            if now.loaded % _EVERY == 0 or now.complete:
                self.stdout.write(f"{now.loaded} of {now.total} runs")
                self.stdout.flush()

        now = sample.play(on_progress=say)
        if now.experiment is not None:
            self.stdout.write(
                f"The sample lab is experiment {now.experiment.pk}; `manage.py sample_lab remove` removes it."
            )
