#!/usr/bin/env python
"""The lab's commands: `python manage.py help` lists them."""

from lab.command_line import main

if __name__ == "__main__":
    main()
