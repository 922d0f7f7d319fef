"""Exports: runs in a format of other programs or of the lab's own, streamed, and without what nobody may see.

Known secrets are replaced once more on the way out, texts that look like a key are masked as on pages, and
what hidden tests printed is there for operators only. Runs stand in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from django.contrib.auth.models import User

from lab.engine.errors import InvalidValueError
from lab.engine.formats.bundles import in_larger_pieces, zipped
from lab.engine.formats.exported import Exported, Member, Writer
from lab.engine.formats.lab_log import LabLog
from lab.engine.formats.write_tables import Parquet, require_parquet
from lab.engine.formats.writers import WRITERS
from lab.models import Experiment, Role, Run
from lab.services.access import for_role, holds
from lab.services.exported_runs import Loading

_LAB_LOG = LabLog()
_TYPES = {".json": "application/json", ".jsonl": "application/jsonl", ".zip": "application/zip"}


class Choice(NamedTuple):
    """A format as people choose it."""

    name: str
    title: str
    lost: Sequence[str]


CHOICES: tuple[Choice, ...] = (
    Choice(_LAB_LOG.name, _LAB_LOG.title, _LAB_LOG.lost),
    *(Choice(one.name, one.title, one.lost) for one in WRITERS),
)


class Export(NamedTuple):
    """A file on its way out. `pieces` are made while they are read, and can be read once."""

    file_name: str
    content_type: str
    pieces: Iterator[bytes]


@for_role(Role.VIEWER)
def of_run(*, by: User, run: Run, format_name: str) -> Export:
    """One run in a format.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
        InvalidValueError: "format", or "run" for one that has not begun where the format needs it to.
        ExtraMissingError: the format needs something that is not installed.
    """
    return export(runs=[run.pk], name=f"run-{run.pk}", format_name=format_name, sees_hidden=_operator(by))


@for_role(Role.VIEWER)
def of_experiment(*, by: User, experiment: Experiment, format_name: str, runs: Sequence[int] = ()) -> Export:
    """All runs of an experiment in a format, or those that are named.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
        InvalidValueError: "format", or "run" for one that is not of the experiment.
        ExtraMissingError: the format needs something that is not installed.
    """
    chosen = runs_of(experiment, only=runs)
    name = f"experiment-{experiment.pk}"
    return export(runs=chosen, name=name, format_name=format_name, sees_hidden=_operator(by))


def _operator(by: User) -> bool:
    return holds(by, Role.OPERATOR)


def runs_of(experiment: Experiment, *, only: Sequence[int] = ()) -> list[int]:
    """The numbers of the experiment's runs, or of those that are named.

    Raises:
        InvalidValueError: "run", for one that is not of the experiment.
    """
    numbers = list(Run.objects.filter(experiment=experiment).order_by("pk").values_list("pk", flat=True))
    there, wanted = set(numbers), set(only)
    for stranger in sorted(wanted - there):
        raise InvalidValueError("run", stranger, f"is no run of {experiment}; leave it out")
    return [run for run in numbers if run in wanted] if only else numbers


def known_runs(numbers: Sequence[int]) -> list[int]:
    """The numbers, each once and in order.

    Raises:
        InvalidValueError: "run", for one that is not there.
    """
    wanted = sorted(set(numbers))
    there = set(Run.objects.filter(pk__in=wanted).values_list("pk", flat=True))
    for missing in sorted(set(wanted) - there):
        raise InvalidValueError("run", missing, "is no run of this lab; the list of runs has the numbers")
    return wanted


def export(*, runs: Sequence[int], name: str, format_name: str, sees_hidden: bool) -> Export:
    """These runs as one file, whose name begins with `name`; for callers that have decided who may see what.

    Raises:
        InvalidValueError: "format", or "run" for a single one that has not begun and whose format needs it.
        ExtraMissingError: the format needs something that is not installed.
    """
    loading = Loading(sees_hidden=sees_hidden)
    if format_name == _LAB_LOG.name:
        pieces = _LAB_LOG.pieces(loading.logs(runs))
        return _export(f"{name}{_LAB_LOG.ending}", pieces)
    writer = next((one for one in WRITERS if one.name == format_name), None)
    if writer is None:
        names = ", ".join(choice.name for choice in CHOICES)
        raise InvalidValueError("format", format_name, f"is no format of an export; choose one of {names}")
    if writer.name == Parquet.name:
        require_parquet()
    if writer.shape == "one":
        (member,) = writer.members(loading.runs(runs))
        return _export(f"{name}-{writer.name}{writer.ending}", member.pieces)
    if writer.shape == "each" and len(runs) == 1:
        return _single(runs[0], name, writer, loading)
    return _export(f"{name}-{writer.name}.zip", zipped(_bundle(writer, runs, loading)))


def _export(file_name: str, pieces: Iterable[bytes]) -> Export:
    content_type = next(kind for ending, kind in _TYPES.items() if file_name.endswith(ending))
    return Export(file_name, content_type, in_larger_pieces(pieces))


def _single(number: int, name: str, writer: Writer, loading: Loading) -> Export:
    (run,) = loading.runs([number])
    if not _has_trajectory(run):
        reason = "has no trajectory yet: no attempt of it has begun; wait for it"
        raise InvalidValueError("run", number, reason)
    (member,) = writer.members([run])
    return _export(f"{name}{writer.ending}", member.pieces)


def _has_trajectory(run: Exported) -> bool:
    return run.attempt > 0


def _bundle(writer: Writer, runs: Sequence[int], loading: Loading) -> Iterator[Member]:
    """The writer's files, and one that says in words what is not in them."""
    left_out: list[int] = []
    found = loading.runs(runs)
    if writer.shape == "each":
        found = _kept(found, left_out.append)
    yield from writer.members(found)
    lines = [f"{writer.title}: {len(runs) - len(left_out)} of {len(runs)} runs"]
    lines += [f"run {number} is not there: no attempt of it has begun" for number in left_out]
    lines += [f"not carried: {sentence}" for sentence in writer.lost]
    yield Member("notes.txt", [("\n".join(lines) + "\n").encode()])


def _kept(runs: Iterable[Exported], leave_out: Callable[[int], None]) -> Iterator[Exported]:
    for run in runs:
        if _has_trajectory(run):
            yield run
        else:
            leave_out(run.run)
