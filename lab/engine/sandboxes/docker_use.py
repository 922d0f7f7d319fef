"""Whether sandboxes of a data folder may be left in docker, known without asking a daemon."""

from __future__ import annotations

import contextlib
from pathlib import Path

_NAME = "docker_used"


def note(data_folder: Path) -> None:
    """Remember, before the first sandbox is made, that docker has to be looked after from now on."""
    with contextlib.suppress(OSError):
        data_folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        (data_folder / _NAME).touch()


def is_noted(data_folder: Path) -> bool:
    """Whether a sandbox was ever asked for there."""
    return (data_folder / _NAME).exists()
