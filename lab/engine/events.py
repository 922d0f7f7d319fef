"""The events of a run: the one contract for disk, wire and export.

A run's log is a list of records, numbered from 1 without gaps. Each record wraps one event of the
discriminated union `Event`. New kinds and new fields with defaults are added; what exists is never changed or
read in another way. Everything else (pages, totals, exports, the next model input) is computed from here.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from lab.engine.llm.base import Cost, JSONObject, Reply, Usage
from lab.engine.verify.base import TestOutcome

SCHEMA_VERSION = 1


class Base(BaseModel):
    # Unknown fields are kept, so that an older reader loses nothing of a newer log.
    model_config = ConfigDict(frozen=True, extra="allow")


class AttemptStarted(Base):
    """The attempt's fixed facts. `messages` and `tools` are the conversation before the first model call.

    `task`, `harness`, `model`: name, version, digest and configuration of each, keys excluded.
    `parameters` is everything of the request body but `messages`.
    """

    kind: Literal["attempt_started"] = "attempt_started"
    task: JSONObject
    harness: JSONObject
    model: JSONObject
    limits: JSONObject
    seed: int
    messages: list[JSONObject]
    parameters: JSONObject
    lab_version: str


class ImportNote(BaseModel):
    """What an importer did not take as it stood; `field` in the format's words."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: Literal["guessed", "lost", "missing"]
    field: str
    detail: str = ""


class TrajectoryImported(Base):
    """The attempt was recorded by another program, and its log was made from that program's file.

    `format` with its version, `file` and `place` where it stood, `sha256` of what it was read from. `times`
    says whether the events' times were recorded; where they were not, they are that of the import. `totals`
    is what the file says of the whole run, `kept` the JSON of what it holds and the lab has no place for.
    """

    kind: Literal["trajectory_imported"] = "trajectory_imported"
    format: str
    file: str
    place: str = ""
    sha256: str
    times: Literal["recorded", "partly", "not_recorded"]
    steps_recorded: bool = True
    totals: JSONObject = Field(default_factory=dict)
    notes: list[ImportNote] = Field(default_factory=list)
    kept: str = ""


# What `source_kept` is about where it may hold a gold patch or hidden tests.
KEPT_FOR_OPERATORS = ("task_record", "grading")


class SourceKept(Base):
    """What an imported file holds at this place and the lab has no place for: its JSON.

    `step` None: outside the steps. `about`: what it belongs to (`model_call`, `tool_call`, `message`,
    `grading`, `task_record`, or the file's own word), `call_id` where that is a tool call. Records of tasks
    hold gold patches, those of gradings what hidden tests printed: they are not for everybody.
    """

    kind: Literal["source_kept"] = "source_kept"
    step: int | None = None
    about: str
    call_id: str = ""
    kept: str


class AttemptContinued(Base):
    """Another worker child goes on with the attempt from its log; what was in flight is marked before this.

    `continuation` counts from 1 within the attempt. `orderly`: the former worker was stopped and handed over,
    it did not die. `reason` is for people. Time between the record before and this one is nobody's.
    """

    kind: Literal["attempt_continued"] = "attempt_continued"
    continuation: int
    orderly: bool = False
    reason: str = ""


class SandboxImage(Base):
    """What a sandbox was made from: the name asked for, the content's hash, the registry's digest or ""."""

    reference: str
    identifier: str
    digest: str = ""
    size_bytes: int | None = None


class SandboxBounds(Base):
    """The limits that hold in a sandbox; None is no limit, also where one was asked for: the notes say so."""

    memory_bytes: int | None = None
    processes: int | None = None
    cpu_cores: float | None = None
    disk_bytes: int | None = None


class ImageRequested(Base):
    """A sandbox waits for its image, which is not on the machine: it is pulled or built now."""

    kind: Literal["image_requested"] = "image_requested"
    purpose: Literal["agent", "verification"] = "agent"
    reference: str
    action: Literal["pull", "build"]


class ImageReady(Base):
    """The image asked for is there, `seconds` after it was requested."""

    kind: Literal["image_ready"] = "image_ready"
    purpose: Literal["agent", "verification"] = "agent"
    image: SandboxImage
    seconds: float


