"""The roll-up of a run, folded from its log. Appending and rebuilding share the same fold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from decimal import Decimal
from typing import Any, NamedTuple, cast

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from lab.engine.errors import ExitReason
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome, TestGroup, TestStatus
from lab.engine.verify.rules import passes
from lab.models import Event, Run, RunFacts
from lab.models.experiments import RunQuerySet
from lab.render.kinds import subject_of
from lab.services import behaviour
from lab.services.payloads import short_text

USAGE_PARTS = ("input_uncached", "cache_read", "cache_write", "input_total", "output_total", "reasoning")
SUMMARY_CHARACTERS = 160
_NOT_GRADED = (Outcome.INFRASTRUCTURE, Outcome.TASK_INVALID)


class Entry(NamedTuple):
    """One event as its row holds it: kind, time, thin payload."""

    kind: str
    at: dt.datetime
    payload: JSONObject


def empty_facts(run_id: int) -> RunFacts:
    """What a run's roll-up is before its first event."""
    return RunFacts(run_id=run_id)


def facts_of(run: Run) -> RunFacts:
    """The run's roll-up, an empty one before its first event."""
    try:
        return run.facts
    except RunFacts.DoesNotExist:
        return empty_facts(run.pk)


def agent_seconds(facts: RunFacts, *, until: dt.datetime | None) -> float | None:
    """Wall time of the newest attempt from its first model call to `until`, None before that call.

    Pauses and the time of dead workers are left out. `until` None: nobody is at work, and the clock stands.
    """
    if facts.agent_seconds is not None:
        return facts.agent_seconds
    clock = facts.agent_clock or {}
    if "agent" not in clock:
        return None
    goes_on = until is not None and clock["works"] and not clock["paused"]
    since = dt.datetime.fromisoformat(clock["at"])
    more = max(0.0, (until - since).total_seconds()) if until is not None and goes_on else 0.0
    return float(clock["agent"] + clock["unsure"] + more)


def clock_start(facts: RunFacts) -> dt.datetime | None:
    """When a clock that goes on now would have begun had it never stood; None while it stands."""
    clock = facts.agent_clock or {}
    if facts.agent_seconds is not None or not clock.get("works") or clock.get("paused"):
        return None
    return dt.datetime.fromisoformat(clock["at"]) - dt.timedelta(seconds=clock["agent"] + clock["unsure"])


def fold(facts: RunFacts, entries: Iterable[Entry]) -> RunFacts:
    """The roll-up after `entries`, in place.

    Calls, tokens and money count over all attempts; the rest is the newest attempt's.
    """
    for entry in entries:
        _count_time(facts, entry)
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            handler(facts, entry)
        behaviour.note(facts, entry)
    return facts


def outdated() -> RunQuerySet:
    """Ended runs whose roll-up an older release made.

    It does not say how the agent went about it, or that without `exit_codes`, the count that came last: what
    is counted in another way from now on is found by a count that is new with it. Of a run of which another
    program recorded the verdict alone, or no step, there is nothing to say, so that `rebuild_facts --all`
    alone computes it anew.
    """
    events = Event.objects.filter(run=OuterRef("pk")).order_by()
    began = events.filter(kind="attempt_started")
    recorded_elsewhere = events.filter(kind="trajectory_imported")
    verdict_alone = recorded_elsewhere.filter(payload__steps_recorded=False)
    without_steps = Q(facts__behaviour__isnull=True, facts__steps=0) & Exists(recorded_elsewhere)
    ended = Run.objects.filter(status=Run.Status.ENDED, last_seq__gt=0)
    older = ended.filter(facts__behaviour__exit_codes__isnull=True)
    return older.filter(Exists(began), ~Exists(verdict_alone), ~without_steps).order_by("pk")


@transaction.atomic
def rebuild_facts(*, run_id: int) -> RunFacts:
    """Compute the roll-up anew from the whole log and store it, as it is after what was appended last."""
    Run.objects.locked().filter(pk=run_id).first()
    facts = folded(run_id=run_id)
    facts.save()
    return facts


def folded(*, run_id: int) -> RunFacts:
    """The roll-up computed anew from the whole log, not stored."""
    rows = Event.objects.filter(run_id=run_id).order_by("seq").values_list("kind", "at", "payload")
    read = cast("Generator[tuple[str, dt.datetime, Any], None, None]", rows.iterator(chunk_size=500))
    # A cursor that is still open when the transaction is undone cannot be closed any more.
    with closing(read):
        return fold(empty_facts(run_id), (Entry(*row) for row in read))


# What only a worker child writes while it holds the attempt: time up to such an event was worked in. The same
# rule as `lab.engine.resume` has, over thin payloads.
_WORK = frozenset(
    {"attempt_started", "sandbox_started", "model_call_started", "model_call_finished", "model_call_failed"}
    | {"tool_call_started", "tool_call_finished", "workspace_changed", "message_sent", "limit_reached"}
    | {"harness_message", "history_rewritten", "patch_captured", "verification_finished"}
)
_INTERRUPTED = frozenset({"model_call_interrupted", "tool_call_interrupted"})


