"""Every importer, in the order in which they are asked whether a document is theirs."""

from __future__ import annotations

from lab.engine.formats.atif import Atif
from lab.engine.formats.base import Format
from lab.engine.formats.chat_completions import ChatCompletions
from lab.engine.formats.claude_code import ClaudeCode
from lab.engine.formats.codex import CodexRollout
from lab.engine.formats.codex_exec import CodexExec
from lab.engine.formats.inspect_log import InspectLog
from lab.engine.formats.lab_log import LabLog
from lab.engine.formats.leaf import Leaf, LeafResults
from lab.engine.formats.mini_swe_agent import MiniSweAgent
from lab.engine.formats.openhands import OpenHands
from lab.engine.formats.openhands_v1 import OpenHandsV1
from lab.engine.formats.otel import OpenTelemetry
from lab.engine.formats.r2e_gym import R2EGym
from lab.engine.formats.results_maps import ResultsMap
from lab.engine.formats.swe_agent import SweAgent
from lab.engine.formats.swe_bench_predictions import SweBenchPredictions
from lab.engine.formats.swe_bench_report import SweBenchReport, SweBenchSummary
from lab.engine.formats.tau_bench import TauBench
from lab.engine.formats.who_and_when import WhoAndWhen

FORMATS: tuple[Format, ...] = (
    LabLog(),
    Atif(),
    InspectLog(),
    OpenTelemetry(),
    Leaf(),
    MiniSweAgent(),
    SweAgent(),
    ClaudeCode(),
    CodexRollout(),
    CodexExec(),
    OpenHands(),
    OpenHandsV1(),
    R2EGym(),
    LeafResults(),
    WhoAndWhen(),
    TauBench(),
    # Many formats hold messages; these are those that hold little else.
    ChatCompletions(),
    SweBenchReport(),
    SweBenchSummary(),
    SweBenchPredictions(),
    # A map of names to true or false may be much else: last.
    ResultsMap(),
)
