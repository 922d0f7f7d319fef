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


def walls(job, start, end):
    return [job.zone.to_local(run).strftime("%d %H:%M") for run in runs_between(job, start, end)]


def test_the_morning_after_the_spring_change():
    job = Daily(time(6, 0), NEW_YORK)
    assert job.next_run(datetime(2024, 3, 9, 12)) == datetime(2024, 3, 10, 10)
    assert walls(job, datetime(2024, 3, 8, 18), datetime(2024, 3, 12)) == ["09 06:00", "10 06:00", "11 06:00"]


def test_the_morning_after_the_autumn_change():
    job = Daily(time(5, 30), NEW_YORK)
    assert walls(job, datetime(2024, 11, 2), datetime(2024, 11, 5)) == ["02 05:30", "03 05:30", "04 05:30"]


def test_the_night_before_the_change_in_a_zone_ahead_of_utc():
    job = Daily(time(1, 30), BERLIN)
    assert walls(job, datetime(2024, 3, 29, 12), datetime(2024, 4, 1, 12)) == ["30 01:30", "31 01:30", "01 01:30"]


def test_asking_again_on_the_day_of_the_change():
    job = Daily(time(6, 0), NEW_YORK)
    assert job.next_run(datetime(2024, 3, 10, 8)) == datetime(2024, 3, 10, 10)


def test_a_skipped_time_runs_once_and_later():
    job = Daily(time(2, 30), NEW_YORK)
    assert walls(job, datetime(2024, 3, 9), datetime(2024, 3, 12)) == ["09 02:30", "10 03:30", "11 02:30"]


def test_a_time_that_comes_twice_runs_once():
    job = Daily(time(1, 30), NEW_YORK)
    runs = runs_between(job, datetime(2024, 11, 2, 12), datetime(2024, 11, 4, 12))
    assert runs == [datetime(2024, 11, 3, 5, 30), datetime(2024, 11, 4, 6, 30)]


def test_weekly_on_the_sunday_of_the_change():
    job = Weekly([6], time(4, 0), NEW_YORK)
    assert walls(job, datetime(2024, 3, 4), datetime(2024, 3, 18)) == ["10 04:00", "17 04:00"]
