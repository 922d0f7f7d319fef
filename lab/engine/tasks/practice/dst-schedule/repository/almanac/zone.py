"""Time zones as a list of transitions."""

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import NamedTuple


class Transition(NamedTuple):
    """From this instant (UTC) on, local time is UTC plus `offset`."""

    instant: datetime
    offset: timedelta


class Zone:
    """A base offset and the transitions away from it, in any order."""

    def __init__(self, name, offset, transitions=()):
        self.name = name
        self._first_offset = offset
        self._transitions = sorted(transitions)
        self._instants = [transition.instant for transition in self._transitions]

    @classmethod
    def fixed(cls, name, hours):
        return cls(name, timedelta(hours=hours))

    @classmethod
    def with_summer_time(cls, name, *, winter, begins, ends):
        """A zone with one summer: `winter` hours from UTC, one more between two instants."""
        usual = timedelta(hours=winter)
        summer = usual + timedelta(hours=1)
        return cls(name, usual, [Transition(begins, summer), Transition(ends, usual)])

    def __repr__(self):
        return f"<Zone {self.name}>"

    def offset_at(self, instant):
        """Return how far local time is ahead of UTC at an instant."""
        index = bisect_right(self._instants, instant)
        return self._transitions[index - 1].offset if index else self._first_offset

    def to_local(self, instant):
        """Return what the wall shows at an instant."""
        return instant + self.offset_at(instant)

    def to_utc(self, local):
        """Return the instant at which the wall shows `local`."""
        return local - self.offset_at(local)
