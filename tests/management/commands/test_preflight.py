"""The command examines in the foreground and says by its exit code how it came out."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.models import Endpoint, Model, Preflight
from tests.fakes.model_server import MODEL, LeakingXML, ModelServer, VLLMWithoutToolFlags

pytestmark = pytest.mark.django_db(transaction=True)


def examined(server: ModelServer, *options: str) -> int:
    """The exit code."""
    with server:
        endpoint = Endpoint.objects.create(name="there", base_url=server.base_url)
        Model.objects.create(endpoint=endpoint, name="coder", model_id=MODEL)
        try:
            call_command("preflight", "coder", *options)
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def test_a_healthy_server_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert examined(ModelServer()) == 0
    said = capsys.readouterr().out
    assert "answered  Tool call (" in said
    assert "coder: healthy. Calls, streams" in said
    assert "Output speed: " in said


def test_what_is_wrong_is_printed_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert examined(VLLMWithoutToolFlags()) == 1
    said = capsys.readouterr().out
    assert "BLOCKS RUNS: The server takes no tools" in said
    assert said.index("  vLLM:\n") < said.index("  other:\n")
    assert "--enable-auto-tool-choice" in said
    assert "in “Tool call; " in said


def test_as_json_nothing_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert examined(LeakingXML(), "--json", "--over-limit") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "failing"
    assert found["preflight"] == Preflight.objects.get().pk
    assert "calls_as_text" in {finding["code"] for finding in found["findings"]}
    assert found["measured"]["over_limit"] == "refused as too long"


def test_a_model_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(CommandError, match="'nobody' is not known; connect one") as refused:
        call_command("preflight", "nobody")
    assert refused.value.returncode == 2
