"""Records the sample lab anew: 96 real runs, written to the file that comes with the lab."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from lab.engine.errors import LabError
from lab.engine.events import RunEnded
from lab.services import isolation, sample_log, sample_recording
from lab.services.sample_log import RecordedRun


class Command(BaseCommand):
    help = (
        "Run the sample lab for real and store its log in the lab itself (lab/sample/): needed after a "
        "change of the practice tasks or of a preset. Takes some minutes and bubblewrap."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", type=Path, default=sample_log.STORED, help="another file to write to")

    def handle(self, *args: Any, **options: Any) -> None:
        out: Path = options["out"]
        provider = isolation.provider(isolation.ISOLATED)
        if missing := provider.available():
            raise CommandError(f"a sample is recorded in real sandboxes: {missing}")
        about = sample_recording.about() | sample_recording.made_with()
        ended: Counter[str] = Counter()
        try:
            recorded = sample_recording.record(provider=provider, data_folder=Path(settings.LAB_DATA_DIR))
            size = sample_log.write(out, about=about, runs=self._told(recorded, ended))
        except (LabError, OSError) as error:
            raise CommandError(str(error)) from error
        outcomes = ", ".join(f"{count} {what}" for what, count in ended.most_common())
        self.stdout.write(f"{out}: {size:,} bytes; {outcomes}")

    def _told(self, runs: Iterator[RecordedRun], ended: Counter[str]) -> Iterator[RecordedRun]:
        """The runs as they end, each said in a line."""
        total = len(sample_recording.cells())
        for number, run in enumerate(runs, start=1):
            end = run.records[-1].event
            if isinstance(end, RunEnded):
                ended[f"{end.verdict} by {end.exit_reason}"] += 1
                self.stdout.write(f"{number} of {total}: {run.cell}: {end.verdict}, {end.exit_reason}")
                self.stdout.flush()
            yield run
