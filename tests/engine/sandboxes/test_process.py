"""What a plain process sandbox says of itself, and under whom it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.process import ProcessProvider


def test_its_facts_say_that_nothing_is_isolated(scratch: Path) -> None:
    sandbox = ProcessProvider().start(SandboxSpec(label="facts", scratch=scratch, workspace="/elsewhere"))
    try:
        facts = sandbox.facts
        assert (facts.kind, facts.isolation, facts.network) == ("process", "none", True)
        assert "Not isolated" in facts.notes[0]
        assert Path(facts.workspace).is_dir()
        assert Path(facts.workspace).is_relative_to(scratch.resolve())
    finally:
        sandbox.stop()


@pytest.mark.requires("root")
def test_as_root_commands_run_as_another_user_who_cannot_read_the_labs_environment(scratch: Path) -> None:
    sandbox = ProcessProvider(uid=65_529).start(SandboxSpec(label="user", scratch=scratch))
    try:
        assert sandbox.exec(["id", "-u"], timeout=30).stdout.text() == "65529\n"
        assert sandbox.exec(["cat", f"/proc/{os.getpid()}/environ"], timeout=30).exit_code == 1
        assert "Commands run as user 65529." in sandbox.facts.notes
    finally:
        sandbox.stop()


@pytest.mark.requires("root")
def test_where_that_user_cannot_get_in_it_says_that_commands_run_as_root(scratch: Path) -> None:
    scratch.chmod(0o700)
    sandbox = ProcessProvider().start(SandboxSpec(label="shut", scratch=scratch / "s"))
    try:
        assert sandbox.exec(["id", "-u"], timeout=30).stdout.text() == "0\n"
        assert any("run as root" in note and str(scratch) in note for note in sandbox.facts.notes)
    finally:
        sandbox.stop()


def test_root_is_no_user_to_ask_for() -> None:
    with pytest.raises(InvalidValueError, match="LAB_SANDBOX_UID"):
        ProcessProvider(uid=0)
