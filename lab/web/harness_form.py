"""A harness as a form: its fields as they were typed, the data they make, and where each problem belongs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.http import QueryDict

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import Family, HarnessConfig, ToolDefinition
from lab.engine.harnesses.problems import Problem, error
from lab.engine.limits import UNITS, as_typed, parse_limit, without_grouping
from lab.engine.llm.base import JSONObject
from lab.services import typed_json

TEXTS = ("name", "wording", "system_prompt", "task_prompt", "protocol", "malformed_calls")
JSON_FIELDS = ("options", "suggested_sampling")
TOOL_TEXTS = ("name", "executor", "description", "template", "keep")
TOOL_JSON = ("parameters", "settings")
TOOL_COUNTS = ("characters", "lines")
_KEY = re.compile(r"[a-z0-9]{1,16}")
# Where a tool's field stands in its problems' paths, by its name in the form; longer paths first.
_TOOL_PATHS = {
    "observation.truncation.characters": "characters",
    "observation.truncation.lines": "lines",
    "observation.truncation.keep": "keep",
    "observation.template": "template",
    "observation": "template",
    "parameters": "parameters",
    "settings": "settings",
    "description": "description",
    "executor": "executor",
    "name": "name",
}


class Place(NamedTuple):
    """Where a problem stands: the fields of the form, and what in their value is meant, "" for all of it."""

    fields: list[str]
    inside: str = ""


class Unread(NamedTuple):
    """A field of the form that could not be read, and why."""

    field: str
    problem: Problem


@dataclass
class ToolForm:
    """One tool of the form. `key` names its fields, `on` says whether it is part of what is saved."""

    key: str
    on: bool
    values: dict[str, str]

    @property
    def name(self) -> str:
        return self.values["name"]

    def id_of(self, part: str) -> str:
        return f"tools.{self.key}.{part}"


@dataclass
class HarnessForm:
    """The fields of a harness as text, ticks by "on" and "". `family` and `feedback_names` are fixed."""

    family: str
    values: dict[str, str]
    tools: list[ToolForm] = field(default_factory=list)
    # What a field held before a browser put its own line ends in: text without them -> as it was.
    originals: dict[str, str] = field(default_factory=dict)
    own_feedback: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: HarnessConfig) -> HarnessForm:
        """The form of a harness as it is."""
        raw = config.model_dump(mode="json")
        values = {name: str(raw[name]) for name in TEXTS}
        values |= {"parallel_tool_calls": _tick(config.parallel_tool_calls)}
        values |= {"stop.no_tool_call": _tick(config.stop.no_tool_call)}
        values |= {"stop.tool": config.stop.tool, "stop.marker": config.stop.marker}
        values |= {name: _as_json(raw[name]) if raw[name] else "" for name in JSON_FIELDS}
        values |= {f"limits.{name}": _as_number(raw["limits"][name]) for name in UNITS}
        texts = feedback_texts(config)
        values |= {f"feedback.{name}": text for name, text in texts.items()}
        tools = [tool_form(tool, f"t{number}") for number, tool in enumerate(config.tools, start=1)]
        return cls(config.family, values, tools, _originals(values, tools), frozenset(config.feedback))

    @classmethod
    def posted(cls, data: QueryDict, base: HarnessConfig) -> HarnessForm:
        """What was sent for a form that began as `base`; a field that was not sent is empty."""
        known = cls.of(base)
        values = {name: known._as_it_was(str(data.get(name, ""))) for name in known.values}
        keys = [key for key in data.getlist("tool") if _KEY.fullmatch(key)]
        tools = []
        for key in dict.fromkeys(keys):
            parts = {
                part: known._as_it_was(str(data.get(f"tools.{key}.{part}", "")))
                for part in (*TOOL_TEXTS, *TOOL_JSON, *TOOL_COUNTS)
            }
            tools.append(ToolForm(key, bool(data.get(f"tools.{key}.on")), parts))
        return cls(base.family, values, tools, known.originals, known.own_feedback)

    def _as_it_was(self, typed: str) -> str:
        """The text without the line ends that browsers write; one that nobody changed is what it was."""
        plain = _plain_ends(typed)
        return self.originals.get(plain, plain)

    def raw(self) -> tuple[JSONObject, list[Unread]]:
        """The data of what is typed, and what could not be read; such a field is left at its default."""
        found: list[Unread] = []
        values = self.values
        raw: JSONObject = {name: values[name] for name in TEXTS}
        raw["name"] = values["name"].strip()
        raw |= {
            "family": self.family,
            "parallel_tool_calls": bool(values["parallel_tool_calls"]),
            "stop": {
                "no_tool_call": bool(values["stop.no_tool_call"]),
                "tool": values["stop.tool"].strip(),
                "marker": values["stop.marker"].strip(),
            },
            "feedback": self._feedback(),
            "limits": self._limits(found),
            "tools": [_raw_tool(tool, found) for tool in self.tools if tool.on],
        }
        for name in JSON_FIELDS:
            raw[name] = _parsed(name, name, values[name], found)
        return raw, found

    def _feedback(self) -> dict[str, str]:
        """The harness's own texts: those that are not the family's, or were its own before."""
        defaults = _family_texts(self.family)
        texts = {
            name.removeprefix("feedback."): text
            for name, text in self.values.items()
            if name.startswith("feedback.")
        }
        return {
            name: text
            for name, text in texts.items()
            if text != defaults.get(name) or name in self.own_feedback
        }

    def _limits(self, found: list[Unread]) -> JSONObject:
        limits: JSONObject = dict.fromkeys(UNITS)
        for name in UNITS:
            typed = self.values[f"limits.{name}"].strip()
            if not typed:
                continue
            try:
                number = parse_limit(name, typed)
            except InvalidValueError as refused:
                found.append(Unread(f"limits.{name}", error(f"limits.{name}", typed, refused.reason)))
            else:
                limits[name] = number if isinstance(number, int | float) else str(number)
        return limits

    def place_of(self, path: str) -> Place:
        """The fields of the form that a problem's path means; none for one of the whole harness."""
        if path in self.values:
            return Place([path])
        section, _, rest = path.partition(".")
        if section == "tools":
            return self._tool_place(rest) if rest else Place([])
        if section in JSON_FIELDS:
            return Place([section], rest)
        inner = [name for name in self.values if f"{path}.".startswith(f"{name}.")]
        return Place(inner or [name for name in self.values if name.startswith(f"{section}.")][:1])

    def _tool_place(self, rest: str) -> Place:
        """Of the tools that are on: by their name, which several may have, else by their number."""
        shown = [tool for tool in self.tools if tool.on]
        names = [tool.name for tool in shown if tool.name and f"{rest}.".startswith(f"{tool.name}.")]
        if names:
            name = max(names, key=len)
            chosen = [tool for tool in shown if tool.name == name]
            inner = rest.removeprefix(name).lstrip(".")
        else:
            number, _, inner = rest.partition(".")
            at = int(number) if number.isdigit() and len(number) < 4 else 0
            chosen = shown[at - 1 : at] if at else []
        for begin, part in _TOOL_PATHS.items():
            if f"{inner}.".startswith(f"{begin}."):
                return Place([tool.id_of(part) for tool in chosen], inner.removeprefix(begin).lstrip("."))
        return Place([tool.id_of("name") for tool in chosen])


