"""What became of a run, read out of a whole lab for the oracle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.faults import FaultFolder
from tests.whole_lab import WholeLab

_TELL = "from tests.e2e.inside import tell\nprint(json.dumps(tell(arguments[0])))"


@dataclass(frozen=True)
class Story:
    """Everything a lab holds about a run. Events are as in an export, the rest as rows of tables.

    `folded` is the roll-up computed anew from the log, to be compared with the stored `facts`. `inputs` says
    of each model call (by its number in the log) whether its input, built again from the log, has the hash of
    what was sent. `appends` says what was appended under which lease, as far as it was noted. `unseen` counts
    asks.
    """

    run: int
    status: str
    exit_reason: str
    last_seq: int
    events: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    cost_of_calls: str
    facts: dict[str, Any]
    folded: dict[str, Any]
    attempts: list[dict[str, Any]]
    inputs: list[tuple[int, bool]]
    drafts: int
    unseen: int
    appends: list[dict[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str, attempt: int | None = None) -> list[dict[str, Any]]:
        """The events of these kinds, in order."""
        return [
            event for event in self.events if event["kind"] in kinds and attempt in (None, event["attempt"])
        ]

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    @property
    def last_attempt(self) -> int:
        return max((int(attempt["n"]) for attempt in self.attempts), default=0)

    @property
    def verdict(self) -> str | None:
        ended = self.of("run_ended")
        return ended[-1]["verdict"] if ended else None

    @property
    def patch(self) -> str | None:
        captured = self.of("patch_captured", attempt=self.last_attempt)
        return captured[-1]["patch"] if captured else None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """What the model said and was told in the last attempt, without ids, which a seed decides."""
        added = self.of("model_call_finished", "tool_call_finished", attempt=self.last_attempt)
        return [_without_ids(event["message"]) for event in added]

    @property
    def seconds(self) -> float:
        """From the first event to the last."""
        first, last = (dt.datetime.fromisoformat(self.events[place]["at"]) for place in (0, -1))
        return (last - first).total_seconds()

    @property
    def continuations(self) -> int:
        return len(self.of("attempt_continued"))


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "id": ""} for call in message.get("tool_calls", ())]
    return {**message, **({"tool_calls": calls} if calls else {}), "tool_call_id": ""}


def read_stories(lab: WholeLab, runs: Sequence[int]) -> list[Story]:
    """The stories of these runs, in their order."""
    folder = FaultFolder(lab.data_folder)
    told: Iterable[dict[str, Any]] = lab.program(_TELL, list(runs))
    return [
        Story(
            **{**one, "inputs": [tuple(pair) for pair in one["inputs"]]}, appends=folder.appends(one["run"])
        )
        for one in told
    ]
