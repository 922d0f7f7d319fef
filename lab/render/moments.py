"""Events outside steps as HTML: attempts, sandboxes, limits, controls, the patch, the grading, the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.safestring import SafeString

from lab.render.blocks import moment_body, output_block, said_block
from lab.render.diff import counts
from lab.render.fold import LogEvent
from lab.render.icons import icon
from lab.render.imported import source_kept, trajectory_imported
from lab.render.numbers import NOT_RECORDED, clock, dollars, duration, moment, plural, size
from lab.render.parting import parting_of
from lab.render.sandboxes import ShownImage, limit_words, shown_image
from lab.render.text import excerpt, line_html, one_line, safe, visible_html, words_of

INFRASTRUCTURE_REASONS = frozenset(
    {"llm_query_error", "tool_error", "infrastructure_error", "internal_error", "replay_diverged", "unknown"}
)
OUTCOMES: dict[str, tuple[str, str, str]] = {
    "resolved": ("resolved", "ok", "resolved"),
    "unresolved": ("unresolved", "cross", "unresolved"),
    "unparsed": ("invalid", "unparsed", "unparsed"),
    "infrastructure": ("invalid", "bolt", "infrastructure"),
    "task_invalid": ("invalid", "invalid", "task invalid"),
}
"""Outcome -> class, icon, word."""


def moment_html(run: int, event: LogEvent) -> SafeString:
    """One event outside a step as one list item. A kind this version does not know is named."""
    words, name, icon_name, details = _HANDLERS.get(event.kind, _unknown)(run, event)
    number = f'<span class="end">event {event.seq} · {moment(event.at)}</span>'
    head = f"{icon(icon_name)}<span>{words}</span>{number}"
    opened = " open" if event.kind == "message_sent" else ""
    fold = f"<details{opened}><summary>{head}</summary>{details}</details>"
    body = fold if details else f"<div>{head}</div>"
    mark = ' data-marks="failed"' if name == "infrastructure" else ""
    return safe(
        f'<li class="moment {name}" id="event-{event.seq}" data-seqs="{event.seq}" '
        f'data-last-seq="{event.seq}" data-attempt="{event.attempt}" '
        f'data-moment="{visible_html(event.kind)}"{mark}>{body}</li>'
    )


Moment = tuple[str, str, str, str]
"""Words (markup), class, icon, details (markup, "" for none)."""


def _name(value: Any) -> str:
    """Name and version of a harness, model or task as `attempt_started` holds them."""
    if not isinstance(value, Mapping):
        return "unknown"
    name = line_html(value.get("name") or value.get("id") or "unknown", 120)
    version = value.get("version")
    return f"{name} v{version}" if isinstance(version, int) else name


def _attempt_started(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    scripted = isinstance(payload.get("model"), Mapping) and payload["model"].get("scripted") is True
    words = (
        f"<b>Attempt {event.attempt}</b> {_name(payload.get('harness'))} × {_name(payload.get('model'))}"
        + (", scripted, no intelligence" if scripted else "")
    )
    blocks = []
    for index, message in enumerate(payload.get("messages") or []):
        if not isinstance(message, Mapping):
            continue
        role = line_html(message.get("role"), 20)
        blocks.append(
            output_block(
                excerpt(message.get("content")),
                run=run,
                seq=event.seq,
                part=f"messages.{index}.content",
                title=f"What the model is told first: {role}",
                icon_name="speech",
            )
        )
    return words, "attempt", "target", "".join(blocks)


def _whom(payload: Mapping[str, Any]) -> str:
    return " for the verification" if payload.get("purpose") == "verification" else ""


def _image_requested(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    begun = "Building" if payload.get("action") == "build" else "Pulling"
    return f"{begun} the image{_whom(payload)} {line_html(payload.get('reference'))}", "sandbox", "box", ""


def _image_ready(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    image = shown_image(payload.get("image"))
    took = duration(_number(payload.get("seconds")))
    name = visible_html(image.reference) if image else "unknown"
    big = f", {image.size}" if image and image.size else ""
    words = f"Image{_whom(payload)} {name} is there after {took}{big}"
    return words, "sandbox", "box", moment_body(_image_html(image)) if image else ""


def _sandbox_started(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    isolation = payload.get("isolation")
    kept_apart = "not isolated" if isolation == "none" else "isolated"
    network = "with network" if payload.get("network") else "no network"
    again = ", its workspace as it was after the last stored change" if payload.get("rebuilt") else ""
    image = shown_image(payload.get("image"))
    made_from = f" of {visible_html(image.reference)}" if image else ""
    words = (
        f"Sandbox{_whom(payload)} {line_html(payload.get('sandbox'))}{made_from}, "
        f"<span{' class=warning' if isolation == 'none' else ''}>{kept_apart}</span>, {network}{again}, "
        f"up in {duration(_number(payload.get('seconds')))}"
    )
    lines = [_image_html(image)] if image else []
    if limits := limit_words(payload.get("limits")):
        told = ", ".join(f"{name} {value}" for name, value in limits.items())
        lines.append(f"<p>Limits: {visible_html(told)}</p>")
    lines += [f"<p>{line_html(note, 400)}</p>" for note in payload.get("notes") or []]
    return words, "sandbox", "box", moment_body("".join(lines))


def _image_html(image: ShownImage) -> str:
    size_words = f", {image.size}" if image.size else ""
    digest = f"<p>{image.hash_name} <code>{visible_html(image.hash)}</code>{size_words}</p>"
    if image.identifier == image.hash:
        return digest
    return f"{digest}<p>content <code>{visible_html(image.identifier)}</code></p>"


def _sandbox_lost(run: int, event: LogEvent) -> Moment:
    return f"Sandbox lost: {line_html(event.payload.get('message'), 400)}", "infrastructure", "bolt", ""


def _attempt_continued(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    reason = line_html(payload.get("reason"), 400)
    words = f"<b>Attempt {event.attempt} goes on</b> with another worker{f': {reason}' if reason else ''}"
    if payload.get("orderly"):
        return words, "continued", "down", ""
    return words, "continued broken", "bolt", ""


def _message_sent(run: int, event: LogEvent) -> Moment:
    message = event.payload.get("message")
    content = excerpt(message.get("content") if isinstance(message, Mapping) else "")
    person = f"<b>{line_html(event.payload.get('person'))}</b>"
    if content.whole and len(content.text) <= _INLINE and "\n" not in content.text:
        return f"{person} wrote to the agent: {line_html(content)}", "person message", "speech", ""
    words = f"{person} wrote to the agent"
    return words, "person message", "speech", said_block(content, run=run, seq=event.seq)


# A message up to this length stands in its line.
_INLINE = 200
_ASKED = {
    "pause": "asked to pause",
    "resume": "asked to go on",
    "cancel": "asked to cancel",
    "attempt": "asked for another attempt",
}


def _control_asked(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    value = payload.get("value")
    value = value if isinstance(value, Mapping) else {}
    control = words_of(payload.get("control"))
    words = _ASKED.get(control) or f"asked for: {line_html(control)}"
    if control == "limit":
        limit = words_of(value.get("limit"))
        words = f"asked for another limit of {_limit_name(limit)}: {_limit_value(limit, value.get('after'))}"
    elif control == "message":
        words = f"sent a message: “{line_html(value.get('text'), 120)}”"
    elif control == "again" and isinstance(value.get("run"), int):
        words = f'ran it again as <a href="/runs/{value["run"]}/">run {value["run"]}</a>'
    return f"<b>{line_html(payload.get('person'))}</b> {words}", "person", "flag", ""


def _limit_changed(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    limit = words_of(payload.get("limit"))
    before, after = (_limit_value(limit, payload.get(name)) for name in ("before", "after"))
    person = f"<b>{line_html(payload.get('person'))}</b>"
    words = f"Limit of {_limit_name(limit)} changed by {person}: {before} → <b>{after}</b>"
    return words, "person", "flag", ""


def _limit_value(limit: str, value: Any) -> str:
    number = _number(value)
    if number is None:
        return "no limit" if value is None else line_html(str(value), 40)
    if limit == "max_cost_usd":
        return str(dollars(number, places=2))
    return clock(number) if limit == "max_total_time_sec" else f"{number:,.10g}"


_LIMIT_WORDS = {
    "max_steps": "steps",
    "max_context_tokens": "context tokens",
    "max_tokens_per_turn": "tokens a turn",
    "max_total_time_sec": "wall time",
    "max_tokens_total": "tokens in all",
    "max_cost_usd": "cost",
    "max_format_errors": "replies in a row that were not understood",
}


def _limit_name(value: Any) -> str:
    name = words_of(value)
    return _LIMIT_WORDS.get(name, visible_html(one_line(name, 60)))


def _limit_reached(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    limit = words_of(payload.get("limit"))
    used, allowed = (
        "unknown" if payload.get(name) is None else _limit_value(limit, payload[name])
        for name in ("used", "allowed")
    )
    return f"Limit of {_limit_name(limit)} reached: {used} of {allowed}", "limit", "warning", ""


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _paused(run: int, event: LogEvent) -> Moment:
    word = "Paused" if event.kind == "paused" else "Resumed"
    return f"{word} by <b>{line_html(event.payload.get('person'))}</b>", "person", "paused", ""


def _patch_captured(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    files = [file for file in payload.get("files") or [] if isinstance(file, Mapping)]
    reason = line_html(payload.get("exit_reason"))
    patch = excerpt(payload.get("patch"))
    if not patch.text:
        return f"No patch: nothing was changed. Exit reason {reason}", "patch", "pencil", ""
    added = sum(int(file["added"]) for file in files if isinstance(file.get("added"), int))
    removed = sum(int(file["removed"]) for file in files if isinstance(file.get("removed"), int))
    commits = payload.get("commits")
    own = (
        f", {plural(commits, 'commit')} of the agent's own among it"
        if isinstance(commits, int) and commits
        else ""
    )
    where = f"{counts(added, removed)} in {plural(len(files), 'file')}{own}"
    words = f'<a href="#patch">Patch</a> {where}. Exit reason {reason}'
    return words, "patch", "pencil", ""


def _verification_started(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    words = f"Verifying by rule {line_html(payload.get('rule'))}"
    # A recorded verdict may name no test.
    if payload.get("fail_to_pass") or payload.get("pass_to_pass"):
        words += (
            f': <span class="chip f2p">F2P</span> {payload.get("fail_to_pass")} must start to pass, '
            f'<span class="chip p2p">P2P</span> {payload.get("pass_to_pass")} must stay passing'
        )
    return words, "verification", "flask", ""


def _verification_finished(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    name, icon_name, word = OUTCOMES.get(words_of(payload.get("outcome")), ("invalid", "unparsed", "unknown"))
    tests = [test for test in payload.get("tests") or [] if isinstance(test, Mapping)]
    parts = [] if tests else ["no test is named"]
    for group, label in (("fail_to_pass", "f2p"), ("pass_to_pass", "p2p")) if tests else ():
        statuses = [test.get("status") for test in tests if test.get("group") == group]
        parts.append(
            f'<span class="chip {label}">{label.upper()}</span> {statuses.count("passed")} of {len(statuses)}'
        )
    detail = f" {line_html(payload.get('detail'), 400)}" if payload.get("detail") else ""
    words = (
        f'<a href="#verdict">Verdict</a> <b class="{name}">{word}</b> {" ".join(parts)}, '
        f"in {duration(_number(payload.get('seconds')))}{detail}"
    )
    return words, "verification", icon_name, ""


def _attempt_ended(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    reason = words_of(payload.get("exit_reason"))
    native = words_of(payload.get("native_reason"))
    said = f" ({line_html(native)})" if native and native != reason else ""
    memory = payload.get("peak_memory_bytes")
    facts = [
        plural(int(_number(payload.get("steps")) or 0), "step"),
        _clock(payload.get("wall_seconds")),
        # A sandbox that never ran anything measured nothing.
        f"peak memory {size(memory) if isinstance(memory, int) and memory else 'unknown'}",
    ]
    if payload.get("error"):
        # Where a replay parted from its recording stands whole in the step before.
        parting = parting_of(payload["error"])
        facts.append(line_html(parting.head if parting else payload["error"], 600))
    broken = reason in INFRASTRUCTURE_REASONS
    why = f"exit reason <b>{line_html(reason) or NOT_RECORDED}</b>{said}"
    words = f"Attempt {event.attempt} ended, {why} · {' · '.join(facts)}"
    return words, "infrastructure" if broken else "attempt", "bolt" if broken else "target", ""


def _clock(seconds: Any) -> str:
    known = _number(seconds)
    return f"wall time {NOT_RECORDED}" if known is None else str(clock(known))


def _run_ended(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    verdict = words_of(payload.get("verdict"))
    graded = OUTCOMES[verdict][2] if verdict in OUTCOMES else "not graded"
    return (
        f"Run ended, exit reason <b>{line_html(payload.get('exit_reason')) or NOT_RECORDED}</b>, {graded}",
        "end-of-run",
        "flag",
        "",
    )


def _secret_purged(run: int, event: LogEvent) -> Moment:
    payload = event.payload
    numbers = [str(number) for number in payload.get("events") or [] if isinstance(number, int)]
    shown = ", ".join(numbers[:20]) + (" …" if len(numbers) > 20 else "")
    where = f"; changed: {plural(len(numbers), 'event')} ({shown})" if numbers else ""
    words = (
        f"<b>{line_html(payload.get('person'))}</b> purged a leaked secret from this log: "
        f"{line_html(payload.get('reason'), 400)}{where}"
    )
    return words, "person", "flag", ""


def _unknown(run: int, event: LogEvent) -> Moment:
    return f"{visible_html(event.kind)} (an event of a newer version of the lab)", "newer", "unparsed", ""


_HANDLERS: dict[str, Callable[[int, LogEvent], Moment]] = {
    "attempt_started": _attempt_started,
    "attempt_continued": _attempt_continued,
    "image_requested": _image_requested,
    "image_ready": _image_ready,
    "sandbox_started": _sandbox_started,
    "sandbox_lost": _sandbox_lost,
    "message_sent": _message_sent,
    "control_asked": _control_asked,
    "limit_changed": _limit_changed,
    "limit_reached": _limit_reached,
    "paused": _paused,
    "resumed": _paused,
    "patch_captured": _patch_captured,
    "verification_started": _verification_started,
    "verification_finished": _verification_finished,
    "attempt_ended": _attempt_ended,
    "run_ended": _run_ended,
    "secret_purged": _secret_purged,
    "trajectory_imported": trajectory_imported,
    "source_kept": source_kept,
}
