"""The pieces a step is built of: output blocks, reasoning, arguments. Markup out, nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.utils.safestring import SafeString

from lab.render.ansi import ansi
from lab.render.code import code
from lab.render.icons import icon
from lab.render.numbers import plural, size
from lab.render.text import Excerpt, count_lines, excerpt, first_lines, safe, visible_html

SHOWN_LINES = 24
SHOWN_CHARACTERS = 3_000
_REASONING_SHOWN = 160
_CUT_NOTE = re.compile(r"\n\[(?:\d+ characters truncated|[^\]\n]{0,80}\d[^\]\n]{0,80})\]\s*$")

# The same note between a head and a tail, or inside of what a harness puts around.
_CUT_INSIDE = re.compile(r"^\[\d+ (?:lines|characters) truncated\]$", re.M)


def body_url(run: int, seq: int, part: str) -> str:
    """Where the whole of a part is fetched from.

    The blocks below take None for a run whose texts cannot be fetched, since a file that is read without the
    lab holds them: they link to nothing and say how much is not there.
    """
    return f"/runs/{run}/events/{seq}/body?part={part}"


def raw_url(run: int, seq: int, part: str) -> str:
    return f"/runs/{run}/events/{seq}/raw?part={part}"


def extent(text: Excerpt) -> str:
    """ "3 lines, 180 bytes"; only the size where lines were not counted."""
    if text.lines is None:
        return str(size(text.size))
    return f"{plural(text.lines, 'line')}, {size(text.size)}"


def not_here(more: int | None) -> str:
    """What stands for a link where there is nothing to link to."""
    return (
        "the rest is not in this file" if more is None else f"{more:,} more characters are not in this file"
    )


def more_link(run: int, seq: int, part: str, words: str) -> str:
    """A link that puts the whole in the place of the block it stands in; works as a link without script."""
    url = body_url(run, seq, part)
    return f'<a class="more" {_fetched_into(".output", url)}>{words}</a>'


def _fetched_into(closest: str, url: str) -> str:
    return f'href="{url}" hx-get="{url}" hx-target="closest {closest}" hx-swap="outerHTML"'


def output_block(
    text: Excerpt,
    *,
    run: int | None,
    seq: int,
    part: str,
    title: str,
    icon_name: str = "prompt",
    facts: str = "",
    mark: str = "",
    path: str = "",
) -> str:
    """Mono text with a head: 24 lines, then a link to the rest. `mark` is the truncation mark's markup."""
    shown = first_lines(text.text, lines=SHOWN_LINES, characters=SHOWN_CHARACTERS)
    body = code(shown, path) if path else ansi(shown)
    more = hidden_foot(text, len(shown), run=run, seq=seq, part=part)
    return output_section(title, icon_name, facts or extent(text), body, more + mark)


def hidden_foot(text: Excerpt, shown: int, *, run: int | None, seq: int, part: str) -> str:
    """What stands below the first `shown` characters of a text: a link to all of it, "" when that is all."""
    if text.whole and shown >= len(text.text.rstrip("\n")):
        return ""
    if run is None:
        words = not_here(None if text.characters is None else text.characters - shown)
    else:
        words = more_link(run, seq, part, "show all: " + extent(text))
    return f'<p class="foot">{words}</p>'


def whole_block(
    text: str,
    *,
    run: int,
    seq: int,
    part: str,
    title: str,
    path: str = "",
    rest: int = 0,
    size_bytes: int | None = None,
) -> SafeString:
    """A part fetched whole. `rest` counts characters left out even here: those are in the raw bytes."""
    body = code(text, path) if path else ansi(text)
    url = raw_url(run, seq, part)
    left = f"{rest:,} more characters are in the " if rest else ""
    foot = f'<p class="foot">{left}<a href="{url}" download>raw bytes</a></p>'
    facts = (
        f"{plural(count_lines(text), 'line')}{', ' + str(size(size_bytes)) if size_bytes is not None else ''}"
    )
    return safe(output_section(title, "file" if path else "prompt", facts, body, foot))


def whole_words(text: str, *, reasoning: bool) -> SafeString:
    """A model's words fetched whole: its reasoning, or what it said."""
    if reasoning:
        return safe(f'<div class="reasoning"><b>Reasoning</b> <span>{visible_html(text)}</span></div>')
    return safe(f'<div class="said prose" dir="auto">{visible_html(text)}</div>')


def output_section(title: str, icon_name: str, facts: str, body: str, foot: str) -> str:
    """Mono text with a head and a foot; all five are markup."""
    return (
        f'<section class="output"><header>{icon(icon_name)}<b>{title}</b>'
        f'<span class="end">{facts}</span></header>'
        f'<pre tabindex="0" dir="auto">{body}</pre>{foot}</section>'
    )


def binary_block(title: str, total: int | None, *, run: int | None, seq: int, part: str) -> str:
    """What stands for bytes that are no text."""
    raw = "not in this file" if run is None else f'<a href="{raw_url(run, seq, part)}" download>raw bytes</a>'
    return (
        f'<section class="output"><header>{icon("prompt")}<b>{title}</b>'
        f'<span class="end">not text, {size(total)}</span></header>'
        f'<p class="foot">{raw}</p></section>'
    )


