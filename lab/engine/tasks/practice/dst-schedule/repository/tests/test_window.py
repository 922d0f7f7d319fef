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
