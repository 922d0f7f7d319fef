"""What a preflight can find: what it means, what it would do to runs, and what mends it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from lab.engine.llm.base import JSONObject

Severity = Literal["failing", "warning", "info"]


class Evidence(NamedTuple):
    """Where it shows: the probe, and the excerpt of the answer."""

    probe: str
    excerpt: str


class Diagnosis(NamedTuple):
    """One kind of finding. `mends` are sentences by server: sglang, vllm, llamacpp, generic."""

    code: str
    severity: Severity
    title: str
    effect: str
    mends: Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """A diagnosis with what shows it. `detail` says what exactly was seen."""

    diagnosis: Diagnosis
    evidence: tuple[Evidence, ...] = ()
    detail: str = ""

    @property
    def code(self) -> str:
        return self.diagnosis.code

    @property
    def severity(self) -> Severity:
        return self.diagnosis.severity

    def to_json(self) -> JSONObject:
        """The finding as it is stored and shown."""
        return {
            "code": self.code,
            "severity": self.severity,
            "title": self.diagnosis.title,
            "detail": self.detail,
            "effect": self.diagnosis.effect,
            "evidence": [{"probe": one.probe, "excerpt": one.excerpt} for one in self.evidence],
            "mends": dict(self.diagnosis.mends),
        }


@dataclass
class Report:
    """What a preflight has found so far. `measured` holds figures by name, in units that the name ends in."""

    findings: list[Finding] = field(default_factory=list)
    measured: dict[str, float | int | str | None] = field(default_factory=dict)

    @property
    def outcome(self) -> Literal["healthy", "warning", "failing"]:
        severities = {finding.severity for finding in self.findings}
        if "failing" in severities:
            return "failing"
        return "warning" if "warning" in severities else "healthy"


@functools.cache
def diagnoses() -> Mapping[str, Diagnosis]:
    """Everything a preflight can find, by code."""
    entries = yaml.safe_load((Path(__file__).parent / "catalogue.yaml").read_text(encoding="utf-8"))
    return {code: Diagnosis(code, **entry) for code, entry in entries.items()}
