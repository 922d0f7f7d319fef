"""What a preflight's page, the lists and the command say of it: words and figures ready to be shown.

Whatever a server wrote is masked and made visible here; templates escape it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django.utils import timezone

from lab.engine.llm.base import JSONObject
from lab.engine.llm.leaks import leaked_call
from lab.engine.preflight.probes import OTHER_TOOL, PROBES, REPEATED, TOOL
from lab.models import Model, Preflight
from lab.render.numbers import dollars, duration, plural
from lab.render.text import one_line, visible_text
from lab.services.preflight_costs import spent_on
from lab.services.preflights import OverLimit, can_be_examined, going_on_of, newest_ended
from lab.services.price_cards import BASIS_WORDS

SERVERS = {"sglang": "SGLang", "vllm": "vLLM", "llamacpp": "llama.cpp", "generic": "other"}
STATE_WORDS = {"running": "asking", "answered": "answered", "failed": "refused", "left_out": "left out"}
_STATE_ICONS = {
    "running": ("running", "quiet"),
    "answered": ("ok", "passed"),
    "failed": ("cross", "failed"),
    "left_out": ("unparsed", "quiet"),
}
_SEVERITIES = {
    "failing": ("Blocks runs", "cross", "failed"),
    "warning": ("Warns", "warning", "warning"),
    "info": ("For your information", "speech", "second"),
}
# What is the server's set-up, whatever the model can do. Of the others the evidence must tell.
_OF_THE_SERVER = frozenset(
    {"cannot_ask", "tool_flags_missing", "parser_not_model", "think_in_content", "answer_in_reasoning"}
    | {"stream_differs", "tool_result_refused", "silent_truncation", "rate_limited", "access_denied"}
    | {"no_streaming", "context_below_probe", "out_of_memory", "stream_breaks", "unreadable_answer"}
    | {"server_fails"}
)
_THINK_TAG = re.compile(r"</?think>")
# What stands in the text -> the parser that reads it, by server; the first that fits.
_PARSERS = {
    "<|channel|>": {"sglang": "gpt-oss", "vllm": "openai"},
    "<|tool_call_begin|>": {"sglang": "kimi_k2", "vllm": "kimi_k2"},
    "<arg_key>": {"sglang": "glm45", "vllm": "glm45"},
    "<function=": {"sglang": "qwen3_coder", "vllm": "qwen3_coder"},
    "<tool_call>": {"sglang": "qwen", "vllm": "hermes"},
    "[TOOL_CALLS]": {"sglang": "mistral", "vllm": "mistral"},
    "<|python_tag|>": {"sglang": "llama3", "vllm": "llama3_json"},
}
_PARSER_FLAG = "--tool-call-parser"
_FLAG = re.compile(r"--[a-z][a-z-]+")
_HIT_CHARACTERS = 400
_SAID_CHARACTERS = 120


class Outcome(NamedTuple):
    """How a model's preflight stands: icon, tone and word; `age` as "3 h ago", "" where there is none."""

    icon: str
    tone: str
    word: str
    age: str = ""
    url_number: int = 0

    @property
    def badge(self) -> str:
        """The tone as badges name it."""
        return _BADGES[self.tone]


_BADGES = {
    "passed": "resolved",
    "failed": "unresolved",
    "warning": "paused",
    "running": "running",
    "quiet": "queued",
    "second": "invalid",
}


class Evidence(NamedTuple):
    """An excerpt of an answer in three parts; `hit` is what to look at."""

    title: str
    before: str
    hit: str
    after: str

    @property
    def excerpt(self) -> str:
        return self.before + self.hit + self.after


class Mend(NamedTuple):
    """What mends it on one kind of server.

    `flags`: the options in the text, to copy; `why` says how a value of them was chosen.
    """

    key: str
    server: str
    text: str
    detected: bool
    flags: str
    why: str = ""


