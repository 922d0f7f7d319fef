"""What a purge left behind: which texts are gone on purpose, when, by whom and why."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from lab.models import Blob, Purge


def words_of(purge: Purge) -> str:
    """ "purged on 2026-11-30 by alice: the key of the mail server"."""
    by = f" by {purge.person}" if purge.person else ""
    return f"purged on {purge.at:%Y-%m-%d}{by}" + (f": {purge.reason}" if purge.reason else "")


def of_body(sha256: str) -> str:
    """Why a stored body is gone, "" where no purge removed it."""
    blob = Blob.objects.filter(pk=sha256, purge__isnull=False).select_related("purge").first()
    return words_of(blob.purge) if blob is not None and blob.purge is not None else ""


def changed_events(*, run_id: int) -> dict[int, str]:
    """The numbers of the run's events that a purge changed, and what is to be said of each."""
    found: dict[int, str] = {}
    for purge in Purge.objects.all():
        for seq in purge.found.get("events", {}).get(str(run_id), ()):
            found[seq] = words_of(purge)
    return found


def mark() -> Path:
    """A file whose time says when something was last purged: pages that are kept in memory are old then."""
    return Path(settings.LAB_DATA_DIR) / "purged"
