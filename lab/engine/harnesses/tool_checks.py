"""Whether a harness's tools can be offered and executed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.events import StreamFacts
from lab.engine.harnesses.base import HarnessConfig, ToolDefinition
from lab.engine.harnesses.observations import observation_variables
from lab.engine.harnesses.problems import Problem, error, of_validation, refusal, warning
from lab.engine.harnesses.templates import check
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import Executor, ToolResult, needed_parameters, runs_commands

# What servers take for the name of a function.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_TOOLS = 128
_FEWEST_CHARACTERS = 100
_LONGEST_MESSAGE = 200
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def tool_problems(
    config: HarnessConfig, names: Mapping[str, object] | None, *, plugins: bool = False
) -> list[Problem]:
    """What is wrong with the tools of a harness.

    `names` are what the family lets observation templates use beside the common names; None: it is not known,
    and they are not looked at. `plugins` as for `checks.problems`.
    """
    found = list(_list_problems(config))
    for number, tool in enumerate(config.tools, start=1):
        field = f"tools.{tool.name or number}"
        found += _name_problems(field, tool)
        found += _executor_problems(field, tool, plugins=plugins)
        found += _truncation_problems(f"{field}.observation.truncation", tool)
        if names is not None and tool.observation.template:
            found += _template_problems(f"{field}.observation.template", tool, names)
    return found


def executor_of(tool: ToolDefinition, *, plugins: bool) -> Executor | None:
    """The tool's executor, None where there is none that may be loaded."""
    if not plugins and tool.executor not in registry.EXECUTORS:
        return None
    try:
        return registry.executor(tool.executor)
    except InvalidValueError:
        return None


def command_problems(config: HarnessConfig, *, plugins: bool = False) -> Iterator[Problem]:
    """What is wrong with the tools of a harness whose replies are one command for the first tool."""
    for other in config.tools[1:]:
        yield error(
            f"tools.{other.name}",
            other.name,
            f"can never be called: with the protocol {config.protocol} a reply is a command for "
            f"{config.tools[0].name}; leave it out, or choose the protocol native",
        )
    for tool in config.tools[:1]:
        executor = executor_of(tool, plugins=plugins)
        if executor is not None and not _takes_a_command(executor):
            known = sorted(registry.EXECUTORS)
            fitting = ", ".join(name for name in known if _takes_a_command(registry.executor(name)))
            yield error(
                f"tools.{tool.name}.executor",
                tool.executor,
                f"takes no command alone; choose one of {fitting}",
            )


def _takes_a_command(executor: Executor) -> bool:
    return runs_commands(executor) and [set(names) for names in needed_parameters(executor)] == [{"command"}]


def _list_problems(config: HarnessConfig) -> Iterator[Problem]:
    if not config.tools:
        yield Problem("tools", "", "offer the model nothing to do; add at least one")
    if len(config.tools) > _MOST_TOOLS:
        yield Problem("tools", "", f"are {len(config.tools)}, and servers take {_MOST_TOOLS}; leave some out")
    counts = Counter(tool.name for tool in config.tools)
    for name, count in counts.items():
        if count > 1:
            yield error(
                f"tools.{name}.name", name, f"is the name of {count} tools; rename or leave out all but one"
            )
    folded = Counter(name.lower() for name in counts)
    for name in counts:
        if folded[name.lower()] > 1:
            others = [other for other in counts if other.lower() == name.lower() and other != name]
            yield warning(
                f"tools.{name}.name",
                name,
                f"differs from {', '.join(others)} in case alone, which models mix up; rename one",
            )


def _name_problems(field: str, tool: ToolDefinition) -> Iterator[Problem]:
    if not _NAME.fullmatch(tool.name):
        yield error(
            f"{field}.name",
            tool.name,
            "is no name that servers take; write 1 to 64 letters, digits, _ or -",
        )


