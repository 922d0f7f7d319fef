from datetime import date, datetime, time, timedelta

from almanac import Window
from tests.zones import BERLIN, NEW_YORK


def test_quiet_hours_over_midnight():
    quiet = Window(time(22, 0), time(7, 0), BERLIN)
    assert quiet.contains(datetime(2024, 1, 10, 21, 0))
    assert quiet.contains(datetime(2024, 1, 10, 5, 59))
    assert not quiet.contains(datetime(2024, 1, 10, 6, 0))


def test_office_hours():
    office = Window(time(9, 0), time(17, 0), NEW_YORK)
    assert office.on(date(2024, 6, 3)) == (datetime(2024, 6, 3, 13), datetime(2024, 6, 3, 21))
    assert office.length_on(date(2024, 3, 10)) == timedelta(hours=8)


def test_the_night_of_a_change_is_shorter_or_longer():
    quiet = Window(time(22, 0), time(6, 0), NEW_YORK)
    assert quiet.length_on(date(2024, 3, 8)) == timedelta(hours=8)
    assert quiet.length_on(date(2024, 3, 9)) == timedelta(hours=7)
    assert quiet.length_on(date(2024, 11, 2)) == timedelta(hours=9)


def test_a_window_begins_when_it_says():
    early = Window(time(5, 0), time(9, 0), NEW_YORK)
    begins, ends = early.on(date(2024, 3, 10))
    assert early.contains(begins)
    assert not early.contains(begins - timedelta(minutes=1))
    assert ends - begins == timedelta(hours=4)
