"""Lines of Claude Code's sessions: whose they are, their messages and blocks in the lab's words."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lab.engine.formats.base import Document, json_lines
from lab.engine.formats.reading import items, mapping, moment, text, without
from lab.engine.formats.trajectory import Problem
from lab.engine.llm.base import JSONObject

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
# What stands on every line and is said once, where it does not change.
_ENVELOPE = (
    "cwd", "gitBranch", "version", "slug", "userType", "sessionId", "session_id", "entrypoint",
    "permissionMode",
)  # fmt: skip
_READ_OF_LINE = (
    "type", "message", "timestamp", "parentUuid", "isSidechain", "toolUseResult", "isCompactSummary",
    "parent_tool_use_id", "costUSD", "tool_use_result",
)  # fmt: skip
_EPOCH = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class SessionLine:
    """One line. `at` is its own time, `order` what it is sorted by: never before the lines above it."""

    value: JSONObject
    at: dt.datetime | None
    order: tuple[dt.datetime, int, int]

    @property
    def kind(self) -> str:
        return text(self.value.get("type"))

    @property
    def message(self) -> JSONObject:
        return mapping(self.value.get("message"))

    @property
    def blocks(self) -> list[JSONObject]:
        """The message's blocks; a text is one."""
        content = self.message.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [block for block in items(content) if isinstance(block, dict)]

    @property
    def sidechain(self) -> bool:
        return self.value.get("isSidechain") is True or bool(self.value.get("parent_tool_use_id"))


class Session(NamedTuple):
    """All lines of the documents of one session in order of time, each once, and what could not be read."""

    lines: list[SessionLine]
    problems: list[Problem]


def read_lines(documents: Iterable[Document]) -> Session:
    session = Session([], [])
    seen: set[str] = set()
    for number, document in enumerate(documents):
        latest = _EPOCH
        for line in json_lines(document):
            if line.problem or not isinstance(line.value, dict):
                message = line.problem or f"is a {type(line.value).__name__} and no object"
                session.problems.append(Problem(file=document.path, place=line.place, message=message))
                continue
            identifier = text(line.value.get("uuid"))
            if identifier and identifier in seen:
                continue
            seen.add(identifier)
            at = moment(line.value.get("timestamp"))
            latest = max(latest, at) if at is not None else latest
            session.lines.append(SessionLine(line.value, at, (latest, number, line.number)))
    session.lines.sort(key=lambda line: line.order)
    return session


def envelope_of(lines: Iterable[SessionLine]) -> JSONObject:
    """The first value of each field that stands on every line."""
    found: JSONObject = {}
    for line in lines:
        for name in _ENVELOPE:
            if name in line.value:
                found.setdefault(name, line.value[name])
    return found


def left_of_line(line: SessionLine, envelope: JSONObject) -> JSONObject:
    """What a line holds beside its message; what is as on the first line is not repeated."""
    left = without(line.value, *_READ_OF_LINE)
    return {
        name: value
        for name, value in left.items()
        if value is not None and not (name in envelope and envelope[name] == value)
    }


def said(blocks: Iterable[JSONObject]) -> Any:
    """What the blocks say in chat completions: one text, or parts where there is more than text."""
    parts = [part for block in blocks if (part := _part(block)) is not None]
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(block: JSONObject) -> JSONObject | None:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text(block.get("text"))}
    if kind in ("thinking", "redacted_thinking", "tool_use", "tool_result"):
        return None
    source = mapping(block.get("source"))
    if kind == "image" and isinstance(source.get("data"), str):
        url = f"data:{text(source.get('media_type'))};base64,{source['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    return block


def thought(blocks: Iterable[JSONObject]) -> str:
    return "\n".join(
        text(block.get("thinking"))
        for block in blocks
        if block.get("type") == "thinking" and text(block.get("thinking"))
    )


def blocks_of(blocks: Iterable[JSONObject], *kinds: str) -> Iterator[JSONObject]:
    return (block for block in blocks if block.get("type") in kinds)


def chat_calls(blocks: Iterable[JSONObject]) -> list[JSONObject]:
    return [
        {
            "id": text(block.get("id")),
            "type": "function",
            "function": {
                "name": text(block.get("name")),
                "arguments": json.dumps(block.get("input"), ensure_ascii=False),
            },
        }
        for block in blocks_of(blocks, "tool_use")
    ]
