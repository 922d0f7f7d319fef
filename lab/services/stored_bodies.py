"""Which stored bodies the log refers to, whether they are still what they were, and which nobody needs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from django.db.models import Max, Q, TextField
from django.db.models.functions import Cast

from lab.engine.llm.base import JSONObject
from lab.models import Blob, Event, Import, JudgeCall, Run
from lab.services import blobs
from lab.services.blobs import BodyMissingError
from lab.services.payloads import REFERENCE, references

# A body that a worker stored so recently may be about to be referred to.
FRESH_SECONDS = 600.0
# The kernel's file times lag a little behind its clock.
_LAG_SECONDS = 0.05
_ASIDE = ".removed"


class Use(NamedTuple):
    """The event that refers to a body."""

    run_id: int
    seq: int
    kind: str


class Damage(NamedTuple):
    """A body that cannot be shown: why, and every event that refers to it. `purged` was done on purpose."""

    sha256: str
    reason: str
    purged: bool
    uses: tuple[Use, ...]


class DataCheck(NamedTuple):
    """What became of the stored bodies: how many the log refers to, from how many events, and the damages.

    `unused` are bodies on the disk that nothing refers to, `unused_bytes` their size there.
    """

    bodies: int
    events: int
    damages: tuple[Damage, ...]
    unused: tuple[str, ...]
    unused_bytes: int


def check() -> DataCheck:
    """Read every body that the log refers to and compare it with its hash. Reads all of the data folder."""
    uses: dict[str, list[Use]] = {}
    events: set[tuple[int, int]] = set()
    for sha256, use in all_uses():
        uses.setdefault(sha256, []).append(use)
        events.add((use.run_id, use.seq))
    purged = set(Blob.objects.filter(purge__isnull=False).values_list("sha256", flat=True))
    damages = []
    for sha256, where in sorted(uses.items(), key=lambda item: item[1][0]):
        if reason := _damage_of(sha256):
            damages.append(Damage(sha256, reason, sha256 in purged, tuple(where)))
    needed = uses.keys() | _of_judges()
    unused = {sha256: file.stat().st_size for sha256, file in _files() if sha256 not in needed}
    return DataCheck(len(uses), len(events), tuple(damages), tuple(unused), sum(unused.values()))


def all_uses(*, runs: Iterable[int] | None = None, after_row: int = 0) -> Iterator[tuple[str, Use]]:
    """Every reference of the log to a stored body, or those of some runs; read a row at a time.

    `after_row` leaves out the events whose row has that number or a lower one.
    """
    rows = (
        Event.objects.filter(pk__gt=after_row)
        .annotate(text=Cast("payload", TextField()))
        .filter(Q(text__contains=f'"{REFERENCE}"') | Q(kind="workspace_changed"))
    )
    if runs is not None:
        rows = rows.filter(run__in=list(runs))
    found = rows.order_by("run_id", "seq").values_list("run_id", "seq", "kind", "payload")
    for run_id, seq, kind, payload in found.iterator(chunk_size=500):
        for sha256 in bodies_of(kind, payload):
            yield sha256, Use(run_id, seq, kind)


def bodies_of(kind: str, payload: JSONObject) -> Iterator[str]:
    """The bodies that one thin payload refers to: its long texts, and the archive of a changed workspace."""
    yield from references(payload)
    if kind == "workspace_changed" and payload.get("archive"):
        yield payload["archive"]


def remove_unused(*, candidates: Iterable[str], since: float | None = None) -> int:
    """Remove those of the bodies that nothing refers to; returns how many files.

    A worker may be about to refer to one of them. Whoever stores a body that is there already makes the time
    of its file new (`blobs.store_file`), so one stored after `since` (seconds since the epoch; None: now)
    stays, and a little before it while a run or an import goes on; each file is first put aside, so that
    whoever stores it from then on writes it anew; and what was written down meanwhile is looked at once more.
    """
    since = (time.time() if since is None else since) - _LAG_SECONDS
    reads = Import.objects.filter(state=Import.State.READING)
    if Run.objects.holding_slots().exists() or reads.exists():
        since -= FRESH_SECONDS
    wanted = set(candidates)
    newest = Event.objects.aggregate(newest=Max("pk"))["newest"] or 0
    wanted -= {sha256 for sha256, _ in all_uses()} | _of_judges()
    aside = {sha256: path for sha256 in wanted if (path := _put_aside(sha256)) is not None}
    kept = {sha256 for sha256, path in aside.items() if path.stat().st_mtime > since}
    kept |= ({sha256 for sha256, _ in all_uses(after_row=newest)} | _of_judges()) & set(aside)
    for sha256, path in aside.items():
        if sha256 in kept:
            _put_back(sha256, path)
        else:
            path.unlink(missing_ok=True)
    gone = [sha256 for sha256 in wanted if not blobs.path_of(sha256).exists()]
    # A purged body has no file either; its row is the tombstone.
    Blob.objects.filter(sha256__in=gone, purge=None).delete()
    return len(set(aside) - kept)


def _of_judges() -> set[str]:
    """What was sent to judges and what they said, beside the log."""
    pairs = JudgeCall.objects.values_list("request_blob", "reply_blob")
    return {sha256 for pair in pairs.iterator(chunk_size=2000) for sha256 in pair if sha256}


def make_old(*, bodies: Iterable[str]) -> None:
    """Let files look as if they had been stored long ago, so that `remove_unused` does not spare them."""
    old = time.time() - 2 * FRESH_SECONDS
    for sha256 in bodies:
        with contextlib.suppress(FileNotFoundError):
            os.utime(blobs.path_of(sha256), (old, old))


def _damage_of(sha256: str) -> str:
    try:
        blobs.blob_bytes(sha256=sha256)
    except BodyMissingError as error:
        return str(error)
    return ""


def _files() -> Iterator[tuple[str, Path]]:
    root = blobs.path_of("0" * 64).parent.parent
    for file in root.glob("??/*"):
        if len(file.name) == 62 and not file.name.startswith("."):
            yield file.parent.name + file.name, file


def _put_aside(sha256: str) -> Path | None:
    path = blobs.path_of(sha256)
    aside = path.with_name(f".{path.name}{_ASIDE}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return aside if aside.exists() else None
    return aside


def _put_back(sha256: str, aside: Path) -> None:
    path = blobs.path_of(sha256)
    if path.exists():
        aside.unlink(missing_ok=True)
    else:
        aside.rename(path)
