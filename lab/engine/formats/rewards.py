"""Verdicts that are a number: a reward of 1 or more is a resolved task."""

from __future__ import annotations

from typing import Any

from lab.engine.formats.reading import number
from lab.engine.formats.trajectory import Grading
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome


def reward_grading(
    reward: Any, *, rule: str, log: str = "", kept: JSONObject | None = None
) -> Grading | None:
    """The verdict of a recorded reward, None where it is no number."""
    value = number(reward)
    if value is None:
        return None
    return Grading(
        rule=rule,
        outcome=Outcome.RESOLVED if value >= 1 else Outcome.UNRESOLVED,
        rewards={"reward": value},
        log=log,
        kept=kept or {},
    )
