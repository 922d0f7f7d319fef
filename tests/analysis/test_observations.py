"""The names that an analysis knows runs by are those of the engine."""

from __future__ import annotations

from lab.analysis import observations
from lab.engine.errors import ExitOrigin, ExitReason
from lab.engine.verify.base import Outcome


def test_reasons_and_verdicts_are_the_engine_s() -> None:
    broken = {reason.value for reason in ExitReason if reason.origin is ExitOrigin.INFRASTRUCTURE}
    assert broken == observations.INFRASTRUCTURE
    assert observations.CANCELLED == ExitReason.CANCELLED
    assert {Outcome.RESOLVED, Outcome.UNRESOLVED} == observations.GRADED
