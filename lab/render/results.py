"""What stands in a step's result column: exit code, lines, tests passed; one short line."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lab.render.diff import counts, line_counts
from lab.render.fold import CallView, StepView
from lab.render.icons import icon
from lab.render.numbers import growing, plural, size
from lab.render.parting import is_parting, parting_of
from lab.render.text import Excerpt, excerpt

_PYTEST_LINE = re.compile(r"=+ (.{0,200}?) in [\d.]+s")
_PYTEST_PART = re.compile(r"(\d+) (passed|failed|error|errors|skipped|xfailed|xpassed)")
_PYTEST_QUIET = re.compile(r"^(\d+ (?:passed|failed|error)[^\n]{0,120}) in [\d.]+s", re.M)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in", re.M)
_UNITTEST_BAD = re.compile(r"^FAILED \(([^)\n]{0,120})\)", re.M)
# Its own words and no others: what these are taken from is not masked.
_UNITTEST_COUNTS = re.compile(r"(failures|errors|skipped|successes)=(\d{1,9})")
_REPLACEMENTS = re.compile(r"(\d+) replacements?")


_TAG = re.compile(r"<[^>]*>")


def result_words(view: StepView) -> str:
    """The result column of a step in plain words without its exit code, "" while it is pending."""
    if view.pending:
        return ""
    return _plain(step_result(view, with_exit=False))


@lru_cache(maxsize=1024)
def _plain(markup: str) -> str:
    """The words of a result, of which many steps have the same."""
    return " ".join(html.unescape(_TAG.sub("", markup)).split())


def step_result(view: StepView, *, with_exit: bool = True) -> str:
    """The result column of a step as markup."""
    if view.pending or not view.calls:
        parts = [_state(view)]
    else:
        parts = [call_result(view.calls[0], with_exit=with_exit)]
    if view.pending and view.calls and view.calls[0].ended is not None:
        parts.insert(0, call_result(view.calls[0]))
    failed = [event for event in view.failures if event.kind == "model_call_failed"]
    retries = sum(event.payload.get("retry_in") is not None for event in failed)
    if retries:
        parts.append(f'<span class="warning">{plural(retries, "retry", "retries")}</span>')
    # What was broken off is said by itself as long as nothing followed it.
    again = sum(len(call.before) for call in view.calls)
    interrupted = len(view.failures) - len(failed) + again
    if interrupted:
        parts.append(f'<span class="warning">{plural(interrupted, "interruption")}</span>')
    return " · ".join(part for part in parts if part)


_STATES = {"answering": "model is answering", "waiting": "waiting to retry", "running": "running"}


def _state(view: StepView) -> str:
    if view.pending:
        return f'<span class="pending">{icon("running")} {_STATES[view.state]}</span>'
    if view.state == "interrupted":
        return "interrupted"
    if view.state == "failed":
        return f'<span class="infrastructure">{icon("bolt")} {_unanswered(view)}</span>'
    if view.cut:
        told = ", told the model" if view.told else ""
        return f'<span class="warning">cut by length{told}</span>'
    if view.told:
        return f'<span class="warning">{icon("warning")} not understood, told the model</span>'
    return "answer" if view.kind == "final" else ""


def _unanswered(view: StepView) -> str:
    refused = [event for event in view.failures if is_parting(event)]
    if not refused:
        return "no answer"
    parted = parting_of(refused[-1].payload.get("message"))
    return "left the recording" if parted else "no further turn recorded"


def call_result(call: CallView, *, with_exit: bool = True) -> str:
    """What one call came to, as markup."""
    if call.malformed:
        return f'<span class="warning">{icon("warning")} not understood, told the model</span>'
    if call.ended is None:
        return f'<span class="pending">{icon("running")} running</span>'
    if call.interrupted:
        return '<span class="warning">interrupted, effect unknown</span>'
    payload = call.ended.payload
    if call.submitted:
        return f'<span class="passed">{icon("ok")} handed in</span>'
    if payload.get("timed_out"):
        return f'<span class="failed">{icon("cross")} timed out</span>'
    if payload.get("out_of_memory"):
        return f'<span class="failed">{icon("cross")} out of memory</span>'
    if payload.get("exit_code") is not None:
        code = exit_code(payload["exit_code"]) if with_exit else ""
        return " · ".join(part for part in (code, _output_words(call)) if part)
    if payload.get("failed"):
        return f'<span class="failed">{icon("cross")} error</span>'
    return _tool_words(call, excerpt(payload.get("observation")))


def exit_code(number: Any) -> str:
    """An exit code: plain text with a mark, since failing commands are how agents work."""
    good = number == 0
    name, mark = ("passed", "ok") if good else ("failed", "cross")
    shown = number if isinstance(number, int) else "?"
    return f'<span class="{name}">{icon(mark)} exit {shown}</span>'


def _output_words(call: CallView) -> str:
    stdout = stream_text(call.result.get("stdout"))
    stderr = stream_text(call.result.get("stderr"))
    if call.result.get("stdout") is None and call.result.get("stderr") is None:
        # Another program recorded no output beside what the model saw.
        stdout = excerpt(call.result.get("observation"))
    if call.kind == "test":
        words = counted_tests(stdout.ending) or counted_tests(stderr.ending)
        if words:
            return words
    if stdout.lines is None or stderr.lines is None:
        return str(size((stdout.size or 0) + (stderr.size or 0)))
    lines = stdout.lines + stderr.lines
    return plural(lines, "line") if lines else "no output"


def _length(text: Excerpt, word: str = "line", *, heads: int = 0) -> str:
    """How many lines a text has, without so many at its head; of one that was not read how large it is."""
    if text.lines is None:
        return str(size(text.size)) if text.size else ""
    return plural(max(0, text.lines - heads), word)


def stream_text(stream: Any) -> Excerpt:
    """The text of a stream's facts, empty for a stream that was not there."""
    return excerpt(stream.get("text")) if isinstance(stream, Mapping) else excerpt(None)


