"""The servers that a lab may stand on, database and broker: can they be reached, and how fast are they?"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from lab.addresses import shown
from lab.engine.errors import LabError

ROUND_TRIP_SECONDS = 5.0


class UnreachableError(LabError):
    """A server does not do its work: the message names setting, address without password, and way out."""


def broker_setting() -> str:
    """The name of the setting that says where the broker is, "" for the built-in one."""
    return "LAB_BROKER_URL" if settings.LAB_BROKER_URL else "LAB_REDIS_URL" if settings.LAB_REDIS_URL else ""


def broker_address() -> str:
    """The address of the broker without its password, "" for the built-in one."""
    return shown(settings.LAB_BROKER_URL or settings.LAB_REDIS_URL)


def database_address() -> str:
    """Which database it is, as people name it, without its password."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    place = f"{values['HOST'] or 'localhost'}:{values['PORT'] or 5432}"
    user = f"{values['USER']}@" if values["USER"] else ""
    return f"postgresql://{user}{place}/{values['NAME']}"


def check_database() -> float:
    """The seconds that a question to the database takes, once it is connected.

    Raises:
        UnreachableError: it cannot be reached or asked.
    """
    try:
        connection.ensure_connection()
        began = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
        return time.monotonic() - began
    except DatabaseError as error:
        if connection.vendor == "sqlite":
            raise UnreachableError(f"database: {error}; look at LAB_DATA_DIR or DATABASE_URL") from error
        raise UnreachableError(
            f"DATABASE_URL: {database_address()} cannot be used: {_first_line(error)}; start PostgreSQL "
            "there, correct the address, or unset DATABASE_URL: the built-in database needs no server"
        ) from error


def broker_round_trip(*, seconds: float = ROUND_TRIP_SECONDS) -> float:
    """The seconds that a message takes to the broker and back, through a queue of its own.

    Raises:
        UnreachableError: the broker did not give it back within `seconds`.
    """
    # Loading Celery costs half a second, which a web process saves.
    from lab.celery import app

    began = time.monotonic()
    connection = app.connection_for_write(connect_timeout=seconds)
    try:
        with connection, _short_queue(connection) as queue:
            sent = uuid.uuid4().hex
            queue.put(sent)
            if queue.get(timeout=seconds).payload == sent:
                return time.monotonic() - began
            raise OSError("another message came back")
    except Exception as error:
        # Each kind of broker has errors of its own, and every one of them means this.
        name = broker_setting()
        if not name:
            place = settings.CELERY_BROKER_FOLDER
            raise UnreachableError(f"the queue in {place} cannot be used: {_first_line(error)}") from error
        raise UnreachableError(
            f"{name}: {broker_address()} cannot be used: {_first_line(error)}; start the server there, "
            f"correct the address, or unset {name}: the built-in queue needs no server"
        ) from error


@contextlib.contextmanager
def _short_queue(connection: Any) -> Iterator[Any]:
    """A queue that is gone afterwards."""
    queue = connection.SimpleQueue(
        f"round-trip-{uuid.uuid4().hex}", no_ack=True, queue_opts={"expires": 60.0}
    )
    try:
        yield queue
    finally:
        with contextlib.suppress(Exception):
            queue.queue.delete()
        queue.close()


def _first_line(error: Exception) -> str:
    """What went wrong in one line. Drivers may name an address, but not its password."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
