from datetime import datetime, time

import pytest

from almanac import Daily, Weekly, runs_between
from tests.zones import BERLIN, NEW_YORK, UTC


def test_later_today_or_tomorrow():
    job = Daily(time(6, 0), UTC)
    assert job.next_run(datetime(2024, 1, 1, 5, 59)) == datetime(2024, 1, 1, 6, 0)
    assert job.next_run(datetime(2024, 1, 1, 6, 0)) == datetime(2024, 1, 2, 6, 0)


def test_local_time_follows_the_season():
    job = Daily(time(6, 0), BERLIN)
    assert job.next_run(datetime(2024, 1, 10)) == datetime(2024, 1, 10, 5, 0)
    assert job.next_run(datetime(2024, 7, 10)) == datetime(2024, 7, 10, 4, 0)


def test_the_local_day_can_be_another_one_than_in_utc():
    assert Daily(time(22, 0), NEW_YORK).next_run(datetime(2024, 1, 10, 1)) == datetime(2024, 1, 10, 3, 0)


def test_noon_is_noon_across_a_change():
    runs = runs_between(Daily(time(12, 0), NEW_YORK), datetime(2024, 3, 9), datetime(2024, 3, 12))
    assert [NEW_YORK.to_local(run).hour for run in runs] == [12, 12, 12]


def test_weekly():
    job = Weekly([0, 4], time(9, 0), BERLIN)
    runs = runs_between(job, datetime(2024, 6, 1), datetime(2024, 6, 15))
    assert [run.day for run in runs] == [3, 7, 10, 14]


@pytest.mark.parametrize("weekdays", [[], [7]], ids=["none", "seven"])
def test_weekdays_must_exist(weekdays):
    with pytest.raises(ValueError, match="0 to 6"):
        Weekly(weekdays, time(9, 0), UTC)
