from datetime import datetime, timedelta

import pytest

from almanac import Transition, Zone
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


def test_every_hour_around_a_change_is_local_and_back():
    for zone, change in [(NEW_YORK, datetime(2024, 3, 10, 7)), (BERLIN, datetime(2024, 3, 31, 1))]:
        for hours in range(-14, 15):
            instant = change + timedelta(hours=hours, minutes=15)
            assert zone.to_utc(zone.to_local(instant)) == instant


@pytest.mark.parametrize(
    ("zone", "local", "instant"),
    [
        (NEW_YORK, datetime(2024, 3, 10, 2, 30), datetime(2024, 3, 10, 7, 30)),
        (BERLIN, datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 1, 30)),
    ],
    ids=["New-York", "Berlin"],
)
def test_skipped_times_are_moved_forward(zone, local, instant):
    assert zone.to_utc(local) == instant
    assert zone.to_local(instant) == local + timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "local", "instant"),
    [
        (NEW_YORK, datetime(2024, 11, 3, 1, 30), datetime(2024, 11, 3, 5, 30)),
        (BERLIN, datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 0, 30)),
    ],
    ids=["New-York", "Berlin"],
)
def test_times_that_come_twice_mean_the_first(zone, local, instant):
    assert zone.to_utc(local) == instant


def test_after_the_second_pass_the_new_offset_counts():
    assert NEW_YORK.to_utc(datetime(2024, 11, 3, 2, 0)) == datetime(2024, 11, 3, 7, 0)
    assert BERLIN.to_utc(datetime(2024, 10, 27, 3, 0)) == datetime(2024, 10, 27, 2, 0)


def test_a_zone_that_changes_its_offset_for_good():
    zone = Zone("Samoa", timedelta(hours=-10), [Transition(datetime(2011, 12, 30, 10), timedelta(hours=14))])
    assert zone.to_utc(datetime(2011, 12, 29, 23)) == datetime(2011, 12, 30, 9)
    assert zone.to_utc(datetime(2011, 12, 31, 1)) == datetime(2011, 12, 30, 11)
