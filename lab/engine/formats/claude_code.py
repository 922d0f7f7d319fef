"""Claude Code: session files with their subagents, and the output of `--output-format stream-json`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe, json_lines
from lab.engine.formats.claude_code_lines import Session, SessionLine, blocks_of, envelope_of, read_lines
from lab.engine.formats.claude_code_session import INTERRUPTED, SessionReader, last_words
from lab.engine.formats.leftovers import collapsed, parted
from lab.engine.formats.reading import count, dollars, items, mapping, number, plain_text, text, without
from lab.engine.formats.trajectory import (
    Found,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import JSONObject
from lab.engine.llm.usage import read_usage

# Written with --include-partial-messages.
_PIECE = "stream_event"
# Of a session's first line: places on the machine it ran on.
_OF_THE_RUN = ("cwd", "memory_paths", "messaging_socket_path")
_RESULTS = {
    "success": ExitReason.AGENT,
    "error_max_turns": ExitReason.MAX_TURNS,
    "error_max_budget_usd": ExitReason.MAX_COST,
    "error_during_execution": ExitReason.INTERNAL_ERROR,
}


class ClaudeCode:
    """The importer. The files of one session are one trajectory: its own and those of its subagents."""

    name = "claude-code"
    title = "Claude Code session"

    def recognises(self, probe: Probe) -> bool:
        return any(_is_init(line) or _is_line(line) for line in probe.objects)

    def grouping(self, document: Document, probe: Probe) -> str:
        for line in probe.objects:
            identifier = text(line.get("sessionId")) or text(line.get("session_id"))
            if identifier:
                return f"claude-code {identifier}"
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no line of it belongs to a session.
        """
        main = [document for document in documents if not _only_sidechains(document)]
        ordered = [*main, *(document for document in documents if document not in main)]
        session = read_lines(ordered)
        yield from session.problems
        if not any(line.kind in ("user", "assistant", "system", "result") for line in session.lines):
            raise FormatError(f"{documents[0].path} holds no line of a session of Claude Code")
        try:
            yield _trajectory(session, ordered, alone=not main)
        except RecursionError:
            raise FormatError(f"{documents[0].path} is nested too deeply to be read") from None


def _is_init(line: JSONObject) -> bool:
    return line.get("type") == "system" and line.get("subtype") == "init" and "session_id" in line


def _is_line(line: JSONObject) -> bool:
    return isinstance(line.get("sessionId"), str) and isinstance(line.get("uuid"), str)


def _only_sidechains(document: Document) -> bool:
    spoken = [
        line.value
        for line in json_lines(document)
        if isinstance(line.value, dict) and line.value.get("type") in ("user", "assistant")
    ]
    return bool(spoken) and all(value.get("isSidechain") is True for value in spoken)


def _digest(documents: Sequence[Document]) -> str:
    digests = [document.sha256() for document in documents]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(sorted(set(digests))).encode()).hexdigest()


def _trajectory(session: Session, documents: Sequence[Document], *, alone: bool) -> Trajectory:
    envelope = envelope_of(session.lines)
    reader = SessionReader(envelope, alone=alone)
    result = _last(session.lines, "result")
    init = next((line.value for line in session.lines if _is_init(line.value)), {})
    for line in session.lines:
        if line.value is not result and line.value is not init and line.kind != _PIECE:
            reader.take(line)
    found = reader.items()
    notes = [Note(kind="missing", field="system", detail="sessions hold neither system prompt nor schemas")]
    if alone:
        notes.append(Note(kind="missing", field="session", detail="a subagent's file without its session"))
    if not reader.opening:
        notes.append(Note(kind="missing", field="prompt", detail="the prompt is not in the file"))
    notes += _of_lines(session.lines)
    ending = _ending(result, found, notes)
    times = [line.at for line in session.lines if line.at is not None]
    config, of_the_run = parted(without(init, "type", "subtype", "session_id", "uuid", "model"), _OF_THE_RUN)
    return Trajectory(
        origin=Origin(format=_format(init, result), file=documents[0].path, sha256=_digest(documents)),
        harness=HarnessUsed(
            name="claude-code",
            version=text(envelope.get("version")) or text(init.get("claude_code_version")),
            config=config,
        ),
        model=ModelUsed(name=_model(init, found), provider=""),
        statement=plain_text(reader.opening[-1]["content"]) if reader.opening else "",
        opening=tuple(reader.opening),
        items=found,
        exit_reason=ending.reason,
        native_reason=ending.native,
        error=ending.error,
        final_message=ending.final_message,
        started_at=min(times, default=None),
        ended_at=max(times, default=None),
        totals=_totals(result),
        notes=collapsed(notes),
        kept=_kept(envelope, of_the_run, result),
    )


