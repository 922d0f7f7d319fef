"""Calls as R2E-Gym writes them in a model's text: `<function=NAME>`, `<parameter=KEY>VALUE</parameter>`, …

Only the first block of a text counts. The documentation that a prompt gives of the functions is made here
too, in the format such models know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.engine.harnesses.base import ToolDefinition
from lab.engine.llm.base import JSONObject, Reply

_BEGIN, _END, _END_OF_VALUE = "<function=", "</function>", "</parameter>"
_NAME = re.compile(r"<function\s*=\s*([^>]+)>")
_PARAMETER = re.compile(r"<parameter\s*=\s*([^>]+)>")


@dataclass(frozen=True)
class Block:
    """The first block of a text: the function's name ("" for none), its values, and what stood around it."""

    name: str
    values: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    thought: str = ""

    def written(self) -> str:
        """The block in its normal form, one parameter after the other."""
        rows = [f"  <parameter={key}>{value}</parameter>\n" for key, value in self.values.items()]
        return f"<function={self.name}>\n{''.join(rows)}{_END}"


def first_block(text: str) -> Block | None:
    """The first whole block; None without one. Values are text without white space around it.

    A key that comes twice has its last value.
    """
    begin = text.find(_BEGIN)
    end = text.find(_END, begin) if begin >= 0 else -1
    if end < 0:
        return None
    raw = text[begin : end + len(_END)]
    name = _NAME.search(raw)
    return Block(
        name=name.group(1).strip() if name else "",
        values=_values(raw),
        raw=raw,
        thought=text[:begin].strip(),
    )


def _values(block: str) -> dict[str, str]:
    values: dict[str, str] = {}
    opening = _PARAMETER.search(block)
    while opening is not None:
        end = block.find(_END_OF_VALUE, opening.end())
        if end < 0:
            break
        values[opening.group(1).strip()] = block[opening.end() : end].strip()
        opening = _PARAMETER.search(block, end)
    return values


def why_no_block(text: str) -> str:
    """What is wrong with a text that holds no whole block."""
    if _BEGIN not in text:
        return f"there is no {_BEGIN}…> in the reply"
    return f"the function block has no closing {_END}"


def block_notes(reply: Reply) -> list[str]:
    """What in a reply was left out behind its first block; empty when nothing was."""
    notes = []
    block = first_block(reply.content)
    if block is not None:
        rest = reply.content.partition(block.raw)[2]
        if _BEGIN in rest:
            notes.append("the reply holds more than one function block; only the first was taken")
        elif rest.replace("</tool_call>", "").strip():
            notes.append("what stands behind the function block did not join the conversation")
    return notes


def documentation(tools: Sequence[ToolDefinition]) -> str:
    """All functions as a prompt describes them, in the order of the tools."""
    return "\n\n".join(_documented(number, tool) for number, tool in enumerate(tools, start=1))


def _documented(number: int, tool: ToolDefinition) -> str:
    head = f"---- BEGIN FUNCTION #{number}: {tool.name} ----\nDescription: {tool.description.strip()}\n"
    return f"{head}{_parameters(tool.parameters)}\n---- END FUNCTION #{number} ----"


def _parameters(schema: JSONObject) -> str:
    properties: Mapping[str, JSONObject] = schema.get("properties") or {}
    if not properties:
        return "No parameters are required for this function."
    required = schema.get("required") or []
    rows = ["Parameters:"]
    for number, (name, about) in enumerate(properties.items(), start=1):
        kind = about.get("type", "string")
        kind = kind if isinstance(kind, str) else " or ".join(map(str, kind))
        needed = "required" if name in required else "optional"
        rows.append(f"  ({number}) {name} ({kind}, {needed}): {about.get('description', '')}".rstrip())
        if about.get("enum"):
            rows.append(f"  Allowed values: {json.dumps(about['enum'], ensure_ascii=False)}")
    return "\n".join(rows)
