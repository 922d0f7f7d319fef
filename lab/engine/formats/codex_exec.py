"""The output of `codex exec --json`: what happened, without the single calls of the model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Probe
from lab.engine.formats.codex_items import Answer, Output, added, each_line, exit_code_of
from lab.engine.formats.leftovers import collapsed
from lab.engine.formats.reading import count, items, mapping, text, without
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Found,
    HarnessUsed,
    Item,
    Note,
    Origin,
    Totals,
    Trajectory,
)
from lab.engine.llm.base import JSONObject

_TOOLS = ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call")
_RESULTS = ("aggregated_output", "exit_code", "status", "result", "error")


class CodexExec:
    """The importer of the events of one thread."""

    name = "codex-exec"
    title = "Codex exec --json"

    def recognises(self, probe: Probe) -> bool:
        return any(
            line.get("type") == "thread.started" and isinstance(line.get("thread_id"), str)
            for line in probe.objects
        )

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """What broken lines say is missing; no document is refused."""
        for document in documents:
            reader = _Thread()
            yield from each_line(document, reader.take)
            yield reader.trajectory(document)


class _Thread:
    """Takes the events of a thread in order. Items come when begun, changed and done, under one id."""

    def __init__(self) -> None:
        self._thread = ""
        self._items: list[Item | Answer] = []
        self._calls: dict[str, Answer] = {}
        self._input: int | None = None
        self._output: int | None = None
        self._cached: int | None = None
        self._ending: tuple[ExitReason | None, str] = (None, "")
        self._error = ""
        self._final = ""

    def take(self, line: JSONObject) -> None:
        kind = text(line.get("type"))
        if kind == "thread.started":
            self._thread = text(line.get("thread_id"))
        elif kind.startswith("item."):
            self._item(mapping(line.get("item")), done=kind == "item.completed")
        elif kind == "turn.completed":
            usage = mapping(line.get("usage"))
            self._input = added(self._input, usage.get("input_tokens"))
            self._output = added(self._output, usage.get("output_tokens"))
            self._cached = added(self._cached, usage.get("cached_input_tokens"))
            self._ending, self._error = (ExitReason.AGENT, kind), ""
            self._items.append(Aside(name=kind, kept=without(line, "type")))
        elif kind in ("turn.failed", "error"):
            words = text(mapping(line.get("error")).get("message")) or text(line.get("message"))
            self._failed(words, kind, line)
        elif kind == "turn.started":
            self._ending = (None, "")
        else:
            self._items.append(Aside(name=kind or "line", kept=line))

    def _failed(self, words: str, kind: str, line: JSONObject) -> None:
        if kind == "turn.failed":
            self._ending, self._error = (ExitReason.LLM_QUERY_ERROR, kind), words
        if not (kind == "turn.failed" and self._items and self._is_said(words)):
            kept = without(line, "type", "message")
            self._items.append(FailedRequest(error="not_recorded", message=words, kept=kept))

    def _is_said(self, words: str) -> bool:
        """An error is told twice: when it happens, and when it ends the turn."""
        last = self._items[-1]
        return isinstance(last, FailedRequest) and last.message == words

    def _item(self, item: JSONObject, *, done: bool) -> None:
        kind = text(item.get("type"))
        if kind in _TOOLS:
            self._tool(item, kind, done=done)
        elif not done:
            return
        elif kind == "agent_message":
            self._final = text(item.get("text"))
            self._answer().texts.append(self._final)
        elif kind == "reasoning":
            self._answer().reasoning.append(text(item.get("text")))
        else:
            self._items.append(Aside(name=kind or "item", kept=item))

    def _answer(self) -> Answer:
        """An answer goes on until it has called a tool or said something."""
        last = self._items[-1] if self._items else None
        if not isinstance(last, Answer) or last.calls or last.texts:
            last = Answer(model="")
            self._items.append(last)
        return last

    def _tool(self, item: JSONObject, kind: str, *, done: bool) -> None:
        identifier = text(item.get("id"))
        answer = self._calls.get(identifier) if identifier else None
        if answer is None:
            last = self._items[-1] if self._items else None
            # A call follows what was said before it; after another call it may be a new answer's.
            answer = last if isinstance(last, Answer) and not last.calls else Answer(model="")
            if answer is not last:
                self._items.append(answer)
            answer.calls.append(_call(item, kind, identifier or f"call_{len(self._items)}"))
            if identifier:
                self._calls[identifier] = answer
        call = answer.calls[0]
        answer.calls[0] = dataclasses.replace(call, arguments=_arguments(item))
        if done:
            self._result(answer, item)

    def _result(self, answer: Answer, item: JSONObject) -> None:
        call = answer.calls[0]
        kept = {name: item[name] for name in ("status", "result", "error") if item.get(name) is not None}
        answer.result(
            call.id,
            Output(_observation(item), exit_code=exit_code_of(item.get("exit_code")), kept=kept),
            None,
            failed=item.get("status") == "failed",
        )

    def trajectory(self, document: Document) -> Trajectory:
        notes = [
            Note(kind="missing", field="prompt", detail="the prompt is not in this output"),
            Note(kind="missing", field="model", detail="neither model nor times are in this output"),
            Note(
                kind="guessed",
                field="items",
                detail="which items are one answer of the model",
            ),
            Note(kind="missing", field="usage", detail="counts are of whole turns and not of single calls"),
        ]
        if not self._ending[1]:
            notes.append(Note(kind="missing", field="turn.completed", detail="no end is recorded"))
        return Trajectory(
            origin=Origin(format="codex-exec", file=document.path, sha256=document.sha256()),
            harness=HarnessUsed(name="codex"),
            items=tuple(item.turn() if isinstance(item, Answer) else item for item in self._items),
            exit_reason=self._ending[0],
            native_reason=self._ending[1],
            error=self._error,
            final_message=self._final,
            totals=Totals(
                input_tokens=count(self._input), output_tokens=self._output, cached_tokens=self._cached
            ),
            notes=collapsed(notes),
            kept={"thread_id": self._thread},
        )


def _call(item: JSONObject, kind: str, call_id: str) -> Call:
    name = "shell" if kind == "command_execution" else text(item.get("tool")) or kind
    return Call(id=call_id, name=name, arguments={}, synthesised_id=not text(item.get("id")))


def _arguments(item: JSONObject) -> JSONObject:
    given = item.get("arguments")
    if isinstance(given, dict) and item.get("type") == "mcp_tool_call":
        return {**given} if not text(item.get("server")) else {"server": item["server"], "arguments": given}
    return without(item, "id", "type", *_RESULTS)


def _observation(item: JSONObject) -> str:
    if isinstance(item.get("aggregated_output"), str):
        return str(item["aggregated_output"])
    wrong = text(mapping(item.get("error")).get("message"))
    parts = [text(mapping(part).get("text")) for part in items(mapping(item.get("result")).get("content"))]
    found = wrong or "\n".join(part for part in parts if part)
    if not found and item.get("result") is not None:
        return json.dumps(item["result"])
    return found or text(item.get("status"))
