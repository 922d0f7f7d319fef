"""Prints a link that signs the first admin in."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from lab.services import people


class Command(BaseCommand):
    help = "Print a link that signs the lab's first admin in, once, within 24 hours."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--base-url",
            default=f"http://{settings.LAB_HOST}:{settings.LAB_PORT}",
            help="where the lab is reached (default: LAB_HOST and LAB_PORT)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(people.make_login_link(base_url=options["base_url"]))
