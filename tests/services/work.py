"""How much a database does for something: counted, because time on a loaded machine says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext


def thousands_of_steps(do: Callable[[], object]) -> int:
    """SQLite's instructions; on PostgreSQL the rows that the parts of its plans gave or left out."""
    if connection.vendor == "sqlite":
        return _instructions(do)
    with CaptureQueriesContext(connection) as captured:
        do()
    # One row is some forty instructions.
    rows = sum(_rows(query["sql"]) for query in captured if query["sql"].startswith("SELECT"))
    return rows * 40 // 1000


def _instructions(do: Callable[[], object]) -> int:
    connection.ensure_connection()
    looked = 0

    def count() -> None:
        nonlocal looked
        looked += 1

    connection.connection.set_progress_handler(count, 1000)
    try:
        do()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return looked


def _rows(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        found = cursor.fetchone()[0]
    plan = json.loads(found) if isinstance(found, str) else found
    return _rows_of(plan[0]["Plan"])


def _rows_of(part: dict[str, Any]) -> int:
    own = part["Actual Rows"] + part.get("Rows Removed by Filter", 0)
    return int(own * part["Actual Loops"]) + sum(_rows_of(inner) for inner in part.get("Plans", []))
