"""Takes a leaked secret out of everything the lab has stored, and leaves tombstones.

Bodies that hold it are removed whole; in texts of rows a mark stands in its place. Each part is a transaction
of its own that also notes what it changed, so a purge that was killed is finished by asking for it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection, models, transaction
from django.db.models import Q, TextField, Value
from django.db.models.functions import Cast, StrIndex
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.events import SecretPurged
from lab.engine.llm.base import JSONObject
from lab.engine.redact import mapped_texts, written_forms
from lab.engine.workspace_archive import rewritten
from lab.models import Attempt, Blob, Event, Purge, Run
from lab.services import blobs, log, stored_bodies, tombstones
from lab.services.payloads import is_reference

SHORTEST = 8
# A part of a secret that is left where a text was cut; a shorter one is what many keys begin with.
_PART = 12
_LONGEST_PARTS = 200
_ROWS_AT_ONCE = 100


@dataclass
class Found:
    """Where a secret stands, or stood: rows by table, bodies, runs, and files that only a person can mend.

    `events` maps a run to the numbers of its changed events. `going_on` are runs that a worker holds: they
    may store the secret again. `gone`: the database's own files hold no old copy either.
    """

    rows: dict[str, int] = field(default_factory=dict)
    bodies: int = 0
    events: dict[int, set[int]] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)
    files: list[Path] = field(default_factory=list)
    going_on: list[int] = field(default_factory=list)
    gone: bool = True

    @property
    def anything(self) -> bool:
        return bool(self.rows or self.bodies)


class Secret:
    """A value to be found as any text may write it, also a part of it where a text was cut."""

    def __init__(self, value: str) -> None:
        """
        Raises:
            InvalidValueError: it is too short to be told from ordinary text.
        """
        value = value.strip()
        if len(value) < SHORTEST:
            raise InvalidValueError(
                "secret", f"{len(value)} characters", f"is too short; {SHORTEST} characters are the least"
            )
        self.sha256 = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        forms = written_forms(value)
        self.forms = sorted({*forms, *(inner for form in forms for inner in written_forms(form))}, key=len)[
            ::-1
        ]
        whole = "|".join(map(re.escape, self.forms))
        self._pattern = re.compile(f"{whole}{_parts_at_cuts(value)}")
        self._encoded = [form.encode("utf-8", "surrogatepass") for form in self.forms]
        # What a database can look for: a text with any part of the secret holds one of these.
        self.hints = sorted({part for form in self.forms for part in (form[:_PART], form[-_PART:])})

    def replaced(self, text: str, tombstone: str) -> str:
        return self._pattern.sub(tombstone, text)

    def is_in(self, data: bytes) -> bool:
        """Whether a body holds it: as text, or as an archive whose members do."""
        if self._pattern.search(data.decode("utf-8", "replace")):
            return True
        return rewritten(data, self._starred) != data

    def is_whole_in(self, data: bytes) -> bool:
        return any(form in data for form in self._encoded)

    def _starred(self, data: bytes) -> bytes:
        for form in self._encoded:
            data = data.replace(form, b"*" * len(form))
        return data


def _parts_at_cuts(value: str) -> str:
    """What matches the beginning of the value at the end of a text, and its end at the beginning of one."""
    if not _PART < len(value) <= _LONGEST_PARTS:
        return ""
    sizes = range(len(value) - 1, _PART - 1, -1)
    begun = "|".join(re.escape(value[:size]) for size in sizes)
    ended = "|".join(re.escape(value[-size:]) for size in sizes)
    return rf"|(?:{begun})(?=\Z|\n\[\d)|(?:\A|(?<=here\]\n))(?:{ended})"


def purge(*, secret: Secret, person: str, reason: str) -> Found:
    """Take the secret out. Asked again after it was killed, it goes on; asked again later, it looks anew.

    Raises:
        OSError: a stored body cannot be removed.
    """
    record = _open_purge(secret, person, reason)
    found = Found(events=_noted_events(record))
    _touch_mark()
    _remove_bodies(secret, record, found)
    _replace_in_rows(secret, record, found)
    # What other processes have made meanwhile of rows as they were: pages load themselves once logs tell.
    _touch_mark()
    _tell_logs(record, found)
    found.gone = _leave_no_old_copies()
    found.files = list(_files_with(secret))
    record.found |= {"finished": True, "rows": found.rows, "bodies": found.bodies, "runs": sorted(found.runs)}
    record.save(update_fields=["found"])
    _touch_mark()
    return found


def look(*, secret: Secret) -> Found:
    """What `purge` would find, without changing anything."""
    found = Found()
    bodies = [blob.sha256 for blob in _bodies_with(secret)]
    found.bodies = len(bodies)
    _note_references(bodies, found)
    for model in _models():
        count = 0
        for row, _ in _changed_rows(model, secret, "", frozenset(bodies)):
            count += 1
            _note_row(row, found)
        if count:
            found.rows[model._meta.db_table] = count
    found.files = list(_files_with(secret))
    found.going_on = _held(found.runs)
    return found


def _open_purge(secret: Secret, person: str, reason: str) -> Purge:
    """The purge of this secret that was not finished, or a new one."""
    for record in Purge.objects.filter(secret_sha256=secret.sha256):
        if not record.found.get("finished"):
            return record
    return Purge.objects.create(secret_sha256=secret.sha256, person=person, reason=reason)


def _noted_events(record: Purge) -> dict[int, set[int]]:
    return {int(run): set(seqs) for run, seqs in record.found.get("events", {}).items()}


def _note(record: Purge, found: Found) -> None:
    """Keep which events were changed, in the transaction that changes them."""
    record.found["events"] = {str(run): sorted(seqs) for run, seqs in found.events.items()}
    record.save(update_fields=["found"])


def _touch_mark() -> None:
    mark = tombstones.mark()
    mark.unlink(missing_ok=True)
    mark.touch(mode=0o600)


# ---- bodies ----


def _bodies_with(secret: Secret) -> Iterator[Blob]:
    for blob in Blob.objects.order_by("pk").iterator(chunk_size=200):
        try:
            data = blobs.blob_bytes(sha256=blob.sha256)
        except blobs.BodyMissingError:
            continue
        if secret.is_in(data):
            yield blob


def _remove_bodies(secret: Secret, record: Purge, found: Found) -> None:
    # One that was purged before and lies there again was stored again, or its purge was killed.
    for blob in list(_bodies_with(secret)):
        with transaction.atomic():
            _note_references([blob.sha256], found)
            _note(record, found)
            Blob.objects.filter(pk=blob.pk).update(purge=record)
        blobs.path_of(blob.sha256).unlink(missing_ok=True)
    found.bodies = Blob.objects.filter(purge=record).count()


def _note_references(bodies: Sequence[str], found: Found) -> None:
    wanted = set(bodies)
    if not wanted:
        return
    for sha256, use in stored_bodies.all_uses():
        if sha256 in wanted:
            found.events.setdefault(use.run_id, set()).add(use.seq)
            found.runs.add(use.run_id)


# ---- rows ----


def _models() -> list[type[models.Model]]:
    return [model for model in apps.get_models(include_auto_created=True) if model is not Purge]


def _columns(model: type[models.Model]) -> list[models.Field[Any, Any]]:
    kinds = (models.CharField, models.TextField, models.JSONField)
    return [
        column
        for column in model._meta.concrete_fields
        if isinstance(column, kinds) and not column.primary_key and not column.is_relation
    ]


def _candidates(model: type[models.Model], secret: Secret, bodies: frozenset[str]) -> list[Any]:
    """The keys of the rows whose texts may hold it, or refer to a body that does."""
    wanted = [*secret.hints, *(bodies if model is Event else ())]
    texts = {f"purge_text_{n}": Cast(column.name, TextField()) for n, column in enumerate(_columns(model))}
    holds = Q()
    annotations: dict[str, Any] = {}
    for name in texts:
        for n, hint in enumerate(wanted):
            annotations[f"{name}_{n}"] = StrIndex(name, Value(hint))
            holds |= Q(**{f"{name}_{n}__gt": 0})
    manager = model._base_manager
    return list(manager.annotate(**texts).annotate(**annotations).filter(holds).values_list("pk", flat=True))


def _changed_rows(
    model: type[models.Model], secret: Secret, tombstone: str, bodies: frozenset[str]
) -> Iterator[tuple[models.Model, JSONObject]]:
    """The rows that hold it, each with the columns as they are to be."""
    columns = _columns(model)
    if not columns:
        return
    keys = _candidates(model, secret, bodies)
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        for row in model._base_manager.filter(pk__in=keys[start : start + _ROWS_AT_ONCE]):
            changed = {}
            for column in columns:
                before = getattr(row, column.attname)
                after = _without(before, secret, tombstone, bodies)
                if after is not before:
                    changed[column.attname] = _fitting(column, after)
            if changed:
                yield row, changed


def _without(value: Any, secret: Secret, tombstone: str, bodies: frozenset[str]) -> Any:
    if isinstance(value, dict | list):
        value = _without_previews(value, tombstone, bodies)

    def change(text: str) -> str:
        changed = secret.replaced(text, tombstone)
        return text if changed == text else changed

    return mapped_texts(value, change)


def _without_previews(value: Any, tombstone: str, bodies: frozenset[str]) -> Any:
    """Of a body that is gone no beginning is left either: it may end in the middle of the secret."""
    if is_reference(value) and value["$blob"] in bodies:
        return value if value.get("preview") == tombstone else {**value, "preview": tombstone}
    if isinstance(value, dict):
        fresh = {name: _without_previews(item, tombstone, bodies) for name, item in value.items()}
        return fresh if any(fresh[name] is not item for name, item in value.items()) else value
    if isinstance(value, list):
        items = [_without_previews(item, tombstone, bodies) for item in value]
        same = all(left is right for left, right in zip(items, value, strict=True))
        return value if same else items
    return value


def _fitting(column: models.Field[Any, Any], value: Any) -> Any:
    longest = column.max_length
    return value[:longest] if isinstance(value, str) and longest is not None else value


def _replace_in_rows(secret: Secret, record: Purge, found: Found) -> None:
    tombstone = f"[a leaked secret was purged here on {record.at:%Y-%m-%d}]"
    bodies = frozenset(Blob.objects.filter(purge=record).values_list("sha256", flat=True))
    for model in _models():
        count = 0
        for row, changed in _changed_rows(model, secret, tombstone, bodies):
            with transaction.atomic():
                model._base_manager.filter(pk=row.pk).update(**changed)
                _note_row(row, found)
                if isinstance(row, Event):
                    _note(record, found)
            count += 1
        if count:
            found.rows[model._meta.db_table] = count


def _note_row(row: models.Model, found: Found) -> None:
    run = getattr(row, "run_id", None)
    if isinstance(row, Event):
        found.events.setdefault(row.run_id, set()).add(row.seq)
    if isinstance(run, int):
        found.runs.add(run)


# ---- afterwards ----


def _held(runs: set[int]) -> list[int]:
    """Those of the runs that a worker holds right now."""
    held = Attempt.objects.filter(run__in=runs, ended_at=None, lease_until__gt=timezone.now())
    return sorted(set(held.values_list("run_id", flat=True)))


def _tell_logs(record: Purge, found: Found) -> None:
    """Write into each touched log that it was touched; pages that are open hear of it by that event."""
    found.runs |= set(found.events)
    found.going_on = _held(found.runs)
    for run in Run.objects.filter(pk__in=found.runs).exclude(pk__in=found.going_on):
        if _was_told(run, record):
            continue
        attempt = Attempt.objects.filter(run=run).order_by("-n").values_list("n", flat=True).first() or 1
        changed = sorted(found.events.get(run.pk, ()))
        event = SecretPurged(purge=record.pk, person=record.person, reason=record.reason, events=changed)
        log.append(run_id=run.pk, attempt=attempt, lease_token=None, events=[event])


def _was_told(run: Run, record: Purge) -> bool:
    told = Event.objects.filter(run=run, kind="secret_purged").values_list("payload", flat=True)
    return any(payload.get("purge") == record.pk for payload in told)


def _leave_no_old_copies() -> bool:
    """Rewrite the database's files: changed rows leave their old texts in pages that are free.

    False when a process that reads or writes meanwhile keeps the write-ahead log from being emptied.
    """
    with connection.cursor() as cursor:
        if connection.vendor != "sqlite":
            cursor.execute("VACUUM FULL")
            return True
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, _, _ = cursor.fetchone()
        return not busy


def _files_with(secret: Secret) -> Iterator[Path]:
    """Other files of the data folder that hold it. What they are for only a person knows."""
    folder = Path(settings.LAB_DATA_DIR)
    database = Path(str(connection.settings_dict["NAME"])).name
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.name.startswith(database):
            continue
        if path.is_relative_to(folder / "blobs"):
            continue
        try:
            if secret.is_whole_in(path.read_bytes()):
                yield path
        except OSError:
            continue
