"""A session of Claude Code as it went: answers, results of tools, people, compactions, subagents."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from lab.engine.formats.claude_code_lines import (
    FINISH_REASONS,
    SessionLine,
    blocks_of,
    chat_calls,
    left_of_line,
    said,
    thought,
)
from lab.engine.formats.reading import count, dollars, items, mapping, plain_text, text, without
from lab.engine.formats.trajectory import Aside, Call, FailedRequest, Item, Message, Rewritten, Turn
from lab.engine.llm.base import JSONObject
from lab.engine.llm.usage import read_usage

INTERRUPTED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_TASK_TOOLS = ("Task", "Agent")
_READ_OF_MESSAGE = ("id", "type", "role", "model", "content", "stop_reason", "usage")
_READ_OF_RESULT = ("type", "tool_use_id", "content", "is_error")
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


@dataclass
class _Answer:
    """One call of the model, which stands on several lines, and what came of its calls."""

    agent: str
    kept: JSONObject
    lines: list[SessionLine] = field(default_factory=list)
    results: dict[str, Call] = field(default_factory=dict)

    def blocks(self) -> list[JSONObject]:
        """The blocks of all lines; programs that write the whole message each time repeat them."""
        found: list[JSONObject] = []
        for line in self.lines:
            found += [block for block in line.blocks if block not in found]
        return found

    def turn(self, envelope: JSONObject) -> Turn:
        blocks = self.blocks()
        last = self.lines[-1]
        message: JSONObject = {"role": "assistant", "content": said(blocks)}
        if calls := chat_calls(blocks):
            message["tool_calls"] = calls
        native = next(
            (stop for line in reversed(self.lines) if (stop := text(line.message.get("stop_reason")))), ""
        )
        usages = [usage for line in self.lines if (usage := mapping(line.message.get("usage")))]
        costs = [cost for line in self.lines if (cost := dollars(line.value.get("costUSD"))) is not None]
        return Turn(
            message=message,
            reasoning=thought(blocks),
            calls=tuple(
                self._call(block, index) for index, block in enumerate(blocks_of(blocks, "tool_use"))
            ),
            finish_reason=FINISH_REASONS.get(native, ""),
            model=text(last.message.get("model")),
            response_id=text(last.message.get("id")),
            # Of one message's lines the last has the whole count.
            usage=read_usage(usages[-1] if usages else None),
            cost_reported=costs[-1] if costs else None,
            ended_at=next((line.at for line in reversed(self.lines) if line.at is not None), None),
            agent=self.agent,
            kept={**self._left(blocks, native, envelope), **self.kept},
        )

    def _left(self, blocks: list[JSONObject], native: str, envelope: JSONObject) -> JSONObject:
        left = without(self.lines[-1].message, *_READ_OF_MESSAGE)
        found = {name: value for name, value in left.items() if value is not None}
        if native and FINISH_REASONS.get(native) != native:
            found["stop_reason"] = native
        signed = [
            without(block, "thinking") if block.get("type") == "thinking" else block
            for block in blocks_of(blocks, "thinking", "redacted_thinking")
        ]
        if any(len(block) > 1 for block in signed):
            found["thinking"] = signed
        if lines := [left for line in self.lines if (left := left_of_line(line, envelope))]:
            found["lines"] = lines
        return found

    def _call(self, block: JSONObject, index: int) -> Call:
        arguments, call_id = block.get("input"), text(block.get("id"))
        wrong = isinstance(arguments, dict) or arguments is None
        started = Call(
            id=call_id or f"call_{index}",
            name=text(block.get("name")),
            arguments=mapping(arguments),
            raw_arguments=json.dumps(arguments, ensure_ascii=False),
            malformed="" if wrong else f"is a {type(arguments).__name__} and no object",
            synthesised_id=not call_id,
            kept=without(block, "type", "id", "name", "input"),
        )
        result = self.results.get(call_id)
        if result is None:
            return started
        return dataclasses.replace(
            started,
            observation=result.observation,
            message=result.message,
            failed=result.failed,
            ended_at=result.ended_at,
            kept={**started.kept, **result.kept},
        )


class SessionReader:
    """Takes the lines of a session in order of time."""

    def __init__(self, envelope: JSONObject, *, alone: bool) -> None:
        self.opening: list[JSONObject] = []
        self._envelope = envelope
        # A subagent's file that was given without its session is read as one of its own.
        self._alone = alone
        self._items: list[Item | _Answer] = []
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._open: dict[str, _Answer] = {}
        self._tasks: dict[str, JSONObject] = {}
        self._agents: dict[str, str] = {}
        self._waiting: dict[str, list[JSONObject]] = {}
        self._boundary: JSONObject | None = None

    def items(self) -> tuple[Item, ...]:
        return tuple(item.turn(self._envelope) if isinstance(item, _Answer) else item for item in self._items)

    def take(self, line: SessionLine) -> None:
        if line.kind == "assistant" and line.message:
            self._assistant(line)
        elif line.kind == "user" and line.message:
            self._user(line)
        elif line.kind == "system" and line.value.get("subtype") == "api_error":
            self._api_error(line)
        else:
            if line.value.get("subtype") == "compact_boundary":
                self._boundary = line.value
            self._aside(line, line.kind or "line")

    def _aside(self, line: SessionLine, name: str) -> None:
        subtype = text(line.value.get("subtype"))
        kept = {
            key: value
            for key, value in without(line.value, "type", "timestamp").items()
            if not (key in self._envelope and self._envelope[key] == value)
        }
        self._items.append(Aside(name=f"{name} {subtype}".strip(), kept=kept, at=line.at))

    # --- answers

    def _assistant(self, line: SessionLine) -> None:
        if line.message.get("model") == _SYNTHETIC or line.value.get("isApiErrorMessage") is True:
            if line.value.get("isApiErrorMessage") is True:
                self._failure(plain_text(said(line.blocks)), None, line)
            else:
                self._aside(line, "synthetic answer")
            return
        agent = self._agent(line)
        identifier = text(line.message.get("id"))
        answer = self._answers.get((agent, identifier)) if identifier else None
        if answer is None:
            waiting = self._waiting.pop(agent, []) if agent else []
            answer = _Answer(agent, {"joined": waiting} if waiting else {})
            self._items.append(answer)
            if identifier:
                self._answers[agent, identifier] = answer
        answer.lines.append(line)
        for block in blocks_of(line.blocks, "tool_use"):
            call_id = text(block.get("id"))
            self._open[call_id] = answer
            if block.get("name") in _TASK_TOOLS:
                self._tasks[call_id] = mapping(block.get("input"))

    def _agent(self, line: SessionLine) -> str:
        """The subagent's name: its kind where the call that began it is known, else its id."""
        if self._alone or not line.sidechain:
            return ""
        task = self._tasks.get(text(line.value.get("parent_tool_use_id")))
        if task is not None:
            return text(task.get("subagent_type")) or "subagent"
        identifier = text(line.value.get("agentId")) or text(line.value.get("slug")) or "subagent"
        return self._agents.get(identifier, identifier)

    def _name_agent(self, line: SessionLine) -> None:
        """A subagent is begun with a prompt, which is the first line of its own."""
        prompt = plain_text(said(line.blocks))
        identifier = text(line.value.get("agentId")) or text(line.value.get("slug")) or "subagent"
        for task in self._tasks.values():
            if task.get("prompt") == prompt and text(task.get("subagent_type")):
                self._agents.setdefault(identifier, text(task.get("subagent_type")))

    def _api_error(self, line: SessionLine) -> None:
        error = mapping(line.value.get("error"))
        status = count(error.get("status"))
        inner = mapping(mapping(error.get("error")).get("error")) or mapping(error.get("error"))
        words = text(inner.get("message")) or text(error.get("message")) or text(line.value.get("content"))
        self._failure(words or "no words are recorded", status, line)

    def _failure(self, words: str, status: int | None, line: SessionLine) -> None:
        if status is None:
            error = "not_recorded"
        elif status == _TOO_MANY_REQUESTS:
            error = "rate_limit"
        else:
            error = "server" if status >= _SERVER_ERROR else "http_4xx"
        kept = without(line.value, "type", "timestamp", "message")
        self._items.append(FailedRequest(error=error, message=words, status=status, at=line.at, kept=kept))

    # --- what is said to the model

    def _user(self, line: SessionLine) -> None:
        results = list(blocks_of(line.blocks, "tool_result"))
        for block in results:
            self._result(block, line, single=len(results) == 1)
        rest = [block for block in line.blocks if block.get("type") != "tool_result"]
        if not rest and results:
            return
        message: JSONObject = {"role": "user", "content": said(rest)}
        if line.sidechain and not self._alone:
            self._name_agent(line)
            self._waiting.setdefault(self._agent(line), []).append(message)
        elif line.value.get("isCompactSummary") is True:
            self._compacted(message, line)
        elif not any(isinstance(item, _Answer | Message | Rewritten) for item in self._items):
            self.opening.append(message)
        else:
            by_person = line.value.get("isMeta") is not True and not text(message["content"]).startswith("<")
            self._items.append(
                Message(
                    message=message,
                    by="person" if by_person else "harness",
                    at=line.at,
                    kept=left_of_line(line, self._envelope),
                )
            )

    def _compacted(self, message: JSONObject, line: SessionLine) -> None:
        boundary, self._boundary = self._boundary or {}, None
        trigger = text(mapping(boundary.get("compactMetadata")).get("trigger"))
        reason = f"compaction ({trigger})" if trigger else "compaction"
        kept = left_of_line(line, self._envelope)
        self._items.append(Rewritten(reason=reason, messages=(message,), at=line.at, kept=kept))

    def _result(self, block: JSONObject, line: SessionLine, *, single: bool) -> None:
        call_id, content = text(block.get("tool_use_id")), block.get("content")
        answer = self._open.pop(call_id, None)
        observation = plain_text(content)
        kept = without(block, *_READ_OF_RESULT)
        if any(part.get("type") != "text" for part in map(mapping, items(content))):
            kept["content"] = content
        structured = line.value.get("toolUseResult", line.value.get("tool_use_result"))
        if structured is not None and single:
            kept["toolUseResult"] = structured
        message: JSONObject = {"role": "tool", "tool_call_id": call_id, "content": observation}
        if answer is None:
            self._items.append(
                Message(message=message, reason="result of a call that is not there", at=line.at, kept=kept)
            )
            return
        answer.results[call_id] = Call(
            id=call_id,
            name="",
            arguments={},
            observation=observation,
            message=message,
            failed=block.get("is_error") is True,
            ended_at=line.at,
            kept=kept,
        )


def last_words(items_of_session: tuple[Item, ...]) -> Any:
    """The last thing that was said or asked by anybody, None where nobody said anything."""
    return next((item for item in reversed(items_of_session) if isinstance(item, Turn | Message)), None)
