"""Reads the wording of Leaf out of a checkout: prompt and tool schemas, as text. Nothing of it is run.

The source files are parsed, never imported, and only literals are taken: strings, numbers, lists,
dictionaries, joined strings, and names that a literal was assigned to in the same file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, ToolDefinition
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import JSONObject

LEAF_FOLDER = Path("frognano/harness/leaf")
# A checkout is somebody else's: no file of wording is larger.
_LARGEST_FILE = 2_000_000
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
    modules = {file: _parse(file) for file in sorted(folder.glob("*.py"))}
    tools_file = folder / "tools.py"
    if tools_file not in modules:
        raise InvalidValueError(
            "--leaf", str(tools_file), "is missing; the tool schemas were looked for there"
        )
    preset = load_preset("leaf-compatible")
    tools = _tools(tools_file, modules[tools_file], {tool.name: tool for tool in preset.tools})
    prompt_file, prompt = _system_prompt(folder, modules)
    git = _git_folder(checkout)
    commit = _commit(git)
    name = checkout.resolve().name
    return preset.model_copy(
        update={
            "name": f"leaf-{commit[:12]}" if commit else "leaf-imported",
            "wording": f"Leaf's own, read from {checkout.resolve().name}"
            + (f" at {commit[:12]}" if commit else ""),
            # The prompt is a literal; as a template, braces of its own must stay braces.
            "system_prompt": _escaped(prompt),
            "tools": tools,
            "source": {
                "kind": "leaf",
                "folder": name,
                "repository": _origin(git),
                "commit": commit,
                "files": [str(tools_file.relative_to(checkout)), str(prompt_file.relative_to(checkout))],
            },
        }
    )


def _parse(file: Path) -> ast.Module:
    if file.stat().st_size > _LARGEST_FILE:
        raise InvalidValueError("--leaf", str(file), f"is larger than {_LARGEST_FILE} bytes; it was not read")
    try:
        return ast.parse(file.read_text(encoding="utf-8"), filename=file.name)
    except (SyntaxError, ValueError) as error:
        raise InvalidValueError("--leaf", str(file), f"cannot be parsed as Python: {error}") from None


class _NotLiteralError(Exception):
    """An expression that is more than a literal."""


def _assignments(module: ast.Module) -> dict[str, ast.expr]:
    """Name -> last expression assigned to it at the top of the file or of a class."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            found[node.target.id] = node.value
    return found


def _literal(node: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> Any:
    """The value of a literal expression.

    Raises:
        _NotLiteralError: a call, a comprehension, a name from elsewhere.
    """
    if depth > 40:
        raise _NotLiteralError
    deeper = depth + 1
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, names, deeper) for item in node.elts]
    if isinstance(node, ast.Dict):
        return _dictionary(node, names, deeper)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(_literal(node.left, names, deeper), _literal(node.right, names, deeper))
    if isinstance(node, ast.Name) and node.id in names:
        return _literal(names[node.id], names, deeper)
    return _text_expression(node, names, deeper)


def _dictionary(node: ast.Dict, names: dict[str, ast.expr], depth: int) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            result.update(_literal(value, names, depth))
        else:
            result[_literal(key, names, depth)] = _literal(value, names, depth)
    return result


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    raise _NotLiteralError


def _text_expression(node: ast.expr, names: dict[str, ast.expr], depth: int) -> Any:
    """Strings that are cleaned or joined where they stand: `"…".strip()`, `dedent("…")`, `" ".join([…])`."""
    if not isinstance(node, ast.Call):
        raise _NotLiteralError
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "strip" and isinstance(function, ast.Attribute) and not node.args:
        return str(_literal(function.value, names, depth)).strip()
    if name in {"dedent", "cleandoc"} and len(node.args) == 1:
        import inspect
        import textwrap

        text = str(_literal(node.args[0], names, depth))
        return textwrap.dedent(text) if name == "dedent" else inspect.cleandoc(text)
    if name == "join" and isinstance(function, ast.Attribute) and len(node.args) == 1:
        return str(_literal(function.value, names, depth)).join(_literal(node.args[0], names, depth))
    raise _NotLiteralError


def _values(module: ast.Module) -> Iterator[Any]:
    """Every list and dictionary literal of a file, outer ones first."""
    names = _assignments(module)
    for node in ast.walk(module):
        if isinstance(node, ast.List | ast.Tuple | ast.Dict):
            try:
                yield _literal(node, names)
            except (_NotLiteralError, TypeError):
                continue


def _tools(file: Path, module: ast.Module, known: dict[str, ToolDefinition]) -> tuple[ToolDefinition, ...]:
    found: dict[str, JSONObject] = {}
    for value in _values(module):
        for item in value if isinstance(value, list) else [value]:
            function = _function(item)
            if function is not None:
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
            update={"description": function.get("description", ""), "parameters": function["parameters"]}
        )
        for name, function in found.items()
        if name in known
    )


def _function(item: Any) -> JSONObject | None:
    """The function of an OpenAI tool literal, bare or wrapped."""
    if not isinstance(item, dict):
        return None
    function = item.get("function") if item.get("type") == "function" else item
    if not isinstance(function, dict) or not isinstance(function.get("parameters"), dict):
        return None
    name, description = function.get("name"), function.get("description", "")
    return function if isinstance(name, str) and isinstance(description, str) else None


def _system_prompt(folder: Path, modules: dict[Path, ast.Module]) -> tuple[Path, str]:
    """The longest string constant named as a system prompt, else as a prompt; prompt files before others."""
    for wanted in (_PROMPT_NAME, _ANY_PROMPT_NAME):
        candidates = []
        for file, module in modules.items():
            names = _assignments(module)
            for name, node in names.items():
                text = _string(node, names) if wanted.search(name) else None
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


def _string(node: ast.expr, names: dict[str, ast.expr]) -> str | None:
    try:
        value = _literal(node, names)
    except (_NotLiteralError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _system_message(module: ast.Module) -> str | None:
    for value in _values(module):
        if (
            isinstance(value, dict)
            and value.get("role") == "system"
            and isinstance(value.get("content"), str)
        ):
            return str(value["content"])
    return None


def _escaped(text: str) -> str:
    return "{% raw %}" + text + "{% endraw %}" if re.search(r"\{[{%#]", text) else text


def _git_folder(checkout: Path) -> Path | None:
    """The checkout's git folder; a `.git` file of a worktree or submodule is followed."""
    git = checkout / ".git"
    if git.is_file():
        text = git.read_text(encoding="utf-8", errors="replace").strip()
        git = checkout / text.removeprefix("gitdir:").strip()
    return git if git.is_dir() else None


def _commit(git: Path | None) -> str:
    """The commit that is checked out, read from git's files; "" when it cannot be told."""
    if git is None:
        return ""
    head = _text(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _is_commit(head) else ""
    reference = head.removeprefix("ref:").strip()
    common = git / (_text(git / "commondir").strip() or ".")
    for place in (git, common):
        commit = _text(place / reference).strip() if ".." not in reference else ""
        if _is_commit(commit):
            return commit
    for line in _text(common / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference and _is_commit(commit):
            return commit
    return ""


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _origin(git: Path | None) -> str:
    """The address of `origin` without a user or password in it; "" when there is none."""
    if git is None:
        return ""
    common = git / (_text(git / "commondir").strip() or ".")
    section = re.search(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', _text(common / "config"), re.M | re.S)
    address = re.search(r"^\s*url\s*=\s*(\S+)", section.group(1), re.M) if section else None
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", address.group(1)) if address else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
