"""Tool calls that arrived as text: the picture of a missing or wrong parser, whatever the model is."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple


class Leak(NamedTuple):
    """What looks like a call (`markup`, `json`, `python`, `fence`), and where it begins in the text."""

    kind: str
    start: int


_MARKUP = re.compile(
    r"<tool_call>|<function=|\[TOOL_CALLS\]|<\|(?:tool|python_tag)|<｜(?:DSML｜|tool)|<invoke name=|"  # noqa: RUF001
    r"<function_calls?>|<\|start\|>assistant<\|channel\|>commentary to="
)
# An object with a name and its arguments, in either order of the two keys, in a fence or bare.
_JSON_CALL = re.compile(
    r'\{\s*"(?:name|function)"\s*:\s*"[\w.-]+"\s*,\s*"(?:arguments|parameters|args)"\s*:|'
    r'"(?:arguments|parameters)"\s*:\s*\{[^{}]{0,2000}\}\s*,\s*"name"\s*:\s*"[\w.-]+"'
)
_FENCE = re.compile(
    r"^ {0,3}(?:```|~~~)(?:bash|sh|shell|console|mswea_bash_command|tool_code|tool_call)\s*$", re.M
)


def leaked_call(text: str, tools: Collection[str] = (), *, fences: bool = False) -> Leak | None:
    """The first thing in the text that looks like a tool call; None when nothing does.

    `tools` are the names that calls in Python's form are looked for by; `fences` takes a fenced command for a
    call as well.
    """
    found = [("markup", _MARKUP.search(text)), ("json", _JSON_CALL.search(text))]
    if tools:
        names = "|".join(map(re.escape, tools))
        found.append(("python", re.search(rf"(?:^|\[)\s*(?:{names})\(\s*(?:\w+\s*=|\))", text, re.M)))
    if fences:
        found.append(("fence", _FENCE.search(text)))
    leaks = [Leak(kind, match.start()) for kind, match in found if match is not None]
    return min(leaks, key=lambda leak: leak.start, default=None)
