"""A new family is one file and one line: the example in CONTRIBUTING.md, taken from there and run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab.engine.harnesses
from lab.engine import registry
from lab.engine.events import ToolCallFinished
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import problems
from lab.engine.harnesses.yaml_form import from_yaml
from lab.engine.sandboxes.base import Sandbox
from tests.engine.harnesses.driving import drive
from tests.fakes.openai_server import FakeOpenAI, says
from tests.house.tree import read


def blocks() -> tuple[str, str, str]:
    """The family's file, the registry's line, and a harness of it, as they stand in CONTRIBUTING.md."""
    section = read("CONTRIBUTING.md").partition("### A harness family\n")[2].partition("\n## ")[0]
    file, line = re.findall(r"```python\n(.*?)```", section, re.S)
    (harness,) = re.findall(r"```yaml\n(.*?)```", section, re.S)
    return file, line, harness


@pytest.fixture
def line_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HarnessConfig]:
    file, line, harness = blocks()
    entry = re.fullmatch(r'\s*"(\w+)": "(lab\.engine\.harnesses\.(\w+):\w+)",\s*', line)
    assert entry is not None
    name, path, module = entry.groups()
    (tmp_path / f"{module}.py").write_text(file)
    monkeypatch.setattr(lab.engine.harnesses, "__path__", [*lab.engine.harnesses.__path__, str(tmp_path)])
    monkeypatch.setitem(registry.FAMILIES, name, path)
    yield from_yaml(harness)
    sys.modules.pop(f"lab.engine.harnesses.{module}", None)


def test_the_example_of_a_family_runs_commands_and_ends_with_an_answer(
    line_harness: HarnessConfig, sandbox: Sandbox
) -> None:
    assert problems(line_harness) == []
    with FakeOpenAI(says("I look.\nRUN: echo here"), says("RUN: false"), says("It is done.")) as server:
        driven = drive(server, sandbox, config=line_harness)
    assert driven.raised is None
    assert driven.ending is not None
    assert (driven.reason, driven.ending.final_message) == ("agent", "It is done.")
    assert [event.exit_code for event in driven.events(ToolCallFinished)] == [0, 1]
    messages = driven.sent(2)["messages"]
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "user", "assistant", "user")
    ]
    assert messages[0]["content"].startswith("Work in ")
    assert messages[3]["content"] == "[0] here\n"
    assert "tools" not in driven.sent(0)