class SandboxStarted(Base):
    """A sandbox is up. `purpose` says for whom; `isolation` is `bubblewrap`, `docker`, … or `none`.

    `rebuilt`: its workspace is the one of an earlier sandbox of the attempt, made again from stored changes.
    """

    kind: Literal["sandbox_started"] = "sandbox_started"
    purpose: Literal["agent", "verification"] = "agent"
    rebuilt: bool = False
    sandbox: str
    isolation: str
    identifier: str
    workspace: str
    network: bool
    notes: list[str] = Field(default_factory=list)
    seconds: float
    image: SandboxImage | None = None
    limits: SandboxBounds | None = None


class SandboxLost(Base):
    kind: Literal["sandbox_lost"] = "sandbox_lost"
    purpose: Literal["agent", "verification"] = "agent"
    message: str


class ModelCallStarted(Base):
    """A request is about to be sent. `request` counts the tries within the step, from 1.

    `body_sha256` is the hash of the sent body's canonical JSON, `message_count` the conversation's length.
    `again`: the try before was interrupted by the end of its worker, and its outcome is unknown.
    """

    kind: Literal["model_call_started"] = "model_call_started"
    step: int
    request: int
    body_sha256: str
    message_count: int
    max_tokens: int | None = None
    again: bool = False


class ModelCallFinished(Base):
    """The whole answer. `message` is the assistant message exactly as it joins the conversation.

    It is empty when the harness leaves a reply out that it cannot use. `unread_form` names the form of what
    looks like a call in a reply of which none was taken (`native`, `markup`, `json`, `python`, `fence`).
    """

    kind: Literal["model_call_finished"] = "model_call_finished"
    step: int
    request: int
    reply: Reply
    message: JSONObject
    cost: Cost
    context_tokens: int
    context_tokens_estimated: bool = False
    notes: list[str] = Field(default_factory=list)
    unread_form: str = ""


class ModelCallFailed(Base):
    """One try failed. `retry_in` is the wait in seconds before the next try, None when there is none.

    `error` is one of: connection, timeout, rate_limit, server, stream_broken, bad_stream, not_json, http_4xx,
    context_overflow, replay_diverged. `usage` stays unknown where the stream died before it came. `partial`
    is what had arrived, `raw` the beginning of what the server said.
    """

    kind: Literal["model_call_failed"] = "model_call_failed"
    step: int
    request: int
    error: str
    message: str
    status: int | None = None
    retry_in: float | None = None
    usage: Usage = Usage()
    cost: Cost = Cost()
    partial: str = ""
    raw: str = ""
    seconds: float | None


class ModelCallInterrupted(Base):
    """The lab broke off a request (cancel, wall time, a dead worker). Its cost is unknown."""

    kind: Literal["model_call_interrupted"] = "model_call_interrupted"
    step: int
    request: int
    reason: str
    partial: str = ""
    usage: Usage = Usage()
    cost: Cost = Cost()
    seconds: float | None = None


class ToolCallStarted(Base):
    """A tool call is about to be executed. `arguments` is what the executor gets, `raw_arguments` what came.

    `malformed` says why the raw text was not understood, "" when it was. `timeout` in seconds, None: none.
    `again`: the call was interrupted by the end of its worker; the workspace is as it was before it.
    """

    kind: Literal["tool_call_started"] = "tool_call_started"
    step: int
    index: int
    call_id: str
    tool: str
    executor: str
    arguments: JSONObject
    raw_arguments: str
    malformed: str = ""
    timeout: float | None = None
    again: bool = False


class StreamFacts(Base):
    """One stream of a command: true size in bytes, hash of all of it, and the kept text."""

    text: str
    total_bytes: int
    sha256: str
    truncated: bool
    binary: bool = False


class ToolCallFinished(Base):
    """A tool call ended. `observation` is what the model sees; `stdout` and `stderr` are the whole output.

    `message` is the result as it joins the conversation, with what the harness puts around the observation.
    `exit_code` is None for tools that run no command and for killed commands. `observation_dropped` counts
    characters cut from what the model sees.
    `submitted`: by the harness's stop rule this call ended the agent's work. `seconds` None: not recorded.
    """

    kind: Literal["tool_call_finished"] = "tool_call_finished"
    step: int
    index: int
    call_id: str
    observation: str
    observation_dropped: int = 0
    whole: str | None = None
    message: JSONObject
    failed: bool = False
    submitted: bool = False
    exit_code: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    stdout: StreamFacts | None = None
    stderr: StreamFacts | None = None
    seconds: float | None


