"""What Codex's rollouts and its `exec --json` are made of, in the lab's words."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.engine.formats.base import Document, json_lines, parsed
from lab.engine.formats.chat_messages import read_arguments
from lab.engine.formats.reading import count, items, mapping, seconds, text, without
from lab.engine.formats.trajectory import Call, Problem, Turn
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
# What an exit code is kept in.
_MOST_EXIT_CODE = 2**31
_READ_OF_CALL = ("type", "name", "arguments", "input", "action", "call_id")


def each_line(document: Document, take: Callable[[JSONObject], None]) -> Iterator[Problem]:
    """Gives each line's object to `take`; a line that is none, or nested too deeply, is a problem."""
    for line in json_lines(document):
        message = line.problem
        if not message and not isinstance(line.value, dict):
            message = f"is a {type(line.value).__name__} and no object"
        if not message:
            try:
                take(line.value)
            except RecursionError:
                message = "is nested too deeply"
        if message:
            yield Problem(file=document.path, place=line.place, message=message)


def usage_of(raw: Any) -> Usage:
    """Counts of one call: the cached are within the input, the reasoning within the output."""
    recorded = mapping(raw)
    if not recorded:
        return Usage()
    counts: JSONObject = {
        "input_tokens": recorded.get("input_tokens"),
        "output_tokens": recorded.get("output_tokens"),
        "input_tokens_details": {"cached_tokens": recorded.get("cached_input_tokens")},
        "prompt_tokens_details": {"cache_write_tokens": recorded.get("cache_write_input_tokens")},
        "output_tokens_details": {"reasoning_tokens": recorded.get("reasoning_output_tokens")},
        "total_tokens": recorded.get("total_tokens"),
    }
    return read_usage(counts).model_copy(update={"raw": recorded})


def said(content: Any) -> Any:
    """A message's content in chat completions: one text, or parts where there is more than text."""
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in items(content) if isinstance(part, dict)]
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: JSONObject) -> JSONObject:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    kind = text(part.get("type"))
    # A text part without its text is shown as it is.
    return {**part, "type": kind if kind not in ("", "text") else "unknown"}


def thoughts(item: JSONObject) -> str:
    """A summary of the reasoning, or its text where the model gives it."""
    parts = [*items(item.get("summary")), *items(item.get("content"))]
    return "\n".join(found for part in parts if (found := text(mapping(part).get("text"))))


def call_of(item: JSONObject, made_id: str) -> Call:
    """A call of a function, of a tool with free text, of the local shell or of a search."""
    kind, call_id = text(item.get("type")), text(item.get("call_id"))
    left = {name: value for name, value in without(item, *_READ_OF_CALL).items() if value is not None}
    call = Call(
        id=call_id or text(item.get("id")) or made_id,
        name=text(item.get("name")) or kind.removesuffix("_call"),
        arguments={},
        synthesised_id=not (call_id or text(item.get("id"))),
        kept=left,
    )
    if kind == "function_call":
        read = read_arguments(item.get("arguments"))
        return dataclasses.replace(
            call, arguments=read.arguments, raw_arguments=read.raw, malformed=read.malformed
        )
    if kind == "custom_tool_call":
        given = text(item.get("input"))
        return dataclasses.replace(call, arguments={"input": given}, raw_arguments=given)
    return dataclasses.replace(call, arguments=mapping(item.get("action")))


@dataclass
class Output:
    """A call's result. `raw` is what it was in, where that was more than a text."""

    observation: str
    exit_code: int | None = None
    seconds: float | None = None
    kept: JSONObject = field(default_factory=dict)


def output_of(raw: Any) -> Output:
    """What came of a call: a text, parts, or an object; older texts are JSON with exit code and duration."""
    if isinstance(raw, dict) and "content" in raw:
        found = output_of(raw["content"])
        found.kept = {**found.kept, **without(raw, "content")}
        return found
    if isinstance(raw, list):
        content = said(raw)
        return Output(content) if isinstance(content, str) else Output("", kept={"output": raw})
    if not isinstance(raw, str):
        return Output(json.dumps(raw))
    metadata = mapping(mapping(_json(raw)).get("metadata"))
    took = seconds(metadata.get("duration_seconds"))
    return Output(raw, exit_code=exit_code_of(metadata.get("exit_code")), seconds=took)


def exit_code_of(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_EXIT_CODE
    return value if whole else None


def _json(raw: str) -> Any:
    if not raw.startswith('{"output"'):
        return None
    try:
        return parsed(raw)
    except (ValueError, RecursionError):
        return None


@dataclass
class Answer:
    """One call of the model while its parts still come. `closed`: what comes now is another one's."""

    model: str
    texts: list[str] = field(default_factory=list)
    others: list[JSONObject] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    counted: bool = False
    closed: bool = False
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    kept: list[JSONObject] = field(default_factory=list)

    def turn(self) -> Turn:
        message: JSONObject = {"role": "assistant", "content": "\n".join(self.texts)}
        if self.others:
            spoken = [{"type": "text", "text": words} for words in self.texts]
            message["content"] = [*spoken, *self.others]
        if self.calls:
            message["tool_calls"] = [_chat_call(call) for call in self.calls]
        return Turn(
            message=message,
            reasoning="\n".join(line for line in self.reasoning if line),
            calls=tuple(self.calls),
            finish_reason="tool_calls" if self.calls else "",
            model=self.model,
            usage=self.usage,
            started_at=self.started_at,
            ended_at=self.ended_at,
            kept={"items": self.kept} if self.kept else {},
        )

    def result(self, call_id: str, output: Output, at: dt.datetime | None, *, failed: bool = False) -> bool:
        """Joins a result with its call; False where no call without one has this id."""
        for place, call in enumerate(self.calls):
            if call.id == call_id and call.observation is None:
                self.calls[place] = dataclasses.replace(
                    call,
                    observation=output.observation,
                    message={"role": "tool", "tool_call_id": call_id, "content": output.observation},
                    exit_code=output.exit_code,
                    seconds=output.seconds,
                    failed=failed or output.kept.get("success") is False,
                    ended_at=at,
                    kept={**call.kept, **output.kept},
                )
                return True
        return False


def _chat_call(call: Call) -> JSONObject:
    arguments = call.raw_arguments or json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def added(one: int | None, raw: Any) -> int | None:
    """A sum of counts that stays unknown until one is known."""
    found = count(raw)
    return one if found is None else (one or 0) + found
