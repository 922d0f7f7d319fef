"""Imports: filled and asked for by people, read by one worker child or command each.

The state is in the database. Whoever reads holds the row by a lease with a number; one that ran out, or whose
holder is dead, is taken over and read again from the beginning: what is there already is found and not added.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.engine.formats.archive_streams import safe_path
from lab.engine.redact import storable
from lab.models import Import, Role, Run
from lab.services import space
from lab.services.access import for_role
from lab.services.errors import FieldErrors
from lab.services.import_reports import ImportReport
from lab.services.locks import one_at_a_time
from lab.services.messages import ring_for_imports

# A message that was sent is taken within a moment; one that waits for so long is taken for lost.
RING_AGAIN_SECONDS = 3.0
# Files that somebody gave and never asked to be read.
FORGOTTEN_AFTER = dt.timedelta(days=1)
# Whoever reads a file that kills its reader is killed by it again.
MOST_READERS = 3
_OPEN = (Import.State.RECEIVING, Import.State.QUEUED, Import.State.READING)


@for_role(Role.OPERATOR)
def start(*, by: User, name: str = "", idempotency_key: str = "") -> Import:
    """An import that receives files. The same `idempotency_key` again is the same import.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "files", where the data folder is full or cannot be written.
    """
    key = idempotency_key[:64] or None
    if key and (earlier := Import.objects.filter(idempotency_key=key).first()):
        return earlier
    try:
        with transaction.atomic():
            return _made(name=name, asked_by=by, idempotency_key=key)
    except IntegrityError:
        return Import.objects.get(idempotency_key=key)
    except OSError as error:
        raise FieldErrors({"files": cannot_be_written(error)}) from error


@for_role(Role.OPERATOR)
def add_file(*, by: User, imported: Import, name: str, chunks: Iterable[bytes]) -> int:
    """Keep one given file, streamed to the disk; returns its size in bytes.

    `name` is what it is called where it comes from, with folders where a whole folder was given. A file is
    kept whole or not at all, and two of the same name are both kept.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "files": the import takes no more files, the name is none, or the data folder is full.
    """
    path, refusal = safe_path(name)
    if refusal:
        raise FieldErrors({"files": f"files: {name!r} {refusal}; rename it and give it again"})
    _check_receives(imported)
    target = given_folder(imported) / secrets.token_hex(8)
    size = 0
    try:
        with target.open("xb") as stream:
            for chunk in chunks:
                stream.write(chunk)
                size += len(chunk)
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FieldErrors({"files": f"{cannot_be_written(error)} {path} was not kept."}) from error
        raise
    with transaction.atomic():
        row = Import.objects.select_for_update().get(pk=imported.pk)
        try:
            _check_receives(row)
        except FieldErrors:
            target.unlink(missing_ok=True)
            raise
        row.sources = [*row.sources, {"name": storable(path), "bytes": size, "file": target.name}]
        row.save(update_fields=["sources"])
    imported.sources = row.sources
    return size


@for_role(Role.OPERATOR)
def submit(*, by: User, imported: Import) -> Import:
    """Queue it: a worker reads what was given. One that is queued or read already stays as it is.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "files": nothing was given, or it was cancelled.
    """
    with transaction.atomic():
        row = Import.objects.select_for_update().get(pk=imported.pk)
        if row.state == Import.State.RECEIVING and not row.sources:
            raise FieldErrors({"files": "files: nothing was given; choose at least one file or folder"})
        if row.state == Import.State.CANCELLED:
            raise FieldErrors({"files": f"files: {row} was cancelled; start a new one and give them again"})
        if row.state == Import.State.RECEIVING:
            row.state = Import.State.QUEUED
            row.save(update_fields=["state"])
            ring_for_imports()
    return row


@for_role(Role.OPERATOR)
def again(*, by: User, imported: Import) -> Import:
    """Queue one that failed once more, after what stopped it was mended; what was imported is not doubled.

    Raises:
        AccessDeniedError: `by` is no operator.
        FieldErrors: "files": it did not fail, or its files are gone.
    """
    with transaction.atomic():
        row = Import.objects.select_for_update().get(pk=imported.pk)
        if row.state != Import.State.FAILED or not (row.options.get("paths") or given_folder(row).is_dir()):
            text = f"files: {row} is {row.get_state_display()} and cannot be read again; give its files again"
            raise FieldErrors({"files": text})
        row.state, row.error, row.ended_at, row.cancel_asked = Import.State.QUEUED, "", None, False
        row.options = {**row.options, "readers": 0}
        row.save(update_fields=["state", "error", "ended_at", "cancel_asked", "options"])
        ring_for_imports()
    return row


@for_role(Role.OPERATOR)
def cancel(*, by: User, imported: Import) -> None:
    """End it: at once while nobody reads it, otherwise its reader hears it within a second.

    What was imported by then stays, and the report says how far it came.

    Raises:
        AccessDeniedError: `by` is no operator.
    """
    waits = Import.objects.filter(pk=imported.pk, state__in=(Import.State.RECEIVING, Import.State.QUEUED))
    if waits.update(state=Import.State.CANCELLED, ended_at=timezone.now()):
        remove_files(imported)
    else:
        Import.objects.filter(pk=imported.pk, state=Import.State.READING).update(cancel_asked=True)


def report_of(imported: Import) -> ImportReport:
    """What the import came to, as far as it has been read."""
    return ImportReport.model_validate(imported.report or {})


def made_for_command(*, name: str, paths: list[Path], follows: bool, worker: str) -> Import:
    """An import of files that stay where they are, held by the command that reads it itself."""
    options = {"paths": [str(path) for path in paths], "follow": follows, "worker": worker, "command": True}
    sources = [{"name": path.name or str(path), "bytes": None} for path in paths]
    held = {"state": Import.State.READING, "lease_token": 1, "lease_until": lease_end()}
    with transaction.atomic():
        return _made(name=name, options={**options, "readers": 1}, sources=sources, **held)


def unfinished_of(*, paths: list[Path], follows: bool) -> Import | None:
    """An import of these very files that a command began and did not live to finish."""
    options = {"options__paths": [str(path) for path in paths], "options__follow": follows}
    waits = Import.objects.filter(state__in=(Import.State.QUEUED, Import.State.READING), **options)
    return waits.order_by("-pk").first()


def claim_next(*, worker: str) -> Import | None:
    """Take the import that has waited longest; None when none waits, or a worker reads one already.

    One at a time: they would only wait for each other, and preflights for both.
    """
    with transaction.atomic():
        one_at_a_time("imports")
        reads = Import.objects.filter(state=Import.State.READING, lease_until__gt=timezone.now())
        if any(not row.options.get("command") for row in reads):
            return None
        row = Import.objects.filter(state=Import.State.QUEUED).order_by("pk").first()
        return None if row is None else take(row, worker=worker)


def take(imported: Import, *, worker: str, command: bool = False) -> Import | None:
    """Hold the import under a new lease; None when somebody else took it since the row was read."""
    token = imported.lease_token + 1
    readers = int(imported.options.get("readers", 0)) + 1
    options = {**imported.options, "worker": worker, "command": command, "readers": readers}
    free = Import.objects.filter(pk=imported.pk, lease_token=imported.lease_token, state__in=_OPEN)
    values = {"state": Import.State.READING, "lease_token": token, "lease_until": lease_end()}
    if not free.update(**values, options=options):
        return None
    return Import.objects.select_related("asked_by", "experiment").get(pk=imported.pk)


def held_by(imported: Import) -> QuerySet[Import]:
    """The row as long as its holder may write about it."""
    return Import.objects.filter(pk=imported.pk, lease_token=imported.lease_token, state=Import.State.READING)


def lease_end() -> dt.datetime:
    """Until when a lease lasts that is taken or renewed now."""
    return timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS)


def settle_abandoned(*, is_dead: Callable[[str], bool]) -> list[int]:
    """Queue again the imports whose reader is dead or has not renewed its lease; returns them.

    One that followed a file is ended: its runs stand still until somebody follows it again. One that has lost
    several readers has failed.
    """
    settled = []
    for row in Import.objects.filter(state=Import.State.READING):
        dead = is_dead(row.options.get("worker", ""))
        if not dead and row.lease_until is not None and row.lease_until > timezone.now():
            continue
        lost = held_by(row).filter(lease_until=row.lease_until)
        with transaction.atomic():
            if lost.update(lease_token=row.lease_token + 1, lease_until=None, **_after_loss(row)):
                settled.append(row.pk)
                stand_still(row)
                ring_for_imports()
    return settled


def stand_still(imported: Import) -> None:
    """Nobody follows the files of these runs any more: they go on when somebody does."""
    growing = Run.objects.filter(imported__made_by=imported, imported__partial=True)
    growing.filter(status=Run.Status.RUNNING).update(status=Run.Status.PAUSED)


def anything_goes_on() -> bool:
    """Whether one waits or is read; an idle lab need not look any further."""
    return Import.objects.filter(state__in=(Import.State.QUEUED, Import.State.READING)).exists()


def waits_too_long() -> bool:
    """Whether one waits whose message was lost, or for which no worker has time."""
    since = timezone.now() - dt.timedelta(seconds=RING_AGAIN_SECONDS)
    return Import.objects.filter(state=Import.State.QUEUED, created_at__lt=since).exists()


def forget_old() -> int:
    """End imports whose files were given a day ago and never asked to be read; returns how many."""
    since = timezone.now() - FORGOTTEN_AFTER
    count = 0
    for row in Import.objects.filter(state=Import.State.RECEIVING, created_at__lt=since):
        mine = Import.objects.filter(pk=row.pk, state=Import.State.RECEIVING)
        values = {"error": "nobody asked for it to be read within a day; give its files again"}
        if mine.update(state=Import.State.CANCELLED, ended_at=timezone.now(), **values):
            remove_files(row)
            count += 1
    return count


def folder_of(imported: Import) -> Path:
    """Where everything of the import lies until it is read: a folder of the data folder."""
    return Path(settings.LAB_DATA_DIR) / "imports" / str(imported.pk)


def given_folder(imported: Import) -> Path:
    """Where the files that were given lie, under names of the lab's own."""
    return folder_of(imported) / "given"


