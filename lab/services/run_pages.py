"""What a run's page shows beside its steps: state, pending call, limits, tokens, changes, verdict.

Everything is computed from the log's derived rows and comes out as words and numbers ready to be shown, the
same for every viewer. Unknown stays unknown.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import QuerySet

from lab.engine.errors import ExitReason
from lab.engine.harnesses.arguments import PROTOCOL_WORDS, form_words
from lab.models import Attempt, Draft, Event, Experiment, Run, RunFacts, Verification
from lab.render.moments import INFRASTRUCTURE_REASONS, OUTCOMES
from lab.render.numbers import clock, count, dollars, plural
from lab.render.parting import Parting, parting_of
from lab.render.sandboxes import ShownSandbox, shown_sandbox
from lab.render.text import one_line, visible_text
from lab.services import imported_pages
from lab.services.facts import agent_seconds, clock_start, facts_of
from lab.services.flags import ParserProblem, parser_problem
from lab.services.gradings import Badge, Verdict, passed_of, verdict_of
from lab.services.imported_pages import Source
from lab.services.limits import context_is_estimated, values_in_force
from lab.services.preflight_shown import Outcome, outcome_of
from lab.services.replays import is_recorded, source_of
from lab.services.run_asks import Actions, asks_of, marks_of
from lab.services.run_costs import MIXED, Bill, TokenRow, bill_of, cost_words, free_words

NEAR = 0.8
# The step of a draft that no step has: it says how far the image of a sandbox is.
BEFORE_STEPS = 0
CHANGED_SHOWN = 20


class Pending(NamedTuple):
    """What the run waits for right now. `since` None: nothing. `allowed` in seconds, None without a limit."""

    words: str
    summary: str
    since: dt.datetime | None
    allowed: float | None
    allowed_words: str

    @property
    def since_ms(self) -> int | None:
        return int(self.since.timestamp() * 1000) if self.since else None


class Meter(NamedTuple):
    """One limit and how much of it is used. `maximum` None: no limit, no bar. `state`: "", near or reached.

    `since_ms` is set for a clock that runs: milliseconds since the epoch when it would have started from 0.
    `whole`: `used` says all there is to say, the limit among it.
    """

    label: str
    used: str
    allowed: str
    value: float
    maximum: float | None
    state: str
    short: str
    since_ms: int | None = None
    whole: bool = False


class ChangedFile(NamedTuple):
    """A file the agent changed; `added` and `removed` are None for binary files."""

    path: str
    note: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """All parts of a run's page but its steps. `other_sandbox`: the verification's, where it was another.

    `recorded` is the run whose turns a replay serves, `parting` where a replay left it.
    """

    run: Run
    badge: Badge
    ended: bool
    attempt: int
    exit_reason: str
    native_reason: str
    infrastructure: bool
    why: str
    pending: Pending
    limits: list[Meter]
    tokens: list[TokenRow]
    total: TokenRow
    basis: str
    bill: Bill
    changed: list[ChangedFile]
    changed_more: int
    changed_words: str
    verdict: Verdict | None
    scripted: bool
    sandbox: ShownSandbox | None
    other_sandbox: ShownSandbox | None
    has_patch: bool
    took: str
    steps: int
    earlier: list[EarlierAttempt]
    start_seq: int
    actions: Actions
    waiting: list[str]
    marks: list[str]
    other_forms: str
    preflight: Outcome | None
    parser_problem: ParserProblem | None
    recorded: Run | None
    parting: Parting | None
    can_be_replayed: bool
    source: Source | None


PARTS = (
    *("badge", "marks", "actions", "facts", "pending", "asked", "limits", "tokens", "changed", "verdict"),
    *("sandbox", "results", "earlier", "flags"),
)


def find_run(run_id: int) -> Run | None:
    """The run with everything its page names, in one query."""
    return Run.objects.filter(pk=run_id).for_rows().first()


def badge_of(run: Run) -> Badge:
    """Status until ended, then the verdict, else cancelled, else infrastructure."""
    if run.status != Run.Status.ENDED:
        return _STATUS_BADGES[run.status]
    verdict = facts_of(run).verdict
    if verdict in OUTCOMES:
        name, icon, word = OUTCOMES[verdict]
        return Badge(name, icon, word)
    if run.exit_reason == "cancelled":
        return Badge("cancelled", "cancelled", "cancelled")
    if run.exit_reason in INFRASTRUCTURE_REASONS:
        return Badge("invalid", "bolt", "infrastructure")
    return Badge("queued", "queued", "not graded")


_STATUS_BADGES: dict[str, Badge] = {
    Run.Status.QUEUED: Badge("queued", "queued", "queued"),
    Run.Status.PREPARING: Badge("running", "running", "preparing"),
    Run.Status.RUNNING: Badge("running", "running", "running"),
    Run.Status.PAUSED: Badge("paused", "paused", "paused"),
    Run.Status.VERIFYING: Badge("running", "flask", "verifying"),
}


def panel(run: Run) -> Panel:
    """All parts for one run (see `find_run`). The same few queries, whatever the run's length."""
    facts = facts_of(run)
    attempt = Attempt.objects.filter(run=run).order_by("-n").first()
    bill = bill_of(run, facts)
    verification = Verification.objects.filter(run=run).order_by("-n").first() if facts.verdict else None
    changed = [_changed(file) for file in facts.changed_files or _changed_so_far(run, facts)]
    ended = run.status == Run.Status.ENDED
    reason = run.exit_reason or (attempt.exit_reason if attempt else "")
    again = attempt is not None and attempt.n > 1
    asks = asks_of(run)
    source = imported_pages.source_of(run)
    return Panel(
        run=run,
        badge=badge_of(run),
        ended=ended,
        attempt=attempt.n if attempt else 0,
        exit_reason=reason,
        native_reason=_native_reason(attempt, reason),
        infrastructure=reason in INFRASTRUCTURE_REASONS,
        why=why_it_broke(run),
        pending=_with_progress(run, _pending(run, facts), facts),
        limits=_limits(run, facts) if source is None else _recorded(_limits(run, facts), facts, source),
        tokens=bill.rows,
        total=bill.total,
        basis=bill.basis,
        bill=bill,
        changed=changed[:CHANGED_SHOWN],
        changed_more=max(0, len(changed) - CHANGED_SHOWN),
        changed_words=_changed_words(changed),
        verdict=verdict_of(verification, facts) if verification else None,
        scripted=run.arm.model.endpoint.scripted,
        sandbox=shown_sandbox(attempt.sandbox) if attempt else None,
        other_sandbox=_other_sandbox(run, attempt) if attempt else None,
        has_patch=bool(changed) and _patch_events(run).exists(),
        took=clock(facts.agent_seconds) if facts.agent_seconds is not None else "",
        steps=facts.steps,
        earlier=earlier_attempts(run) if again else [],
        start_seq=start_of_attempt(run, attempt=attempt.n) if attempt and again else 1,
        actions=asks.actions,
        waiting=asks.waiting,
        marks=marks_of(run, facts),
        other_forms=_other_forms(run, facts),
        preflight=outcome_of(run.preflight) if run.preflight is not None else None,
        parser_problem=parser_problem(run),
        recorded=source_of(run.arm.model, task=run.task, seed=run.seed) if run.arm.model.replay else None,
        parting=_parting(run) if reason == ExitReason.REPLAY_DIVERGED else None,
        can_be_replayed=ended and is_recorded(run),
        source=source,
    )


