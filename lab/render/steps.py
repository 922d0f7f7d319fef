"""One step as HTML: a row on the page's fixed grid, and what opens below it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from django.utils.safestring import SafeString

from lab.render.blocks import note, reasoning_block
from lab.render.calls import call_block, main_argument
from lab.render.fold import LogEvent, StepView
from lab.render.icons import icon
from lab.render.imported import kept_block
from lab.render.numbers import dollars, duration, growing, moment, plural
from lab.render.parting import is_parting, parting_of
from lab.render.replies import (
    notice_blocks,
    rewritten_block,
    said,
    told_blocks,
    told_words,
    unexecuted_blocks,
)
from lab.render.results import step_clock, step_result
from lab.render.text import excerpt, first_lines, one_line, safe, visible_html, words_of


def step_html(run: int, view: StepView, *, blind: bool = False) -> SafeString:
    """A step as one list item: id, the numbers of its events, row and body. The same for every viewer.

    `blind`: without its cost, which betrays a price.
    """
    opened = " open" if view.pending or view.kind in {"edit", "final"} else ""
    kept = " data-keep-open" if view.kind in {"edit", "final"} and not view.pending else ""
    mark = _mark(view)
    label = html.escape(one_line(f"Step {view.number}: {tool_words(view)} {argument_words(view)}", 120))
    return safe(
        f'<li class="step" id="event-{view.first_seq}" data-seqs="{",".join(map(str, view.seqs))}" '
        f'data-last-seq="{view.last_seq}" data-step="{view.number}" data-attempt="{view.attempt}" '
        f'data-kind="{view.kind}" data-icon="{view.icon}" data-state="{view.state}"{mark}>'
        f'<article aria-label="{label}"><details{opened}{kept}>{_row(view, blind=blind)}'
        f'<div class="step-body">{step_body(run, view)}</div></details></article></li>'
    )


def _mark(view: StepView) -> str:
    names = ["failed-test"] if view.failed_test else []
    if view.failed:
        names.append("failed")
    if view.kind == "edit":
        names.append("edit")
    return f' data-marks="{" ".join(names)}"' if names else ""


def tool_words(view: StepView) -> str:
    """What a step is called: its first tool, or what else the model did."""
    if view.calls:
        return view.calls[0].tool
    if view.told:
        return told_words(view.told[0])
    if view.announced_calls:
        first = view.announced_calls[0]
        return str(first.get("name", "tool")) if isinstance(first, Mapping) else "tool"
    return "Answer" if view.kind == "final" else "Model"


def argument_words(view: StepView) -> str:
    """What a step is about: what its first call asks for, or what the model answers. Not cut."""
    if view.calls:
        return main_argument(view.calls[0]) or (
            words_of(view.answer.get("content")) if view.text_call else ""
        )
    if view.told:
        return words_of(view.told[0].payload.get("detail"))
    return words_of(view.answer.get("content")) if view.kind == "final" else ""


def _row(view: StepView, *, blind: bool) -> str:
    argument = one_line(argument_words(view), 240)
    style = "code" if view.calls else "span"
    others = ""
    if len(view.calls) > 1:
        first = view.calls[1]
        words = one_line(f"{first.tool} {main_argument(first)}", 80)
        others = f' <span class="quiet">+ {len(view.calls) - 1} parallel: {visible_html(words)}</span>'
    cost = "" if blind else f'<span class="cost">{_cost(view)}</span>'
    return (
        f'<summary class="step-row" data-row>{icon("chevron", "fold")}<span class="n">{view.number}</span>'
        f'<span class="kind">{icon(view.icon)}<span class="visually-hidden">{view.kind}</span></span>'
        f'<span class="call"><b>{visible_html(one_line(tool_words(view), 60))}</b> '
        f"<{style}>{visible_html(argument)}</{style}>{others}</span>"
        f'<span class="result">{step_result(view)}</span><span class="time">{_time(view)}</span>'
        f'<span class="tokens">{_tokens(view)}</span>{cost}</summary>'
    )


def _time(view: StepView) -> str:
    if clock := step_clock(view):
        return clock
    taken = step_seconds(view)
    has_ended = any(call.ended is not None for call in view.calls)
    return str(duration(taken)) if taken is not None or has_ended else ""


def step_seconds(view: StepView) -> float | None:
    """How long the tools took, without any the model; None: not recorded."""
    ended = [call.ended.payload.get("seconds") for call in view.calls if call.ended is not None]
    seconds = ended or [view.answer.get("seconds")]
    known = [float(value) for value in seconds if isinstance(value, int | float)]
    return sum(known) if known else None


def _tokens(view: StepView) -> str:
    if view.reply is None:
        return "" if view.pending or _is_refused_replay(view) else '<span class="unknown">unknown</span>'
    usage = view.answer.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    parts = [usage.get("input_total"), usage.get("output_total")]
    if parts == [None, None]:
        return '<span class="unknown">unknown</span>'
    return " / ".join(f"{part:,}" if isinstance(part, int) else "?" for part in parts)


def _is_refused_replay(view: StepView) -> bool:
    """Nobody was asked: the lab itself refused."""
    return view.reply is None and bool(view.failures) and all(map(is_parting, view.failures))


# Bases of what costs nothing.
_FREE = {"scripted": "scripted, no intelligence", "replay": "recorded turns, served again"}


def _cost(view: StepView) -> str:
    known, missing = view.cost()
    if view.reply is None and view.pending and not view.failures:
        return ""
    basis = (view.reply.payload.get("cost") or {}).get("basis") if view.reply is not None else None
    if _is_refused_replay(view):
        basis, missing = "replay", False
    if basis in _FREE and not missing:
        return f'<span title="{_FREE[basis]}">$0</span>'
    if known is None:
        return str(dollars(None))
    return (
        f'<span aria-label="at least {dollars(known)}">≥ {dollars(known)}</span>'
        if missing
        else str(dollars(known))
    )


def step_body(run: int | None, view: StepView, *, words: str | None = None, calls: str | None = None) -> str:
    """What opens below a step's row; `run` None: for a file that is read without the lab.

    `words` and `calls`: markup in the place of what the model thought and said, and of its calls.
    """
    asked_again = {event.payload.get("request") for event in view.requests if event.payload.get("again")}
    parts = [_failure(event, asked_again) for event in view.failures]
    parts += [rewritten_block(event) for event in view.rewritten]
    if view.reply is not None:
        parts.append(step_words(run, view, view.reply.seq) if words is None else words)
        parts += unexecuted_blocks(run, view, view.reply.seq)
        parts.append(_notes(view, view.reply))
        parts += told_blocks(run, view)
    elif view.state == "answering":
        parts.append(_answering(view))
    if calls is None:
        calls = "".join(call_block(run, call, alone=len(view.calls) == 1) for call in view.calls)
    parts.append(calls)
    parts += notice_blocks(run, view)
    parts += [kept_block(run, event) for event in view.kept]
    return "".join(parts)


def step_words(run: int | None, view: StepView, seq: int) -> str:
    """What the model thought and what it said in a step; `seq`: the number of its reply."""
    return reasoning_block(excerpt(view.answer.get("reasoning")), run=run, seq=seq) + said(run, view, seq)


def _answering(view: StepView) -> str:
    started = view.requests[-1] if view.requests else view.events[-1]
    cap = started.payload.get("max_tokens")
    allowed = f" · at most {cap:,} tokens a turn" if isinstance(cap, int) else " · no cap on this turn"
    return (
        f'<div class="draft" data-draft="{view.number}"></div>'
        f'<p class="pending-line">{icon("running")}<b>Model is answering</b> {growing(started.at, fine=True)}'
        f"<span>since {moment(started.at)}{allowed}</span></p>"
    )


def _failure(event: LogEvent, asked_again: set[Any]) -> str:
    payload = event.payload
    parting = parting_of(payload.get("message")) if is_parting(event) else None
    told = parting.head if parting else words_of(payload.get("message") or payload.get("reason"))
    message = one_line(told, 400)
    if event.kind == "model_call_interrupted":
        number = payload.get("request")
        next_one = number + 1 if isinstance(number, int) else None
        after = f"; asked again as request {next_one}" if next_one in asked_again else ""
        head = f"Request {number} was interrupted, its cost is unknown: {message}{after}"
    else:
        status = f" {payload['status']}" if isinstance(payload.get("status"), int) else ""
        retry = payload.get("retry_in")
        after = (
            f"tried again after {duration(retry)}" if isinstance(retry, int | float) else "not tried again"
        )
        head = f"Request {payload.get('request')} failed ({payload.get('error')}{status}), {after}: {message}"
    came = words_of(payload.get("partial")) or words_of(payload.get("raw"))
    details = parting.lines if parting else ""
    if came and not parting:
        shown = first_lines(came, lines=20, characters=2_000)
        details = f"<details><summary>what had arrived</summary><pre>{visible_html(shown)}</pre></details>"
    return note(head, more=details)


def _notes(view: StepView, reply: LogEvent) -> str:
    notes = [words_of(words) for words in reply.payload.get("notes") or []]
    if view.cut:
        left = f"; {plural(len(view.announced_calls), 'call')} not executed" if view.announced_calls else ""
        notes.insert(0, f"The answer was cut by its length{left}")
    refusal = words_of(view.answer.get("refusal"))
    if refusal:
        notes.insert(0, f"The model refused: {refusal}")
    return "".join(note(one_line(words, 400)) for words in notes)