def counted_tests(ending: str) -> str:
    """ "1 failed, 41 passed" out of the end of a test run's output, "" when it does not say."""
    # Most outputs are no test's: looking for a word costs a hundredth of the patterns.
    if " in " not in ending:
        return ""
    quiet = _PYTEST_QUIET.findall(ending)
    loud = _PYTEST_LINE.findall(ending)
    found = _PYTEST_PART.findall((loud or quiet or [""])[-1])
    if found:
        order = ("failed", "error", "errors", "passed", "skipped", "xfailed", "xpassed")
        found.sort(key=lambda part: order.index(part[1]))
        return ", ".join(f"{int(number)} {word}" for number, word in found)
    ran = _UNITTEST.findall(ending)
    if not ran:
        return ""
    bad = _UNITTEST_BAD.findall(ending)
    # The words in the brackets are unittest's own: failures=1, errors=2.
    words = (
        ", ".join(f"{number} {name}" for name, number in _UNITTEST_COUNTS.findall(bad[-1]))
        if bad
        else "all ok"
    )
    return f"{int(ran[-1])} run, {words}"


def _tool_words(call: CallView, observation: Excerpt) -> str:
    executor = (call.executor or call.tool).lower()
    if call.handed_back:
        return "to be reviewed first"
    if executor in {"read", "view"}:
        return _length(observation, heads=1)
    if executor == "glob":
        none = "no file" if observation.text.lower().startswith("no ") else ""
        return none or _length(observation, "file")
    if call.kind == "edit":
        return _edit_words(call, observation)
    # What a harness puts around an output, for the model to read, is none.
    return _length(observation) if call.result.get("stdout") is None else _output_words(call)


def _edit_words(call: CallView, observation: Excerpt) -> str:
    content = call.arguments.get("content", call.arguments.get("file_text"))
    is_new = "old_str" not in call.arguments or call.arguments.get("command") == "create"
    if isinstance(content, str | Excerpt) and is_new:
        new = any(change.get("change") == "added" for change in call.changes)
        return _length(excerpt(content)) + (", new file" if new else "")
    added, removed = _call_counts(call)
    replaced = _REPLACEMENTS.search(observation.text)
    words = plural(int(replaced[1][:9]), "replacement") if replaced else ""
    changed = counts(added, removed) if added is not None else ""
    return " · ".join(part for part in (changed, words) if part)


def _call_counts(call: CallView) -> tuple[int | None, int | None]:
    """Lines that an edit added and removed; None where nothing says so."""
    known = [change for change in call.changes if change.get("added") is not None]
    if known:
        return (
            sum(int(change["added"]) for change in known),
            sum(int(change.get("removed") or 0) for change in known),
        )
    texts = [
        excerpt(call.arguments.get(f"{name}_string", call.arguments.get(f"{name}_str")))
        for name in ("old", "new")
    ]
    if not any(text.text for text in texts) or not all(text.whole for text in texts):
        return None, None
    return line_counts(texts[0].text, texts[1].text)


def edit_counts(view: StepView) -> tuple[int | None, int | None]:
    """Lines that the calls of a step added and removed; None where nothing says so."""
    each = [_call_counts(call) for call in view.calls if call.changes or call.kind == "edit"]
    known = [(added, removed) for added, removed in each if added is not None and removed is not None]
    return (sum(added for added, _ in known), sum(removed for _, removed in known)) if known else (None, None)


def step_clock(view: StepView) -> str:
    """The time column: what the tools took, or a growing clock while something is pending."""
    if view.state == "running":
        last = view.calls[-1]
        return str(growing(last.started.at, allowed=_seconds(last.started.payload.get("timeout")), fine=True))
    if view.pending:
        return str(growing(view.events[-1].at, fine=True))
    return ""


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
