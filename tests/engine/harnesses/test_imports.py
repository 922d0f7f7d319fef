"""A small invented tree stands for a checkout; its wording is made up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import PromptFacts
from lab.engine.harnesses.imports import import_leaf
from lab.engine.harnesses.leaf import Leaf
from lab.engine.harnesses.presets import load_preset

TOOLS = """
import sys
sys.exit("this file was run")

_PATH = {"type": "string", "description": "Where the file is."}
ABOUT = "Runs " "a command."

def _tool(name): return {"name": name}

TOOLS = [
    {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": {
        "type": "object", "properties": {"file_path": _PATH}, "required": ["file_path"]}}},
    {"type": "function", "function": {"name": "Write", "description": "Writes.", "parameters": {
        "type": "object", "properties": {"file_path": _PATH, "content": {"type": "string"}},
        "required": ["file_path", "content"]}}},
    {"type": "function", "function": {"name": "Edit", "description": "Edits.", "parameters": {
        "type": "object", "properties": {**{"file_path": _PATH}}, "required": ["file_path"]}}},
    {"type": "function", "function": {"name": "Glob", "description": "Lists.", "parameters": {
        "type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}}},
    {"type": "function", "function": {"name": "Bash", "description": ABOUT, "parameters": {
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}},
]
"""
AGENT = """
import os
os.abort()
SYSTEM_PROMPT = (
    "You repair software. "
    "Use the tools; braces such as {{ x }} are plain."
)
PROMPT = "short"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "FrogNano" / "frognano" / "harness" / "leaf"
    folder.mkdir(parents=True)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "agent.py").write_text(AGENT)
    return tmp_path / "FrogNano"


def git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_prompt_and_schemas_are_read_as_text_and_nothing_is_run(checkout: Path) -> None:
    harness = import_leaf(checkout)
    assert [tool.name for tool in harness.tools] == ["Read", "Write", "Edit", "Glob", "Bash"]
    assert [tool.executor for tool in harness.tools] == ["read", "write", "edit", "glob", "bash"]
    bash = harness.tools[-1]
    assert bash.description == "Runs a command."
    read = harness.tools[0].parameters
    assert read["properties"]["file_path"] == {"type": "string", "description": "Where the file is."}
    opening = Leaf().opening(harness, PromptFacts("x"), harness.limits)
    assert opening[0]["content"] == "You repair software. Use the tools; braces such as {{ x }} are plain."


def test_limits_and_behaviour_are_those_of_the_preset(checkout: Path) -> None:
    harness, preset = import_leaf(checkout), load_preset("leaf-compatible")
    assert harness.limits == preset.limits
    assert [tool.observation for tool in harness.tools] == [tool.observation for tool in preset.tools]
    assert harness.digest != preset.digest


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_and_the_address_of_the_checkout_are_recorded(checkout: Path, packed: bool) -> None:
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "all")
    git(checkout, "remote", "add", "origin", "https://me:secret@example.org/x/FrogNano.git")
    if packed:
        git(checkout, "pack-refs", "--all")
    commit = git(checkout, "rev-parse", "HEAD")
    harness = import_leaf(checkout)
    assert harness.source["commit"] == commit
    assert harness.source["repository"] == "https://example.org/x/FrogNano.git"
    assert harness.source["folder"] == "FrogNano"
    assert commit[:12] in harness.wording


def test_a_detached_head_and_a_worktree_are_understood(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "all")
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert import_leaf(tmp_path / "side").source["commit"] == commit
    git(checkout, "checkout", "-q", "--detach")
    assert import_leaf(checkout).source["commit"] == commit


def test_without_git_the_commit_is_unknown_and_not_invented(checkout: Path) -> None:
    assert import_leaf(checkout).source["commit"] == ""


def test_a_prompt_in_a_message_literal_is_found_too(checkout: Path) -> None:
    (checkout / "frognano/harness/leaf/agent.py").write_text(
        "def start(task):\n"
        '    return [{"role": "system", "content": "Be good."}, {"role": "user", "content": task}]\n'
    )
    assert import_leaf(checkout).system_prompt == "Be good."


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("tools.py", None, "the tool schemas were looked for there"),
        ("tools.py", "TOOLS = build()", "Read, Write, Edit, Glob, Bash"),
        ("tools.py", TOOLS.replace('"name": "Glob"', '"name": glob()'), "the tool Glob"),
        ("tools.py", "def (", "cannot be parsed as Python"),
        ("agent.py", "SYSTEM_PROMPT = load()", "no system prompt"),
    ],
)
def test_what_is_missing_is_named_with_its_file(
    checkout: Path, file: str, text: str | None, said: str
) -> None:
    path = checkout / "frognano/harness/leaf" / file
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidValueError) as raised:
        import_leaf(checkout)
    assert said in str(raised.value)
    assert "frognano/harness/leaf" in str(raised.value)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="checkout of FrogNano"):
        import_leaf(tmp_path)
