"""What differs between two harness versions, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.llm.base import JSONObject

Kind = Literal["changed", "added", "removed", "renamed"]

# What stands outside the digest: two versions that differ only here are the same harness.
OUTSIDE = ("name", "wording", "suggested_sampling", "source")
_PROSE = frozenset({"system_prompt", "task_prompt", "description", "template"})
_PROSE_CHARACTERS = 80
_PLAIN_PART = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Difference:
    """One field whose value is not the same on both sides.

    `path` names the field from the outside in, as in `tools.Bash.parameters.required`; a tool is named as on
    the left, an added one as on the right. `left` and `right` are JSON values, None where the side has no
    such field (`added`, `removed`) and where the value is null. `renamed`: the same tool under another name;
    what else differs in it has entries of its own. `is_text`: prose or a template, to be read as a text diff.
    """

    path: str
    kind: Kind
    left: Any
    right: Any
    is_text: bool = False


def differences(left: HarnessConfig, right: HarnessConfig) -> list[Difference]:
    """Every field in which two harnesses differ, in the order of the configuration.

    Empty exactly when the digests are equal: what stands outside the digest is in `differences_beside`.
    """
    return content_differences(left.model_dump(mode="json"), right.model_dump(mode="json"))


def differences_beside(left: HarnessConfig, right: HarnessConfig) -> list[Difference]:
    """Differences in what stands outside the digest: name, wording, suggested sampling, source."""
    names = set(OUTSIDE)
    return list(
        _fields("", left.model_dump(mode="json", include=names), right.model_dump(mode="json", include=names))
    )


def content_differences(left: JSONObject, right: JSONObject) -> list[Difference]:
    """As `differences`, for configurations as JSON, also such as no family of this lab can read.

    A field that one side leaves out is `added` or `removed`.
    """
    before = {name: value for name, value in left.items() if name not in OUTSIDE}
    after = {name: value for name, value in right.items() if name not in OUTSIDE}
    return list(_fields("", before, after))


def _fields(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Difference]:
    for name in [*left, *(name for name in right if name not in left)]:
        inner = _joined(path, name)
        if name not in right:
            yield Difference(inner, "removed", left[name], None, _is_text(path, name, left[name], None))
        elif name not in left:
            yield Difference(inner, "added", None, right[name], _is_text(path, name, None, right[name]))
        elif not path and name == "tools" and _are_tools(left[name]) and _are_tools(right[name]):
            yield from _tools(inner, left[name], right[name])
        else:
            yield from _values(path, name, left[name], right[name])


def _values(path: str, name: str, left: Any, right: Any) -> Iterator[Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _fields(_joined(path, name), left, right)
    elif not _equal(left, right):
        yield Difference(_joined(path, name), "changed", left, right, _is_text(path, name, left, right))


def _equal(left: Any, right: Any) -> bool:
    """As the digest sees it: 1, 1.0 and true are three values."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _joined(path: str, name: str) -> str:
    part = name if _PLAIN_PART.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return f"{path}.{part}" if path else part


def _is_text(path: str, name: str, left: Any, right: Any) -> bool:
    sides = [side for side in (left, right) if side is not None]
    if not all(isinstance(side, str) for side in sides):
        return False
    return (
        name in _PROSE
        or path.split(".")[0] == "feedback"
        or any("\n" in side or len(side) > _PROSE_CHARACTERS for side in sides)
    )


def _are_tools(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in value
    )


def _tools(path: str, left: list[JSONObject], right: list[JSONObject]) -> Iterator[Difference]:
    """Tools by name, then by executor; the order too, which the model sees."""
    partners = _partners(left, right)
    for index, tool in enumerate(left):
        inner = _joined(path, tool["name"])
        if index not in partners:
            yield Difference(inner, "removed", tool, None)
            continue
        other = right[partners[index]]
        if tool["name"] != other["name"]:
            yield Difference(inner, "renamed", tool["name"], other["name"])
        yield from _fields(inner, _without_name(tool), _without_name(other))
    for index, tool in enumerate(right):
        if index not in partners.values():
            yield Difference(_joined(path, tool["name"]), "added", None, tool)
    shared = [partners[index] for index in range(len(left)) if index in partners]
    if shared != sorted(shared):
        before, after = ([tool["name"] for tool in tools] for tools in (left, right))
        yield Difference(f"{path} (order)", "changed", before, after)


def _partners(left: list[JSONObject], right: list[JSONObject]) -> dict[int, int]:
    """Index in `left` -> index in `right` of the same tool."""
    partners: dict[int, int] = {}
    free = dict(enumerate(right))
    for index, tool in enumerate(left):
        same = next((other for other, candidate in free.items() if candidate["name"] == tool["name"]), None)
        if same is not None:
            partners[index] = same
            del free[same]
    for index, tool in enumerate(left):
        if index in partners:
            continue
        alike = [other for other, candidate in free.items() if _same_executor(tool, candidate)]
        if alike:
            # Of several tools with one executor, the one that differs least.
            nearest = min(alike, key=lambda other: len(list(_fields("", tool, free[other]))))
            partners[index] = nearest
            del free[nearest]
    return partners


def _same_executor(tool: JSONObject, other: JSONObject) -> bool:
    return tool.get("executor") is not None and tool.get("executor") == other.get("executor")


def _without_name(tool: JSONObject) -> JSONObject:
    return {name: value for name, value in tool.items() if name != "name"}
