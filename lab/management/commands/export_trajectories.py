"""Writes runs in a format of other programs, or as logs that another lab takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError, LabError
from lab.models import Experiment
from lab.services import exports


class Command(BaseCommand):
    help = (
        "Write runs to one file: `export_trajectories --experiment 3 --format atif --out runs.zip`. Secrets "
        "that the lab knows are replaced and what looks like a key is masked; what hidden tests printed is "
        "there."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--run", type=int, nargs="+", metavar="N", help="numbers of runs")
        what.add_argument("--experiment", type=int, metavar="N", help="the number of an experiment")
        names = ", ".join(f"{choice.name} ({choice.title})" for choice in exports.CHOICES)
        parser.add_argument("--format", required=True, metavar="NAME", help=names)
        parser.add_argument(
            "--out", type=Path, required=True, metavar="PATH", help="a new file, or a folder for one"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            name, runs = _chosen(options["run"], options["experiment"])
            export = exports.export(runs=runs, name=name, format_name=options["format"], sees_hidden=True)
        except InvalidValueError as error:
            raise CommandError(f"--{error}") from error
        except LabError as error:
            raise CommandError(str(error)) from error
        out: Path = options["out"]
        target = out / export.file_name if out.is_dir() else out
        size = _write(target, export.pieces)
        plural = "" if len(runs) == 1 else "s"
        self.stdout.write(f"{len(runs)} run{plural}, {size:,} bytes: {target}")


def _chosen(runs: list[int] | None, experiment: int | None) -> tuple[str, list[int]]:
    """The beginning of the file's name, and the numbers of the runs."""
    if runs is not None:
        numbers = exports.known_runs(runs)
        return (f"run-{numbers[0]}" if len(numbers) == 1 else f"{len(numbers)}-runs"), numbers
    row = Experiment.objects.filter(pk=experiment or 0).first()
    if row is None:
        raise InvalidValueError("experiment", experiment, "is no experiment of this lab")
    return f"experiment-{row.pk}", exports.runs_of(row)


def _write(target: Path, pieces: Iterator[bytes]) -> int:
    """The size in bytes. The file is whole or absent, and takes nothing's place."""
    beside = target.with_name(f"{target.name}.part")
    try:
        with beside.open("xb") as file:
            for piece in pieces:
                file.write(piece)
            size = file.tell()
        if target.exists():
            raise FileExistsError
        beside.rename(target)
    except FileExistsError:
        beside.unlink(missing_ok=True)
        raise CommandError(f"--out: {str(target)!r} is there already; name a new file") from None
    except OSError as error:
        beside.unlink(missing_ok=True)
        reason = f"{str(target)!r} cannot be written ({error.strerror}); name another file"
        raise CommandError(f"--out: {reason}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return size