def identity_of(sha256: str, place: str) -> str:
    """What tells one of several trajectories of a file that is hashed as a whole."""
    return hashlib.sha256(f"{sha256}\n{place}".encode("utf-8", "surrogatepass")).hexdigest()


def remove_files(imported: Import) -> None:
    """Remove what was given and unpacked; failing to is no error."""
    shutil.rmtree(folder_of(imported), ignore_errors=True)


def cannot_be_written(error: Exception) -> str:
    """What a person is told when something does not fit, or cannot be written."""
    if space.is_full(error):
        return f"The data folder {settings.LAB_DATA_DIR} is full: make room and try again."
    return f"The data folder {settings.LAB_DATA_DIR} cannot be written ({error})."


def _made(**values: object) -> Import:
    values["name"] = storable(str(values.get("name", ""))).strip()[:200]
    row = Import.objects.create(**values)
    row.folder = f"imports/{row.pk}"
    row.save(update_fields=["folder"])
    # What lies there is of a row that was never committed, or of another database.
    remove_files(row)
    folder = given_folder(row)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for private in (folder.parent.parent, folder.parent):
        with contextlib.suppress(PermissionError):
            private.chmod(0o700)
    return row


def _check_receives(imported: Import) -> None:
    if imported.state != Import.State.RECEIVING:
        text = f"files: {imported} is {imported.get_state_display()} and takes no more; start another one"
        raise FieldErrors({"files": text})


def _after_loss(row: Import) -> dict[str, object]:
    """What becomes of an import whose reader is gone."""
    if row.cancel_asked:
        return {"state": Import.State.CANCELLED, "ended_at": timezone.now()}
    if row.options.get("spans"):
        # It holds no files: whoever looks next takes in the traces that are left.
        return {"state": Import.State.ENDED, "ended_at": timezone.now()}
    if row.options.get("follow"):
        text = "the process that followed it died or stopped; follow it again"
        return {"state": Import.State.ENDED, "ended_at": timezone.now(), "error": text}
    if int(row.options.get("readers", 0)) >= MOST_READERS:
        at = row.found.get("reading", "")
        where = f", the last one at {at}" if at else ""
        text = f"{MOST_READERS} workers died while they read it{where}; leave it out and import the rest"
        return {"state": Import.State.FAILED, "ended_at": timezone.now(), "error": text}
    return {"state": Import.State.QUEUED}
