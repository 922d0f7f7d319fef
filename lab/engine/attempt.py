"""What one attempt needs and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from lab.engine.environments import PRACTICE_IMAGE
from lab.engine.errors import ExitReason
from lab.engine.events import Record
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.llm.replay import Recording
from lab.engine.sandboxes.base import SandboxLimits, SandboxProvider
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome

Phase = Literal["preparing", "running", "verifying"]
OnPhase = Callable[[Phase], None]
ReadBlob = Callable[[str], bytes]


@dataclass(frozen=True)
class AttemptSpec:
    """Everything one attempt needs; nothing else is read from anywhere.

    `limits` are the effective ones. `data_folder` is the lab's folder: sandboxes are made under
    `<data_folder>/sandboxes`, the practice environment lies there too. `label` names run and attempt and
    finds an orphaned sandbox again. `facts` is merged into the task, harness and model of `AttemptStarted`
    ("task" -> {"set": "practice"}, …), for names and versions that only a database knows.
    `spent_usd_before` is what earlier attempts of the run have cost. `secrets` (name -> value) are replaced
    wherever they appear; `api_key`, the value of `key_variable`, always is. `retry_seconds` bounds how long a
    model call is tried again. `chunk_seconds` is the pause of a scripted model after each streamed piece.

    `practice_image` is what sandboxes of practice tasks are built on where their kind takes an image.

    `replay` is what the model serves instead of being asked; `model.base_url` is not used then.

    `history` are all records of this attempt so far; with any, the attempt is continued from there.
    `read_blob` gives a stored blob by its SHA-256 (OSError: it is gone). `limits` are those before the
    history's own changes. `continued_orderly` and `continued_because` become `AttemptContinued`.
    """

    task: TaskSpec
    harness: HarnessConfig
    model: ModelConfig
    limits: Limits
    provider: SandboxProvider
    data_folder: Path
    label: str
    seed: int = 1
    attempt: int = 1
    api_key: str = ""
    key_variable: str = ""
    retry_seconds: float = 900.0
    chunk_seconds: float = 0.015
    spent_usd_before: Decimal = Decimal(0)
    secrets: Mapping[str, str] = field(default_factory=dict)
    sandbox_limits: SandboxLimits = SandboxLimits()
    practice_image: str = PRACTICE_IMAGE
    facts: Mapping[str, JSONObject] = field(default_factory=dict)
    replay: Recording | None = None
    history: tuple[Record, ...] = ()
    read_blob: ReadBlob | None = None
    continued_orderly: bool = False
    continued_because: str = ""


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended. `verdict` is None when nothing was graded; `error` is text for people."""

    exit_reason: ExitReason
    verdict: Outcome | None
    retryable: bool
    error: str
    steps: int
