"""One step as HTML: a row on the page's fixed grid, and what opens below it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from django.utils.safestring import SafeString

from lab.render.blocks import (
    arguments_block,
    binary_block,
    output_block,
    reasoning_block,
    said_block,
    seen_mark,
)
from lab.render.diff import counts, replaced
from lab.render.fold import CallView, LogEvent, StepView
from lab.render.icons import icon
from lab.render.kinds import command_of
from lab.render.markdown import render_markdown
from lab.render.numbers import dollars, duration, growing, moment, plural, size
from lab.render.results import call_result, exit_code, step_clock, step_result, stream_text
from lab.render.text import excerpt, first_lines, one_line, safe, visible_html, words_of

_NOT_SHOWN_AS_ARGUMENTS = frozenset({"command", "cmd", "description", "timeout", "timeout_ms"})


def step_html(run: int, view: StepView) -> SafeString:
    """A step as one list item: id, the numbers of its events, row and body. The same for every viewer."""
    opened = " open" if view.pending or view.kind in {"edit", "final"} else ""
    kept = " data-keep-open" if view.kind in {"edit", "final"} and not view.pending else ""
    mark = _mark(view)
    label = html.escape(one_line(f"Step {view.number}: {_tool(view)} {_main_argument(view)}", 120))
    return safe(
        f'<li class="step" id="event-{view.first_seq}" data-seqs="{",".join(map(str, view.seqs))}" '
        f'data-last-seq="{view.last_seq}" data-step="{view.number}" data-attempt="{view.attempt}" '
        f'data-kind="{view.kind}" data-icon="{view.icon}" data-state="{view.state}"{mark}>'
        f'<article aria-label="{label}"><details{opened}{kept}>{_row(view)}'
        f'<div class="step-body">{_body(run, view)}</div></details></article></li>'
    )


def _mark(view: StepView) -> str:
    failed = any(call.ended is not None and call.ended.payload.get("failed") for call in view.calls)
    exits = [call.ended.payload.get("exit_code") for call in view.calls if call.ended is not None]
    names = ["failed-test"] if view.failed_test else []
    if failed or any(number not in (0, None) for number in exits):
        names.append("failed")
    if view.kind == "edit":
        names.append("edit")
    return f' data-marks="{" ".join(names)}"' if names else ""


def _tool(view: StepView) -> str:
    if view.calls:
        return view.calls[0].tool
    if view.announced_calls:
        first = view.announced_calls[0]
        return str(first.get("name", "tool")) if isinstance(first, Mapping) else "tool"
    return "Answer" if view.kind == "final" else "Model"


def _main_argument(view: StepView) -> str:
    if view.calls:
        return main_argument(view.calls[0])
    return words_of(view.answer.get("content")) if view.kind == "final" else ""


def main_argument(call: CallView) -> str:
    """The argument that says what a call is about."""
    if call.malformed:
        return words_of(call.started.payload.get("raw_arguments"))
    for name in ("command", "cmd", "file_path", "path", "pattern", "search_term", "query"):
        text = words_of(call.arguments.get(name))
        if text:
            return text
    return ", ".join(f"{name}={words_of(value) or value}" for name, value in list(call.arguments.items())[:4])


def _row(view: StepView) -> str:
    argument = one_line(_main_argument(view), 240)
    style = "code" if view.calls else "span"
    others = ""
    if len(view.calls) > 1:
        first = view.calls[1]
        words = one_line(f"{first.tool} {main_argument(first)}", 80)
        others = f' <span class="quiet">+ {len(view.calls) - 1} parallel: {visible_html(words)}</span>'
    return (
        f'<summary class="step-row" data-row>{icon("chevron", "fold")}<span class="n">{view.number}</span>'
        f'<span class="kind">{icon(view.icon)}<span class="visually-hidden">{view.kind}</span></span>'
        f'<span class="call"><b>{visible_html(one_line(_tool(view), 60))}</b> '
        f"<{style}>{visible_html(argument)}</{style}>{others}</span>"
        f'<span class="result">{step_result(view)}</span><span class="time">{_time(view)}</span>'
        f'<span class="tokens">{_tokens(view)}</span><span class="cost">{_cost(view)}</span></summary>'
    )


def _time(view: StepView) -> str:
    if clock := step_clock(view):
        return clock
    seconds = [call.ended.payload.get("seconds") for call in view.calls if call.ended is not None]
    if seconds:
        known = [float(value) for value in seconds if isinstance(value, int | float)]
        return str(duration(sum(known) if known else None))
    taken = view.answer.get("seconds")
    return str(duration(float(taken))) if isinstance(taken, int | float) else ""


def _tokens(view: StepView) -> str:
    if view.reply is None:
        return "" if view.pending else '<span class="unknown">unknown</span>'
    usage = view.answer.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    parts = [usage.get("input_total"), usage.get("output_total")]
    if parts == [None, None]:
        return '<span class="unknown">unknown</span>'
    return " / ".join(f"{part:,}" if isinstance(part, int) else "?" for part in parts)


def _cost(view: StepView) -> str:
    known, missing = view.cost()
    if view.reply is None and view.pending and not view.failures:
        return ""
    if (
        view.reply is not None
        and (view.reply.payload.get("cost") or {}).get("basis") == "scripted"
        and not missing
    ):
        return '<span title="scripted, no intelligence">$0</span>'
    if known is None:
        return str(dollars(None))
    return (
        f'<span aria-label="at least {dollars(known)}">≥ {dollars(known)}</span>'
        if missing
        else str(dollars(known))
    )


def _body(run: int, view: StepView) -> str:
    asked_again = {event.payload.get("request") for event in view.requests if event.payload.get("again")}
    parts = [_failure(event, asked_again) for event in view.failures]
    parts += [_rewritten(event) for event in view.rewritten]
    if view.reply is not None:
        seq = view.reply.seq
        parts.append(reasoning_block(excerpt(view.answer.get("reasoning")), run=run, seq=seq))
        parts.append(_said(run, view, seq))
        parts.append(_notes(view, view.reply))
    elif view.state == "answering":
        parts.append(_answering(view))
    parts += [_call(run, call, alone=len(view.calls) == 1) for call in view.calls]
    return "".join(parts)


def _said(run: int, view: StepView, seq: int) -> str:
    content = excerpt(view.answer.get("content"))
    if view.kind == "final" and content.whole:
        return f'<div class="said prose markdown" dir="auto">{render_markdown(content.text)}</div>'
    return said_block(content, run=run, seq=seq)


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
    message = one_line(words_of(payload.get("message") or payload.get("reason")), 400)
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
    details = ""
    if came:
        shown = first_lines(came, lines=20, characters=2_000)
        details = f"<details><summary>what had arrived</summary><pre>{visible_html(shown)}</pre></details>"
    return _note(head, more=details)


def _rewritten(event: LogEvent) -> str:
    reason = one_line(words_of(event.payload.get("reason")), 200)
    return _note(f"The history was rewritten: {reason}", name="", icon_name="branch")


def _note(words: str, *, name: str = "warning", icon_name: str = "warning", more: str = "") -> str:
    return f'<div class="note-row {name}">{icon(icon_name)}<div>{visible_html(words)}{more}</div></div>'


def _notes(view: StepView, reply: LogEvent) -> str:
    notes = [words_of(note) for note in reply.payload.get("notes") or []]
    reason = words_of(view.answer.get("finish_reason"))
    if reason in {"length", "max_tokens", "max_new_tokens"}:
        left = f"; {plural(len(view.announced_calls), 'call')} not executed" if view.announced_calls else ""
        notes.insert(0, f"The answer was cut by its length{left}")
    refusal = words_of(view.answer.get("refusal"))
    if refusal:
        notes.insert(0, f"The model refused: {refusal}")
    return "".join(_note(one_line(note, 400)) for note in notes)


def _call(run: int, call: CallView, *, alone: bool) -> str:
    if call.malformed:
        return _malformed(run, call)
    broken_off = "".join(_tried_before(run, earlier) for earlier in call.before)
    if call.kind == "edit" and (block := _edit(run, call)):
        body = block + (_finished(run, call) if call.ended is not None and _bad(call) else "")
    else:
        body = _arguments(call) + (_finished(run, call) if call.ended is not None else "")
    head = "" if alone and call.ended is not None else _call_head(call)
    after = _pending(call) + _interrupted(run, call)
    return f'<section class="tool-call">{broken_off}{head}{body}{after}</section>'


def _tried_before(run: int, call: CallView) -> str:
    """A try that the end of its worker broke off; the call that follows is the same one again."""
    reason = one_line(words_of(call.result.get("reason")), 300)
    words = f"Interrupted ({reason}) and run again on the workspace as it was before"
    return _note(words) + (_streams(run, call, call.ended) if call.ended is not None else "")


def _bad(call: CallView) -> bool:
    return call.ended is not None and bool(call.ended.payload.get("failed"))


def _call_head(call: CallView) -> str:
    words = visible_html(one_line(main_argument(call), 160))
    state = call_result(call) if call.ended is not None else ""
    return (
        f'<header class="call-head">{icon(call.icon)}<b>{visible_html(one_line(call.tool, 60))}</b> '
        f'<code>{words}</code><span class="end">{state} event {call.started.seq} · '
        f"started {moment(call.started.at)}</span></header>"
    )


def _pending(call: CallView) -> str:
    if call.ended is not None:
        return ""
    timeout = call.started.payload.get("timeout")
    allowed = float(timeout) if isinstance(timeout, int | float) else None
    words = f"of {duration(allowed)} allowed" if allowed is not None else "no time limit of its own"
    return (
        f'<p class="pending-line">{icon("running")}<b>Running</b> '
        f"{growing(call.started.at, allowed=allowed, fine=True)}"
        f'<span class="allowed">{words} · output comes when the command ends</span></p>'
    )


def _interrupted(run: int, call: CallView) -> str:
    if call.ended is None or not call.interrupted:
        return ""
    reason = one_line(words_of(call.result.get("reason")), 300)
    return _note(f"Interrupted ({reason}); its effect is unknown") + _streams(run, call, call.ended)


def _malformed(run: int, call: CallView) -> str:
    reason = visible_html(one_line(words_of(call.started.payload.get("malformed")), 300))
    raw = excerpt(call.started.payload.get("raw_arguments"))
    told = _observation(run, call) if call.ended is not None else ""
    return (
        f'<section class="tool-call"><div class="note-row warning">{icon("warning")}<div>'
        f"<b>{visible_html(one_line(call.tool, 60))}</b>: "
        f"not understood, told the model. {reason}</div></div>"
        + output_block(
            raw, run=run, seq=call.started.seq, part="raw_arguments", title="Raw arguments", icon_name="file"
        )
        + told
        + "</section>"
    )


def _edit(run: int, call: CallView) -> str:
    arguments: Mapping[str, Any] = call.arguments
    path = words_of(arguments.get("file_path") or arguments.get("path"))
    if "old_string" in arguments or "old_str" in arguments:
        old = excerpt(arguments.get("old_string", arguments.get("old_str")))
        new = excerpt(arguments.get("new_string", arguments.get("new_str")))
        numbers = _change_counts(call)
        return (
            f'<section class="diff"><header>{icon("pencil")}<code>{visible_html(one_line(path, 200))}</code>'
            f'<span class="end">{numbers}</span></header>{replaced(old.text, new.text)}</section>'
        )
    content = arguments.get("content", arguments.get("file_text"))
    if content is None:
        return ""
    return output_block(
        excerpt(content),
        run=run,
        seq=call.started.seq,
        part="content" if "content" in arguments else "file_text",
        title=f"<code>{visible_html(one_line(path, 200))}</code>",
        icon_name="pencil",
        path=path or "text",
    )


def _change_counts(call: CallView) -> str:
    known = [change for change in call.changes if change.get("added") is not None]
    if not known:
        return ""
    return counts(sum(int(c["added"]) for c in known), sum(int(c.get("removed") or 0) for c in known))


def _arguments(call: CallView) -> str:
    command = command_of(call.arguments)
    if command:
        shown = first_lines(command, lines=24, characters=3_000)
        many = "\n" in shown.strip() or len(shown) > 100
        block = f'<pre class="command">{visible_html(shown)}</pre>' if many else ""
        return block + arguments_block(call.arguments, leave_out=_NOT_SHOWN_AS_ARGUMENTS)
    simple = set(call.arguments) <= {"file_path", "path", "pattern"}
    return "" if simple else arguments_block(call.arguments)


def _finished(run: int, call: CallView) -> str:
    if call.ended is None or call.interrupted:
        return ""
    payload = call.result
    if payload.get("stdout") is None and payload.get("stderr") is None:
        return _observation(run, call)
    return _streams(run, call, call.ended)


def _streams(run: int, call: CallView, ended: LogEvent) -> str:
    payload = ended.payload
    whole = "whole" if payload.get("whole") else "observation"
    dropped = payload.get("observation_dropped") or 0
    mark = seen_mark(excerpt(payload.get("observation")), dropped, run=run, seq=ended.seq, part=whole)
    code = exit_code(payload["exit_code"]) + " · " if payload.get("exit_code") is not None else ""
    blocks = []
    for part, title in (("stdout", "Output"), ("stderr", "Error output")):
        stream = payload.get(part)
        if not isinstance(stream, Mapping) or not stream.get("total_bytes"):
            continue
        if stream.get("binary"):
            blocks.append(binary_block(title, stream.get("total_bytes"), run=run, seq=ended.seq, part=part))
            continue
        text = stream_text(stream)
        cut = " · kept in part" if stream.get("truncated") else ""
        lines = f"{plural(text.lines, 'line')} · " if text.lines is not None else ""
        facts = f"{code}{lines}{_bytes(stream.get('total_bytes'))}{cut}"
        blocks.append(
            output_block(text, run=run, seq=ended.seq, part=part, title=title, facts=facts, mark=mark)
        )
        code = mark = ""
    said = isinstance(payload.get("stdout"), Mapping)
    return "".join(blocks) or (_no_output(code) if said else "")


def _no_output(code: str) -> str:
    return (
        f'<section class="output"><header>{icon("prompt")}<b>No output</b>'
        f'<span class="end">{code.removesuffix(" · ")}</span></header></section>'
    )


def _bytes(total: Any) -> str:
    return str(size(total if isinstance(total, int) else None))


def _observation(run: int, call: CallView) -> str:
    if call.ended is None:
        return ""
    payload = call.result
    observation = excerpt(payload.get("observation"))
    dropped = payload.get("observation_dropped") or 0
    part = "whole" if payload.get("whole") else "observation"
    mark = seen_mark(observation, dropped, run=run, seq=call.ended.seq, part=part)
    title = "Told the model" if call.malformed or payload.get("failed") else "Result"
    return output_block(
        observation,
        run=run,
        seq=call.ended.seq,
        part="observation",
        title=title,
        icon_name=call.icon,
        mark=mark,
    )