def _count_time(facts: RunFacts, entry: Entry) -> None:
    """Keep the agent's clock: seconds surely worked, those still unsure, and whether it stands."""
    clock = dict(facts.agent_clock or {})
    if entry.kind == "attempt_started":
        clock = {}
    if entry.kind == "trajectory_imported" and entry.payload["times"] != "recorded":
        clock = {"unrecorded": True}
    if clock.get("unrecorded"):
        facts.agent_clock = clock
        return
    if not clock and entry.kind != "model_call_started":
        facts.agent_clock = clock
        return
    clock = clock or {"agent": 0.0, "unsure": 0.0, "works": False, "paused": False}
    if entry.kind == "attempt_continued":
        # The clock goes on with the agent's next call, once its sandbox is there again.
        clock |= {"unsure": 0.0, "works": False}
    elif clock["works"] and not clock["paused"]:
        clock["unsure"] += max(0.0, (entry.at - dt.datetime.fromisoformat(clock["at"])).total_seconds())
    _note_work(clock, entry)
    facts.agent_clock = clock | {"at": entry.at.isoformat()}


def _note_work(clock: dict[str, Any], entry: Entry) -> None:
    if entry.kind in ("paused", "resumed"):
        clock["paused"] = entry.kind == "paused"
    # Only who broke something off knows how long it took.
    known = entry.kind in _INTERRUPTED and entry.payload.get("seconds") is not None
    if known or entry.kind in _WORK:
        clock["agent"] += clock["unsure"]
    if entry.kind in _INTERRUPTED or entry.kind in _WORK:
        clock["unsure"] = 0.0
    if entry.kind in ("model_call_started", "tool_call_started"):
        clock["works"] = True
    elif entry.kind == "patch_captured":
        clock["works"] = False


def _attempt_started(facts: RunFacts, entry: Entry) -> None:
    facts.steps = 0
    facts.replies = facts.format_errors = 0
    facts.format_error_step = None
    facts.unread_forms = {}
    facts.context_tokens = None
    facts.pending = {}
    facts.verdict = ""
    facts.changed_files = []
    facts.agent_seconds = None
    facts.fail_to_pass_passed = facts.fail_to_pass_total = None
    facts.pass_to_pass_passed = facts.pass_to_pass_total = None
    # Before a run's first call it is known that nothing was spent; later, perhaps, not how much.
    facts.cost_earlier = facts.cost if facts.calls else Decimal(0)
    facts.cost_earlier_unknown = facts.cost_unknown


def _model_call_started(facts: RunFacts, entry: Entry) -> None:
    facts.steps = max(facts.steps, entry.payload["step"])
    facts.pending = _pending(entry, "model", summary="")


def _model_call_ended(facts: RunFacts, entry: Entry) -> None:
    payload = entry.payload
    failed = entry.kind == "model_call_failed"
    facts.calls += 1
    facts.failed_calls += failed
    reply = payload.get("reply")
    _add_usage(facts, reply["usage"] if reply else payload.get("usage") or {})
    _add_cost(facts, payload.get("cost") or {})
    if entry.kind == "model_call_finished":
        facts.context_tokens = payload["context_tokens"]
        _reply(facts, payload)
    wait = payload.get("retry_in")
    facts.pending = {} if wait is None else _pending(entry, "model", summary=f"tries again in {wait:.0f} s")


def _reply(facts: RunFacts, payload: JSONObject) -> None:
    if facts.replies is None:
        # What came before was rolled up by an older release: half a count would be a wrong one.
        return
    facts.replies += 1
    form = payload.get("unread_form")
    if form:
        facts.unread_forms = {**facts.unread_forms, form: facts.unread_forms.get(form, 0) + 1}


def _harness_message(facts: RunFacts, entry: Entry) -> None:
    facts.pending = {}
    if facts.format_errors is not None and entry.payload.get("reason") != "notice":
        facts.format_errors += 1


def _count_format(facts: RunFacts, payload: JSONObject) -> None:
    """A reply is a format error when not one of its calls was understood."""
    if facts.format_errors is None:
        return
    understood = bool(payload.get("executor")) and not payload.get("malformed")
    counted = facts.format_error_step == payload["step"]
    if understood and counted:
        facts.format_errors -= 1
        facts.format_error_step = None
    elif not understood and not counted and payload["index"] == 1:
        facts.format_errors += 1
        facts.format_error_step = payload["step"]


def _tool_call_started(facts: RunFacts, entry: Entry) -> None:
    payload = entry.payload
    if not payload.get("again"):
        _count_format(facts, payload)
    facts.pending = _pending(entry, "tool", summary=_summary(payload)) | {
        "tool": short_text(payload["tool"]),
        "timeout": payload.get("timeout"),
    }


def _nothing_pending(facts: RunFacts, entry: Entry) -> None:
    facts.pending = {}


def _attempt_continued(facts: RunFacts, entry: Entry) -> None:
    facts.continuations += 1
    facts.pending = _pending(entry, "continued", summary=short_text(entry.payload.get("reason")))


