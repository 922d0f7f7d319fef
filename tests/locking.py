"""A second program that works on the test database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.db import connection


@contextlib.contextmanager
def nobody_else_writes() -> Iterator[None]:
    """Hold off everybody who writes runs and events, as a program with a long transaction does."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            if other.vendor == "sqlite":
                cursor.execute("BEGIN IMMEDIATE")
            else:
                cursor.execute("BEGIN")
                cursor.execute("LOCK TABLE lab_run, lab_event IN EXCLUSIVE MODE")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    finally:
        other.close()
