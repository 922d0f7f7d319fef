"""Codex: rollout files of its sessions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError, Probe
from lab.engine.formats.codex_items import (
    CALLS,
    OUTPUTS,
    Answer,
    call_of,
    each_line,
    output_of,
    said,
    thoughts,
    usage_of,
)
from lab.engine.formats.leftovers import collapsed, parted, without_credentials
from lab.engine.formats.reading import count, items, mapping, moment, plain_text, text, without
from lab.engine.formats.trajectory import (
    Aside,
    FailedRequest,
    Found,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Rewritten,
    Totals,
    Trajectory,
)
from lab.engine.llm.base import JSONObject

_LINES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
# What these say stands in the items of responses too.
_REPEATED = ("agent_message", "user_message", "agent_reasoning", "agent_reasoning_raw_content")
# Of a context: where and when it was, and the rules of the repository it worked in.
_OF_THE_RUN = ("turn_id", "trace_id", "cwd", "current_date", "timezone", "user_instructions")
_PLACED_BY_PROGRAM = ("<environment_context>", "<user_instructions>", "<permissions", "# AGENTS.md")


class CodexRollout:
    """The importer of what Codex writes of each session."""

    name = "codex"
    title = "Codex session"

    def recognises(self, probe: Probe) -> bool:
        return any(
            line.get("type") in _LINES and isinstance(line.get("payload"), dict) for line in probe.objects
        )

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no line of it belongs to a session.
        """
        for document in documents:
            reader = _Rollout()
            yield from each_line(document, reader.take)
            if not reader.known:
                raise FormatError(f"{document.path} holds no line of a session of Codex")
            yield reader.trajectory(document)


