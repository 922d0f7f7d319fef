"""The stored log of the sample lab: real runs, recorded once, that a new lab plays into its own log.

One compressed file of JSON lines. The first line says what was recorded; then each run is a line
`{"run": {…}}`, a line `{"blob": sha256, "data": base64}` for each stored body that no run before it had, and
its records as `Record.to_line` writes them. Runs repeat each other almost word for word, which a compressor
with a window as large as the file makes small.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import zstandard

from lab.engine.errors import LabError
from lab.engine.events import Record, read_record
from lab.engine.llm.base import JSONObject

STORED = Path(__file__).resolve().parent.parent / "sample" / "runs.jsonl.zst"
FORMAT = 1
_LEVEL = 19
# The whole file, uncompressed: what a reader has to remember. 32 MB.
_WINDOW_LOG = 25


class SampleLogError(LabError):
    """The stored log is not there or cannot be read; the text names the file and the way out."""


class Cell(NamedTuple):
    """Which run: harness, model and task by name, and the repeat index from 1."""

    harness: str
    model: str
    task: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task} × {self.harness} × {self.model} × seed {self.seed}"


@dataclass(frozen=True)
class RecordedRun:
    """One run as it was recorded: `run_ended` is its last record. `blobs` are bodies by their SHA-256."""

    cell: Cell
    records: tuple[Record, ...]
    blobs: Mapping[str, bytes]

    @property
    def seconds(self) -> float:
        return (self.records[-1].at - self.records[0].at).total_seconds()


@dataclass(frozen=True)
class StoredRun:
    """A run in the file, decoded when it is asked for."""

    cell: Cell
    seconds: float
    lines: tuple[str, ...]
    bodies: Mapping[str, str]

    def read(self) -> RecordedRun:
        """
        Raises:
            pydantic.ValidationError: a record that this release does not know.
        """
        records = tuple(read_record(json.loads(line)) for line in self.lines)
        return RecordedRun(
            self.cell,
            records,
            {sha256: base64.b64decode(data) for sha256, data in self.bodies.items()},
        )


@dataclass(frozen=True)
class StoredLog:
    """Everything in the file. `about` says with what the runs were made: digests, versions, limits."""

    about: JSONObject
    runs: tuple[StoredRun, ...]


def write(path: Path, *, about: JSONObject, runs: Iterable[RecordedRun]) -> int:
    """Write the file; returns its size in bytes.

    Raises:
        OSError: it cannot be written.
    """
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, enable_ldm=True
    )
    lines = (line.encode() + b"\n" for line in _lines(about, runs))
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(b"".join(lines))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed)
    return len(packed)


def _lines(about: JSONObject, recorded: Iterable[RecordedRun]) -> Iterator[str]:
    runs = list(recorded)
    yield json.dumps({"format": FORMAT, "runs": len(runs), **about}, ensure_ascii=False)
    written: set[str] = set()
    for run in runs:
        needed = list(run.blobs)
        yield json.dumps({"run": {**run.cell._asdict(), "seconds": run.seconds, "blobs": needed}})
        for sha256 in needed:
            if sha256 not in written:
                written.add(sha256)
                yield json.dumps({"blob": sha256, "data": base64.b64encode(run.blobs[sha256]).decode()})
        for record in run.records:
            yield record.to_line()


def read(path: Path = STORED) -> StoredLog:
    """The file's runs, none of them decoded yet.

    Raises:
        SampleLogError: it is not there, or not what this release wrote.
    """
    with _opened(path) as lines:
        return _read(lines)


@functools.cache
def count_runs(path: Path = STORED) -> int:
    """How many runs the file holds, from its first line.

    Raises:
        SampleLogError: as `read`.
    """
    with _opened(path) as lines:
        return int(_about(lines)["runs"])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    try:
        with path.open("rb") as packed:
            reader = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(packed)
            yield iter(io.TextIOWrapper(reader, encoding="utf-8"))
    except (OSError, zstandard.ZstdError, ValueError, KeyError) as error:
        raise SampleLogError(
            f"the stored log of the sample lab, {path}, cannot be read ({error}); install the lab again"
        ) from error


def _about(lines: Iterator[str]) -> JSONObject:
    about: JSONObject = json.loads(next(lines, "{}"))
    if about.get("format") != FORMAT:
        raise ValueError("it has another format")
    return about


def _read(iterator: Iterator[str]) -> StoredLog:
    about = _about(iterator)
    bodies: dict[str, str] = {}
    runs: list[tuple[JSONObject, list[str]]] = []
    for line in iterator:
        if line.startswith('{"run": '):
            runs.append((json.loads(line)["run"], []))
        elif line.startswith('{"blob": '):
            body = json.loads(line)
            bodies[body["blob"]] = body["data"]
        else:
            runs[-1][1].append(line)
    stored = (
        StoredRun(
            cell=Cell(run["harness"], run["model"], run["task"], run["seed"]),
            seconds=run["seconds"],
            lines=tuple(lines_of_run),
            bodies={sha256: bodies[sha256] for sha256 in run["blobs"]},
        )
        for run, lines_of_run in runs
    )
    return StoredLog(about, tuple(stored))
