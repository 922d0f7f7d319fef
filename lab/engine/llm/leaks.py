"""Tool calls that arrived as text: the picture of a missing or wrong parser, whatever the model is.

Only a whole call of a known tool is one. Text that speaks of markup, quotes a call or shows code is none.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from lab.engine.llm.base import JSONObject, Reply


class Leak(NamedTuple):
    """What looks like a call (`markup`, `json`, `python`, `fence`), and where it begins in the text."""

    kind: str
    start: int


# The tags that templates put before a call in JSON or in Python's form.
_OPENING = re.compile(
    r"(?:<tool_call>|<\|tool_call(?:_start)?\|>|<\|python_tag\|>|\[TOOL_CALLS\]|<function_calls?>|<tool_calls>)"
    r"\s*\[?\s*$"
)
_OPENING_CHARACTERS = 60
# What precedes the arguments as a JSON object: Llama, Mistral, Kimi, DeepSeek and Harmony, NAME for a tool.
_HEADS = (
    r"<function=NAME>\s*",
    r"\[TOOL_CALLS\]\s*NAME\s*(?:\[CALL_ID\][^\[{]{0,80})?(?:\[ARGS\])?\s*",
    r"<\|tool_call_begin\|>\s*NAME(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*",
    r"<｜tool▁call▁begin｜>\s*(?:function\s*<｜tool▁sep｜>\s*)?NAME\s*(?:<｜tool▁sep｜>)?\s*(?:```json\s*)?",  # noqa: RUF001
    r"(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\s*\w+\s+)?to=NAME(?![\w-])[^{\n]{0,120}",
)
# Calls between tags: how one begins, and a tag that closes it or a part of it.
_TAGGED = (
    (r"(?:<tool_call>\s*)?<function=NAME>\s*(?=<parameter=|</function>)", ("</parameter>", "</function>")),
    (r"<[\w:｜]*invoke name=\"NAME\">\s*(?=<[\w:｜]*parameter |</)", ("invoke>",)),  # noqa: RUF001
    (r"<tool_call>\s*NAME\s*(?=<arg_key>|</tool_call>)", ("</tool_call>",)),
)
_OBJECT = re.compile(r'\{\s*"(?:name|function|tool|id|type|arguments|parameters|args)"\s*:')
# Candidates that are tried before a text counts as data.
_MOST_OBJECTS = 200
_MOST_PYTHON_CALLS = 40
_MOST_CALL_CHARACTERS = 20_000
_DECODER = json.JSONDecoder(strict=False)

_COMMAND_FENCE = re.compile(
    r"^ {0,3}(?:```|~~~)(?:bash|sh|shell|console|mswea_bash_command|tool_code|tool_call)\s*$", re.M
)
# Code of these kinds, as a fence opens it, may be a call; any other is code that is shown.
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[ \t]*([\w-]*)[^\n`]*\n(.*?)(?:^ {0,3}\1[ \t]*$|\Z)", re.M | re.S)
_CALL_FENCES = {"", "json", "xml", "tool_code", "tool_call", "tool_calls"}
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)[^`\n]+\1(?!`)")
_QUOTES = "`\"'“‘«„"  # noqa: RUF001


def leaked_call(
    text: str, tools: Collection[str] = (), *, fences: bool = False, parses: bool = False
) -> Leak | None:
    """The first whole call of one of the `tools` that stands in the text; None when none does.

    Without `tools`, a call of any name counts, but for calls in Python's form. `fences` takes a fenced
    command for a call as well. `parses`: the server's parser has read calls of this conversation. Then what a
    text shows as code is an example, and only a template's own markup at the end of the text is a call.
    """
    if parses:
        return _unread_markup(text, tools)
    found: list[Leak] = []
    if "{" in text or "<" in text or "(" in text:
        visible = without_quoted(text)
        found = [*_headed(visible, tools), *_tagged(visible, tools), *_objects(visible, tools)]
        found += _python_calls(visible, tools)
    fence = _COMMAND_FENCE.search(text) if fences else None
    if fence is not None:
        found.append(Leak("fence", fence.start()))
    return min(found, key=lambda leak: leak.start, default=None)


def _unread_markup(text: str, tools: Collection[str]) -> Leak | None:
    if not text.rstrip().endswith((">", "]", "}", ")")):
        return None
    leak = leaked_call(_INLINE.sub(_blank, _FENCE.sub(_blank, text)), tools)
    return leak if leak is not None and leak.kind == "markup" else None


def leak_of(
    reply: Reply, tools: Collection[str] = (), *, fences: bool = False, parses: bool = False
) -> tuple[str, Leak] | None:
    """Where in a reply without a call one stands as text (`reply`, `reasoning`), and what it is.

    What a model thinks of is a call only where nothing follows it, and where the reply is whole. `fences` and
    `parses` as in `leaked_call`.
    """
    if any(call.name for call in reply.tool_calls):
        return None
    where, text = "reply", reply.content
    if not text.strip() and not reply.cut_by_length:
        where, text = "reasoning", reply.reasoning
    leak = leaked_call(text, tools, fences=fences and where == "reply", parses=parses)
    return None if leak is None else (where, leak)


def without_quoted(text: str) -> str:
    """The text, as long as before, with blanks in place of code that is only shown."""
    if "`" not in text and "~~~" not in text:
        return text
    return _INLINE.sub(_blank, _FENCE.sub(_blank_shown_code, text))


def _blank_shown_code(match: re.Match[str]) -> str:
    return match.group() if match.group(2).lower() in _CALL_FENCES else _blank(match)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _pattern(form: str, tools: Collection[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(tools, key=len, reverse=True))) or r"[\w.-]+"
    return re.compile(form.replace("NAME", rf"(?:functions\.)?(?:{names})"))


def _is_quoted(text: str, start: int) -> bool:
    return start > 0 and text[start - 1] in _QUOTES and text[max(0, start - 3) : start] != "```"


def _headed(text: str, tools: Collection[str]) -> Iterator[Leak]:
    for form in _HEADS:
        for match in _pattern(form, tools).finditer(text):
            if not _is_quoted(text, match.start()) and _object_at(text, match.end()) is not None:
                yield Leak("markup", match.start())
                break


def _tagged(text: str, tools: Collection[str]) -> Iterator[Leak]:
    for form, closings in _TAGGED:
        for match in _pattern(form, tools).finditer(text):
            if all(text.find(closing, match.end()) == -1 for closing in closings):
                break
            if not _is_quoted(text, match.start()):
                yield Leak("markup", match.start())
                break


def _objects(text: str, tools: Collection[str]) -> Iterator[Leak]:
    for place, match in enumerate(_OBJECT.finditer(text)):
        if place == _MOST_OBJECTS:
            return
        value = _object_at(text, match.start())
        if value is None or not _is_call(value, tools):
            continue
        leak = _with_opening(text, match.start(), "json")
        if not _is_quoted(text, leak.start):
            yield leak
            return


def _object_at(text: str, start: int) -> JSONObject | None:
    if text[start : start + 1] != "{":
        return None
    try:
        value, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_call(value: JSONObject, tools: Collection[str]) -> bool:
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in ("name", "function", "tool") if isinstance(value.get(key), str)), "")
    given = next((value[key] for key in ("arguments", "parameters", "args") if key in value), None)
    named = name.strip().removeprefix("functions.")
    # The schema of a tool has parameters too; it is no call of it.
    is_schema = isinstance(given, dict) and given.get("type") == "object" and "properties" in given
    known = named in tools if tools else bool(named)
    return known and isinstance(given, (dict, str)) and not is_schema


def _with_opening(text: str, start: int, kind: str) -> Leak:
    """The call with the tag of a template before it, if there is one."""
    before = max(0, start - _OPENING_CHARACTERS)
    opening = _OPENING.search(text[before:start])
    return Leak(kind, start) if opening is None else Leak("markup", before + opening.start())


def _python_calls(text: str, tools: Collection[str]) -> Iterator[Leak]:
    """Calls with named arguments that are a line of their own, alone, in a list or in print()."""
    if not tools or "(" not in text:
        return
    names = "|".join(map(re.escape, sorted(tools, key=len, reverse=True)))
    opening = r"^[ \t]*(?:<\|tool_call_start\|>|<\|python_tag\|>)?[ \t]*"
    candidates = re.finditer(rf"{opening}(\[?\s*(?:print\(\s*)?(?:{names})\()", text, re.M)
    for match in itertools.islice(candidates, _MOST_PYTHON_CALLS):
        start = match.start(1)
        if _is_python_call(text[start : start + _MOST_CALL_CHARACTERS], tools):
            is_tagged = "<|" in match.group()
            yield Leak("markup" if is_tagged else "python", match.start() if is_tagged else start)
            return


def _is_python_call(text: str, tools: Collection[str]) -> bool:
    """Whether the text begins with a whole call, and nothing else stands in the call's last line."""
    end = _end_of_brackets(text)
    if end is None or re.match(r"[ \t]*(?:<\||```|\n|$)", text[end:]) is None:
        return False
    try:
        node: ast.AST = ast.parse(text[:end], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = list(node.elts) if isinstance(node, ast.List) else [node]
    return bool(calls) and all(_is_named_call(call, tools) for call in calls)


def _is_named_call(node: ast.AST, tools: Collection[str]) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id == "print" and len(node.args) == 1 and not node.keywords:
        return _is_named_call(node.args[0], tools)
    return node.func.id in tools and not node.args


_BRACKETS = re.compile(
    r"""[\[({]|[\])}]|'''.*?'''|\"\"\".*?\"\"\"|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""", re.S
)


def _end_of_brackets(text: str) -> int | None:
    """Where the first bracket is closed, behind it; None where it is not."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        found = match.group()
        if found in {"[", "(", "{"}:
            depth += 1
        elif found in {"]", ")", "}"}:
            depth -= 1
            if depth <= 0:
                return match.end()
    return None
