#!/usr/bin/env python
"""The lab's commands: `python manage.py help` lists them."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(f"Django cannot be imported ({error}). `make run` installs it and starts the lab.")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
