"""The lab's settings, and points at which its processes can be killed, frozen or disturbed (see `faults`)."""

from __future__ import annotations

from lab.settings import *  # noqa: F403
from lab.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.e2e.fault_points.FaultPoints"]
