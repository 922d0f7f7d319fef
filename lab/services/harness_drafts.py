"""A harness that somebody is writing: what is wrong with it, what it would be saved as, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Max

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, ToolDefinition
from lab.engine.harnesses.checks import problems, read_config
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.harnesses.problems import InvalidConfigError, Problem
from lab.engine.harnesses.yaml_form import from_yaml
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import needed_parameters
from lab.models import Harness, HarnessVersion
from lab.services.harness_pages import HarnessDifference, compared
from lab.services.harness_texts import text_warnings
from lab.services.harnesses import name_problem


@dataclass(frozen=True)
class Draft:
    """What would be saved. `config` None: it cannot be, and `problems` say why; warnings are among them.

    `same_as` is the version that has this content already; `saved_as` names the one that would be made.
    `difference` is that from the version it began as, None where there is none.
    """

    config: HarnessConfig | None
    problems: Sequence[Problem]
    same_as: HarnessVersion | None = None
    saved_as: str = ""
    difference: HarnessDifference | None = None

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "warning"]


def checked(
    raw: JSONObject, *, unread: Sequence[Problem] = (), based_on: HarnessConfig | None = None
) -> Draft:
    """The draft of this data; `unread` are problems of fields that could not be read into it."""
    try:
        config = read_config(raw)
    except InvalidConfigError as refused:
        places = tuple(problem.field for problem in unread)
        others = [one for one in refused.problems if not one.field.startswith(places)] if unread else []
        return Draft(None, [*unread, *(others if unread else refused.problems)])
    if unread:
        return Draft(None, unread)
    return _draft(config, based_on)


def checked_yaml(text: str) -> Draft:
    """The draft of a YAML text, held against the newest version of the harness it names."""
    try:
        config = from_yaml(text)
    except InvalidConfigError as refused:
        return Draft(None, refused.problems)
    except InvalidValueError as refused:
        return Draft(None, [Problem(refused.field, repr(str(refused.value)), refused.reason)])
    newest = HarnessVersion.objects.newest().filter(harness__name=config.name).first()
    return _draft(config, HarnessConfig.model_validate(newest.config) if newest else None)


def _draft(config: HarnessConfig, based_on: HarnessConfig | None) -> Draft:
    found = [*problems(config), *text_warnings(config)]
    same_as = HarnessVersion.objects.filter(digest=config.digest).select_related("harness").first()
    if same_as is None and (taken := name_problem(config=config)):
        return Draft(None, [taken, *found])
    newest = Harness.objects.filter(name=config.name).aggregate(n=Max("versions__version"))["n"] or 0
    difference = compared(based_on, config) if based_on else None
    return Draft(config, found, same_as, f"{config.name} v{newest + 1}", difference)


def newer_than(version: HarnessVersion) -> HarnessVersion | None:
    """The newest version of the harness where it is not this one."""
    newer = version.harness.versions.filter(version__gt=version.version)
    return newer.select_related("harness").order_by("-version").first()


def offered_tools() -> dict[str, list[tuple[str, str]]]:
    """What can be added to a harness: group -> value and name, the presets' tools and bare executors."""
    groups = {
        f"as in {name}": [(f"{name}/{tool.name}", tool.name) for tool in load_preset(name).tools]
        for name in preset_names()
    }
    return {**groups, "executors, without wording": [(f"/{name}", name) for name in registry.EXECUTORS]}


def offered_tool(value: str) -> ToolDefinition:
    """One of `offered_tools`.

    Raises:
        InvalidValueError: it is none of them.
    """
    preset, _, name = value.partition("/")
    if preset in preset_names() and (tool := load_preset(preset).tool(name)):
        return tool
    if preset or name not in registry.EXECUTORS:
        raise InvalidValueError("tool", value[:80], "is no tool that can be added; choose one from the list")
    needed = [names[0] for names in needed_parameters(registry.executor(name))]
    schema: JSONObject = {"type": "object", "properties": {one: {"type": "string"} for one in needed}}
    if needed:
        schema["required"] = needed
    return ToolDefinition(name=name, executor=name, parameters=schema)
