"""Reads a configuration of mini-swe-agent into a harness: text and data only, nothing of it is run.

A configuration has the sections agent, model and environment. What a harness is made of is taken over; models
and places to run in are the lab's own matter, so what concerns those is left out and named. Version 1 had its
templates with the agent and knew only commands in the text; its files are read too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, Observation, ToolDefinition
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.literals import read_text
from lab.engine.harnesses.mini import FORMAT_ERROR
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.problems import InvalidConfigError, Problem
from lab.engine.harnesses.yaml_reading import plain_yaml
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject

_LARGEST_FILE = 1_000_000
_SECTIONS = ("agent", "model", "environment")
_TAG, _TAG_BEFORE_2 = "mswea_bash_command", "bash"
# Expressions that find a fenced block, or an element, of one tag.
_FENCE = re.compile(r"(?:\(\?s\))?```(?P<tag>[\w.-]+)(?:\\s\*)?\\n\(\.\*\?\)\\n```")
_ELEMENT = re.compile(r"(?:\(\?s\))?<(?P<tag>[\w.-]+)>\(\.\*\?\)</(?P=tag)>")
# What has another name or shape here than in mini-swe-agent's templates.
_TASK = "{% set task = task.statement %}"
_OUTPUT = '{% set output = {"output": output, "returncode": exit_code, "exception_info": exception} %}'
_ACTION = '{% set action = {"action": command} %}'
_SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
    | {"max_tokens", "max_completion_tokens", "reasoning_effort", "chat_template_kwargs"}
)
_SHELLS = ("bash -c", "bash -lc")


class _Calling(NamedTuple):
    """How a command is written: the protocol, and the tag of its block or element."""

    protocol: str
    tag: str = _TAG


def import_mini(file: Path) -> HarnessConfig:
    """The harness of a configuration file. `source` names file, SHA-256 and the version if the file says one;
    `left_out` there are the fields that were not carried over, `notes` sentences on what is not as it was.

    Raises:
        InvalidValueError: no such file, no YAML, no configuration, or one that a harness cannot be faithful
            to; names file and field.
    """
    text = read_text("--mini", file, largest=_LARGEST_FILE)
    try:
        raw = plain_yaml(text)
    except InvalidValueError as refused:
        raise InvalidValueError("--mini", str(file), f"cannot be read: {refused}") from None
    # Line ends as they are in the file: its hash is what other programs say it is.
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    source = {"kind": "mini", "file": file.name, "sha256": sha256}
    stem = re.sub(r"[^\w.-]+", "-", file.stem)[:60]
    name = "mini-imported" if stem == "mini" else f"mini-{stem}"
    return mini_harness(raw, name=name, source=source, called=str(file))


def mini_harness(raw: object, *, name: str, source: JSONObject, called: str) -> HarnessConfig:
    """The harness of a configuration as it stands in a file, or as `info.config` in a run's trajectory.

    `source` is completed as `import_mini` says; `called` is what errors call the whole.

    Raises:
        InvalidValueError: as `import_mini`.
    """
    if not isinstance(raw, Mapping) or not any(
        isinstance(raw.get(section), Mapping) for section in _SECTIONS
    ):
        raise InvalidValueError(
            "--mini", called, f"is no configuration of mini-swe-agent: it has none of {', '.join(_SECTIONS)}"
        )
    reading = _Reading(raw, called)
    config = reading.harness(name)
    left_out, notes = sorted(reading.left_out), reading.notes
    version = str(raw.get("mini_version") or "")
    wording = (
        f"mini-swe-agent's, read from {source.get('file') or called}; the tool's description is the lab's"
    )
    told = {**source, "version": version, "left_out": left_out, "notes": notes}
    config = config.model_copy(update={"source": told, "wording": wording})
    found = errors(config)
    if found:
        renamed = [dataclasses.replace(one, field=reading.origins.get(one.field, one.field)) for one in found]
        raise InvalidConfigError(renamed, source=called)
    return config


class _Reading:
    """Takes a configuration apart. `left_out` are the fields that nothing was made of yet, `origins` says
    which field of the file a field of the harness came from."""

    def __init__(self, raw: Mapping[str, Any], called: str) -> None:
        self.called = called
        self.notes: list[str] = []
        self.origins: dict[str, str] = {}
        self.left_out = {str(key) for key in raw if key not in _SECTIONS and key != "mini_version"}
        self._given: dict[str, Mapping[str, Any]] = {}
        for section in _SECTIONS:
            given = raw.get(section) or {}
            if not isinstance(given, Mapping):
                raise self._refused(section, given, "is no mapping of names to values")
            self._given[section] = given
            self.left_out |= {f"{section}.{key}" for key in given}
        self._preset = load_preset("mini")
        self._is_before_2 = "action_observation_template" in self._given["agent"]
        # Which section has the templates of observations and answers.
        self._owner = "agent" if self._is_before_2 else "model"

    def harness(self, name: str) -> HarnessConfig:
        """The harness, not checked yet."""
        system = self._template("agent", "system_template", "system_prompt")
        task = self._template("agent", "instance_template", "task_prompt")
        calling = self._calling()
        sampling, parallel = self._model_settings()
        feedback = self._template(self._owner, "format_error_template", f"feedback.{FORMAT_ERROR}")
        options: JSONObject = {} if calling.tag == _TAG else {"tag": calling.tag}
        if self._is_before_2:
            options["keeps_unread_replies"] = True
        self._say_places()
        return self._preset.model_copy(
            update={
                "name": name,
                "protocol": calling.protocol,
                "system_prompt": self._preset.system_prompt if system is None else _with_task(system),
                "task_prompt": self._preset.task_prompt if task is None else _with_task(task),
                "tools": (self._tool(),),
                "parallel_tool_calls": parallel,
                "feedback": {} if feedback is None else {FORMAT_ERROR: feedback},
                "options": options,
                "limits": self._limits(),
                "suggested_sampling": sampling,
            }
        )

    # Fields of the file.

    def _take(self, section: str, key: str) -> Any:
        """A field's value, None where it is not given; it counts as used."""
        self.left_out.discard(f"{section}.{key}")
        return self._given[section].get(key)

    def _template(self, section: str, key: str, field: str) -> str | None:
        """A template as Jinja reads it there: with plain line ends, and without the last of them."""
        name = f"{section}.{key}"
        value = self._take(section, key)
        if value is None:
            self.notes.append(f"{name} is not in the file; the lab's own text stands in its place.")
            return None
        if not isinstance(value, str):
            raise self._refused(name, value, "is no text")
        self.origins[field] = name
        return re.sub(r"\r\n?", "\n", value).removesuffix("\n")

    def _number(self, section: str, key: str, otherwise: float) -> float:
        value = self._take(section, key)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refused(f"{section}.{key}", value, "is no number")
        return value

    def _refused(self, field: str, value: object, reason: str) -> InvalidValueError:
        return InvalidConfigError([Problem(field, repr(value)[:80], reason)], source=self.called)

    # Parts of the harness.

    def _calling(self) -> _Calling:
        """By the expression that finds a command, else the model's class, else what the prompts show."""
        expression = self._take(self._owner, "action_regex")
        if expression is not None:
            return self._by_expression(f"{self._owner}.action_regex", expression)
        if self._is_before_2:
            return _Calling("fenced", _TAG_BEFORE_2)
        kind = str(self._given["model"].get("model_class") or "")
        if "textbased" in kind:
            return _Calling("fenced")
        if not kind and any(f"```{_TAG}" in str(text) for text in self._given["agent"].values()):
            self.notes.append(
                "The file names no class of model; its prompts ask for fenced commands, so this does."
            )
            return _Calling("fenced")
        return _Calling("native")

    def _by_expression(self, field: str, expression: object) -> _Calling:
        text = str(expression)
        for protocol, shape in (("fenced", _FENCE), ("xml", _ELEMENT)):
            found = shape.fullmatch(text)
            if found:
                return _Calling(protocol, found["tag"])
        raise self._refused(
            field,
            expression,
            r"cannot be carried over: a command stands in a fenced block (```tag\s*\n(.*?)\n```) or in an "
            "element (<tag>(.*?)</tag>) of one tag",
        )

    def _tool(self) -> ToolDefinition:
        tool = self._preset.tools[0]
        settings = {"timeout_sec": self._number("environment", "timeout", 30), "shell": self._shell()}
        field = f"tools.{tool.name}.observation.template"
        if self._is_before_2:
            template = self._template("agent", "action_observation_template", field)
            stopped = self._template("agent", "timeout_template", field)
        else:
            template, stopped = self._template("model", "observation_template", field), None
        if template is None:
            return tool.model_copy(update={"settings": settings})
        template = _OUTPUT + template
        if stopped is not None:
            template = f"{{% if timed_out %}}{_ACTION}{stopped}{{% else %}}{template}{{% endif %}}"
        return tool.model_copy(update={"settings": settings, "observation": Observation(template=template)})

    def _shell(self) -> str:
        words = self._take("environment", "interpreter")
        if words is not None:
            shell = " ".join(map(str, words)) if isinstance(words, list) else str(words)
            if shell.removeprefix("/bin/") not in _SHELLS:
                reason = f"cannot be carried over: commands are run by {' or '.join(_SHELLS)}"
                raise self._refused("environment.interpreter", words, reason)
            return shell.removeprefix("/bin/")
        kind = str(self._given["environment"].get("environment_class") or "")
        # What mini-swe-agent does in containers where the file says nothing.
        return "bash -lc" if self._is_before_2 or kind == "docker" else "bash -c"

    def _limits(self) -> Limits:
        steps = self._number("agent", "step_limit", 0)
        dollars = self._number("agent", "cost_limit", 3.0)
        seconds = self._number("agent", "wall_time_limit_seconds", 0)
        errors_in_a_row = self._number(
            "agent", "max_consecutive_format_errors", 0 if self._is_before_2 else 3
        )
        try:
            return Limits(
                max_steps=_limit(steps),
                max_context_tokens=None,
                max_tokens_per_turn=None,
                max_total_time_sec=_limit(seconds),
                max_cost_usd=Decimal(str(dollars)) if dollars > 0 else None,
                max_format_errors=_limit(errors_in_a_row),
            )
        except ValidationError as failed:
            first = failed.errors(include_url=False)[0]
            raise self._refused("agent", first["input"], f"is no limit: {first['msg']}") from None

    def _model_settings(self) -> tuple[JSONObject, bool]:
        """Suggested sampling, and whether several calls in a reply are asked for."""
        given = self._take("model", "model_kwargs") or {}
        if not isinstance(given, Mapping):
            raise self._refused("model.model_kwargs", given, "is no mapping of names to values")
        parallel = given.get("parallel_tool_calls", self._preset.parallel_tool_calls)
        if not isinstance(parallel, bool):
            raise self._refused(
                "model.model_kwargs.parallel_tool_calls", parallel, "is neither true nor false"
            )
        used = _SAMPLING | {"parallel_tool_calls"}
        self.left_out |= {f"model.model_kwargs.{key}" for key in given if key not in used}
        return {key: value for key, value in given.items() if key in _SAMPLING}, parallel

    def _say_places(self) -> None:
        place = self._given["environment"].get("cwd")
        texts = [str(self._given["agent"].get(key) or "") for key in ("system_template", "instance_template")]
        if place and str(place) != "/" and any(str(place) in text for text in texts):
            self.notes.append(
                f"The prompts name the folder {place}; here the agent works in the workspace of its sandbox."
            )


def _with_task(template: str) -> str:
    return _TASK + template if "task" in template else template


def _limit(number: float) -> Any:
    """mini-swe-agent's 0 is no limit."""
    return number if number > 0 else None