def _of_lines(lines: list[SessionLine]) -> Iterator[Note]:
    if any(line.kind == _PIECE for line in lines):
        yield Note(kind="lost", field=_PIECE, detail="pieces of answers; the whole answers are there")
    asked = [
        text(line.value.get("parentUuid"))
        for line in lines
        if line.kind == "user" and not line.sidechain and any(blocks_of(line.blocks, "text"))
    ]
    if any(times > 1 for parent, times in Counter(asked).items() if parent):
        detail = "somebody went back and asked anew; what was left behind is read in order of time too"
        yield Note(kind="guessed", field="parentUuid", detail=detail)


def _last(lines: list[SessionLine], kind: str) -> JSONObject:
    return next((line.value for line in reversed(lines) if line.kind == kind), {})


def _format(init: JSONObject, result: JSONObject) -> str:
    return "claude-code-stream-json" if init or result else "claude-code-session"


def _model(init: JSONObject, found: tuple[Item, ...]) -> str:
    turns = [item for item in found if isinstance(item, Turn)]
    answered = next((turn.model for turn in turns if turn.model and not turn.agent), "")
    return answered or text(init.get("model"))


class _Ending(NamedTuple):
    reason: ExitReason | None
    native: str
    error: str
    final_message: str


def _ending(result: JSONObject, found: tuple[Item, ...], notes: list[Note]) -> _Ending:
    last = last_words(found)
    words = plain_text(last.message.get("content")) if isinstance(last, Turn) and not last.calls else ""
    if result:
        native = text(result.get("subtype"))
        final = text(result.get("result")) or words
        if native == "success" and result.get("is_error") is True:
            return _Ending(ExitReason.LLM_QUERY_ERROR, native, final, "")
        if native not in _RESULTS:
            notes.append(Note(kind="guessed", field="result.subtype", detail="no reason of the lab's"))
        error = "\n".join(text(line) for line in items(result.get("errors")))
        return _Ending(_RESULTS.get(native), native, error, final)
    if isinstance(last, Message) and plain_text(last.message.get("content")).startswith(INTERRUPTED):
        return _Ending(ExitReason.CANCELLED, "interrupted by user", "", "")
    if isinstance(last, Turn) and last.finish_reason == "stop":
        detail = "sessions record no end: the last answer ended its turn and asked for nothing more"
        notes.append(Note(kind="guessed", field="exit_reason", detail=detail))
        return _Ending(ExitReason.AGENT, text(last.kept.get("stop_reason")), "", words)
    notes.append(Note(kind="missing", field="exit_reason", detail="sessions record no end"))
    return _Ending(None, "", "", words)


def _totals(result: JSONObject) -> Totals:
    usage = read_usage(mapping(result.get("usage")) or None)
    duration = number(result.get("duration_ms"))
    return Totals(
        cost=dollars(result.get("total_cost_usd")),
        input_tokens=usage.input_total,
        output_tokens=usage.output_total,
        cached_tokens=usage.cache_read,
        steps=count(result.get("num_turns")),
        seconds=None if duration is None or duration < 0 else duration / 1000,
    )


def _kept(envelope: JSONObject, of_the_run: JSONObject, result: JSONObject) -> JSONObject:
    left = without(result, "type", "subtype", "session_id", "uuid")
    parts = {"init": of_the_run, "result": left}
    return {"session": envelope, **{name: part for name, part in parts.items() if part}}
