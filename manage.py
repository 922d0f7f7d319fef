#!/usr/bin/env python
"""The lab's commands: `python manage.py help` lists them."""

import os
import sys


def main() -> None:
    if sys.version_info < (3, 11):
        sys.exit(
            f"Trajectory Lab needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})."
        )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(
            f"Django cannot be imported ({error}). `make run` installs everything into .venv and starts the lab."
        )
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
