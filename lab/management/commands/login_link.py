"""Prints a link that signs the first admin in."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.services import people


class Command(BaseCommand):
    help = "Print a link that signs the lab's first admin in, once, within 24 hours."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--base-url",
            default=people.lab_address(),
            help="where the lab is reached (default: LAB_HOST and LAB_PORT)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(people.make_login_link(base_url=options["base_url"]))
        except InvalidValueError as error:
            raise CommandError(str(error)) from error
