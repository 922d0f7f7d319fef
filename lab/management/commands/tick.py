"""Looks after the lab once a second until it is stopped."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, connections

from lab.services.processes import is_dead, is_frozen
from lab.services.upkeep import Upkeep

SECONDS = 1.0
_log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Settle expired leases, remove orphaned sandboxes and ring for lost messages, once a second."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="look once and return")

    def handle(self, *args: Any, **options: Any) -> None:
        upkeep = Upkeep(is_dead=is_dead, is_frozen=is_frozen)
        if options["once"]:
            upkeep.tick()
            return
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        while not stopped.is_set():
            try:
                upkeep.tick()
            except (DatabaseError, OSError) as error:
                connections.close_all()
                _log.warning("the tick looks again in a second (%s)", error)
            stopped.wait(SECONDS)
