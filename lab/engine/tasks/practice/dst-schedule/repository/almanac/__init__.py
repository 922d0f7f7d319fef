"""Recurring jobs in local time."""

from almanac.schedule import Daily, Weekly, runs_between
from almanac.window import Window
from almanac.zone import Transition, Zone

__all__ = ["Daily", "Transition", "Weekly", "Window", "Zone", "runs_between"]
