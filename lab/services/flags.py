"""Flags: what the lab's own rules find in a log, written with the events that show it and rebuildable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Min

from lab.engine.events import Event as AnyEvent
from lab.engine.events import ModelCallFinished
from lab.engine.llm.base import Reply
from lab.engine.llm.leaks import leak_of
from lab.models import LEAKED_CALLS, Event, Flag, Run

STEPS_SHOWN = 12
# A fenced command may belong to an answer in words; these forms are nothing but a call.
_CALL_FORMS = {
    "markup": "a call as markup of a template",
    "json": "a call as JSON",
    "python": "a call in Python's form",
}
_DROPPED = "the server said tool_calls and sent no call with a name"


class FlaggedStep(NamedTuple):
    """A step of a run that shows it, and its event."""

    step: int
    seq: int


class ParserProblem(NamedTuple):
    """Replies of a run with native calls that look as if the server's parser had not read them."""

    replies: int
    steps: list[FlaggedStep]
    details: list[str]

    @property
    def more(self) -> int:
        return self.replies - len(self.steps)


class FlaggedRun(NamedTuple):
    """A run of an experiment with such replies, and the first event that shows it."""

    run_id: int
    replies: int
    first_step: int
    first_seq: int


def parser_fault(reply: Reply, *, tools: Sequence[str] = (), parses: bool = False) -> str:
    """What in a reply to a request with native tools looks like a call that was not parsed; "" for none.

    `tools` are the names of the harness's tools, `parses` whether calls of this run were parsed before.
    """
    if any(call.name for call in reply.tool_calls):
        return ""
    found = leak_of(reply, tools, parses=parses)
    if found is not None:
        where, leak = found
        return f"the {where} holds {_CALL_FORMS[leak.kind]}, which nothing executes"
    return _DROPPED if reply.finish_reason == "tool_calls" or reply.tool_calls else ""


def note(*, run_id: int, events: Iterable[tuple[int, AnyEvent]]) -> None:
    """Flag what the events show, each with its number. Part of the append that stores them."""
    answers = [(seq, event) for seq, event in events if isinstance(event, ModelCallFinished)]
    # Most replies hold calls, and need no look at the harness.
    if all(any(call.name for call in event.reply.tool_calls) for _, event in answers):
        return
    config = Run.objects.values_list("arm__harness_version__config", flat=True).get(pk=run_id) or {}
    if config.get("protocol", "native") != "native":
        return
    tools = [tool["name"] for tool in config.get("tools", ())]
    suspects = [(seq, event) for seq, event in answers if parser_fault(event.reply, tools=tools)]
    parsed = _first_parsed(run_id) if suspects else None
    found = [
        _flag(run_id, seq, event.step, fault)
        for seq, event in suspects
        if (fault := parser_fault(event.reply, tools=tools, parses=parsed is not None and parsed < seq))
    ]
    Flag.objects.bulk_create(found, ignore_conflicts=True)


def _first_parsed(run_id: int) -> int | None:
    """The number of the first event that shows a call which the server's parser has read."""
    reads = Event.objects.filter(run=run_id, kind="model_call_finished").order_by("seq")
    named = reads.filter(payload__reply__tool_calls__0__name__gt="")
    return named.values_list("seq", flat=True).first()


@transaction.atomic
def rebuild(*, run_id: int) -> int:
    """Look through a run's whole log anew and replace its flags; returns how many there are."""
    # Imported late: the log notes flags as it is written.
    from lab.services.log import read_row

    Flag.objects.filter(run=run_id, code=LEAKED_CALLS).delete()
    rows = Event.objects.filter(run=run_id, kind="model_call_finished").order_by("seq")
    note(run_id=run_id, events=((row.seq, read_row(row).event) for row in rows.iterator(chunk_size=200)))
    return Flag.objects.filter(run=run_id, code=LEAKED_CALLS).count()


def parser_problem(run: Run) -> ParserProblem | None:
    """What the run's page says of it; None where nothing looks like one."""
    flags = Flag.objects.filter(run=run, code=LEAKED_CALLS, present=True).order_by("event_seq")
    found = list(flags)
    if not found:
        return None
    steps = [FlaggedStep(flag.step, flag.event_seq) for flag in found[:STEPS_SHOWN]]
    return ParserProblem(len(found), steps, sorted({flag.detail for flag in found}))


def flagged_runs(experiment_id: int) -> list[FlaggedRun]:
    """The runs of an experiment that look like a parser problem, by their numbers."""
    rows = (
        Flag.objects.filter(run__experiment=experiment_id, code=LEAKED_CALLS, present=True)
        .values("run")
        .annotate(replies=Count("pk"), first_step=Min("step"), first_seq=Min("event_seq"))
        .order_by("run")
    )
    return [FlaggedRun(row["run"], row["replies"], row["first_step"], row["first_seq"]) for row in rows]


def _flag(run_id: int, seq: int, step: int, detail: str) -> Flag:
    return Flag(run_id=run_id, code=LEAKED_CALLS, event_seq=seq, step=step, detail=detail)