def _parting(run: Run) -> Parting | None:
    """Where a replay left its recording, as its newest failed request says."""
    failed = _late_events(run, "model_call_failed").order_by("-seq").values_list("payload", flat=True)
    return next((parting_of(payload.get("message")) for payload in failed[:1]), None)


def _other_forms(run: Run, facts: RunFacts) -> str:
    """That replies held calls in another form than the harness takes; "" when none did.

    A fenced command in the answer that ends a run well is a part of the answer.
    """
    forms = dict(facts.unread_forms or {})
    if not facts.format_errors and facts.replies != forms.get("fence"):
        forms.pop("fence", None)
    if not forms or not facts.replies:
        return ""
    found = sum(forms.values())
    words = " and ".join(form_words(form) for form in forms)
    protocol = run.arm.harness_version.config.get("protocol", "native")
    taken = PROTOCOL_WORDS.get(protocol, protocol)
    verb = "holds" if found == 1 else "hold"
    return (
        f"{found:,} of {plural(facts.replies, 'reply', 'replies')} {verb} what looks like {words}; "
        f"this harness takes {taken} only"
    )


KIND_OF_SANDBOX = ("sandbox", "isolation", "network", "image", "limits")


def kind_of_sandbox(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What of a `sandbox_started` payload makes two sandboxes differ."""
    return {name: payload[name] for name in KIND_OF_SANDBOX if name in payload}


def _other_sandbox(run: Run, attempt: Attempt) -> ShownSandbox | None:
    """The sandbox of the newest attempt's verification, where it differs from the agent's."""
    started = _late_events(run, "sandbox_started").filter(attempt=attempt.n).order_by("-seq")
    for payload in started.values_list("payload", flat=True)[:1]:
        differs = kind_of_sandbox(payload) != kind_of_sandbox(attempt.sandbox)
        if payload.get("purpose") == "verification" and differs:
            return shown_sandbox(payload)
    return None


def _native_reason(attempt: Attempt | None, reason: str) -> str:
    """The family's own word, where it is another than the lab's."""
    return visible_text(attempt.native_reason) if attempt and attempt.native_reason != reason else ""


def patch_event(run: Run) -> Event | None:
    """The event that holds the newest attempt's patch."""
    return _patch_events(run).order_by("-seq").first()


# A patch and its verification lie near the log's end: only that is searched.
_NEAR_THE_END = 100


def _patch_events(run: Run) -> QuerySet[Event]:
    return _late_events(run, "patch_captured")


def _late_events(run: Run, kind: str) -> QuerySet[Event]:
    if run.status not in {Run.Status.VERIFYING, Run.Status.ENDED}:
        return Event.objects.none()
    return Event.objects.filter(run=run, kind=kind, seq__gt=run.last_seq - _NEAR_THE_END)


def _pending(run: Run, facts: RunFacts) -> Pending:
    if run.cancel_asked and run.status != Run.Status.ENDED:
        return Pending("Cancelling", "", None, None, "")
    pending = facts.pending or {}
    since = _moment(pending.get("since"))
    if run.status == Run.Status.QUEUED:
        return _queued(run, facts)
    if run.status == Run.Status.ENDED or since is None:
        return Pending(_WAITING.get(run.status, ""), "", None, None, "")
    kind = pending.get("kind")
    summary = one_line(str(pending.get("summary") or ""), 160)
    if run.status == Run.Status.PAUSED:
        by = f" by {summary}" if kind == "paused" and summary else ""
        return Pending(f"Paused{by}", "", since, None, "")
    if kind == "continued":
        return Pending("Another worker goes on", summary, since, None, "")
    if kind == "tool":
        allowed = pending.get("timeout")
        limit = float(allowed) if isinstance(allowed, int | float) else None
        tool = one_line(str(pending.get("tool") or "tool"), 40)
        words = f"command may take {clock(limit)}" if limit is not None else ""
        return Pending(f"{tool} is running", summary, since, limit, words)
    if kind == "image":
        for_whom = "For the verification: " if run.status == Run.Status.VERIFYING else ""
        words = f"{for_whom}{summary}"
        return Pending(words[:1].upper() + words[1:], "", since, None, "")
    if kind == "verification":
        return Pending("Verifying in a fresh sandbox", f"rule {summary}", since, None, "")
    return Pending("model is answering", summary, since, None, "")


def _with_progress(run: Run, pending: Pending, facts: RunFacts) -> Pending:
    """With how far an image is that the sandbox waits for, or why it is not there yet.

    What it waits for stands in the words already.
    """
    if run.status not in {Run.Status.PREPARING, Run.Status.VERIFYING}:
        return pending
    waits_for = facts.pending or {}
    draft = Draft.objects.filter(run=run, step=BEFORE_STEPS).first()
    if draft is None or (waits_for.get("kind") != "image" and draft.after_seq < run.last_seq):
        return pending
    words = str(waits_for.get("summary") or "")
    told = draft.content.removeprefix(words).lstrip(": ")
    if reference := words.partition(" ")[2]:
        told = told.replace(f" {reference}:", ":", 1)
    return pending._replace(summary=one_line(visible_text(told), 160))


def _queued(run: Run, facts: RunFacts) -> Pending:
    """A run that waits for a worker: for its first one, or for another that goes on."""
    if run.started_at is None:
        return Pending("Queued", "", run.created_at, None, "")
    since = _moment((facts.agent_clock or {}).get("at"))
    return Pending("Waiting for a worker to go on", "", since, None, "")


_WAITING: dict[str, str] = {
    Run.Status.PREPARING: "Preparing the sandbox",
    Run.Status.RUNNING: "Running",
    Run.Status.PAUSED: "Paused",
    Run.Status.VERIFYING: "Verifying",
    Run.Status.ENDED: "",
}


def _moment(text: object) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None


def _limits(run: Run, facts: RunFacts) -> list[Meter]:
    limits: Mapping[str, Any] = values_in_force(run=run)
    meters = [
        _counted("Steps", facts.steps, limits.get("max_steps")),
        _context(run, facts, limits.get("max_context_tokens")),
        _time(run, facts, limits.get("max_total_time_sec")),
        _cost(
            run,
            facts,
            limits.get("max_cost_usd"),
            free=free_words(run),
            ended=run.status == Run.Status.ENDED,
        ),
    ]
    if limits.get("max_tokens_total") is not None:
        total = None if facts.input_total is None else facts.input_total + (facts.output_total or 0)
        meters.append(_counted("Tokens", total, limits["max_tokens_total"], nothing=not facts.calls))
    if facts.replies:
        errors = f"{facts.format_errors or 0:,} of {plural(facts.replies, 'reply', 'replies')}"
        meters.append(Meter("Format errors", errors, "", 0.0, None, "", errors, whole=True))
    return meters


def _recorded(meters: list[Meter], facts: RunFacts, source: Source) -> list[Meter]:
    """The meters of an imported run: a limit that is not recorded is not "no limit", nor is no time 0."""
    unknown = {"Time"} if facts.agent_seconds is None else set()
    unknown |= set() if source.steps_recorded else {"Steps", "Tokens", "Cost"}
    unknown |= set() if facts.context_tokens else {"Context"}
    told = [meter._replace(used="not recorded") if meter.label in unknown else meter for meter in meters]
    return [
        meter._replace(whole=True) if meter.maximum is None or meter.label in unknown else meter
        for meter in told
    ]


def _state(value: float, maximum: float | None) -> str:
    if not maximum:
        return ""
    if value >= maximum:
        return "reached"
    return "near" if value >= NEAR * maximum else ""


def _counted(label: str, used: int | None, limit: Any, *, nothing: bool = False) -> Meter:
    value = 0 if used is None and nothing else used
    words = "unknown" if value is None else f"{value:,}"
    maximum = float(limit) if limit is not None else None
    allowed = f"{int(limit):,}" if limit is not None else ""
    short = f"{words} / {_thousands(int(limit))}" if limit is not None else words
    return Meter(label, words, allowed, float(value or 0), maximum, _state(value or 0, maximum), short)


def _context(run: Run, facts: RunFacts, limit: Any) -> Meter:
    meter = _counted("Context", facts.context_tokens, limit, nothing=not facts.calls)
    if not context_is_estimated(run=run):
        return meter
    return meter._replace(used=f"≈ {meter.used} estimated", short=f"≈ {meter.short}")


def _thousands(number: int) -> str:
    return f"{number // 1000}k" if number >= 10_000 else f"{number:,}"


def _time(run: Run, facts: RunFacts, limit: Any) -> Meter:
    maximum = float(limit) if limit is not None else None
    allowed = clock(maximum) if maximum is not None else ""
    runs = run.status == Run.Status.RUNNING
    seconds = agent_seconds(facts, until=dt.datetime.now(dt.UTC) if runs else None)
    if seconds is None:
        return Meter("Time", "0:00", allowed, 0.0, maximum, "", "0:00")
    started = clock_start(facts) if runs else None
    # In tenths of a second, so that the same moment is the same number.
    since = round(started.timestamp() * 10) * 100 if started else None
    used = clock(seconds)
    return Meter("Time", used, allowed, seconds, maximum, _state(seconds, maximum), used, since)


def _cost(run: Run, facts: RunFacts, limit: Any, *, free: str, ended: bool) -> Meter:
    if free:
        return Meter("Cost", free, "", 0.0, None, "", free, whole=True)
    maximum = float(Decimal(str(limit))) if limit is not None else None
    allowed = str(dollars(Decimal(str(limit)), places=2)) if limit is not None else ""
    known = facts.cost
    if known is None and facts.calls and limit is not None:
        used = f"unknown, so the limit of {allowed} cannot be checked"
        return Meter("Cost", used, allowed, 0.0, None, "", "unknown", whole=True)
    if known is None:
        used = "unknown" if facts.calls else f"nothing{'' if ended else ' yet'}"
    else:
        several = facts.cost_basis == MIXED
        spent = cost_words(run, facts) if several else dollars(known, places=2)
        used = f"{'at least ' if facts.cost_unknown else ''}{spent}"
    value = float(known or 0)
    short = used.replace("at least ", "≥ ")
    return Meter("Cost", used, allowed, value, maximum, _state(value, maximum), short)


def _changed_so_far(run: Run, facts: RunFacts) -> list[dict[str, Any]]:
    """Changed files while the agent is at work, summed over its newest changes."""
    if run.status == Run.Status.ENDED or not facts.steps:
        return []
    files: dict[str, dict[str, Any]] = {}
    changes = Event.objects.filter(run=run, kind="workspace_changed").order_by("-seq")
    for payload in reversed(changes.values_list("payload", flat=True)[:200]):
        for change in payload.get("changes") or []:
            path = change.get("path")
            if not isinstance(path, str):
                continue
            known = files.setdefault(
                path, {"path": path, "change": change.get("change"), "added": 0, "removed": 0}
            )
            for name in ("added", "removed"):
                part = change.get(name)
                known[name] = None if part is None or known[name] is None else known[name] + part
    return list(files.values())


_CHANGE_WORDS = {"added": "new", "deleted": "deleted", "mode": "mode"}


def _changed(file: Mapping[str, Any]) -> ChangedFile:
    path = one_line(str(file.get("path") or ""), 200)
    return ChangedFile(
        path, _CHANGE_WORDS.get(str(file.get("change")), ""), file.get("added"), file.get("removed")
    )


def _changed_words(files: list[ChangedFile]) -> str:
    if not files:
        return "nothing"
    added = sum(file.added or 0 for file in files)
    removed = sum(file.removed or 0 for file in files)
    return f"{plural(len(files), 'file')}, +{added:,} −{removed:,}"


class RunRow(NamedTuple):
    """One run as a list shows it. `list` is "active" or "ended": the list it belongs to.

    `begun`: there is more to say of it than that it waits for its first turn. `pass_to_pass` is "" unless
    something broke; `why` is what stopped a run that infrastructure stopped.
    """

    badge: Badge
    marks: list[str]
    begun: bool
    list: str
    pending: Pending
    arm: str
    model: str
    fail_to_pass: str
    pass_to_pass: str
    why: str
    steps: str
    cost: str
    scripted: bool


def _is_verdict_alone(run: Run, facts: RunFacts) -> bool:
    """Whether a recorded verdict is all there is: that is not known to have taken no steps."""
    return run.experiment.kind == Experiment.Kind.IMPORTED and not facts.calls and not facts.steps


def row_of(run: Run) -> RunRow:
    """What a list says of a run that was read by `for_rows`."""
    facts = facts_of(run)
    ended = run.status == Run.Status.ENDED
    limit = values_in_force(run=run).get("max_steps")
    steps = (
        plural(facts.steps, "step") if ended else f"step {facts.steps}" + (f" of {limit}" if limit else "")
    )
    return RunRow(
        badge=badge_of(run),
        marks=marks_of(run, facts),
        begun=not ended and (run.started_at is not None or run.status != Run.Status.QUEUED),
        list="ended" if ended else "active",
        pending=_pending(run, facts),
        arm=f"{run.arm.harness_version} × {run.arm.model.name}",
        model=run.arm.model.name,
        fail_to_pass=passed_of(facts.fail_to_pass_passed, facts.fail_to_pass_total) if facts.verdict else "",
        pass_to_pass=_broken(facts),
        why=why_it_broke(run),
        steps="" if run.status == Run.Status.QUEUED or _is_verdict_alone(run, facts) else steps,
        cost=_row_cost(run, facts, free=free_words(run)),
        scripted=run.arm.model.endpoint.scripted,
    )


def why_it_broke(run: Run) -> str:
    """What stopped a run (read by `for_rows`) that infrastructure stopped, in one line; "" for others."""
    if run.status != Run.Status.ENDED or run.exit_reason not in INFRASTRUCTURE_REASONS:
        return ""
    error = (getattr(run, "last_end", None) or {}).get("error")
    return one_line(visible_text(error), 600) if isinstance(error, str) else ""


def _broken(facts: RunFacts) -> str:
    passed, total = facts.pass_to_pass_passed, facts.pass_to_pass_total
    return "" if not facts.verdict or passed is None or passed == total else passed_of(passed, total)


def _row_cost(run: Run, facts: RunFacts, *, free: str) -> str:
    if free:
        return free
    if facts.cost is None:
        return str(count(None)) if facts.calls else ""
    return f"{'≥ ' if facts.cost_unknown else ''}{cost_words(run, facts)}"


class EarlierAttempt(NamedTuple):
    """An attempt before the last: why it ended, and where its events begin (None before its first)."""

    n: int
    exit_reason: str
    seq: int | None


def earlier_attempts(run: Run) -> list[EarlierAttempt]:
    """The attempts before the last one, oldest first; none for nearly every run."""
    attempts = list(Attempt.objects.filter(run=run).order_by("n").values_list("n", "exit_reason"))[:-1]
    if not attempts:
        return []
    starts = dict(
        Event.objects.filter(run=run, kind="attempt_started").order_by("-seq").values_list("attempt", "seq")
    )
    return [EarlierAttempt(n, reason, starts.get(n)) for n, reason in attempts]


def start_of_attempt(run: Run, *, attempt: int) -> int:
    """The number of the attempt's first event, 1 when it has none."""
    found = Event.objects.filter(run=run, attempt=attempt, kind="attempt_started").values_list(
        "seq", flat=True
    )
    return found.first() or 1
