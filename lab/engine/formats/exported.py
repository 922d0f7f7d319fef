"""A run on its way out, and what every writer does in the same way."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol

from lab.engine.formats.reading import plain_text
from lab.engine.formats.trajectory import FailedRequest, Grading, Note, Trajectory, Turn
from lab.engine.llm.base import JSONObject, clean_json
from lab.engine.verify.base import Outcome

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 80
_MOST_NOTES = 100
_SEPARATORS = (",", ":")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A run: its trajectory, and what the lab calls its parts. Texts are "" where there is none.

    `kind` is that of the experiment (launched, imported, demo), `arm` its letter, `status` the run's.
    `attempt` is the one the trajectory is of, 0 where none has begun.
    """

    run: int
    experiment: int
    experiment_name: str
    kind: str
    arm: str
    task_set: str
    task: str
    harness: str
    harness_version: str
    harness_digest: str
    model: str
    provider: str
    seed: int
    attempt: int
    status: str
    trajectory: Trajectory

    @property
    def instance_id(self) -> str:
        """The task's name as it was recorded, else as the lab calls it."""
        return self.trajectory.instance_id or self.task

    @property
    def file_name(self) -> str:
        """A name for a file of this run, without ending: safe everywhere, whatever the task is called."""
        name = safe_name(self.instance_id)
        return f"run-{self.run}-{name}" if name else f"run-{self.run}"

    @property
    def grading(self) -> Grading | None:
        """The verdict in force: the latest."""
        return self.trajectory.gradings[-1] if self.trajectory.gradings else None

    def facts(self) -> JSONObject:
        """What the lab calls the parts of the run, for a format's place for what it does not model."""
        return {
            "run": self.run,
            "attempt": self.attempt,
            "status": self.status,
            "experiment": {"number": self.experiment, "name": self.experiment_name, "kind": self.kind},
            "arm": self.arm,
            "task": {"name": self.task, "set": self.task_set},
            "harness": {
                "name": self.harness,
                "version": self.harness_version,
                "digest": self.harness_digest,
                "family": self.trajectory.harness.family,
            },
            "model": {"name": self.model, "provider": self.provider},
            "seed": self.seed,
        }


Shape = Literal["each", "one", "several"]


class Member(NamedTuple):
    """A file of an export: its name, with `/` between folders, and its bytes in pieces."""

    name: str
    pieces: Iterable[bytes]


class Writer(Protocol):
    """One format that runs are written in. Pure: it is given runs and yields files, one run in memory.

    `name` is what pages and commands call it, `title` a few words for people, `lost` what the format has no
    place for, one sentence each. `shape`: `each` run is a file of its own, all runs make `one` file, or they
    make `several`. `ending` is that of one file.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def lost(self) -> Sequence[str]: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def ending(self) -> str: ...

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        """The files of these runs, in their order; the pieces of one are read before the next."""


def safe_name(text: str) -> str:
    """The text as part of a file's name on every system; "" where nothing of it is left."""
    return _UNSAFE.sub("-", text)[:_NAME_CHARACTERS].strip(".-")


class MoneySaid(NamedTuple):
    """What a request cost in US dollars and who says so: `reported`, or the basis of the lab's own figure."""

    amount: Decimal | None
    source: str


def money(item: Turn | FailedRequest) -> MoneySaid:
    """What was recorded with the request, else what the lab's prices make of it; None: neither is known."""
    if item.cost_reported is not None:
        return MoneySaid(item.cost_reported, "reported")
    if item.priced is not None and item.priced.amount is not None:
        return MoneySaid(item.priced.amount, item.priced.basis)
    return MoneySaid(None, "")


def own_money(item: Turn | FailedRequest) -> Decimal | None:
    """What the lab's prices make of the request."""
    return item.priced.amount if item.priced is not None else None


class Spent(NamedTuple):
    """A run's money. `amount` None: no total is recorded, and that of some answer is not known."""

    amount: Decimal | None
    source: str
    unknown_requests: int


def spent(trajectory: Trajectory) -> Spent:
    """The recorded total, else the sum over all requests, where each answer's cost is known."""
    requests = [item for item in trajectory.items if isinstance(item, Turn | FailedRequest)]
    said = [money(item) for item in requests]
    unknown = sum(one.amount is None for one in said)
    if trajectory.totals.cost is not None:
        return Spent(trajectory.totals.cost, "reported", unknown)
    answers = [one for one, item in zip(said, requests, strict=True) if isinstance(item, Turn)]
    if not answers or any(one.amount is None for one in answers):
        return Spent(None, "", unknown)
    sources = sorted({one.source for one in answers})
    return Spent(sum((one.amount or Decimal(0) for one in said), Decimal(0)), "+".join(sources), unknown)


def whole_sum(values: Iterable[int | None]) -> int | None:
    """The sum, None where there is nothing to add or a part of it is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def reward(grading: Grading | None) -> float | None:
    """The recorded reward, else 1 for resolved and 0 for unresolved; None where nothing was decided."""
    if grading is None:
        return None
    if "reward" in grading.rewards:
        return grading.rewards["reward"]
    if len(grading.rewards) == 1:
        return next(iter(grading.rewards.values()))
    return {Outcome.RESOLVED: 1.0, Outcome.UNRESOLVED: 0.0}.get(grading.outcome)


def words_of(turn: Turn) -> str:
    """What the model said, also where the harness left the reply out of the conversation."""
    if turn.message:
        return plain_text(turn.message.get("content"))
    return plain_text(turn.kept.get("left_out_reply"))


def graded(grading: Grading, *, logs: bool = True) -> JSONObject:
    """A verdict as JSON, what is empty left out."""
    tests = [test.model_dump(mode="json") for test in grading.tests]
    if not logs:
        tests = [{name: value for name, value in test.items() if name != "log"} for test in tests]
    said = {
        "rule": grading.rule,
        "outcome": grading.outcome.value,
        "rewards": dict(grading.rewards),
        "detail": grading.detail,
        "tests": tests,
        "log": grading.log if logs else "",
        "seconds": grading.seconds,
        "kept": grading.kept,
    }
    return some(said)


def some(fields: JSONObject) -> JSONObject:
    """The fields that say something: None, "" and what is empty are left out, 0 and False stay."""
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [], ())}


def told(notes: Sequence[Note], lost: Sequence[str]) -> str:
    """What this export does not carry, and what the trajectory itself notes, one a line."""
    lines = [f"not carried: {sentence}" for sentence in lost]
    lines += [": ".join(filter(None, (note.kind, note.field, note.detail))) for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"{len(notes) - _MOST_NOTES} more notes")
    return "\n".join(lines)


def written(value: Any) -> str:
    """JSON that every reader takes: no NaN, no infinity, no lone surrogate. On one line, which is fast."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=_SEPARATORS)
        text.encode()
    except (ValueError, UnicodeEncodeError):
        text = json.dumps(_finite(clean_json(value)), ensure_ascii=False, separators=_SEPARATORS)
    return text


def _finite(value: Any) -> Any:
    """Numbers that JSON does not have, as texts of their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
