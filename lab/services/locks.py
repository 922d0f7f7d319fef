"""What only one process of all labs on this database does at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from django.db import DatabaseError, connection

# Any numbers; they are PostgreSQL's names for these locks.
_LOCKS = {
    "prepare": 0x1AB_0001,
    "claim": 0x1AB_0002,
    "models": 0x1AB_0003,
    "harnesses": 0x1AB_0004,
    "imports": 0x1AB_0005,
    "taxonomies": 0x1AB_0006,
    "judges": 0x1AB_0007,
}


def one_at_a_time(what: Literal["claim", "models", "harnesses", "imports", "taxonomies", "judges"]) -> None:
    """Wait for the others that do this; the lock ends with the transaction.

    On SQLite a transaction has the whole database to itself from its beginning.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCKS[what]])


@contextlib.contextmanager
def one_lab_prepares() -> Iterator[None]:
    """Wait until no other lab changes or fills the tables of this database, and hold others off meanwhile.

    On SQLite one lab holds the data folder, and with it the database.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        # However long the other one takes.
        cursor.execute("SET lock_timeout = 0")
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCKS["prepare"]])
    try:
        yield
    finally:
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCKS["prepare"]])
            cursor.execute("RESET lock_timeout")