def note(words: str, *, name: str = "warning", icon_name: str = "warning", more: str = "") -> str:
    """A line of its own in a step: words, and markup that follows them."""
    return f'<div class="note-row {name}">{icon(icon_name)}<div>{visible_html(words)}{more}</div></div>'


def fetched_line(run: int | None, seq: int, part: str, words: str) -> str:
    """A quiet line that gives way to a text when asked for it; works as a link without script."""
    if run is None:
        return ""
    url = body_url(run, seq, part)
    return f'<p class="fetched"><a class="more" {_fetched_into(".fetched", url)}>{words}</a></p>'


def seen_mark(
    observation: Excerpt, dropped: int, *, run: int | None, seq: int, part: str, printed: int = 0
) -> str:
    """The dashed rule that says how much of an output the model saw; "" when it saw everything.

    `printed` are the characters of the output: a harness may leave out of it by its own wording, which counts
    nothing as dropped.
    """
    if observation.characters is None:
        return ""
    if dropped <= 0:
        if observation.characters >= printed:
            return ""
        shown = "" if run is None else f" · {more_link(run, seq, part, 'show what it saw')}"
        seen = f"{observation.characters:,} characters instead of these {printed:,}"
        return f'<p class="seen-mark">the model saw {seen}{shown}</p>'
    cut = _CUT_NOTE.search(observation.ending)
    rest = "" if run is None else f" · {more_link(run, seq, part, 'show the rest')}"
    if cut is None and _CUT_INSIDE.search(observation.text):
        return f'<p class="seen-mark">the model did not see {dropped:,} characters in the middle{rest}</p>'
    head = observation.characters - (len(cut.group()) if cut else 0)
    seen = f"the first {head:,} of {head + dropped:,} characters"
    return f'<p class="seen-mark">the model saw {seen}{rest}</p>'


def reasoning_block(text: Excerpt, *, run: int | None, seq: int) -> str:
    """What the model said to nobody: two lines, then how many words more."""
    if not text.text:
        return ""
    return f'<div class="reasoning"><b>Reasoning</b> {_two_lines(text, run, seq, "reasoning")}</div>'


def _two_lines(text: Excerpt, run: int | None, seq: int, part: str) -> str:
    whole = text.text.strip()
    if text.whole and len(whole) <= _REASONING_SHOWN * 1.4:
        return f"<span>{visible_html(whole)}</span>"
    at = whole.rfind(" ", 0, _REASONING_SHOWN)
    at = at if at > _REASONING_SHOWN // 2 else _REASONING_SHOWN
    rest = whole[at:]
    if text.whole:
        label, fetch = plural(len(rest.split()), "more word"), ""
    else:
        label = f"{(text.characters or len(whole)) - at:,} more characters"
        fetch = f" {_all_of(text, len(whole), run, seq, part, '.reasoning', 'read all of it')}"
    return (
        f"<span>{visible_html(whole[:at])}</span><details><summary>{label}</summary>"
        f"<span>{visible_html(rest)}</span>{fetch}</details>"
    )


def _all_of(text: Excerpt, shown: int, run: int | None, seq: int, part: str, closest: str, words: str) -> str:
    if run is None:
        count = text.characters - shown if text.characters is not None else None
        return f'<span class="quiet">{not_here(count)}</span>'
    return f'<a class="more" {_fetched_into(closest, body_url(run, seq, part))}>{words}</a>'


def said_block(text: Excerpt, *, run: int | None, seq: int) -> str:
    """The model's own words to the person: as they are, folded when long."""
    if not text.text.strip():
        return ""
    shown = text.text[:SHOWN_CHARACTERS].strip()
    more = ""
    if not text.whole or len(text.text) > SHOWN_CHARACTERS:
        count = text.characters or len(text.text)
        whole = f"all {count:,} characters"
        more = f" {_all_of(text, len(shown), run, seq, 'content', '.said', whole)}"
    return f'<div class="said prose" dir="auto">{visible_html(shown)}{more}</div>'


def arguments_block(arguments: Mapping[str, Any], *, leave_out: frozenset[str] = frozenset()) -> str:
    """The arguments of a call that has no better picture: a name and a value a line."""
    rows = []
    for name, value in list(arguments.items())[:40]:
        if name in leave_out:
            continue
        if isinstance(value, str | Excerpt):
            text = excerpt(value)
            shown = first_lines(text.text, lines=6, characters=600)
            cut = " …" if len(shown) < (text.characters or len(shown)) else ""
            rows.append(f"<dt>{visible_html(str(name)[:80])}</dt><dd>{visible_html(shown)}{cut}</dd>")
        else:
            rows.append(f"<dt>{visible_html(str(name)[:80])}</dt><dd>{visible_html(repr(value)[:300])}</dd>")
    return f'<dl class="arguments mono">{"".join(rows)}</dl>' if rows else ""


def moment_body(markup: str) -> str:
    """What opens below an event outside the steps, "" for nothing."""
    return f'<div class="moment-body">{markup}</div>' if markup else ""
