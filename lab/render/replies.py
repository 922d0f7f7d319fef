"""What a model said in a step, and what the harness made of it where it was no call it could execute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from lab.render.blocks import fetched_line, note, output_block, said_block
from lab.render.fold import LogEvent, StepView
from lab.render.kinds import command_of
from lab.render.markdown import render_markdown
from lab.render.numbers import plural
from lab.render.text import Excerpt, excerpt, one_line, visible_html, words_of
from lab.render.written import Written, around_call

# The harness's word for what was wrong with a reply -> what its row is headed with.
_TOLD_WORDS = {
    "no_call": "No call",
    "cut": "Cut reply",
    "multiple": "Several calls",
    "several_calls": "Several calls",
    "invalid_command": "Unknown call",
    "blocked": "Refused command",
}
_SHOWN_MESSAGES = 40


def said(run: int | None, view: StepView, seq: int) -> str:
    """What the model wrote. A call within the text is left out here: it is shown as what it does."""
    content, around = _content(view)
    if around is not None:
        before = _words(around.before, view)
        behind = said_block(_part(around.after), run=run, seq=seq)
        return before + behind + fetched_line(run, seq, "reply", "the reply as the model wrote it")
    if view.kind == "final" and content.whole:
        return _words(content.text, view)
    if view.told and content.text:
        return output_block(
            content, run=run, seq=seq, part="reply", title="Reply, not executed", icon_name="speech"
        )
    if view.told and not view.announced_calls:
        return note("The reply was empty", name="", icon_name="speech")
    return said_block(content, run=run, seq=seq)


def spoken(view: StepView) -> Excerpt:
    """What the model wrote, without a call that stands within it."""
    content, around = _content(view)
    if around is None and view.calls:
        # Another program may have recorded a command that stood in the text as if it had come as a call.
        around = around_call(content.text, excerpt(command_of(view.calls[0].arguments).strip()))
    return content if around is None else _part(f"{around.before}\n{around.after}".strip())


def _content(view: StepView) -> tuple[Excerpt, Written | None]:
    content = excerpt(view.answer.get("content"))
    call = view.text_call
    raw = None if call is None else excerpt(call.started.payload.get("raw_arguments"))
    return content, None if raw is None else around_call(content.text, raw)


def _words(text: str, view: StepView) -> str:
    if not text.strip():
        return ""
    if view.kind == "final":
        return f'<div class="said prose markdown" dir="auto">{render_markdown(text)}</div>'
    return f'<div class="said prose" dir="auto">{visible_html(text.strip())}</div>'


def _part(text: str) -> Excerpt:
    return Excerpt(text, len(text), None, None)


def unexecuted_blocks(run: int | None, view: StepView, seq: int) -> list[str]:
    """The native calls of a reply that were never executed, as the model wrote them."""
    return [
        output_block(
            _arguments(call),
            run=run,
            seq=seq,
            part=f"tool_calls.{place}.arguments",
            title=f"{visible_html(one_line(words_of(call.get('name')) or 'call', 60))}, not executed",
            icon_name="file",
        )
        for place, call in view.unexecuted_calls
    ]


def _arguments(call: Mapping[str, Any]) -> Excerpt:
    raw = call.get("arguments")
    return excerpt(raw) if raw else _part("(no arguments)")


def told_words(event: LogEvent) -> str:
    """What a step is called whose reply could not be executed."""
    return _TOLD_WORDS.get(words_of(event.payload.get("reason")), "Unusable call")


def told_blocks(run: int | None, view: StepView) -> list[str]:
    """Why a reply was not executed, what the harness told the model, and whether the reply was dropped."""
    blocks = []
    for event in view.told:
        detail = one_line(words_of(event.payload.get("detail")), 400)
        reason = one_line(words_of(event.payload.get("reason")), 60).replace("_", " ")
        dropped = " This reply did not join the conversation: the model will not see it again."
        words = f"Not understood ({reason}), told the model{': ' + detail if detail else ''}"
        blocks.append(note(f"{words.rstrip('.')}.{dropped if view.left_out else ''}"))
        message = event.payload.get("message")
        blocks.append(
            output_block(
                excerpt(message.get("content") if isinstance(message, Mapping) else None),
                run=run,
                seq=event.seq,
                part="content",
                title="Told the model",
                icon_name="speech",
            )
        )
    if view.left_out and not view.told:
        blocks.append(note("This reply did not join the conversation"))
    return blocks


def notice_blocks(run: int | None, view: StepView) -> list[str]:
    """What the harness said after the step without finding fault with the reply."""
    return [
        output_block(
            excerpt((event.payload.get("message") or {}).get("content")),
            run=run,
            seq=event.seq,
            part="content",
            title="The harness told the model",
            icon_name="speech",
        )
        for event in view.notices
    ]


_REWRITTEN = {
    "condensed": "Before this request the harness condensed {count} of the conversation",
    "requeried": "Before this request the harness took out {count}: replies that were not understood, and "
    "what it had told of them",
}


def rewritten_block(event: LogEvent) -> str:
    """That the conversation was rewritten before a step's request: how much of it, and what is left."""
    reason = one_line(words_of(event.payload.get("reason")), 200)
    replaced = event.payload.get("replaced")
    replaced = replaced if isinstance(replaced, Mapping) else {}
    messages = event.payload.get("messages") or ()
    head = f"The history was rewritten: {reason}"
    if replaced:
        default = "The history was rewritten ({reason}): {count} changed"
        count = plural(len(replaced), "message")
        head = _REWRITTEN.get(reason, default).format(count=count, reason=reason)
    elif messages:
        head = f"{head}; it is {plural(len(messages), 'message')} now"
    tokens = event.payload.get("context_tokens")
    left = f"; about {tokens:,} tokens are left" if isinstance(tokens, int) else ""
    return note(f"{head}{left}", name="", icon_name="branch", more=_which(replaced))


def _which(replaced: Mapping[Any, Any]) -> str:
    """The messages that were changed, by what they became; "" when none is known."""
    places = sorted(
        (int(place), _became(message)) for place, message in replaced.items() if str(place).isdecimal()
    )
    rows = []
    for became, same in groupby(
        sorted(places[:_SHOWN_MESSAGES], key=lambda item: item[1]), lambda item: item[1]
    ):
        numbers = [str(place + 1) for place, _ in same]
        rows.append(f"<li>{_numbered(numbers)} → {visible_html(became)}</li>")
    more = len(places) - _SHOWN_MESSAGES
    rest = f"<li>{more:,} more</li>" if more > 0 else ""
    return (
        f"<details><summary>which messages</summary><ul>{''.join(rows)}{rest}</ul></details>" if rows else ""
    )


def _numbered(numbers: list[str]) -> str:
    return f"message{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _became(message: Any) -> str:
    if not isinstance(message, Mapping) or not message:
        return "taken out"
    return f"“{one_line(words_of(message.get('content')), 120)}”"
