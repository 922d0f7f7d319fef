"""Starts the whole lab: web, workers and tick, and stops all of it again."""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor

from lab import checks
from lab.engine.errors import LabError
from lab.management.supervision import Child, Supervisor, only_one_lab

# Services are imported where they are needed: the children load theirs meanwhile, and a second start is
# to take less than five seconds.

# What a stop takes beside what it lets end: sandboxes are removed, leases are given back.
GRACE_SECONDS = 4.0
WEB_SECONDS = 60.0


class Command(BaseCommand):
    help = "Start web, workers and tick; Ctrl-C stops everything."
    # What can be wrong is said here, with the way out, instead of by a traceback before.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=settings.LAB_HOST, help="address to listen on (LAB_HOST)")
        parser.add_argument("--port", type=int, default=settings.LAB_PORT, help="its port (LAB_PORT)")
        parser.add_argument(
            "--workers",
            type=int,
            default=settings.LAB_RUN_SLOTS,
            help="runs at the same time (LAB_RUN_SLOTS)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self._stopped = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        # One place for everything that reads them: the checks here and, by the environment, the children.
        for name, option in (("LAB_HOST", "host"), ("LAB_PORT", "port"), ("LAB_RUN_SLOTS", "workers")):
            setattr(settings, name, options[option])
            os.environ[name] = str(options[option])
        self._check()
        with only_one_lab(Path(settings.LAB_DATA_DIR)):
            self._prepare()
            if not self._stopped:
                self._run(Supervisor(_children(), say=self._say))

    def _run(self, supervisor: Supervisor) -> None:
        try:
            # The web process first and alone: whoever starts the lab waits for the link, and nobody has
            # launched a run before following it.
            supervisor.start("web")
            self._fill()
            self._announce(supervisor)
            supervisor.start()
            # What a stop needs is loaded now, from the files that everything else was loaded from: they may
            # be another release's by then.
            from lab.services import queue, upkeep

            while not self._stopped:
                supervisor.look()
                time.sleep(0.1)
        finally:
            self._say("Stopping …")
            from lab.services import queue, upkeep

            grace = settings.LAB_STOP_SECONDS + GRACE_SECONDS
            supervisor.stop(grace_seconds=grace, settled=lambda: not queue.live_labels())
            try:
                upkeep.reap_sandboxes(all_of_them=True)
            except LabError as error:
                self._say(f"What is left in docker is removed at the next start: {error}")
            self._say("Stopped. Runs that were going on continue at the next start.")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _check(self) -> None:
        """What would keep the lab from starting, said before anything is started."""
        found = (
            *checks.check_data_folder(),
            *checks.check_numbers(),
            *checks.check_sandbox(),
            *checks.check_broker(),
            *checks.check_origins(),
        )
        for message in found:
            if message.is_serious():
                raise CommandError(f"{message.msg}; {message.hint}")
        from lab.services import doctor

        port = doctor.check_port()
        if port.state == "problem":
            raise CommandError(f"{port.message}; {port.remedy}")

    def _prepare(self) -> None:
        from lab.services import servers
        from lab.services.locks import one_lab_prepares

        try:
            servers.check_database()
            if servers.broker_setting():
                servers.broker_round_trip()
            with one_lab_prepares():
                executor = MigrationExecutor(connection)
                if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                    call_command("migrate", verbosity=0, interactive=False, skip_checks=True)
        except LabError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"database: {error}; look at LAB_DATA_DIR or DATABASE_URL") from error

    def _fill(self) -> None:
        """What comes with the lab, while the other processes are still loading."""
        from lab.services import endpoints, guidelines, harnesses, tasks, taxonomies
        from lab.services.locks import one_lab_prepares

        try:
            with one_lab_prepares():
                harnesses.sync_presets()
                taxonomies.sync_presets()
                guidelines.default()
                endpoints.sync_scripted()
                tasks.sync_practice()
            tasks.prepare_practice_environment()
        except LabError as error:
            self._say(f"Warning: {error}")

    def _announce(self, supervisor: Supervisor) -> None:
        """Print one link, as soon as the web process answers."""
        from lab.services import people

        base_url = people.lab_address()
        until = time.monotonic() + WEB_SECONDS
        while not self._stopped and not _answers(f"{base_url}/healthz"):
            supervisor.look()
            if time.monotonic() > until:
                self._say(f"The web process does not answer at {base_url}/healthz yet; see the lines above.")
                return
            time.sleep(0.05)
        if not self._stopped:
            link = people.make_login_link(base_url=people.public_address(), replace=True)
            self._say(f"The lab is up. This link signs you in, once:\n\n  {link}\n\nCtrl-C stops everything.")
            connections.close_all()


def _children() -> list[Child]:
    search = [str(settings.BASE_DIR), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(path for path in search if path),
    }
    python = [sys.executable, "-m"]
    web = [
        *python, "uvicorn", "lab.asgi:application",
        "--host", settings.LAB_HOST, "--port", str(settings.LAB_PORT),
        "--log-level", "warning", "--no-access-log", "--lifespan", "off",
        # Compressed one by one, a message for twenty viewers would be compressed twenty times.
        "--ws", "websockets-sansio", "--ws-per-message-deflate", "false",
        # Open websockets would hold a stop for ever; pages reconnect by themselves.
        "--timeout-graceful-shutdown", "1",
    ]  # fmt: skip
    manage = [sys.executable, "-m", "django"]
    return [
        Child("web", web, environment),
        Child("worker runs", _worker(settings.LAB_RUN_SLOTS), environment),
        Child("tick", [*manage, "tick"], environment),
    ]


def _worker(slots: int) -> list[str]:
    """One worker for both queues: runs take no more children than there are slots, whoever sends messages."""
    from lab.services.messages import RUNS_QUEUE, SHORT_CHILDREN, SHORT_QUEUE

    return [
        sys.executable, "-m", "celery", "--quiet", "--app", "lab.celery", "worker",
        "--queues", f"{RUNS_QUEUE},{SHORT_QUEUE}", "--concurrency", str(slots + SHORT_CHILDREN),
        "--pool", "prefork", "--hostname", f"{RUNS_QUEUE}@%h",
        "--prefetch-multiplier", "1", "--loglevel", "WARNING",
        "--without-heartbeat", "--without-gossip", "--without-mingle",
    ]  # fmt: skip


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