class ToolCallInterrupted(Base):
    """The lab broke off a command; its effect is unknown. What it wrote until then is kept."""

    kind: Literal["tool_call_interrupted"] = "tool_call_interrupted"
    step: int
    index: int
    call_id: str
    reason: str
    stdout: StreamFacts | None = None
    stderr: StreamFacts | None = None
    seconds: float | None = None


class FileChange(Base):
    """One changed path of the workspace. `size` in bytes and `sha256` after the change; None when deleted.

    `added` and `removed` count lines against the snapshot before the call; None for binary files.
    """

    path: str
    change: Literal["added", "modified", "deleted", "mode"]
    size: int | None = None
    mode: int | None = None
    sha256: str | None = None
    link: str | None = None
    added: int | None = None
    removed: int | None = None


class WorkspaceChanged(Base):
    """What one tool call changed. `archive` is the SHA-256 of a stored tar of the files after the change.

    `problem` says what could not be kept; a workspace rebuilt from the log would then not be exact.
    """

    kind: Literal["workspace_changed"] = "workspace_changed"
    step: int
    index: int
    call_id: str
    changes: list[FileChange]
    archive: str | None = None
    problem: str = ""


class HistoryRewritten(Base):
    """The harness changed the conversation before the request of `step`.

    Either `messages` is all of it afterwards, or, where that is empty, `replaced` says which messages (by
    their place from 0) became which; an empty message is gone. `reason` is the harness's word (`condensed`,
    `requeried`), `context_tokens` the estimate of what is left, None: not estimated.
    """

    kind: Literal["history_rewritten"] = "history_rewritten"
    step: int
    reason: str
    messages: list[JSONObject] = Field(default_factory=list)
    replaced: dict[int, JSONObject] = Field(default_factory=dict)
    context_tokens: int | None = None


class HarnessMessage(Base):
    """What the harness itself tells the model after the reply of `step`, as it joins the conversation.

    `reason` names the feedback (`no_call`, `malformed`, …), `detail` says what exactly was wrong. `notice`:
    nothing was wrong with the reply, the harness has something to say.
    """

    kind: Literal["harness_message"] = "harness_message"
    step: int
    reason: str
    detail: str = ""
    message: JSONObject


class MessageSent(Base):
    """A person's message, as it joins the conversation. `ask` as in `ControlAsked`."""

    kind: Literal["message_sent"] = "message_sent"
    person: str
    message: JSONObject
    ask: int = 0


class ControlAsked(Base):
    """Somebody asked for something. `control`: cancel, pause, resume, limit, message, attempt, again.

    `value`: for `limit` {"limit": name, "after": number or None}, for `message` {"text": …}, for `again`
    {"run": the new run's number}. `ask` numbers what was asked within the lab; the event of its effect
    (`paused`, `resumed`, `limit_changed`, `message_sent`) carries the same number. 0: not numbered.
    """

    kind: Literal["control_asked"] = "control_asked"
    control: str
    person: str
    value: JSONObject = Field(default_factory=dict)
    ask: int = 0


class LimitChanged(Base):
    """A limit holds from here on. `before` and `after` in its unit, dollars as text; None: no limit."""

    kind: Literal["limit_changed"] = "limit_changed"
    limit: str
    before: Any
    after: Any
    person: str
    ask: int = 0


class LimitReached(Base):
    """`used` and `allowed` in the limit's unit (steps, tokens, seconds, dollars)."""

    kind: Literal["limit_reached"] = "limit_reached"
    limit: str
    used: Decimal
    allowed: Decimal


class Paused(Base):
    kind: Literal["paused"] = "paused"
    person: str
    ask: int = 0


class Resumed(Base):
    kind: Literal["resumed"] = "resumed"
    person: str
    ask: int = 0


