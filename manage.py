#!/usr/bin/env python
"""The lab's commands: `python manage.py help` lists them."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    try:
        from django.core.management import execute_from_command_line
        from environs import EnvError
    except ImportError as error:
        sys.exit(f"Django cannot be imported ({error}). `make run` installs it and starts the lab.")
    try:
        execute_from_command_line(sys.argv)
    except EnvError as error:
        sys.exit(f"A setting cannot be used: {error} deploy/env.example explains each of them.")


if __name__ == "__main__":
    main()
