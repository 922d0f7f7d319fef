"""Database, broker and doorbell: do they answer, can they be written, and how fast? Nothing here raises."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import uuid
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from lab.services import doorbell, servers
from lab.services.findings import Finding
from lab.services.mounts import file_system, is_network
from lab.services.servers import UnreachableError

LEAST_SQLITE = (3, 35, 0)
SLOW_WRITE_SECONDS = 1.0
ANSWER_SECONDS = 3.0


def examine() -> list[Finding]:
    """What the lab stands on. Where the database is away, what is in it is not looked at."""
    database = check_database()
    findings = [database]
    if database.state != "problem" and is_made():
        findings.append(check_migrations())
    return [*findings, check_broker(), check_doorbell()]


def is_made() -> bool:
    """Whether there is a database to ask. The built-in one is a file that the first start makes."""
    return connection.vendor != "sqlite" or Path(str(connection.settings_dict["NAME"])).exists()


def can_be_asked() -> bool:
    """Whether the database is there, answers and has the lab's tables."""
    try:
        return is_made() and "lab_run" in connection.introspection.table_names()
    except DatabaseError:
        return False


def check_database() -> Finding:
    """Kind, version, where it lies, a question, and a write."""
    if connection.vendor == "sqlite" and sqlite3.sqlite_version_info < LEAST_SQLITE:
        least = ".".join(str(part) for part in LEAST_SQLITE)
        return Finding(
            "database",
            "problem",
            f"SQLite {sqlite3.sqlite_version} is older than {least}",
            "use a newer Python, or a PostgreSQL by DATABASE_URL",
        )
    if not is_made():
        message = f"SQLite {sqlite3.sqlite_version}; the first start of the lab makes the database"
        return Finding("database", "ok", message)
    try:
        asked = servers.check_database()
    except UnreachableError as error:
        return _away("database", error)
    try:
        kind = _sqlite_facts() if connection.vendor == "sqlite" else _postgresql_facts()
        written = _write()
    except DatabaseError as error:
        first_line = str(error).strip().splitlines()[0]
        return Finding("database", "problem", f"it answers and cannot be written: {first_line}", _mend())
    message = f"{kind}; a question took {asked * 1000:.1f} ms, a write {written * 1000:.1f} ms"
    if connection.vendor == "sqlite" and is_network(Path(str(connection.settings_dict["NAME"])).parent):
        remedy = "put LAB_DATA_DIR on a local disk, or set DATABASE_URL to a PostgreSQL"
        return Finding("database", "warning", f"{message}; on a network file system it loses data", remedy)
    if written > SLOW_WRITE_SECONDS:
        return Finding("database", "warning", f"{message}: that is slow", "use a faster disk or server")
    return Finding("database", "ok", message)


def check_migrations() -> Finding:
    """Whether the tables are those of this release."""
    try:
        executor = MigrationExecutor(connection)
        graph = executor.loader.graph
        missing = executor.migration_plan(graph.leaf_nodes())
        unknown = {key for key in executor.loader.applied_migrations if key[0] == "lab"} - set(graph.nodes)
    except DatabaseError as error:
        return Finding("tables", "problem", f"they cannot be looked at: {error}", _mend())
    if unknown:
        names = ", ".join(sorted(name for _, name in unknown))
        message = f"they were made by a newer release of the lab ({names} is not known here)"
        return Finding("tables", "problem", message, "use that release, or restore an older copy")
    if missing:
        message = f"{len(missing)} migration{'' if len(missing) == 1 else 's'} not applied yet"
        return Finding("tables", "warning", message, "manage.py up applies them at its start")
    return Finding("tables", "ok", "those of this release")


def check_broker() -> Finding:
    """A message there and back, through a queue of its own."""
    where = f"{servers.broker_setting()}: {servers.broker_address()}" if servers.broker_setting() else ""
    try:
        seconds = servers.broker_round_trip(seconds=ANSWER_SECONDS)
    except UnreachableError as error:
        return _away("broker", error)
    except OSError as error:
        place = settings.CELERY_BROKER_FOLDER
        return Finding("broker", "problem", f"the queue in {place} cannot be used: {error}", _mend())
    kind = where or "the built-in queue, a folder"
    return Finding("broker", "ok", f"{kind}; a message there and back took {seconds * 1000:.0f} ms")


def check_doorbell() -> Finding:
    """How live pages hear of news, tried."""
    ways = []
    try:
        if connection.vendor == "postgresql":
            ways.append(f"LISTEN and NOTIFY in {_listen() * 1000:.0f} ms")
        if settings.LAB_REDIS_URL:
            ways.append(f"Redis in {asyncio.run(_ring()) * 1000:.0f} ms")
    except Exception as error:
        # Drivers and Redis clients have errors of their own; each means that the bell is not heard.
        said = (str(error) or type(error).__name__).strip().splitlines()[0]
        return Finding(
            "live pages",
            "warning",
            f"news is not heard at once: {said}",
            "pages look by themselves once a second until then; connect to PostgreSQL without a pooler of "
            "transactions, and look at LAB_REDIS_URL",
        )
    if not ways:
        return Finding("live pages", "ok", "each process sees the commits of the others by itself")
    return Finding("live pages", "ok", f"rung by {' and '.join(ways)}")


def _away(check: str, error: UnreachableError) -> Finding:
    message, _, remedy = str(error).partition("; ")
    return Finding(check, "problem", message, remedy or _mend())


def _mend() -> str:
    return "look at DATABASE_URL, at LAB_DATA_DIR, and at the space on its disk"


def _sqlite_facts() -> str:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        (journal,) = cursor.fetchone()
    disk = file_system(Path(str(connection.settings_dict["NAME"])).parent)
    return f"SQLite {sqlite3.sqlite_version}, journal {journal}{f', on {disk}' if disk else ''}"


def _postgresql_facts() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (version,) = cursor.fetchone()
    return f"PostgreSQL {version.split()[0]} at {servers.database_address()}"


def _write() -> float:
    """The seconds that a small write takes; it leaves nothing."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA user_version")
            (version,) = cursor.fetchone()
            cursor.execute(f"PRAGMA user_version = {int(version)}")
        else:
            with transaction.atomic():
                cursor.execute(f"CREATE TABLE doctor_{uuid.uuid4().hex} (x integer)")
                transaction.set_rollback(True)
    return time.monotonic() - began


def _listen() -> float:
    """The seconds until this connection hears its own ring.

    Raises:
        TimeoutError: it hears nothing, as behind a pooler.
    """
    channel = f"doctor_{uuid.uuid4().hex[:12]}"
    connection.ensure_connection()
    raw = connection.connection
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {channel}")
        try:
            cursor.execute(f"NOTIFY {channel}")
            if not list(raw.notifies(timeout=ANSWER_SECONDS, stop_after=1)):
                raise TimeoutError("PostgreSQL's NOTIFY does not arrive")
        finally:
            cursor.execute(f"UNLISTEN {channel}")
    return time.monotonic() - began


async def _ring() -> float:
    """The seconds until a message of this process comes back from Redis."""
    layer = doorbell.layer()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            channel = await layer.new_channel()
            began = time.monotonic()
            await layer.send(channel, {"type": "doctor"})
            await layer.receive(channel)
            return time.monotonic() - began
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(ANSWER_SECONDS):
                await layer.flush()
