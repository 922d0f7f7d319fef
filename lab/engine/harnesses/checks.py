"""Whether a harness can be used: everything that is wrong with one, before it is stored or run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from pydantic import ValidationError

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import Family, HarnessConfig, PromptFacts
from lab.engine.harnesses.plain_data import plain_problems
from lab.engine.harnesses.problems import InvalidConfigError, Problem, error, of_validation, refusal, warning
from lab.engine.harnesses.sense_checks import sense_problems
from lab.engine.harnesses.stop_checks import stop_problems
from lab.engine.harnesses.templates import check
from lab.engine.harnesses.tool_checks import command_problems, tool_problems
from lab.engine.limits import UNITS

LONGEST_TEXT = 200_000
"""Characters of a prompt, and of any other single text of a harness."""
LONGEST_NAME = 100

_LARGEST_LIMIT = 10**12
_BOUNDS = ("max_steps", "max_total_time_sec", "max_tokens_total", "max_cost_usd", "max_context_tokens")
_FACTS = PromptFacts(
    statement="Division by zero\n\n`ratio(1, 0)` raises. It should return None.",
    workspace="/workspace",
    system="Linux",
    release="6.1.0",
    version="#1 SMP",
    machine="x86_64",
)


def problems(config: HarnessConfig, *, plugins: bool = False) -> list[Problem]:
    """Everything that is wrong with a harness, errors and warnings, in the order of its fields.

    `plugins`: families and executors may be given as package.module:Name, which imports that module. Only
    who may run code on this machine anyway is allowed to; without, such a name is an error.
    """
    found = plain_problems(config.model_dump(mode="python"))
    if found:
        return found
    found += _name_problems(config)
    found += _length_problems(config)
    family = _family(config, found, plugins=plugins)
    found += tool_problems(config, family.observation_sample if family else None, plugins=plugins)
    if family is None:
        return _in_order(found)
    found += _option_problems(config, family)
    found += _protocol_problems(config, family)
    if config.protocol in family.command_protocols:
        found += command_problems(config, plugins=plugins)
    found += stop_problems(config, plugins=plugins)
    found += _feedback_problems(config, family)
    found += _limit_problems(config)
    found += _prompt_problems(config, family, found)
    found += sense_problems(config)
    return _in_order(found)


def errors(config: HarnessConfig, *, plugins: bool = False) -> list[Problem]:
    """What forbids a harness."""
    return [problem for problem in problems(config, plugins=plugins) if problem.severity == "error"]


def read_config(raw: object, *, source: str = "", plugins: bool = False) -> HarnessConfig:
    """The harness that data from outside describes; `source` is what the error shall call it.

    Raises:
        InvalidConfigError: it describes none that can be used; carries every problem with field, value and
            way out.
    """
    found = plain_problems(raw)
    if not found and not isinstance(raw, Mapping):
        found = [
            error("harness", raw, "is no harness; give a mapping with name, family, system_prompt, tools")
        ]
    if found:
        raise InvalidConfigError(found, source=source)
    try:
        config = HarnessConfig.model_validate(raw)
    except ValidationError as failed:
        names = tuple(HarnessConfig.model_fields)
        raise InvalidConfigError(of_validation(failed, raw, known=names), source=source) from None
    found = errors(config, plugins=plugins)
    if found:
        raise InvalidConfigError(found, source=source)
    return config


def _family(config: HarnessConfig, found: list[Problem], *, plugins: bool) -> Family | None:
    if not plugins and config.family not in registry.FAMILIES:
        known = ", ".join(sorted(registry.FAMILIES))
        found.append(error("family", config.family, f"is no family of harnesses; choose one of {known}"))
        return None
    try:
        return registry.family(config.family)
    except InvalidValueError as refused:
        found.append(refusal("family", refused))
        return None


def _name_problems(config: HarnessConfig) -> Iterator[Problem]:
    name = config.name
    if not name.strip() or name != name.strip() or not name.isprintable():
        yield error("name", name, "is no name; write one line of text without space around it")
    elif len(name) > LONGEST_NAME:
        yield error("name", name, f"has {len(name)} characters; write at most {LONGEST_NAME}")
    elif "@" in name:
        yield error("name", name, "holds an @, which stands before a version's number; leave it out")


def _length_problems(config: HarnessConfig) -> Iterator[Problem]:
    texts = {"system_prompt": config.system_prompt, "task_prompt": config.task_prompt}
    texts |= {f"feedback.{name}": text for name, text in config.feedback.items()}
    for tool in config.tools:
        texts[f"tools.{tool.name}.description"] = tool.description
    for field, text in texts.items():
        if len(text) > LONGEST_TEXT:
            yield error(
                field,
                text,
                f"has {len(text):,} characters, and at most {LONGEST_TEXT:,} are taken; shorten it",
            )


def _protocol_problems(config: HarnessConfig, family: Family) -> Iterator[Problem]:
    if config.protocol not in family.protocols:
        spoken = ", ".join(family.protocols)
        yield error(
            "protocol", config.protocol, f"is not spoken by the family {config.family}; choose {spoken}"
        )
    policies = family.malformed_policies
    if config.malformed_calls not in policies:
        yield error(
            "malformed_calls",
            config.malformed_calls,
            f"is nothing the family {config.family} does; choose {', '.join(policies)}",
        )


def _prompt_problems(config: HarnessConfig, family: Family, found: list[Problem]) -> Iterator[Problem]:
    wrong = {problem.field for problem in found if problem.severity == "error"}
    # What prompts may say of options and tools is not known while those cannot be read.
    if any(field.startswith(("options", "tools", "limits")) for field in wrong):
        return
    sample = family.prompt_variables(config, _FACTS, config.limits)
    for field, template in (("system_prompt", config.system_prompt), ("task_prompt", config.task_prompt)):
        if field not in wrong:
            yield from _template_problems(field, template, sample)


def _template_problems(field: str, template: str, sample: Mapping[str, object]) -> Iterator[Problem]:
    try:
        check(field, template, sample)
    except InvalidValueError as refused:
        yield refusal(field, refused)


def _feedback_problems(config: HarnessConfig, family: Family) -> Iterator[Problem]:
    tools = [tool.name for tool in config.tools]
    for name, template in config.feedback.items():
        known = family.feedback.get(name)
        if known is None:
            names = ", ".join(sorted(family.feedback))
            yield error(
                f"feedback.{name}",
                template,
                f"is nothing the family {config.family} says{_owner(config, name, of='feedback')}; "
                f"it says {names}",
            )
        elif len(template) <= LONGEST_TEXT:
            yield from _template_problems(f"feedback.{name}", template, {"tools": tools, **known.sample})


def _option_problems(config: HarnessConfig, family: Family) -> Iterator[Problem]:
    try:
        family.options.model_validate(config.options)
    except ValidationError as failed:
        known = tuple(family.options.model_fields)
        for problem in of_validation(failed, config.options, prefix="options", known=known):
            name = problem.field.removeprefix("options.")
            if name in known or name not in config.options:
                yield problem
                continue
            owner = _owner(config, name, of="options")
            has = f"it has {', '.join(known)}" if known else "it has none, so leave it out"
            yield Problem(
                problem.field, problem.value, f"is no option of the family {config.family}{owner}; {has}"
            )


def _owner(config: HarnessConfig, name: str, *, of: str) -> str:
    """Which other families know the name: who copies from one of them sees where it belongs."""
    owners = []
    for other in sorted(registry.FAMILIES):
        family = registry.family(other)
        names = family.feedback if of == "feedback" else family.options.model_fields
        if other != config.family and name in names:
            owners.append(other)
    return f" (it belongs to {', '.join(owners)})" if owners else ""


def _limit_problems(config: HarnessConfig) -> Iterator[Problem]:
    limits = config.limits
    for name, unit in UNITS.items():
        value = getattr(limits, name)
        if value is None:
            continue
        if not Decimal(str(value)).is_finite() or value <= 0:
            yield error(
                f"limits.{name}", value, f"is no positive number of {unit}; write one, or null for no limit"
            )
        elif value > _LARGEST_LIMIT:
            yield error(f"limits.{name}", value, f"is more {unit} than any run can use; write fewer, or null")
    turn, context = limits.max_tokens_per_turn, limits.max_context_tokens
    if turn is not None and context is not None and 0 < context <= turn:
        yield warning(
            "limits.max_tokens_per_turn",
            turn,
            f"is not below max_context_tokens ({context:,}): one reply may fill the context; write fewer",
        )
    if all(getattr(limits, name) is None for name in _BOUNDS):
        yield warning("limits", "", f"end no run; set one of {', '.join(_BOUNDS)}")


def _in_order(found: list[Problem]) -> list[Problem]:
    """By the order of the harness's fields, errors of a field before its warnings."""
    names = list(HarnessConfig.model_fields)

    def place(problem: Problem) -> tuple[int, bool]:
        top = problem.field.partition(".")[0]
        return (names.index(top) if top in names else -1, problem.severity == "warning")

    return sorted(found, key=place)
