from datetime import datetime, timedelta

import pytest

from tests.zones import BERLIN, NEW_YORK, UTC


@pytest.mark.parametrize("zone", [UTC, BERLIN, NEW_YORK], ids=lambda zone: zone.name.replace(" ", "-"))
@pytest.mark.parametrize("month", [1, 4, 7, 12])
def test_local_and_back(zone, month):
    instant = datetime(2024, month, 15, 12, 30)
    assert zone.to_utc(zone.to_local(instant)) == instant


def test_offsets_change_at_the_instant_of_the_transition():
    change = datetime(2024, 3, 31, 1)
    assert BERLIN.offset_at(change - timedelta(seconds=1)) == timedelta(hours=1)
    assert BERLIN.offset_at(change) == timedelta(hours=2)


def test_the_wall_skips_an_hour_in_spring():
    assert NEW_YORK.to_local(datetime(2024, 3, 10, 6, 59)) == datetime(2024, 3, 10, 1, 59)
    assert NEW_YORK.to_local(datetime(2024, 3, 10, 7, 0)) == datetime(2024, 3, 10, 3, 0)


def test_noon_on_the_days_of_change():
    assert NEW_YORK.to_utc(datetime(2024, 3, 10, 12)) == datetime(2024, 3, 10, 16)
    assert NEW_YORK.to_utc(datetime(2024, 11, 3, 12)) == datetime(2024, 11, 3, 17)
    assert BERLIN.to_utc(datetime(2024, 3, 31, 12)) == datetime(2024, 3, 31, 10)
