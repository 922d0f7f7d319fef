"""When a job runs next."""

from datetime import datetime, timedelta

ONE_DAY = timedelta(days=1)


class Daily:
    """Every day at the same time of the wall's clock."""

    def __init__(self, at, zone):
        self.at = at
        self.zone = zone

    def runs_on(self, day):
        """Tell whether the job runs on this day of the wall's calendar."""
        return True

    def next_run(self, after):
        """Return the first instant later than `after` (both UTC) at which the job runs."""
        day = self.zone.to_local(after).date() - ONE_DAY
        while True:
            if self.runs_on(day):
                instant = self.zone.to_utc(datetime.combine(day, self.at))
                if instant > after:
                    return instant
            day += ONE_DAY


class Weekly(Daily):
    """On some weekdays, 0 for Monday to 6 for Sunday."""

    def __init__(self, weekdays, at, zone):
        super().__init__(at, zone)
        self.weekdays = frozenset(weekdays)
        if not self.weekdays or not self.weekdays <= set(range(7)):
            raise ValueError(f"weekdays must be some of 0 to 6, not {sorted(weekdays)}")

    def runs_on(self, day):
        return day.weekday() in self.weekdays


def runs_between(job, start, end):
    """Return all instants later than `start` and not later than `end`."""
    runs = []
    instant = job.next_run(start)
    while instant <= end:
        runs.append(instant)
        instant = job.next_run(instant)
    return runs