class _Rollout:
    """Takes the lines of one session in order."""

    def __init__(self) -> None:
        self.known = 0
        self._meta: JSONObject = {}
        self._context: JSONObject = {}
        self._items: list[Item | Answer] = []
        self._opening: list[JSONObject] = []
        self._total: JSONObject = {}
        self._notes: list[Note] = []
        self._times: list[dt.datetime] = []
        self._ending: tuple[ExitReason | None, str] = (None, "")
        self._final = ""
        self._error = ""
        self._statement = ""

    def take(self, line: JSONObject) -> None:
        kind, payload = text(line.get("type")), mapping(line.get("payload"))
        at = moment(line.get("timestamp"))
        if at is not None:
            self._times.append(at)
        self.known += kind in _LINES
        if kind == "session_meta" and not self._meta:
            self._meta = payload
        elif kind == "turn_context":
            self._turn_context(payload, at)
        elif kind == "response_item":
            self._response_item(payload, at)
        elif kind == "event_msg":
            self._event(payload, at)
        elif kind == "compacted":
            self._compacted(payload, at)
        else:
            self._items.append(Aside(name=kind or "line", kept=without(line, "type", "timestamp"), at=at))

    def _turn_context(self, payload: JSONObject, at: dt.datetime | None) -> None:
        if self._context and payload != self._context:
            self._items.append(Aside(name="turn_context", kept=payload, at=at))
        self._context = payload

    # --- items of responses

    def _response_item(self, item: JSONObject, at: dt.datetime | None) -> None:
        kind = text(item.get("type"))
        if kind == "message" and item.get("role") == "assistant":
            self._words(item, at)
        elif kind == "message":
            self._message(item, at)
        elif kind == "reasoning":
            answer = self._answer(at)
            answer.reasoning.append(thoughts(item))
            answer.kept.append(without(item, "summary", "content"))
        elif kind in CALLS:
            answer = self._answer(at)
            answer.calls.append(call_of(item, f"call_{len(self._items)}_{len(answer.calls)}"))
        elif kind in OUTPUTS:
            self._output(item, at)
        else:
            self._items.append(Aside(name=kind or "response_item", kept=item, at=at))

    def _words(self, item: JSONObject, at: dt.datetime | None) -> None:
        answer, content = self._answer(at), said(item.get("content"))
        if isinstance(content, str):
            answer.texts.append(content)
        else:
            answer.others += content
        if left := without(item, "type", "role", "content"):
            answer.kept.append(left)

    def _answer(self, at: dt.datetime | None) -> Answer:
        """The answer that is being given, or a new one."""
        last = self._last_answer()
        if last is None or last.closed:
            last = Answer(model=text(self._context.get("model")))
            self._items.append(last)
        last.ended_at = at or last.ended_at
        return last

    def _last_answer(self) -> Answer | None:
        return next((item for item in reversed(self._items) if isinstance(item, Answer)), None)

    def _close(self) -> None:
        last = self._last_answer()
        if last is not None:
            last.closed = True

    def _message(self, item: JSONObject, at: dt.datetime | None) -> None:
        self._close()
        message = {"role": text(item.get("role")) or "user", "content": said(item.get("content"))}
        words = plain_text(message["content"])
        by_person = message["role"] == "user" and not words.startswith(_PLACED_BY_PROGRAM)
        if by_person and not self._statement:
            self._statement = words
        if not any(isinstance(found, Answer | Message | Rewritten) for found in self._items):
            self._opening.append(message)
            return
        kept = without(item, "type", "role", "content")
        by: Any = "person" if by_person else "harness"
        self._items.append(Message(message=message, by=by, at=at, kept=kept))

    def _output(self, item: JSONObject, at: dt.datetime | None) -> None:
        self._close()
        call_id, output = text(item.get("call_id")), output_of(item.get("output"))
        output.kept |= without(item, "type", "call_id", "output")
        for answer in reversed(self._items):
            if isinstance(answer, Answer) and answer.result(call_id, output, at):
                return
        message = {"role": "tool", "tool_call_id": call_id, "content": output.observation}
        reason = "result of a call that is not there"
        self._items.append(Message(message=message, reason=reason, at=at, kept=output.kept))

    def _compacted(self, payload: JSONObject, at: dt.datetime | None) -> None:
        self._close()
        history = [
            {"role": text(item.get("role")) or "user", "content": said(item.get("content"))}
            for item in map(mapping, items(payload.get("replacement_history")))
            if item.get("type") == "message"
        ]
        if not history:
            history = [{"role": "user", "content": text(payload.get("message"))}]
            detail = "the history after a compaction is not recorded: its summary alone is shown"
            self._notes.append(Note(kind="guessed", field="compacted", detail=detail))
        rewritten = Rewritten(reason="compaction", messages=tuple(history), at=at, kept=payload)
        self._items.append(rewritten)

    # --- events

    def _event(self, payload: JSONObject, at: dt.datetime | None) -> None:
        kind = text(payload.get("type"))
        if kind == "token_count":
            self._counted(payload, at)
        elif kind in ("task_complete", "turn_complete"):
            self._close()
            self._final = text(payload.get("last_agent_message")) or self._final
            self._ending, self._error = (ExitReason.AGENT, kind), ""
        elif kind == "turn_aborted":
            self._close()
            reason = text(payload.get("reason"))
            self._ending = (ExitReason.CANCELLED if reason == "interrupted" else None), reason or kind
        elif kind in ("task_started", "turn_started"):
            self._ending = (None, "")
        elif kind in ("error", "stream_error"):
            self._failed(payload, at, kind)
        elif kind not in _REPEATED:
            self._items.append(Aside(name=kind or "event", kept=payload, at=at))

    def _failed(self, payload: JSONObject, at: dt.datetime | None, kind: str) -> None:
        words = text(payload.get("message")) or "no words are recorded"
        kept = without(payload, "message")
        self._items.append(FailedRequest(error="not_recorded", message=words, at=at, kept=kept))
        if kind == "error":
            self._ending, self._error = (ExitReason.LLM_QUERY_ERROR, kind), words

    def _counted(self, payload: JSONObject, at: dt.datetime | None) -> None:
        """Counts close an answer. The same total once more is news of rate limits and no call."""
        info = mapping(payload.get("info"))
        total, last = mapping(info.get("total_token_usage")), mapping(info.get("last_token_usage"))
        if not last or (total and total == self._total):
            if "rate_limits" in payload:
                self._items.append(Aside(name="rate_limits", kept=payload, at=at))
            return
        self._total = total
        answer = self._last_answer()
        if answer is None or answer.counted:
            answer = Answer(model=text(info.get("model")) or text(self._context.get("model")), ended_at=at)
            detail = "answers of which only the counts are there"
            self._notes.append(Note(kind="missing", field="response_item", detail=detail))
            self._items.append(answer)
        answer.usage, answer.counted, answer.closed = usage_of(last), True, True
        if left := {
            **without(payload, "type", "info"),
            **without(info, "total_token_usage", "last_token_usage"),
        }:
            answer.kept.append({"token_count": left})

    # --- the whole

    def trajectory(self, document: Document) -> Trajectory:
        turns = [item for item in self._items if isinstance(item, Answer)]
        models = [turn.model for turn in turns if turn.model]
        if not self._ending[1]:
            self._notes.append(Note(kind="missing", field="task_complete", detail="no end is recorded"))
        if not self._meta:
            self._notes.append(Note(kind="missing", field="session_meta", detail="the session's first line"))
        self._notes.append(Note(kind="missing", field="tools", detail="sessions hold no schemas of tools"))
        config, of_the_run = _parted(without(self._context, "model"))
        return Trajectory(
            origin=Origin(format="codex-rollout", file=document.path, sha256=document.sha256()),
            harness=HarnessUsed(
                name="codex",
                version=text(self._meta.get("cli_version")),
                config=config,
            ),
            model=ModelUsed(
                name=models[0] if models else text(self._context.get("model")),
                provider=text(self._meta.get("model_provider")),
            ),
            statement=self._statement,
            opening=tuple(self._opening),
            items=tuple(item.turn() if isinstance(item, Answer) else item for item in self._items),
            exit_reason=self._ending[0],
            native_reason=self._ending[1],
            error=self._error,
            final_message=self._final or (turns[-1].texts[-1] if turns and turns[-1].texts else ""),
            started_at=min(self._times, default=None),
            ended_at=max(self._times, default=None),
            totals=Totals(
                input_tokens=count(self._total.get("input_tokens")),
                output_tokens=count(self._total.get("output_tokens")),
                cached_tokens=count(self._total.get("cached_input_tokens")),
            ),
            notes=collapsed(self._notes),
            kept={
                **({"session_meta": self._meta} if self._meta else {}),
                **({"turn_context": of_the_run} if of_the_run else {}),
                **({"total_token_usage": self._total} if self._total else {}),
            },
        )


def _parted(context: JSONObject) -> tuple[JSONObject, JSONObject]:
    """What a context says of the program's configuration, and what of this session alone."""
    config, of_the_run = parted(without_credentials(context), _OF_THE_RUN)
    sandbox = mapping(config.get("sandbox_policy"))
    if "writable_roots" in sandbox:
        config["sandbox_policy"] = without(sandbox, "writable_roots")
        of_the_run["sandbox_policy"] = {"writable_roots": sandbox["writable_roots"]}
    return config, of_the_run
