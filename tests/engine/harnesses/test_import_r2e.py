"""A small invented tree stands for a checkout of R2E-Gym; its wording is made up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.checks import problems
from lab.engine.harnesses.import_r2e import import_r2e
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.r2e import R2E

XML = """
system_prompt: |-
  You mend code in /testbed. Braces such as {x} and {{ y }} are plain here.
  <function=NAME>
instance_prompt: |-
  The folder is {working_dir}, that is /testbed.
  {problem_statement}
  A mapping is written {{"a": 1}}.
command_files: ["./tools/search.py"]
llm_name: "some"
"""
NATIVE = XML.replace("<function=NAME>", "Call a function.")
TOOLS = '''
import sys
sys.exit("this file was run")
from .str_replace_editor import COMMANDS

_EDITOR = """Edits files.
* `view` looks at them
"""
KINDS = ["view", "create"]

str_replace_editor_tool = {"type": "function", "function": {"name": "str_replace_editor",
    "description": "Another.", "parameters": {"type": "object", "properties": {"command": {"enum": COMMANDS}},
    }}}
file_editor = {"type": "function", "function": {"name": "file_editor", "description": _EDITOR,
    "input_schema": {"type": "object", "properties": {
        "command": {"type": "string", "enum": KINDS, "description": f"One of {', '.join(KINDS)}."},
        "path": {"type": "string"}}, "required": ["command", "path"]}}}
execute_bash_tool = {"type": "function", "function": {"name": "execute_bash", "description": "SWE-agent's.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}
r2egym_bash_execute_tool = {"type": "function", "function": {"name": "execute_bash",
    "description": "Runs a command.", "parameters": {"type": "object",
        "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}}}
search_tool = {"type": "function", "function": {"name": "search", "description": "Looks for a term.",
    "parameters": {"type": "object", "properties": {"search_term": {"type": "string"}}}}}
finish_tool = {"type": "function", "function": {"name": "finish", "description": "Ends.",
    "parameters": {"type": "object", "properties": {"command": {"enum": ["submit"]}}}}}
'''
FILES = {
    "config/r2egym/edit_non_fn_calling.yaml": XML,
    "config/r2egym/edit_fn_calling.yaml": NATIVE,
    "tools/__init__.py": TOOLS,
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        put(tmp_path / "R2E-Gym", name, text)
    return tmp_path / "R2E-Gym"


def put(checkout: Path, name: str, text: str) -> None:
    file = checkout / "src/r2egym/agenthub" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def opening(harness: HarnessConfig, *, workspace: str = "/testbed") -> tuple[str, str]:
    facts = PromptFacts("It {breaks}.", workspace=workspace)
    system, task = R2E().opening(harness, facts, harness.limits)
    return system["content"], task["content"].removesuffix("\nSteps Remaining: 40")


def test_prompts_are_word_for_word_those_of_the_checkout_and_nothing_is_run(checkout: Path) -> None:
    harness = import_r2e(checkout)
    system, task = opening(harness)
    assert system == (
        "You mend code in /testbed. Braces such as {x} and {{ y }} are plain here.\n<function=NAME>"
    )
    assert task == 'The folder is /testbed, that is /testbed.\nIt {breaks}.\nA mapping is written {"a": 1}.'
    assert problems(harness) == []


def test_the_harnesss_protocol_decides_between_the_prompts(checkout: Path) -> None:
    harness = import_r2e(checkout)
    assert harness.protocol == "xml"
    native = harness.model_copy(update={"protocol": "native"})
    assert opening(native)[0].endswith("are plain here.\nCall a function.")
    assert problems(native) == []


def test_where_the_agent_works_stands_in_place_of_the_path_in_the_prompts(checkout: Path) -> None:
    system, task = opening(import_r2e(checkout), workspace="/workspace")
    assert "mend code in /workspace." in system
    assert task.startswith("The folder is /workspace, that is /workspace.")


def test_tools_are_those_whose_parameters_are_read(checkout: Path) -> None:
    harness = import_r2e(checkout)
    tools = {tool.name: tool for tool in harness.tools}
    assert list(tools) == ["file_editor", "execute_bash", "search", "finish"]
    assert tools["execute_bash"].description == "Runs a command."
    assert tools["file_editor"].description == "Edits files.\n* `view` looks at them\n"
    command = tools["file_editor"].parameters["properties"]["command"]
    assert command == {"type": "string", "enum": ["view", "create"], "description": "One of view, create."}


def test_loop_observations_and_limits_are_those_of_the_preset(checkout: Path) -> None:
    harness, preset = import_r2e(checkout), load_preset("r2e")
    assert (harness.limits, harness.stop, harness.options) == (preset.limits, preset.stop, preset.options)
    assert [tool.observation for tool in harness.tools] == [tool.observation for tool in preset.tools]


def test_source_names_repository_revision_and_files(checkout: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(checkout), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert import_r2e(checkout).name == "r2e-imported"
    git("init", "-q", "-b", "main")
    git("remote", "add", "origin", "https://someone:key@example.org/R2E-Gym.git")
    git("add", "-A")
    git("commit", "-q", "-m", "all")
    commit = git("rev-parse", "HEAD")
    harness = import_r2e(checkout)
    assert harness.source == {
        "kind": "r2e",
        "folder": "R2E-Gym",
        "repository": "https://example.org/R2E-Gym.git",
        "commit": commit,
        "files": [
            "src/r2egym/agenthub/tools/__init__.py",
            "src/r2egym/agenthub/config/r2egym/edit_non_fn_calling.yaml",
            "src/r2egym/agenthub/config/r2egym/edit_fn_calling.yaml",
        ],
    }
    assert harness.name == f"r2e-{commit[:12]}"
    assert commit[:12] in harness.wording


def test_an_older_checkout_has_its_prompts_one_folder_higher(checkout: Path) -> None:
    folder = checkout / "src/r2egym/agenthub/config"
    (folder / "r2egym/edit_non_fn_calling.yaml").unlink()
    (folder / "r2egym/edit_fn_calling.yaml").rename(folder / "edit_fn_calling.yaml")
    harness = import_r2e(checkout)
    assert harness.protocol == "native"
    assert opening(harness)[0].endswith("Call a function.")


def without(name: str) -> str:
    return TOOLS.replace(f'"name": "{name}"', f'"name": {name}()')


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("tools/__init__.py", None, "the tool schemas were looked for there"),
        ("tools/__init__.py", without("search"), "no literal schema of the tool search"),
        ("tools/__init__.py", TOOLS.replace('"cmd"', '"command"'), "the tool execute_bash"),
        ("tools/__init__.py", "def (", "cannot be parsed as Python"),
        ("config/r2egym/edit_non_fn_calling.yaml", "a: [", "cannot be read as YAML: line 2"),
        ("config/r2egym/edit_non_fn_calling.yaml", "system_prompt: x", "holds no text instance_prompt"),
        (
            "config/r2egym/edit_non_fn_calling.yaml",
            XML.replace("{working_dir}", "{gt_patch}"),
            "{gt_patch} in instance_prompt, which the lab does not have; it has problem_statement",
        ),
        ("config/r2egym/edit_non_fn_calling.yaml", XML.replace("{working_dir}", "{"), "mend its braces"),
    ],
)
def test_what_is_missing_is_named_with_its_file(
    checkout: Path, file: str, text: str | None, said: str
) -> None:
    (checkout / "src/r2egym/agenthub" / file).unlink()
    if text is not None:
        put(checkout, file, text)
    with pytest.raises(InvalidValueError) as raised:
        import_r2e(checkout)
    assert said in str(raised.value)
    assert file in str(raised.value)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="checkout of R2E-Gym"):
        import_r2e(tmp_path)


def test_a_file_that_describes_a_value_without_end_is_given_up_on(checkout: Path) -> None:
    doubling = "a0 = ['x']\n" + "".join(f"a{n + 1} = a{n} + a{n}\n" for n in range(60))
    put(checkout, "tools/__init__.py", f"{doubling}\nALL = [a38]\n{TOOLS}")
    assert len(import_r2e(checkout).tools) == 4
