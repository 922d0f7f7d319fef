"""Prints a link that signs a person in."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from lab.engine.errors import InvalidValueError
from lab.services import people


class Command(BaseCommand):
    help = "Print a link that signs somebody in, once, within 24 hours: the lab's first admin, or --person."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--person", default="", metavar="NAME", help="whom it signs in")
        parser.add_argument(
            "--base-url",
            default=people.public_address(),
            help="where the lab is reached (default: the first https origin of LAB_TRUSTED_ORIGINS, "
            "else LAB_HOST and LAB_PORT)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            link = people.make_login_link(base_url=options["base_url"], person=options["person"])
        except InvalidValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(link)
