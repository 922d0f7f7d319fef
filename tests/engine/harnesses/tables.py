"""What is known of a family, line by line, and the tests that show each line here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """What the original does, the tests that show it here, and why where it is done differently.

    A test is named by the beginning of its name; one of another module is named from `tests.engine` on.
    """

    said: str
    tests: tuple[str, ...] = ()
    differs: str = ""


def require_shown(table: Sequence[Row], module: str) -> None:
    """Each row has tests that exist, in `module` where they name none, or a reason why it is different."""
    for row in table:
        assert row.tests or row.differs, row.said
        for shown in row.tests:
            place, _, name = shown.rpartition(".")
            assert name.startswith("test_"), (row.said, shown)
            found = _tests_of(f"tests.engine.{place}" if place else module)
            assert any(known.startswith(name) for known in found), (row.said, shown)
    assert len({row.said for row in table}) == len(table)


def _tests_of(module: str) -> list[str]:
    """The names of a module's tests, those in classes as well."""
    names = vars(importlib.import_module(module))
    classes = [kind for kind in names.values() if isinstance(kind, type) and kind.__name__.startswith("Test")]
    places = [names, *map(vars, classes)]
    return [name for place in places for name, value in place.items() if callable(value)]
