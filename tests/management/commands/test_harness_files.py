"""Harnesses leave a lab as YAML and come back, by commands."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from lab.models import HarnessVersion
from lab.services import harnesses


@pytest.fixture(autouse=True)
def presets(db: None) -> None:
    harnesses.sync_presets()


def said(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> str:
    with pytest.raises(CommandError) as raised:
        call_command(*words)
    return str(raised.value)


def test_a_harness_is_written_changed_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert said("export_harness", "leaf-compatible", "--output", str(file)) == (
        f"leaf-compatible v1 is written to {file}.\n"
    )
    file.write_text(file.read_text().replace("name: Bash", "name: Shell"))
    assert said("import_harness", "--yaml", str(file), "--name", "mine").startswith(
        "mine v1 is stored (digest "
    )
    version = HarnessVersion.objects.get(harness__name="mine")
    assert [tool["name"] for tool in version.config["tools"]][-1] == "Shell"
    assert version.source == {"kind": "yaml", "file": "mine.yaml"}
    assert said("export_harness", "mine@1") == harnesses.export_yaml(version=version)


def test_an_unchanged_file_is_the_version_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "same.yaml"
    said("export_harness", "leaf-compatible@1", "--output", str(file))
    facts = json.loads(said("import_harness", "--yaml", str(file), "--json"))
    assert (facts["harness"], facts["version"]) == ("leaf-compatible", 1)


def test_yaml_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said("export_harness", "leaf-compatible").replace("max_steps: 150", "max_steps: 15")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert said("import_harness", "--yaml", "-", "--name", "short").startswith("short v1 is stored")


def test_what_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "there.yaml"
    file.write_text("name: x\nname: y\n")
    assert "choose one of" in refused("export_harness", "nothing")
    assert "is there already; name a new file" in refused(
        "export_harness", "leaf-compatible", "--output", str(file)
    )
    assert "cannot be written" in refused(
        "export_harness", "leaf-compatible", "--output", str(tmp_path / "no" / "file")
    )
    assert "line 2: 'name' stands in line 1 already" in refused("import_harness", "--yaml", str(file))
    assert "cannot be read: No such file" in refused("import_harness", "--yaml", str(tmp_path / "gone"))
    assert "checkout of R2E-Gym" in refused("import_harness", "--r2e", str(tmp_path))
    assert "--name: goes with --yaml" in refused("import_harness", "--r2e", str(tmp_path), "--name", "x")


def test_all_that_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    text = said("export_harness", "leaf-compatible").replace("executor: glob", "executor: globe")
    file.write_text(text.replace("no_tool_call: true", "no_tool_call: false"))
    words = refused("import_harness", "--yaml", str(file))
    assert words.startswith("wrong.yaml: tools.Glob.executor: 'globe' is no executor; choose one of bash")
    assert "\nstop: has no rule that can ever fire" in words


MINI = """
agent: {system_template: "Type.", instance_template: "In /testbed: {{task}}", mode: confirm}
model: {model_name: some/model, observation_template: "{{ output.returncode }}", format_error_template: "No."}
environment: {cwd: /testbed, timeout: 20}
"""


def test_a_configuration_of_mini_swe_agent_becomes_a_version_that_says_what_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "terse.yaml"
    file.write_text(MINI)
    first, *notes, last = said("import_harness", "--mini", str(file)).splitlines()
    assert first.startswith("mini-terse v1 is stored (digest ")
    assert any("/testbed" in note for note in notes)
    assert last == "Not carried over: agent.mode, environment.cwd, model.model_name."
    version = HarnessVersion.objects.get(harness__name="mini-terse")
    assert version.config["tools"][0]["settings"]["timeout_sec"] == 20
    assert version.source["sha256"] == hashlib.sha256(MINI.encode()).hexdigest()
    file.write_text(MINI.replace("{{task}}", "{{model_name}}"))
    assert f"{file}: agent.instance_template: " in refused("import_harness", "--mini", str(file))
    assert "cannot be read: No such file" in refused("import_harness", "--mini", str(tmp_path / "gone"))