class PatchCaptured(Base):
    """The agent has ended and its patch is kept. `patch` is a git diff against the snapshot, "" when empty.

    Work the agent committed is part of it. `files` holds path, change, added, removed for each file;
    `left_out` says what is not in the patch and why.
    """

    kind: Literal["patch_captured"] = "patch_captured"
    exit_reason: str
    native_reason: str = ""
    detail: str = ""
    patch: str
    files: list[FileChange] = Field(default_factory=list)
    commits: int = 0
    left_out: list[str] = Field(default_factory=list)
    final_message: str = ""


class VerificationStarted(Base):
    kind: Literal["verification_started"] = "verification_started"
    rule: str
    fail_to_pass: int
    pass_to_pass: int


class VerificationFinished(Base):
    """One grading. `log` is the test command's whole output; `detail` says why when there is no verdict.

    What its sandbox used stands beside `measured_by`; None where it was not measured or none started.
    """

    kind: Literal["verification_finished"] = "verification_finished"
    rule: str
    outcome: str
    tests: list[TestOutcome] = Field(default_factory=list)
    detail: str = ""
    exit_code: int | None = None
    log: str = ""
    rewards: dict[str, float] = Field(default_factory=dict, exclude_if=lambda rewards: not rewards)
    seconds: float | None
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    measured_by: str = ""


class AttemptEnded(Base):
    """Why the attempt ended and what it used. `error` is text for people, "" when nothing broke.

    `exit_reason` "" and None elsewhere: an imported file does not say.
    """

    kind: Literal["attempt_ended"] = "attempt_ended"
    exit_reason: str
    native_reason: str = ""
    error: str = ""
    retryable: bool = False
    steps: int
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None
    agent_seconds: float | None = None
    measured_by: str = ""


class RunEnded(Base):
    """The run will not go on by itself. `verdict` is the outcome, None when it was not graded."""

    kind: Literal["run_ended"] = "run_ended"
    exit_reason: str
    verdict: str | None = None


class SecretPurged(Base):
    """A leaked secret was taken out of this log: the events of these numbers read otherwise since then.

    Also what a stored body held may be gone; `purge` numbers it within the lab.
    """

    kind: Literal["secret_purged"] = "secret_purged"
    purge: int
    person: str
    reason: str = ""
    events: list[int] = Field(default_factory=list)


Event = Annotated[
    AttemptStarted
    | TrajectoryImported
    | SourceKept
    | AttemptContinued
    | ImageRequested
    | ImageReady
    | SandboxStarted
    | SandboxLost
    | ModelCallStarted
    | ModelCallFinished
    | ModelCallFailed
    | ModelCallInterrupted
    | ToolCallStarted
    | ToolCallFinished
    | ToolCallInterrupted
    | WorkspaceChanged
    | HistoryRewritten
    | HarnessMessage
    | MessageSent
    | ControlAsked
    | LimitChanged
    | LimitReached
    | Paused
    | Resumed
    | PatchCaptured
    | VerificationStarted
    | VerificationFinished
    | AttemptEnded
    | RunEnded
    | SecretPurged,
    Field(discriminator="kind"),
]

EVENT_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


class Record(BaseModel):
    """One line of a run's log: its number, the attempt it belongs to, when it happened, and the event."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    attempt: int
    at: dt.datetime
    schema_version: int = SCHEMA_VERSION
    event: Event

    def to_line(self) -> str:
        """The record as one line of JSON: the envelope's fields beside the event's."""
        envelope = {
            "seq": self.seq,
            "attempt": self.attempt,
            "at": self.at.isoformat(timespec="milliseconds"),
            "schema_version": self.schema_version,
        }
        return json.dumps(envelope | self.event.model_dump(mode="json"), ensure_ascii=False)


def read_record(fields: dict[str, Any]) -> Record:
    """A record from one decoded line of `Record.to_line`.

    Raises:
        pydantic.ValidationError: an unknown kind or a field of the wrong shape.
    """
    envelope = {name: fields[name] for name in ("seq", "attempt", "at", "schema_version")}
    body = {name: value for name, value in fields.items() if name not in envelope}
    return Record(**envelope, event=EVENT_ADAPTER.validate_python(body))
