"""Reads every stored body that the log refers to, and names those that are gone or damaged.

Roll-ups are compared with the requests and gradings they sum.

A command of its own and no part of `doctor`: it takes as long as the data is large, and needs the database.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from lab.services import recounts, stored_bodies
from lab.services.recounts import Difference
from lab.services.stored_bodies import Damage, DataCheck

_USES_NAMED = 5


class Command(BaseCommand):
    help = (
        "Compare every stored body with its hash, and name those that are missing or damaged with the runs "
        "and events that refer to them; compare every run's roll-up with its requests and gradings. Exits "
        "with 1 when something is wrong."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print what was found as JSON")
        parser.add_argument(
            "--remove-unused",
            action="store_true",
            help="remove stored files that nothing refers to, such as a killed process leaves behind",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = stored_bodies.check()
            wrong = list(recounts.differing())
            removed = stored_bodies.remove_unused(candidates=found.unused) if options["remove_unused"] else 0
        except DatabaseError as error:
            raise CommandError(f"database: {error}; `manage.py doctor` says more") from error
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(found, removed, wrong), indent=2, default=str))
        else:
            self._say(found, removed, asked=options["remove_unused"])
            self._say_wrong(wrong)
        if wrong or any(not damage.purged for damage in found.damages):
            sys.exit(1)

    def _say(self, found: DataCheck, removed: int, *, asked: bool) -> None:
        damaged = [damage for damage in found.damages if not damage.purged]
        purged = len(found.damages) - len(damaged)
        for damage in damaged:
            self.stdout.write(f"{damage.reason}\n         → {_named(damage)}")
        counts = [f"{found.bodies:,} bodies of {found.events:,} events", f"{len(damaged)} missing or damaged"]
        counts += [f"{purged} purged on purpose"] if purged else []
        self.stdout.write(f"{'PROBLEM' if damaged else 'ok     '}  {', '.join(counts)}")
        if damaged:
            self.stdout.write("         → copy LAB_DATA_DIR/blobs back from a backup; nothing else is needed")
        if found.unused:
            size = f"{found.unused_bytes / 1e6:,.1f} MB"
            done = f"{removed} removed" if asked else "--remove-unused removes them"
            self.stdout.write(f"         {len(found.unused)} files ({size}) that nothing refers to: {done}")

    def _say_wrong(self, wrong: list[Difference]) -> None:
        for one in wrong:
            self.stdout.write(
                f"PROBLEM  run {one.run}: {one.field} is {one.rolled_up} by its roll-up, "
                f"{one.recounted} by its log"
            )
        if wrong:
            numbers = " ".join(str(run) for run in sorted({one.run for one in wrong}))
            self.stdout.write(f"         → `manage.py rebuild_facts {numbers}` computes it anew")


def _named(damage: Damage) -> str:
    uses = [f"run {use.run_id} event {use.seq} ({use.kind})" for use in damage.uses[:_USES_NAMED]]
    more = len(damage.uses) - _USES_NAMED
    return ", ".join(uses) + (f" and {more} more" if more > 0 else "")


def _as_json(found: DataCheck, removed: int, wrong: list[Difference]) -> dict[str, Any]:
    return {
        "bodies": found.bodies,
        "events": found.events,
        "damages": [
            {**damage._asdict(), "uses": [use._asdict() for use in damage.uses]} for damage in found.damages
        ],
        "unused_files": len(found.unused),
        "unused_bytes": found.unused_bytes,
        "removed": removed,
        "roll_ups": [one._asdict() for one in wrong],
    }