def _executor_problems(field: str, tool: ToolDefinition, *, plugins: bool) -> Iterator[Problem]:
    of_schema = list(_schema_problems(f"{field}.parameters", tool.parameters))
    yield from of_schema
    if not plugins and tool.executor not in registry.EXECUTORS:
        known = ", ".join(sorted(registry.EXECUTORS))
        yield error(f"{field}.executor", tool.executor, f"is no executor; choose one of {known}")
        return
    try:
        executor = registry.executor(tool.executor)
    except InvalidValueError as refused:
        yield refusal(f"{field}.executor", refused)
        return
    try:
        executor.Settings.model_validate(tool.settings)
    except ValidationError as failed:
        known_settings = tuple(executor.Settings.model_fields)
        yield from of_validation(failed, tool.settings, prefix=f"{field}.settings", known=known_settings)
    if not any(problem.severity == "error" for problem in of_schema):
        yield from _parameter_problems(f"{field}.parameters", tool, executor)


def _schema_problems(field: str, schema: JSONObject) -> Iterator[Problem]:
    # Imported when the first harness is checked: no process shall start slower because of it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    draft = Draft202012Validator
    wrong = best_match(draft(draft.META_SCHEMA).iter_errors(schema))
    if wrong is not None:
        path = _steps(wrong.absolute_path)
        said = wrong.message[:_LONGEST_MESSAGE]
        if path and path[-1] == "type":
            said = f"a type is one of {', '.join(_TYPES)}, or a list of them"
        place = ".".join([field, *path])
        yield error(place, wrong.instance, f"is no JSON Schema: {said}; mend it there")
        return
    if schema.get("type") != "object":
        yield error(
            f"{field}.type", schema.get("type"), 'must be "object": the arguments of a call are one object'
        )
    for name, about in schema.get("properties", {}).items():
        if not isinstance(about, dict):
            yield error(
                f"{field}.properties.{name}", about, 'tells a model nothing; write such as {"type": "string"}'
            )
    # Expressions are those of another language, which Python reads nearly always.
    for odd in draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER).iter_errors(schema):
        place = ".".join([field, *_steps(odd.absolute_path)])
        yield warning(place, odd.instance, f"may be refused by servers: {odd.message[:_LONGEST_MESSAGE]}")


def _steps(path: Iterable[str | int]) -> list[str]:
    """A place in a schema, with the entries of lists counted from 1."""
    return [str(step + 1) if isinstance(step, int) else step for step in path]


def _parameter_problems(field: str, tool: ToolDefinition, executor: Executor) -> Iterator[Problem]:
    properties = tool.parameters.get("properties", {})
    for names in needed_parameters(executor):
        if not any(name in properties for name in names):
            yield warning(
                f"{field}.properties",
                list(properties),
                f"has no {' or '.join(names)}, which the executor {tool.executor} reads; add it, or no call "
                "can work",
            )
    required = tool.parameters.get("required", [])
    missing = [name for name in required if name not in properties]
    if missing:
        yield warning(
            f"{field}.required", required, f"asks for {', '.join(missing)}, which properties do not describe"
        )


def _truncation_problems(field: str, tool: ToolDefinition) -> Iterator[Problem]:
    characters = tool.observation.truncation.characters
    if 0 < characters < _FEWEST_CHARACTERS:
        yield warning(
            f"{field}.characters",
            characters,
            f"leaves next to nothing of a result; write {_FEWEST_CHARACTERS} or more, or 0 for all of it",
        )


def _template_problems(field: str, tool: ToolDefinition, names: Mapping[str, object]) -> Iterator[Problem]:
    try:
        check(field, tool.observation.template, {**sample_observation(tool), **names})
    except InvalidValueError as refused:
        yield refusal(field, refused)


def sample_observation(tool: ToolDefinition) -> JSONObject:
    """The names of an observation template, with the values of a small command.

    There are no arguments: a model may leave out any, and what its call came to is worded all the same.
    """
    output = StreamFacts(text="2 passed\n", total_bytes=9, sha256="0" * 64, truncated=False)
    silence = StreamFacts(text="", total_bytes=0, sha256="0" * 64, truncated=False)
    result = ToolResult("2 passed\n", exit_code=0, stdout=output, stderr=silence)
    return observation_variables(result, tool=tool.name, arguments={}, seconds=1.5)
