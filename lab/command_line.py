"""The lab's commands: `manage.py` in a checkout, `trajectory-lab` where the package is installed."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command that the process was started with.

    A setting or a database that cannot be used is one sentence on the terminal, and exit code 1.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import DatabaseError
        from environs import EnvError
    except ImportError as error:
        sys.exit(f"Django cannot be imported ({error}). `make run` installs it and starts the lab.")
    try:
        execute_from_command_line(sys.argv)
    except (EnvError, ImproperlyConfigured) as error:
        sys.exit(f"A setting cannot be used: {error} deploy/env.example explains each of them.")
    except DatabaseError as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(
            f"The database cannot be used: {error}. `make run` or `manage.py migrate` brings it up to date; "
            "LAB_DATA_DIR and DATABASE_URL say where it is."
        )
