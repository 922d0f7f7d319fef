"""Values of foreign documents: what is not of the expected shape is not recorded."""

from __future__ import annotations

import datetime as dt

import pytest

from lab.engine.formats.reading import moment

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "value",
    ["2026-03-01T12:00:00Z", "2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00", NOON.timestamp()]
    + [NOON.timestamp() * 1000, NOON.timestamp() * 1_000_000],
)
def test_a_point_in_time_is_read_in_any_of_its_forms(value: object) -> None:
    assert moment(value) == NOON


@pytest.mark.parametrize(
    "value", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00", 0, -1, "soon", float("nan"), None, {}]
)
def test_what_programs_write_for_no_time_is_no_time(value: object) -> None:
    assert moment(value) is None
