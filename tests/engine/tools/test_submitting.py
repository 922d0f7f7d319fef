"""finish and submit: how a model hands in its work."""

from __future__ import annotations

import pytest

from lab.engine.redact import Redactor
from lab.engine.tools.base import ToolContext
from lab.engine.tools.submit import CHECKLIST
from tests.engine.tools.using import call, put, shell

IDENTITY = "-c user.name=a -c user.email=a@example.org"


def repository(context: ToolContext) -> None:
    put(context, "a.py", "one\ntwo\n")
    put(context, ".gitignore", "*.log\n")
    shell(context, f"git init -q . && git add -A && git {IDENTITY} commit -q -m first")


def test_finish_submits_with_or_without_a_result(context: ToolContext) -> None:
    for arguments in ({"command": "submit"}, {"command": "submit", "result": "All done."}):
        result = call(context, "finish", arguments)
        assert result.submits
        assert not result.failed


@pytest.mark.parametrize("arguments", [{}, {"command": "stop"}, {"command": 1}, {"result": "done"}])
def test_finish_with_another_command_submits_nothing(
    context: ToolContext, arguments: dict[str, object]
) -> None:
    result = call(context, "finish", arguments)
    assert not result.submits
    assert result.failed
    assert "submit" in result.observation or "command" in result.observation


def test_submit_without_a_review_submits_at_once(context: ToolContext) -> None:
    result = call(context, "submit", {})
    assert result.submits
    assert not result.failed


def test_the_first_submit_with_a_review_shows_the_list_and_all_changes(context: ToolContext) -> None:
    repository(context)
    put(context, "a.py", "one\n2\n")
    put(context, "new.py", "fresh\n")
    put(context, "noise.log", "ignored\n")
    shell(context, "git add a.py")
    before = shell(context, "git status --porcelain; find .git -type f | sort | xargs sha256sum")
    result = call(context, "submit", {}, review=True)
    assert not result.submits
    assert not result.failed
    assert result.observation.startswith(CHECKLIST)
    assert result.observation.endswith("\n</diff>")
    assert "-two\n+2" in result.observation
    assert "+fresh" in result.observation
    assert "ignored" not in result.observation
    assert shell(context, "git status --porcelain; find .git -type f | sort | xargs sha256sum") == before
    context.earlier_calls = 1
    second = call(context, "submit", {}, review=True)
    assert second.submits
    assert "diff" not in second.observation


def test_a_review_without_changes_says_so(context: ToolContext) -> None:
    repository(context)
    assert "(nothing was changed)" in call(context, "submit", {}, review=True).observation


def test_a_review_where_git_cannot_tell_goes_on_without_a_diff(context: ToolContext) -> None:
    put(context, "a.py", "one\n")
    shell(context, "echo broken > .git")
    result = call(context, "submit", {}, review=True)
    assert not result.submits
    assert "cannot be shown" in result.observation


def test_the_list_is_a_setting_and_secrets_stay_out_of_the_diff(context: ToolContext) -> None:
    secret = "xyzzy-0123456789abcdef"
    context.redactor = Redactor({"MY_KEY": secret})
    repository(context)
    put(context, "a.py", f"key = '{secret}'\n")
    result = call(context, "submit", {}, review=True, checklist="Look again.")
    assert result.observation.startswith("Look again.\n\n<diff>\n")
    assert "[redacted: MY_KEY]" in result.observation
    assert secret not in result.observation
