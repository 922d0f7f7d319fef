#!/usr/bin/env python
"""The lab's commands: `python manage.py help` lists them."""

import os
import sys


def main() -> None:
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
        what = str(error).partition("\n")[0]
        sys.exit(
            f"The database cannot be used: {what}. `make run` or `manage.py migrate` brings it up to date; "
            "LAB_DATA_DIR and DATABASE_URL say where it is."
        )


if __name__ == "__main__":
    main()
