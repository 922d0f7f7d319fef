"""The fields of the harness editor as its templates show them: label, value, hint, choices, what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.engine import registry
from lab.engine.harnesses.problems import Problem
from lab.engine.limits import UNITS
from lab.render.text import one_line
from lab.web.harness_form import HarnessForm, Place, ToolForm, family_of
from lab.web.harnesses import HARNESS_LIMITS

_MOST_ROWS = 24
_NOWHERE = Place([])


@dataclass(frozen=True)
class Said:
    """A problem in words: value, what is wrong with it and the way out. `places` are the fields beside which
    it stands, none for one of the whole harness; `inside` is what in their value is meant."""

    path: str
    words: str
    severity: str
    places: Sequence[str] = ()
    inside: str = ""


Located = Sequence[Said]


@dataclass(frozen=True)
class Field:
    """One field. `kind`: text, area, select or tick. `id` is its name too; `problems` stand beside it."""

    id: str
    label: str
    value: str
    kind: str = "text"
    hint: str = ""
    unit: str = ""
    rows: int = 2
    mono: bool = False
    fixed: bool = False
    choices: Sequence[tuple[str, str]] = ()
    problems: Sequence[Said] = ()

    @property
    def invalid(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


@dataclass(frozen=True)
class Section:
    """Fields under one heading; `folded` ones are shown when something is in them or wrong with them."""

    id: str
    title: str
    note: str
    fields: list[Field]
    folded: bool = False

    @property
    def opened(self) -> bool:
        return not self.folded or any(field.problems for field in self.fields)


@dataclass(frozen=True)
class ToolFields:
    """A tool of the editor: whether it is on, a line for its fold, and its fields."""

    key: str
    on: bool
    name: str
    executor: str
    summary: str
    fields: list[Field]

    @property
    def invalid(self) -> bool:
        return any(field.problems for field in self.fields)


def sections_of(form: HarnessForm, located: Located, *, name_is_fixed: bool) -> list[Section]:
    """Everything of the form but its tools, which stand after the section `prompts`."""
    maker = _Maker(form, located)
    identity = [
        maker.field("name", "Name", fixed=name_is_fixed),
        maker.field("wording", "Wording", hint="in a few words, where the wording is from"),
    ]
    prompts = [
        maker.area("system_prompt", "System message", hint="left empty, none is sent", mono=True),
        maker.area("task_prompt", "First user message", mono=True),
    ]
    feedback = [
        maker.area(name, name.removeprefix("feedback."), mono=True)
        for name in form.values
        if name.startswith("feedback.")
    ]
    return [
        Section("identity", "Name", f"family {form.family}", identity),
        Section("prompts", "Prompts", "Jinja templates; {{ task.statement }} is the task", prompts),
        Section("rules", "Rules", "how a reply is read, and what ends a run", _rules(maker, form)),
        Section("limits", "Limits", "an empty field is no limit; a launch can tighten them", _limits(maker)),
        Section(
            "feedback",
            "What the harness tells the model",
            "as the family words it, until you change it",
            feedback,
            folded=True,
        ),
        Section("options", "Options and sampling", "JSON", _json_fields(maker, form), folded=True),
    ]


def _json_fields(maker: _Maker, form: HarnessForm) -> list[Field]:
    family = family_of(form.family)
    options = ", ".join(family.options.model_fields) if family else ""
    sampling = "not part of the harness: a model's own settings are what is sent"
    return [
        maker.area("options", "Options of the family", hint=options or "it has none", mono=True),
        maker.area("suggested_sampling", "Suggested sampling", hint=sampling, mono=True),
    ]


def tool_fields(tool: ToolForm, located: Located) -> ToolFields:
    """A tool as it is shown."""
    values = tool.values
    fields = [*_wording_fields(tool, located), *_working_fields(tool, located)]
    return ToolFields(
        key=tool.key,
        on=tool.on,
        name=tool.name,
        executor=values["executor"],
        summary=one_line(values["description"], 90),
        fields=fields,
    )


def _wording_fields(tool: ToolForm, located: Located) -> list[Field]:
    """What the model is told of a tool, and by what it is executed."""
    make, values = _ToolMaker(tool, located), tool.values
    executors = [*registry.EXECUTORS]
    if values["executor"] not in executors:
        executors.append(values["executor"])
    return [
        make.field("name", "Name", mono=True, hint="what the model calls"),
        make.field("executor", "Executor", kind="select", choices=[(name, name) for name in executors]),
        make.area("description", "Description"),
        make.area("parameters", "Schema of its arguments", hint="a JSON Schema", mono=True, least=4),
    ]


def _working_fields(tool: ToolForm, located: Located) -> list[Field]:
    """How a tool works, and what of its text the model sees."""
    make = _ToolMaker(tool, located)
    template = "a Jinja template of text, exit_code, stdout, stderr …; left empty, the text itself"
    kept = [("head", "the head"), ("head_and_tail", "head and tail")]
    return [
        make.area("settings", "Settings", hint=_settings_hint(tool.values["executor"]), mono=True, least=1),
        make.area("template", "What the model sees", hint=template, mono=True),
        make.field("characters", "Cut to", unit="characters", hint="empty: no limit"),
        make.field("lines", "Cut to", unit="lines", hint="empty: no limit"),
        make.field("keep", "What stays", kind="select", choices=kept),
    ]


class _ToolMaker:
    """Makes fields of a tool."""

    def __init__(self, tool: ToolForm, located: Located) -> None:
        self._tool, self._located = tool, located

    def field(self, part: str, label: str, **more: Any) -> Field:
        name = self._tool.id_of(part)
        return Field(name, label, self._tool.values[part], problems=_of(name, self._located), **more)

    def area(self, part: str, label: str, *, hint: str = "", mono: bool = False, least: int = 2) -> Field:
        rows = _rows(self._tool.values[part], least)
        return self.field(part, label, kind="area", hint=hint, mono=mono, rows=rows)


class _Maker:
    """Makes fields of a form."""

    def __init__(self, form: HarnessForm, located: Located) -> None:
        self._values, self._located = form.values, located

    def field(self, name: str, label: str, **more: Any) -> Field:
        return Field(name, label, self._values[name], problems=_of(name, self._located), **more)

    def area(self, name: str, label: str, *, hint: str = "", mono: bool = False) -> Field:
        rows = _rows(self._values[name], 3)
        return self.field(name, label, kind="area", hint=hint, mono=mono, rows=rows)

    def tick(self, name: str, label: str, hint: str = "") -> Field:
        return self.field(name, label, kind="tick", hint=hint)

    def select(self, name: str, label: str, choices: Iterable[tuple[str, str]], hint: str = "") -> Field:
        own = self._values[name]
        known = list(choices)
        if own not in dict(known):
            known.append((own, own))
        return self.field(name, label, kind="select", choices=known, hint=hint)


def _rules(maker: _Maker, form: HarnessForm) -> list[Field]:
    family = family_of(form.family)
    protocols = family.protocols if family else ()
    policies = family.malformed_policies if family else ()
    return [
        maker.select(
            "protocol", "Protocol", [(name, name) for name in protocols], "how the model writes its calls"
        ),
        maker.select(
            "malformed_calls", "Malformed calls", [(name, _POLICIES.get(name, name)) for name in policies]
        ),
        maker.tick("parallel_tool_calls", "Several calls in a reply", "asked of the server"),
        maker.tick("stop.no_tool_call", "A reply without a call ends the run"),
        maker.field(
            "stop.tool", "Tool that ends the run", mono=True, hint="by the name it has above; empty: none"
        ),
        maker.field(
            "stop.marker",
            "Line that ends the run",
            mono=True,
            hint="the first line a command prints; empty: none",
        ),
    ]


_POLICIES = {
    "explain": "the model is told what was wrong",
    "as_leaf": "the tool runs with no arguments, as in Leaf",
    "requery": "told, and taken out once a call is understood",
}


def _limits(maker: _Maker) -> list[Field]:
    return [maker.field(f"limits.{name}", label, unit=UNITS[name]) for name, label in HARNESS_LIMITS.items()]


def _settings_hint(executor: str) -> str:
    if executor not in registry.EXECUTORS:
        return "a JSON object"
    names = registry.executor(executor).Settings.model_fields
    return f"a JSON object of {', '.join(names)}" if names else "this executor has none"


def located_in(form: HarnessForm, problems: Iterable[Problem]) -> list[Said]:
    """Problems with the fields of the form that they mean. What cannot be read is where it was typed."""
    unread = {one.problem: Place([one.field]) for one in form.raw()[1]}
    return [said_of(problem, unread.get(problem) or form.place_of(problem.field)) for problem in problems]


def said_of(problem: Problem, place: Place = _NOWHERE) -> Said:
    """A problem as a page says it, a text that was typed in quotes of its language."""
    value = problem.value
    if len(value) > 1 and value[0] in "'\"":
        value = f"“{value[1:].removesuffix(value[0])}”"
    words = f"{value} {problem.message}".strip()
    return Said(problem.field, words, problem.severity, place.fields, place.inside)


def _of(name: str, located: Located) -> list[Said]:
    return [one for one in located if name in one.places]


def _rows(text: str, least: int) -> int:
    """Lines a field needs to show its text, about a hundred characters each, within reason."""
    if len(text) > 100 * _MOST_ROWS:
        return _MOST_ROWS
    return min(max(sum(1 + len(line) // 100 for line in text.split("\n")), least), _MOST_ROWS)
