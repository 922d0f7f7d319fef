"""Reads the wording of R2E-Gym's edit agent out of a checkout: prompts and tools. None of it is run."""

from __future__ import annotations

import string
from pathlib import Path
from typing import NamedTuple

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, ToolDefinition
from lab.engine.harnesses.checkouts import revision
from lab.engine.harnesses.literals import as_template, functions_of, parse, read_text
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.yaml_reading import plain_yaml
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import needed_parameters

R2E_FOLDER = Path("src/r2egym/agenthub")
# Where the prompts of a protocol stand, in newer checkouts and in older ones.
_CONFIGS = {
    "xml": ("config/r2egym/edit_non_fn_calling.yaml", "config/edit_non_fn_calling.yaml"),
    "native": ("config/r2egym/edit_fn_calling.yaml", "config/edit_fn_calling.yaml"),
}
_OPTION = "--r2e"
# R2E-Gym's containers have the repository there; the lab's sandboxes, where the task says.
_WORKSPACE = "/testbed"
_PLACEHOLDERS = {"problem_statement": "{{ task.statement }}", "working_dir": "{{ workspace }}"}


class _Prompts(NamedTuple):
    """What a configuration says, as templates."""

    file: Path
    system: str
    task: str


def import_r2e(checkout: Path) -> HarnessConfig:
    """A harness with the prompts and the tools of the R2E-Gym in `checkout`, the folder of its repository.

    Everything else (loop, observations, limits) is the preset `r2e`. Prompts of both protocols are taken
    where both are there, and the harness's protocol decides between them. The path /testbed in a prompt
    becomes the folder in which the agent works. `source` names folder, repository address, commit and files.

    Raises:
        InvalidValueError: no such folder, or a file that does not hold what was looked for; names both.
    """
    folder = checkout / R2E_FOLDER
    if not folder.is_dir():
        raise InvalidValueError(
            _OPTION, str(checkout), f"holds no {R2E_FOLDER}; give the top folder of a checkout of R2E-Gym"
        )
    preset = load_preset("r2e")
    prompts = {
        protocol: _prompts(file) for protocol, names in _CONFIGS.items() if (file := _first(folder, names))
    }
    if not prompts:
        wanted = " or ".join(names[0] for names in _CONFIGS.values())
        raise InvalidValueError(_OPTION, str(folder), f"holds no {wanted}; the prompts were looked for there")
    tools_file = folder / "tools" / "__init__.py"
    tools = _tools(tools_file, preset.tools)
    read_from = revision(checkout)
    files = [tools_file, *(one.file for one in prompts.values())]
    return preset.model_copy(
        update={
            "name": read_from.named("r2e"),
            "wording": f"R2E-Gym's own, read from {read_from}; {_WORKSPACE} is where the agent works",
            "protocol": next(iter(prompts)),
            "system_prompt": _by_protocol({name: one.system for name, one in prompts.items()}),
            "task_prompt": _by_protocol({name: one.task for name, one in prompts.items()}),
            "tools": tools,
            "source": {
                "kind": "r2e",
                **read_from._asdict(),
                "files": [str(file.relative_to(checkout)) for file in files],
            },
        }
    )


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _prompts(file: Path) -> _Prompts:
    try:
        data = plain_yaml(read_text(_OPTION, file))
    except InvalidValueError as error:
        if error.field == _OPTION:
            raise
        raise InvalidValueError(_OPTION, str(file), f"cannot be read as YAML: {error}") from None
    texts = {}
    for name in ("system_prompt", "instance_prompt"):
        text = data.get(name) if isinstance(data, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise InvalidValueError(
                _OPTION, str(file), f"holds no text {name}; use a checkout whose configuration has it"
            )
        texts[name] = text
    # The system prompt goes to the model as it stands, the other is a format of Python's.
    return _Prompts(file, _at_work(texts["system_prompt"]), _formatted(file, texts["instance_prompt"]))


def _formatted(file: Path, text: str) -> str:
    pieces = []
    try:
        for words, name, form, conversion in string.Formatter().parse(text):
            pieces.append(_at_work(words))
            if name is None:
                continue
            if name not in _PLACEHOLDERS or form or conversion:
                known = ", ".join(_PLACEHOLDERS)
                raise InvalidValueError(
                    _OPTION,
                    str(file),
                    f"asks for {{{name}}} in instance_prompt, which the lab does not have; it has {known}",
                )
            pieces.append(_PLACEHOLDERS[name])
    except ValueError as error:
        raise InvalidValueError(
            _OPTION, str(file), f"has an instance_prompt that is no format: {error}; mend its braces"
        ) from None
    return "".join(pieces)


def _at_work(text: str) -> str:
    """A text as a template, with the folder of the agent's work in place of R2E-Gym's."""
    return _PLACEHOLDERS["working_dir"].join(map(as_template, text.split(_WORKSPACE)))


def _by_protocol(texts: dict[str, str]) -> str:
    """One template that renders to the text of the harness's protocol."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return f'{{% if protocol == "xml" %}}{texts["xml"]}{{% else %}}{texts["native"]}{{% endif %}}'


def _tools(file: Path, known: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
    if not file.is_file():
        raise InvalidValueError(_OPTION, str(file), "is missing; the tool schemas were looked for there")
    functions = functions_of(parse(_OPTION, file))
    found = {tool.name: _matching(tool, functions) for tool in known}
    missing = [name for name, function in found.items() if function is None]
    if missing:
        raise InvalidValueError(
            _OPTION,
            str(file),
            f"holds no literal schema of the tool{'s' if len(missing) > 1 else ''} {', '.join(missing)} with "
            "the parameters that are read; use a checkout whose tools/__init__.py writes them out",
        )
    return tuple(
        tool.model_copy(update={"description": function["description"], "parameters": function["parameters"]})
        for tool in known
        if (function := found[tool.name]) is not None
    )


def _matching(tool: ToolDefinition, functions: list[JSONObject]) -> JSONObject | None:
    """The function of this name whose parameters the executor reads; R2E-Gym has two of some names."""
    needed = needed_parameters(registry.executor(tool.executor))
    for function in functions:
        properties = function["parameters"].get("properties") or {}
        if function["name"] == tool.name and all(any(one in properties for one in names) for names in needed):
            return function
    return None