class FindingShown(NamedTuple):
    """A diagnosis with everything that a person needs to judge and mend it."""

    code: str
    word: str
    icon: str
    tone: str
    severity: str
    title: str
    detail: str
    effect: str
    evidence: list[Evidence]
    mends: list[Mend]

    @property
    def mends_here(self) -> list[Mend]:
        """What mends it on the server that was recognised, else on every kind."""
        return [mend for mend in self.mends if mend.detected] or self.mends

    @property
    def mends_elsewhere(self) -> list[Mend]:
        return [mend for mend in self.mends if mend not in self.mends_here]


class ProbeShown(NamedTuple):
    """One question; `said` what came back, on one line. A probe that was not asked says why."""

    n: int
    title: str
    why: str
    word: str
    icon: str
    tone: str
    said: str
    seconds: str


class Figure(NamedTuple):
    """One thing that was measured."""

    label: str
    text: str


class Shown(NamedTuple):
    """A preflight as its page shows it."""

    preflight: Preflight
    outcome: Outcome
    headline: str
    sentence: str
    findings: list[FindingShown]
    probes: list[ProbeShown]
    counts: str
    measured: list[Figure]
    server: str
    took: str
    requests: str
    spent: str


def shown(preflight: Preflight) -> Shown:
    """Everything the page says of one preflight, going on or ended."""
    server = preflight.measured.get("server")
    seen = " ".join(one["excerpt"] for found in preflight.findings for one in found["evidence"])
    findings = [_finding(found, server, seen) for found in preflight.findings]
    probes = _probes(preflight)
    headline, sentence = _summary(preflight, findings)
    return Shown(
        preflight=preflight,
        outcome=outcome_of(preflight),
        headline=headline,
        sentence=sentence,
        findings=findings,
        probes=probes,
        counts=_counts(preflight),
        measured=_measured(preflight.measured),
        server=SERVERS.get(server or "", ""),
        took=_took(preflight),
        requests=_requests(preflight),
        spent=_spent(preflight),
    )


def outcome_of(preflight: Preflight | None, *, now: dt.datetime | None = None) -> Outcome:
    """The icon, word and age of a preflight; "never examined" where there is none."""
    if preflight is None:
        return Outcome("unparsed", "quiet", "never examined")
    at = preflight.ended_at or preflight.started_at or preflight.created_at
    age = f"{_ago((now or timezone.now()) - at)} ago"
    if preflight.state == Preflight.State.QUEUED:
        icon, tone, word = "queued", "quiet", "waits for a worker"
    elif preflight.state == Preflight.State.RUNNING:
        icon, tone, word = "running", "running", "being examined"
    elif preflight.outcome:
        icon, tone, word = _OUTCOMES[preflight.outcome]
    else:
        icon, tone, word = "bolt", "second", "not finished"
    return Outcome(icon, tone, word, age, preflight.pk)


_OUTCOMES: dict[str, tuple[str, str, str]] = {
    Preflight.Outcome.HEALTHY: ("ok", "passed", "healthy"),
    Preflight.Outcome.WARNING: ("warning", "warning", "warnings"),
    Preflight.Outcome.FAILING: ("cross", "failed", "failing"),
}


def outcomes(models: Iterable[Model]) -> Mapping[int, Outcome]:
    """Model row -> how its newest preflight stands, for all that can be examined."""
    examined = [model for model in models if can_be_examined(model)]
    newest = newest_ended(examined) | going_on_of(examined)
    return {model.pk: outcome_of(newest.get(model.pk)) for model in examined}


def over_limit_words(cost: OverLimit) -> str:
    """What the over-limit request would cost, before it is asked."""
    if cost.tokens is None:
        return f"One token too many: cost unknown, {cost.why}."
    price = f"about {dollars(cost.dollars)}" if cost.dollars is not None else f"cost unknown ({cost.why})"
    return f"One token too many: sends at least {cost.tokens:,} tokens, {price} if the server takes it."


