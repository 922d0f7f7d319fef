"""Stretches of local time."""

from datetime import datetime, timedelta


class Window:
    """From one time of day to another; over midnight if the end is not later than the start."""

    def __init__(self, start, end, zone):
        self.start = start
        self.end = end
        self.zone = zone

    def contains(self, instant):
        """Tell whether an instant lies in the window; the start belongs to it, the end does not."""
        now = self.zone.to_local(instant).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end

    def on(self, day):
        """Return the instants at which the window of a day begins and ends."""
        last = day if self.start < self.end else day + timedelta(days=1)
        begins = self.zone.to_utc(datetime.combine(day, self.start))
        ends = self.zone.to_utc(datetime.combine(last, self.end))
        return begins, ends

    def length_on(self, day):
        begins, ends = self.on(day)
        return ends - begins
