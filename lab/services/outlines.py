"""Every step of a run in a line: what it did, what came of it, and the action by which it is aligned.

Reads no body. Made once a process for a run's log as far as it goes, and kept.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal

from lab.analysis.alignment import Action


@dataclass(frozen=True, slots=True)
class StepOutline:
    """One step of the newest attempt.

    `seq` and `last_seq`: numbers of its first and last event. `kind` and `icon` as on a run's page. `tool` and
    `argument`: the first call in words, keys masked, one line of at most 240 characters; `more_calls`: how
    many calls run beside it. `result`: what came of it in a few words, such as "3 lines" ("" while pending);
    `exit_code` None: none was told. `added` and `removed`: lines of an edit. `tokens_in`, `tokens_out`,
    `context_tokens`, `cost` (dollars), `seconds`: None for unknown. `pending`: its end is not in the log yet.
    """

    seq: int
    last_seq: int
    number: int
    kind: str
    icon: str
    tool: str
    argument: str
    more_calls: int
    result: str
    exit_code: int | None
    failed: bool
    failed_test: bool
    added: int | None
    removed: int | None
    at: dt.datetime
    tokens_in: int | None
    tokens_out: int | None
    context_tokens: int | None
    cost: Decimal | None
    cost_missing: bool
    seconds: float | None
    pending: bool
    action: Action


@dataclass(frozen=True, slots=True)
class Outline:
    """The steps of a run's newest attempt in order; `until` is the last number of the log that was read."""

    run: int
    attempt: int
    until: int
    steps: tuple[StepOutline, ...]