def _finding(found: JSONObject, server: str | None, seen: str) -> FindingShown:
    word, icon, tone = _SEVERITIES[found["severity"]]
    return FindingShown(
        code=found["code"],
        word=word,
        icon=icon,
        tone=tone,
        severity=found["severity"],
        title=found["title"],
        detail=visible_text(found["detail"]),
        effect=found["effect"],
        evidence=_evidence(found["evidence"]),
        mends=_mends(found["mends"], server, seen),
    )


def _evidence(evidence: list[JSONObject]) -> list[Evidence]:
    """The excerpts, each once, with the questions that it answered."""
    titles: dict[str, list[str]] = {}
    for one in evidence:
        probe = (PROBES | REPEATED).get(one["probe"])
        titles.setdefault(visible_text(one["excerpt"]), []).append(probe.title if probe else one["probe"])
    found = []
    for text, asked in titles.items():
        start, end = _hit(text)
        found.append(Evidence("; ".join(asked), text[:start], text[start:end], text[end:]))
    return found


def _hit(text: str) -> tuple[int, int]:
    """Where in an answer to look: a call that was written as text, or the tag of a thought."""
    leak = leaked_call(text, (TOOL, OTHER_TOOL))
    if leak is not None:
        return leak.start, min(len(text), leak.start + _HIT_CHARACTERS)
    tag = _THINK_TAG.search(text)
    return tag.span() if tag else (len(text), len(text))


def _mends(mends: Mapping[str, str], server: str | None, seen: str) -> list[Mend]:
    """By server, the one that was recognised first. `seen` is what the server answered."""
    order = sorted(SERVERS, key=lambda key: (key != server, list(SERVERS).index(key)))
    found = []
    for key in order:
        if key in mends:
            flags, why = _flags(key, mends[key], seen)
            found.append(Mend(key, SERVERS[key], mends[key], key == server, flags, why))
    return found


def _flags(server: str, mend: str, seen: str) -> tuple[str, str]:
    """The options that a mend names, a parser's with the value that fits what was seen; and why that one."""
    flags = " ".join(dict.fromkeys(_FLAG.findall(mend)))
    shape = next((shape for shape in _PARSERS if shape in seen), "")
    parser = _PARSERS.get(shape, {}).get(server)
    if parser is None or _PARSER_FLAG not in flags:
        return flags, ""
    return flags.replace(
        _PARSER_FLAG, f"{_PARSER_FLAG} {parser}"
    ), f"The text holds {shape}, which {parser} reads."


def _summary(preflight: Preflight, findings: list[FindingShown]) -> tuple[str, str]:
    if preflight.state != Preflight.State.ENDED:
        return "", ""
    if preflight.error:
        return "This preflight was not finished", visible_text(preflight.error)
    if preflight.outcome == Preflight.Outcome.HEALTHY:
        return (
            "Nothing here would spoil a run",
            "Calls, streams, results and token counts come as runs need them.",
        )
    worst = findings[0]
    if preflight.outcome == Preflight.Outcome.WARNING:
        more = f" and {plural(len(findings) - 1, 'more finding')}" if len(findings) > 1 else ""
        return f"Runs can start; know this: {worst.title}{more}", worst.effect
    blocking = {found.code for found in findings if found.severity == "failing"}
    fault = (
        "This is the server's set-up and says nothing about the model."
        if blocking & _OF_THE_SERVER
        else "Look at the evidence before judging the model."
    )
    return f"Runs would be worthless: {worst.title}", f"{worst.effect} {fault}"


def _probes(preflight: Preflight) -> list[ProbeShown]:
    """Those that were asked in their order, then those that were not, each with the reason."""
    asked = [_probe(n, probe) for n, probe in enumerate(preflight.probes, 1)]
    names = {probe["name"] for probe in preflight.probes}
    rest = [probe for name, probe in PROBES.items() if name not in names]
    for n, probe in enumerate(rest, len(asked) + 1):
        word, why = _not_asked(preflight, probe.name)
        asked.append(ProbeShown(n, probe.title, probe.why, word, "unparsed", "quiet", why, ""))
    return asked


