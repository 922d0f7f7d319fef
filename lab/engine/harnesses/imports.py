"""Reads the wording of Leaf out of a checkout: prompt and tool schemas, as text. Nothing of it is run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, ToolDefinition
from lab.engine.harnesses.checkouts import revision
from lab.engine.harnesses.literals import as_template, assignments, functions_of, parse, string_of, values
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import JSONObject

LEAF_FOLDER = Path("frognano/harness/leaf")
_PROMPT_NAME = re.compile(r"system.*(prompt|message)|(prompt|message).*system", re.IGNORECASE)
_ANY_PROMPT_NAME = re.compile(r"prompt|instructions", re.IGNORECASE)


def import_leaf(checkout: Path) -> HarnessConfig:
    """A harness with the prompt and the tool schemas of the Leaf in `checkout`, the folder of its repository.

    Everything else (loop, observations, limits) is the preset `leaf-compatible`. `source` names folder,
    repository address and commit, the last two "" where the checkout does not say.

    Raises:
        InvalidValueError: no such folder, or a file that does not hold what was looked for; names both.
    """
    folder = checkout / LEAF_FOLDER
    if not folder.is_dir():
        raise InvalidValueError(
            "--leaf", str(checkout), f"holds no {LEAF_FOLDER}; give the top folder of a checkout of FrogNano"
        )
    modules = {file: parse("--leaf", file) for file in sorted(folder.glob("*.py"))}
    tools_file = folder / "tools.py"
    if tools_file not in modules:
        raise InvalidValueError(
            "--leaf", str(tools_file), "is missing; the tool schemas were looked for there"
        )
    preset = load_preset("leaf-compatible")
    tools = _tools(tools_file, modules[tools_file], {tool.name: tool for tool in preset.tools})
    prompt_file, prompt = _system_prompt(folder, modules)
    read_from = revision(checkout)
    return preset.model_copy(
        update={
            "name": read_from.named("leaf"),
            "wording": f"Leaf's own, read from {read_from}",
            # The prompt is a literal; as a template, braces of its own must stay braces.
            "system_prompt": as_template(prompt),
            "tools": tools,
            "source": {
                "kind": "leaf",
                **read_from._asdict(),
                "files": [str(tools_file.relative_to(checkout)), str(prompt_file.relative_to(checkout))],
            },
        }
    )


def _tools(file: Path, module: ast.Module, known: dict[str, ToolDefinition]) -> tuple[ToolDefinition, ...]:
    found: dict[str, JSONObject] = {}
    for function in functions_of(module):
        found.setdefault(function["name"], function)
    missing = [name for name in known if name not in found]
    if missing:
        raise InvalidValueError(
            "--leaf",
            str(file),
            f"holds no literal schema of the tool{'s' if len(missing) > 1 else ''} {', '.join(missing)} "
            '(looked for {"type": "function", "function": {"name", "description", "parameters"}}); '
            "use a checkout whose tools.py writes them out",
        )
    # In the order of the file, as they go over the wire; tools the lab cannot execute are left out.
    return tuple(
        known[name].model_copy(
            update={"description": function["description"], "parameters": function["parameters"]}
        )
        for name, function in found.items()
        if name in known
    )


def _system_prompt(folder: Path, modules: dict[Path, ast.Module]) -> tuple[Path, str]:
    """The longest string constant named as a system prompt, else as a prompt; prompt files before others."""
    for wanted in (_PROMPT_NAME, _ANY_PROMPT_NAME):
        candidates = []
        for file, module in modules.items():
            names = assignments(module)
            for name, node in names.items():
                text = string_of(node, names) if wanted.search(name) else None
                if text and text.strip():
                    candidates.append((len(text), file, text))
        if candidates:
            _, file, text = max(candidates, key=lambda candidate: candidate[0])
            return file, text
    for file, module in modules.items():
        text = _system_message(module)
        if text:
            return file, text
    raise InvalidValueError(
        "--leaf",
        str(folder),
        "holds no system prompt (looked in every *.py for a string constant whose name has “system” and "
        '“prompt” in it, then for {"role": "system", "content": "…"})',
    )


def _system_message(module: ast.Module) -> str | None:
    for value in values(module):
        if (
            isinstance(value, dict)
            and value.get("role") == "system"
            and isinstance(value.get("content"), str)
        ):
            return str(value["content"])
    return None
