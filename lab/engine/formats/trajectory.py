"""A trajectory in the lab's neutral form: what every importer makes and every exporter is given.

None and empty texts are "not recorded", never a zero. What a format holds and this form does not model stays
in `kept`, at the place where it stood, so that nothing is lost on the way in.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from lab.engine.errors import ExitReason
from lab.engine.events import Record
from lab.engine.llm.base import Cost, JSONObject, Usage
from lab.engine.verify.base import Outcome, TestOutcome

NoteKind = Literal["guessed", "lost", "missing"]
Speaker = Literal["harness", "person"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a reader did not take as it stood. `field` is a path in the format's own words.

    `guessed`: the value is inferred, `detail` says from what. `lost`: it could not be taken over. `missing`:
    the format has a place for it and this file leaves it out.
    """

    kind: NoteKind
    field: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a trajectory stood. `format` with its version ("mini-swe-agent-1.1"), `file` a path within what
    was given, `place` where in it ("line 3", "sample 4, epoch 1"), "" for all of it.

    `sha256` is that of the bytes it was read from: the same ones again are the same trajectory. For one that
    is still being written it is that of its name in the format (`identity`), which stays while it grows.
    """

    format: str
    file: str
    place: str = ""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class HarnessUsed:
    """The harness as recorded. `name` is the program's ("mini-swe-agent"), `version` its own.

    `family` is the lab's name where the format tells which wire protocol it was, `config` what is recorded of
    its configuration, keys removed. `complete`: the configuration is all that decides what a model sees.
    """

    name: str
    version: str = ""
    family: str = ""
    config: JSONObject = field(default_factory=dict)
    complete: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelUsed:
    """The model as recorded, under its own name; `sampling` as it was sent, as far as that is known."""

    name: str = ""
    provider: str = ""
    base_url: str = ""
    sampling: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call and what came of it.

    `raw_arguments` is the text that came, `malformed` why it was not understood. `observation` is what the
    model saw, None when no result is recorded; `message` the result as it joined the conversation. `output`
    is the program's whole output where that is kept apart from the observation. `seconds` it took.
    """

    id: str
    name: str
    arguments: JSONObject
    raw_arguments: str = ""
    malformed: str = ""
    observation: str | None = None
    message: JSONObject = field(default_factory=dict)
    output: str | None = None
    exit_code: int | None = None
    failed: bool = False
    timed_out: bool = False
    submitted: bool = False
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    seconds: float | None = None
    synthesised_id: bool = False
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer of the model with its tool calls: a step.

    `message` is the assistant message as it joined the conversation, in the shape of chat completions
    (`role`, `content`, `tool_calls`, …). `reasoning` is what the model thought aloud, apart from its content.
    `started_at` is when it was asked, `ended_at` when the answer was whole, `seconds` between them.
    `cost_reported` in US dollars as recorded; the lab prices `usage` again beside it. `agent` names the
    subagent that answered, "" for the main one. `copied`: the answer was copied from an earlier trajectory
    and asks for no money here. `priced` is what the lab's prices made of it, in a trajectory that is made
    from a log; readers leave None.
    """

    message: JSONObject
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = ""
    model: str = ""
    response_id: str = ""
    usage: Usage = Usage()
    cost_reported: Decimal | None = None
    priced: Cost | None = None
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    agent: str = ""
    copied: bool = False
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message that joined the conversation between two turns: a feedback of the harness, or a person's.

    `reason` is the harness's word for it ("format_error"), "" when none is recorded.
    """

    message: JSONObject
    by: Speaker = "harness"
    reason: str = ""
    at: dt.datetime | None = None
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailedRequest:
    """A request without a usable answer. `error` as in the event `model_call_failed`, `message` its text.

    `error` "interrupted": the lab broke it off. `priced` as in `Turn`.
    """

    error: str
    message: str
    status: int | None = None
    usage: Usage = Usage()
    cost_reported: Decimal | None = None
    priced: Cost | None = None
    at: dt.datetime | None = None
    seconds: float | None = None
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """The conversation was replaced (compaction, condensing); `messages` is all of it afterwards."""

    reason: str
    messages: tuple[JSONObject, ...]
    at: dt.datetime | None = None
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Aside:
    """Something recorded that is neither turn nor message (a state change, a hook): shown raw."""

    name: str
    kept: JSONObject
    at: dt.datetime | None = None


Item = Turn | Message | FailedRequest | Rewritten | Aside


@dataclass(frozen=True, kw_only=True)
class Grading:
    """A verdict as recorded. `rule` is the lab's name of the rule, or the format's own word for it.

    `rewards` by name; `tests` one status each where the report has them; `log` the grader's output.
    """

    rule: str
    outcome: Outcome
    tests: tuple[TestOutcome, ...] = ()
    rewards: Mapping[str, float] = field(default_factory=dict)
    detail: str = ""
    log: str = ""
    seconds: float | None = None
    at: dt.datetime | None = None
    kept: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What the file says of the whole run, beside the sums of its calls. Money in US dollars."""

    cost: Decimal | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    calls: int | None = None
    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One run as somebody's program recorded it.

    `instance_id` is the task's name ("" when none is recorded), `statement` its text. `seed` counts repeats
    from 1, None when not recorded. `opening` is the conversation before the first turn, `tools` the schemas
    as sent. `exit_reason` is the lab's word for `native_reason`, None where the file does not say why it
    ended. `patch` is a git diff, "" an empty one, None not recorded. `partial`: it is still being written.
    `steps_recorded` is False for a verdict alone.
    """

    origin: Origin
    harness: HarnessUsed
    model: ModelUsed = ModelUsed()
    instance_id: str = ""
    statement: str = ""
    task_kept: JSONObject = field(default_factory=dict)
    seed: int | None = None
    opening: tuple[JSONObject, ...] = ()
    tools: tuple[JSONObject, ...] = ()
    items: tuple[Item, ...] = ()
    exit_reason: ExitReason | None = None
    native_reason: str = ""
    error: str = ""
    final_message: str = ""
    patch: str | None = None
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    totals: Totals = Totals()
    gradings: tuple[Grading, ...] = ()
    partial: bool = False
    steps_recorded: bool = True
    limits: JSONObject = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    kept: JSONObject = field(default_factory=dict)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(item for item in self.items if isinstance(item, Turn))


@dataclass(frozen=True, kw_only=True)
class FoundGrading:
    """A verdict that stands apart from its trajectory: in a report or a map of results.

    It belongs to the trajectories of the same import with the same `instance_id`, and the same `seed`,
    `model` and `trajectory` (a file's path) where these are said. Where none is there, it is a run of its own
    without steps. `patch` where the file holds one; `grading` None where it holds a patch and no verdict, as
    a file of predictions does. `harness` names whose results these are where there is no trajectory.
    """

    origin: Origin
    instance_id: str
    grading: Grading | None
    seed: int | None = None
    model: str = ""
    harness: str = ""
    trajectory: str = ""
    patch: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedLog:
    """A run's log as a lab wrote it: its `records`, of all attempts, are taken over as they are.

    `facts` is what that lab called the run's parts, kept so that it is written the same again: `experiment`
    (name), `arm` (letter), `seed`, `status`, `task` (set, version, name, title, statement), `harness` (name,
    version, family), `model` (name, version), `records` (how many).
    """

    origin: Origin
    facts: JSONObject
    records: tuple[Record, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A part of a file that could not be read; the rest was. `place` as in `Origin`."""

    file: str
    place: str
    message: str


Found = Trajectory | FoundGrading | RecordedLog | Problem