def _probe(n: int, probe: JSONObject) -> ProbeShown:
    icon, tone = _STATE_ICONS[probe["state"]]
    seconds = probe.get("seconds")
    return ProbeShown(
        n=n,
        title=probe["title"],
        why=probe["why"],
        word=STATE_WORDS[probe["state"]],
        icon=icon,
        tone=tone,
        said=one_line(probe["said"], _SAID_CHARACTERS),
        seconds=str(duration(seconds)) if seconds is not None else "",
    )


def _not_asked(preflight: Preflight, name: str) -> tuple[str, str]:
    if name == "over_limit" and not preflight.over_limit:
        return "opt-in", "costs a whole context of input"
    if preflight.state != Preflight.State.ENDED:
        return "waits", ""
    if preflight.error:
        return "not asked", "the preflight was not finished"
    if name == "over_limit":
        return "not asked", "how much context there is is not known"
    return "not asked", "the server does not answer, so more would show nothing new"


def _counts(preflight: Preflight) -> str:
    states = [probe["state"] for probe in preflight.probes]
    parts = [f"{states.count(state)} {word}" for state, word in STATE_WORDS.items() if state in states]
    return ", ".join(parts)


def _measured(measured: Mapping[str, Any]) -> list[Figure]:
    if not measured:
        return []
    source = {"server": "said by the server", "model": "set in the lab"}.get(
        measured.get("context_window_source") or "", ""
    )
    cached = measured.get("cached_tokens")
    return [
        Figure("Time to first token", _with_unit(measured.get("first_token_seconds"), "s", places=2)),
        Figure("Output speed", _with_unit(measured.get("tokens_per_second"), "tokens/s", places=1)),
        Figure(
            "Context window",
            f"{_with_unit(measured.get('context_window_tokens'), 'tokens')} {source}".strip(),
        ),
        Figure("Model answered", visible_text(str(measured.get("answered_model") or "")) or "unknown"),
        Figure("Calls in one reply", _with_unit(measured.get("calls_in_parallel"), "of 2")),
        Figure("Reasoning field", visible_text(str(measured.get("reasoning_field") or "")) or "none seen"),
        Figure("Cached tokens", "not reported" if cached is None else f"reported, at most {cached:,}"),
        Figure("Too long a request", str(measured.get("over_limit") or "not tested")),
    ]


def _with_unit(value: float | None, unit: str, *, places: int = 0) -> str:
    return "unknown" if value is None else f"{value:,.{places}f} {unit}"


def _took(preflight: Preflight) -> str:
    if preflight.started_at is None:
        return ""
    end = preflight.ended_at or timezone.now()
    return str(duration(max(0.0, (end - preflight.started_at).total_seconds())))


def _requests(preflight: Preflight) -> str:
    tokens = sum(
        (probe.get("input_tokens") or 0) + (probe.get("output_tokens") or 0) for probe in preflight.probes
    )
    sent = sum(probe["state"] != "running" for probe in preflight.probes)
    return f"{plural(sent, 'request')}, {tokens:,} tokens" if sent else ""


def _spent(preflight: Preflight) -> str:
    """What it cost, with its basis; "" before the first answer."""
    spent = spent_on([preflight])
    if not spent.requests:
        return ""
    if not spent.sums:
        return "cost unknown"
    words = " + ".join(
        f"{dollars(amount)} {BASIS_WORDS.get(basis, basis)}" for basis, amount in sorted(spent.sums.items())
    )
    untold = f", {plural(spent.unknown, 'request')} unknown" if spent.unknown else ""
    # Cached input may be charged for less; how much of it there was is not kept with each answer.
    most = "at most " if preflight.measured.get("cached_tokens") and not untold else ""
    return f"{'at least ' if untold else most}{words}{untold}"


def _ago(passed: dt.timedelta) -> str:
    seconds = max(0, int(passed.total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