def _paused(facts: RunFacts, entry: Entry) -> None:
    facts.pending = _pending(entry, "paused", summary=short_text(entry.payload["person"]))


def _limit_changed(facts: RunFacts, entry: Entry) -> None:
    if entry.payload["before"] != entry.payload["after"]:
        facts.limits_changed = True


def _message_sent(facts: RunFacts, entry: Entry) -> None:
    facts.got_message = True


def _patch_captured(facts: RunFacts, entry: Entry) -> None:
    facts.pending = {}
    facts.changed_files = [
        {
            "path": short_text(file["path"]),
            **{name: file.get(name) for name in ("change", "added", "removed")},
        }
        for file in entry.payload["files"]
    ]


def _image_requested(facts: RunFacts, entry: Entry) -> None:
    action = "building" if entry.payload["action"] == "build" else "pulling"
    facts.pending = _pending(entry, "image", summary=f"{action} {short_text(entry.payload['reference'])}")


def _verification_started(facts: RunFacts, entry: Entry) -> None:
    facts.pending = _pending(entry, "verification", summary=entry.payload["rule"])


def _verification_finished(facts: RunFacts, entry: Entry) -> None:
    facts.pending = {}
    facts.verdict = entry.payload["outcome"]
    # A grading that broke off says nothing of its tests: that is unknown, and not 0.
    tests = entry.payload["tests"] if facts.verdict not in _NOT_GRADED else []
    facts.fail_to_pass_passed, facts.fail_to_pass_total = _passed(tests, "fail_to_pass")
    facts.pass_to_pass_passed, facts.pass_to_pass_total = _passed(tests, "pass_to_pass")


def _run_ended(facts: RunFacts, entry: Entry) -> None:
    facts.pending = {}
    if entry.payload["exit_reason"] == ExitReason.CANCELLED:
        # A grading that the person broke off is none.
        facts.verdict = entry.payload.get("verdict") or ""


def _attempt_ended(facts: RunFacts, entry: Entry) -> None:
    payload = entry.payload
    facts.pending = {}
    facts.steps = payload["steps"]
    facts.agent_seconds = payload.get("agent_seconds")
    peak = payload.get("peak_memory_bytes")
    if peak is not None:
        facts.peak_memory_bytes = max(facts.peak_memory_bytes or 0, peak)


_HANDLERS: dict[str, Callable[[RunFacts, Entry], None]] = {
    "attempt_started": _attempt_started,
    "attempt_continued": _attempt_continued,
    "image_requested": _image_requested,
    "image_ready": _nothing_pending,
    "paused": _paused,
    "resumed": _nothing_pending,
    "limit_changed": _limit_changed,
    "message_sent": _message_sent,
    "model_call_started": _model_call_started,
    "model_call_finished": _model_call_ended,
    "model_call_failed": _model_call_ended,
    "model_call_interrupted": _model_call_ended,
    "harness_message": _harness_message,
    "tool_call_started": _tool_call_started,
    "tool_call_finished": _nothing_pending,
    "tool_call_interrupted": _nothing_pending,
    "patch_captured": _patch_captured,
    "verification_started": _verification_started,
    "verification_finished": _verification_finished,
    "attempt_ended": _attempt_ended,
    "run_ended": _run_ended,
}


def _pending(entry: Entry, kind: str, *, summary: str) -> JSONObject:
    return {
        "kind": kind,
        "tool": "",
        "summary": summary,
        "since": entry.at.isoformat(timespec="milliseconds"),
        "timeout": None,
        "step": entry.payload.get("step"),
    }


def _summary(payload: JSONObject) -> str:
    """One line that says what a tool call is about."""
    arguments = payload["arguments"]
    plain = arguments.get("$plain", arguments)
    texts = {name: value if isinstance(value, list) else short_text(value) for name, value in plain.items()}
    text = subject_of(short_text(payload["tool"]), short_text(payload.get("executor")), texts).strip()
    return text.splitlines()[0][:SUMMARY_CHARACTERS] if text else ""


def _add_usage(facts: RunFacts, usage: JSONObject) -> None:
    for name in USAGE_PARTS:
        part = usage.get(name)
        if part is not None:
            setattr(facts, name, (getattr(facts, name) or 0) + part)
    if usage.get("input_total") is None or usage.get("output_total") is None:
        facts.usage_unknown += 1


def _add_cost(facts: RunFacts, cost: JSONObject) -> None:
    amount = cost.get("amount")
    if amount is None:
        facts.cost_unknown += 1
        return
    facts.cost = (facts.cost or Decimal(0)) + Decimal(amount).quantize(Decimal("1E-10"))
    basis = str(cost.get("basis", "unknown"))
    facts.cost_basis = basis if facts.cost_basis in ("unknown", basis) else "mixed"


def _passed(tests: list[dict[str, Any]], group: TestGroup) -> tuple[int | None, int | None]:
    """How many tests of a group the rule lets pass, of how many; unknown without any."""
    if not tests:
        return None, None
    statuses = [TestStatus(test["status"]) for test in tests if test["group"] == group]
    return sum(passes(group, status) for status in statuses), len(statuses)
