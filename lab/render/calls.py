"""One tool call of a step as HTML: what it asked for, as what it does, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.render.blocks import (
    arguments_block,
    binary_block,
    note,
    output_block,
    seen_mark,
)
from lab.render.diff import added, counts, replaced
from lab.render.fold import CallView, LogEvent
from lab.render.icons import icon
from lab.render.kinds import EDITORS, command_of, subject_of
from lab.render.numbers import duration, growing, moment, plural, size
from lab.render.results import call_result, exit_code, stream_text
from lab.render.text import EMPTY, Excerpt, excerpt, first_lines, one_line, visible_html, words_of

NOT_SHOWN_AS_ARGUMENTS = frozenset({"command", "cmd", "description", "timeout", "timeout_ms"})
# What the row of a call has said already.
SAID_BY_THE_ROW = frozenset({"file_path", "path", "pattern", "search_term", "command", "view_range"})


def main_argument(call: CallView) -> str:
    """The argument that says what a call is about."""
    if call.malformed:
        return words_of(call.started.payload.get("raw_arguments"))
    text = subject_of(call.tool, call.executor, call.arguments)
    if text or call.kind == "final":
        return text
    return ", ".join(f"{name}={words_of(value) or value}" for name, value in list(call.arguments.items())[:4])


class Printed(NamedTuple):
    """A text that a call came to, or that it was made of: what `output_block` takes.

    `binary`: how many bytes that are no text; `text` is empty then.
    """

    seq: int
    part: str
    title: str
    icon: str
    text: Excerpt
    facts: str = ""
    mark: str = ""
    binary: int | None = None


def call_block(run: int | None, call: CallView, *, alone: bool, body: str | None = None) -> str:
    """What opens below a step's row for one of its calls; `alone`: the row has named it.

    `body`: markup in the place of what it asked for and what it came to.
    """
    if call.malformed:
        told = printed_of(run, call)
        if body is None:
            body = _printed_html(run, [raw_arguments(call), *told])
        return f'<section class="tool-call">{_not_understood(call)}{body}</section>'
    broken_off = "".join(_tried_before(run, earlier) for earlier in call.before)
    if body is None:
        asked = edit_block(run, call) if is_edit(call) else arguments_of(call)
        body = asked + _printed_html(run, printed_of(run, call))
    head = "" if alone and call.ended is not None else _call_head(call)
    after = _pending(call) + _interrupted(run, call)
    return f'<section class="tool-call">{broken_off}{head}{body}{after}</section>'


def _tried_before(run: int | None, call: CallView) -> str:
    """A try that the end of its worker broke off; the call that follows is the same one again."""
    reason = one_line(words_of(call.result.get("reason")), 300)
    words = f"Interrupted ({reason}) and run again on the workspace as it was before"
    return note(words) + _printed_html(run, _streams(run, call))


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


def _interrupted(run: int | None, call: CallView) -> str:
    if call.ended is None or not call.interrupted:
        return ""
    reason = one_line(words_of(call.result.get("reason")), 300)
    return note(f"Interrupted ({reason}); its effect is unknown") + _printed_html(run, _streams(run, call))


def _not_understood(call: CallView) -> str:
    reason = visible_html(one_line(words_of(call.started.payload.get("malformed")), 300))
    return (
        f'<div class="note-row warning">{icon("warning")}<div>'
        f"<b>{visible_html(one_line(call.tool, 60))}</b>: "
        f"not understood, told the model. {reason}</div></div>"
    )


def raw_arguments(call: CallView) -> Printed:
    """What stands in the place of arguments that could not be read."""
    raw = excerpt(call.started.payload.get("raw_arguments"))
    return Printed(call.started.seq, "raw_arguments", "Raw arguments", "file", raw)


def is_edit(call: CallView) -> bool:
    """Whether a call says as arguments, and not within a command, what it replaces, puts in or writes."""
    names = ("old_string", "old_str", "content", "file_text")
    return (
        call.kind == "edit"
        and not call.malformed
        and (_inserts(call) or any(call.arguments.get(name) is not None for name in names))
    )


def _inserts(call: CallView) -> bool:
    return (call.executor or call.tool).lower() in EDITORS and call.arguments.get("command") == "insert"


def edit_block(run: int | None, call: CallView) -> str:
    """What an edit replaces, puts in or writes."""
    arguments: Mapping[str, Any] = call.arguments
    path = words_of(arguments.get("file_path") or arguments.get("path"))
    if _inserts(call):
        line = one_line(words_of(arguments.get("insert_line")) or str(arguments.get("insert_line")), 12)
        where = f"behind line {line}"
        return _difference(path, visible_html(where), added(words_of(arguments.get("new_str"))))
    if "old_string" in arguments or "old_str" in arguments:
        old = excerpt(arguments.get("old_string", arguments.get("old_str")))
        new = excerpt(arguments.get("new_string", arguments.get("new_str")))
        return _difference(path, _change_counts(call), replaced(old.text, new.text))
    content = arguments.get("content", arguments.get("file_text"))
    return output_block(
        excerpt(content),
        run=run,
        seq=call.started.seq,
        part="content" if "content" in arguments else "file_text",
        title=f"<code>{visible_html(one_line(path, 200))}</code>",
        icon_name="pencil",
        path=path or "text",
    )


def _difference(path: str, end: str, lines: str) -> str:
    return (
        f'<section class="diff"><header>{icon("pencil")}<code>{visible_html(one_line(path, 200))}</code>'
        f'<span class="end">{end}</span></header>{lines}</section>'
    )


def _change_counts(call: CallView) -> str:
    known = [change for change in call.changes if change.get("added") is not None]
    if not known:
        return ""
    return counts(sum(int(c["added"]) for c in known), sum(int(c.get("removed") or 0) for c in known))


def arguments_of(call: CallView) -> str:
    """What a call asks for beyond what its row says."""
    is_editor = (call.executor or call.tool).lower() in EDITORS
    command = "" if is_editor else command_of(call.arguments)
    if command:
        shown = first_lines(command, lines=24, characters=3_000)
        many = "\n" in shown.strip() or len(shown) > 100
        block = f'<pre class="command">{visible_html(shown)}</pre>' if many else ""
        return block + arguments_block(call.arguments, leave_out=NOT_SHOWN_AS_ARGUMENTS)
    simple = set(call.arguments) <= SAID_BY_THE_ROW
    return "" if simple else arguments_block(call.arguments, leave_out=SAID_BY_THE_ROW)


def printed_of(run: int | None, call: CallView) -> list[Printed]:
    """What a call that ended printed, or what the model was told. Of an edit only what went wrong."""
    if call.ended is None or call.interrupted:
        return []
    payload = call.result
    if is_edit(call) and not payload.get("failed"):
        return []
    if call.malformed or (payload.get("stdout") is None and payload.get("stderr") is None):
        return [_observation(run, call, call.ended)]
    return _streams(run, call)


def _printed_html(run: int | None, printed: list[Printed]) -> str:
    return "".join(printed_block(run, one) for one in printed)


def printed_block(run: int | None, one: Printed) -> str:
    """A text that a call came to as a block."""
    if one.binary is not None:
        return binary_block(one.title, one.binary, run=run, seq=one.seq, part=one.part)
    if not one.part:
        return _no_output(one.facts)
    return output_block(
        one.text,
        run=run,
        seq=one.seq,
        part=one.part,
        title=one.title,
        icon_name=one.icon,
        facts=one.facts,
        mark=one.mark,
    )


def _streams(run: int | None, call: CallView) -> list[Printed]:
    ended = call.ended
    if ended is None:
        return []
    payload = ended.payload
    whole = "whole" if payload.get("whole") else "observation"
    dropped = payload.get("observation_dropped") or 0
    printed = sum(stream_text(payload.get(part)).characters or 0 for part in ("stdout", "stderr"))
    seen = excerpt(payload.get("observation")) if ended.kind == "tool_call_finished" else EMPTY
    mark = seen_mark(seen, dropped, run=run, seq=ended.seq, part=whole, printed=printed if seen.text else 0)
    code = exit_code(payload["exit_code"]) + " · " if payload.get("exit_code") is not None else ""
    blocks: list[Printed] = []
    for part, title in (("stdout", "Output"), ("stderr", "Error output")):
        stream = payload.get(part)
        if not isinstance(stream, Mapping) or not stream.get("total_bytes"):
            continue
        if stream.get("binary"):
            blocks.append(Printed(ended.seq, part, title, "prompt", EMPTY, binary=stream["total_bytes"]))
            continue
        text = stream_text(stream)
        cut = " · kept in part" if stream.get("truncated") else ""
        lines = f"{plural(text.lines, 'line')} · " if text.lines is not None else ""
        facts = f"{code}{lines}{_bytes(stream.get('total_bytes'))}{cut}"
        blocks.append(Printed(ended.seq, part, title, "prompt", text, facts, mark))
        code = mark = ""
    if not blocks and isinstance(payload.get("stdout"), Mapping):
        blocks = [Printed(ended.seq, "", "No output", "prompt", EMPTY, code.removesuffix(" · "))]
    return blocks


def _no_output(facts: str) -> str:
    return (
        f'<section class="output"><header>{icon("prompt")}<b>No output</b>'
        f'<span class="end">{facts}</span></header></section>'
    )


def _bytes(total: Any) -> str:
    return str(size(total if isinstance(total, int) else None))


def _observation(run: int | None, call: CallView, ended: LogEvent) -> Printed:
    payload = ended.payload
    observation = excerpt(payload.get("observation"))
    dropped = payload.get("observation_dropped") or 0
    part = "whole" if payload.get("whole") else "observation"
    mark = seen_mark(observation, dropped, run=run, seq=ended.seq, part=part)
    title = "Told the model" if call.malformed or payload.get("failed") else "Result"
    return Printed(ended.seq, "observation", title, call.icon, observation, mark=mark)
