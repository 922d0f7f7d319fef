from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created


class LabConfig(AppConfig):
    name = "lab"
    verbose_name = "Trajectory Lab"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from lab import checks  # noqa: F401 - registers the checks

        connection_created.connect(_close_database_to_others, dispatch_uid="lab.private_database")
        connection_created.connect(_read_json_as_text, dispatch_uid="lab.exact_json")


def _read_json_as_text(connection: Any, **_: Any) -> None:
    from lab.models.fields import read_json_as_text

    if connection.vendor == "postgresql":
        read_json_as_text(connection)


def _close_database_to_others(connection: Any, **_: Any) -> None:
    """SQLite makes files that everybody may read, and agents' commands can walk to this folder."""
    name = Path(str(connection.settings_dict["NAME"]))
    if connection.vendor != "sqlite" or name.parent != settings.LAB_DATA_DIR:
        return
    for ending in ("", "-wal", "-shm"):
        # Absent, or of another owner.
        with contextlib.suppress(OSError):
            path = name.with_name(name.name + ending)
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
