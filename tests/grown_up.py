"""Programs with the lab's settings over a PostgreSQL and a Redis, in processes of their own.

The suite's own process has one database, mostly SQLite; these have whatever a test gives them.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
_PREPARE = "import json, sys, time, django; django.setup(); arguments = json.loads(sys.argv[1])\n"


class GrownUp:
    """A data folder, and where database and Redis are."""

    def __init__(self, *, database: str = "", redis: str = "", **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lab-grown-up-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LAB_")},
            "DATABASE_URL": database,
            "LAB_REDIS_URL": redis,
            "LAB_DATA_DIR": str(self.folder),
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "PYTHONPATH": str(PROJECT),
            **settings,
        }

    def start(self, code: str, *arguments: object) -> subprocess.Popen[str]:
        """Start Python on `code`, which finds its arguments in `arguments`, decoded from JSON."""
        return subprocess.Popen(
            [sys.executable, "-c", _PREPARE + code, json.dumps(arguments)],
            cwd=PROJECT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def program(self, code: str, *arguments: object, seconds: float = 240) -> Any:
        """Run `code` to its end; gives the JSON value that it printed last."""
        with self.start(code, *arguments) as started:
            said, complained = started.communicate(timeout=seconds)
        assert started.returncode == 0, complained
        return json.loads(said.splitlines()[-1]) if said.strip() else None

    def manage(self, *arguments: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        """Run one of the lab's commands."""
        return subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