def tool_form(tool: ToolDefinition, key: str) -> ToolForm:
    """The fields of one tool."""
    truncation = tool.observation.truncation
    return ToolForm(
        key=key,
        on=True,
        values={
            "name": tool.name,
            "executor": tool.executor,
            "description": tool.description,
            "parameters": _as_json(tool.parameters),
            "settings": _as_json(tool.settings) if tool.settings else "",
            "template": tool.observation.template,
            "characters": str(truncation.characters or ""),
            "lines": str(truncation.lines or ""),
            "keep": truncation.keep,
        },
    )


def feedback_texts(config: HarnessConfig) -> dict[str, str]:
    """Every text that the harness has for the model, its own before its family's."""
    return {**_family_texts(config.family), **config.feedback}


def family_of(name: str) -> Family | None:
    """The family of this name, None for one that this lab does not have."""
    try:
        return registry.family(name)
    except InvalidValueError:
        return None


def _family_texts(name: str) -> dict[str, str]:
    family = family_of(name)
    return {} if family is None else {name: text.template for name, text in family.feedback.items()}


def _raw_tool(tool: ToolForm, found: list[Unread]) -> JSONObject:
    values = tool.values
    path = f"tools.{tool.name}"
    truncation: JSONObject = {"keep": values["keep"] or "head"}
    for part in TOOL_COUNTS:
        number = _count(f"{path}.observation.truncation.{part}", values[part])
        if isinstance(number, Problem):
            found.append(Unread(tool.id_of(part), number))
        else:
            truncation[part] = number
    raw: JSONObject = {
        "name": values["name"].strip(),
        "executor": values["executor"],
        "description": values["description"],
        "observation": {"template": values["template"], "truncation": truncation},
    }
    for part in TOOL_JSON:
        if values[part].strip():
            raw[part] = _parsed(tool.id_of(part), f"{path}.{part}", values[part], found)
    return raw


def _count(path: str, typed: str) -> int | Problem:
    plain = without_grouping(typed)
    if not plain or (plain.isascii() and plain.isdigit() and len(plain) <= 12):
        return int(plain or 0)
    return error(path, as_typed(typed), "is not a whole number; write one such as 20000, or leave it empty")


def _parsed(place: str, path: str, typed: str, found: list[Unread]) -> Any:
    """The JSON object that was typed, `{}` for an empty field and for what is none."""
    if not typed.strip():
        return {}
    try:
        value = typed_json.read(typed)
    except json.JSONDecodeError as wrong:
        line = typed.split("\n")[wrong.lineno - 1].strip()
        reason = f"is no JSON in line {wrong.lineno}, column {wrong.colno}: {wrong.msg}; mend it there"
        found.append(Unread(place, error(path, as_typed(line), reason)))
    except ValueError as wrong:
        found.append(Unread(place, error(path, as_typed(typed), f"is no JSON that can be used: {wrong}")))
    else:
        if isinstance(value, dict):
            return value
        reason = "is JSON, but no object; write it in braces: {…}"
        found.append(Unread(place, error(path, as_typed(typed), reason)))
    return {}


def _originals(values: Mapping[str, str], tools: Iterable[ToolForm]) -> dict[str, str]:
    texts = [*values.values(), *(text for tool in tools for text in tool.values.values())]
    return {_plain_ends(text): text for text in texts if "\r" in text}


def _plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _tick(value: bool) -> str:
    return "on" if value else ""


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _as_number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.15g}" if isinstance(value, float) else str(value)
