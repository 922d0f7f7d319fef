"""A run as mini-swe-agent's own file."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document
from lab.engine.formats.exported import written
from lab.engine.formats.mini_swe_agent import MiniSweAgent as MiniSweAgentReader
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Origin,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.formats.write_mini import MiniSweAgent, document
from lab.engine.llm.base import JSONObject, Usage
from tests.engine.formats.made_trajectories import exported, trajectories
from tests.engine.formats.mutations import document_of, only

AT = dt.datetime(2025, 6, 1, 12, tzinfo=dt.UTC)
CALL = Call(
    id="a",
    name="bash",
    arguments={"command": "ls"},
    observation="<output>a.py</output>",
    message={"role": "tool", "tool_call_id": "a", "content": "<output>a.py</output>"},
    output="a.py",
    exit_code=0,
    ended_at=AT,
)


def turn(call: Call = CALL, **changes: object) -> Turn:
    message = {"role": "assistant", "content": "look", "tool_calls": [{"id": "a"}]}
    usage = Usage(input_total=100, cache_read=80, output_total=7, source="provider")
    fields: dict[str, object] = {"message": message, "calls": (call,), "usage": usage, "ended_at": AT}
    return Turn(**(fields | changes))  # type: ignore[arg-type]


def of(*items: Item, **changes: object) -> JSONObject:
    fields: dict[str, object] = {
        "origin": Origin(format="trajectory-lab", file="", sha256=""),
        "harness": HarnessUsed(name="mini", config={"step_limit": 9}),
        "model": ModelUsed(name="cedar-large", sampling={"temperature": 0}),
        "instance_id": "click-1",
        "opening": ({"role": "system", "content": "be good"},),
        "items": items,
        "exit_reason": ExitReason.AGENT,
        "patch": "diff",
    }
    found: JSONObject = json.loads(written(document(exported(Trajectory(**(fields | changes))))))  # type: ignore[arg-type]
    return found


def test_the_document_has_the_shape_of_the_program() -> None:
    found = of(turn())
    assert found["trajectory_format"] == "mini-swe-agent-1.1"
    assert found["instance_id"] == "click-1"
    info = found["info"]
    assert (info["exit_status"], info["submission"]) == ("Submitted", "diff")
    assert info["config"]["model"] == {"model_name": "cedar-large", "model_kwargs": {"temperature": 0}}
    assert info["config"]["agent"] == {"step_limit": 9}
    assert [message["role"] for message in found["messages"]] == ["system", "assistant", "tool", "exit"]
    assert found["messages"][-1]["extra"] == {"exit_status": "Submitted", "submission": "diff"}


def test_a_configuration_of_the_program_itself_is_written_as_it_was_read(tmp_path: Path) -> None:
    sample = Path(__file__).parent / "samples/mini_swe_agent/limited.traj.json"
    reader = MiniSweAgentReader()
    read = only(list(reader.read([Document("limited.traj.json", sample)])))
    written_again = document(exported(read))
    again = only(list(reader.read([document_of(tmp_path, written_again)])))
    assert (again.harness, again.model, again.limits) == (read.harness, read.model, read.limits)
    config = json.loads(sample.read_text())["info"]["config"]
    assert written_again["info"]["config"]["environment"] == config["environment"]
    assert written_again["info"]["config"]["agent"] == config["agent"]


def test_a_reply_has_its_commands_usage_cost_and_time() -> None:
    reply = of(turn(cost_reported=Decimal("0.5")))["messages"][1]
    extra = reply["extra"]
    assert extra["actions"] == [{"command": "ls", "tool_call_id": "a"}]
    assert (extra["cost"], extra["timestamp"]) == (0.5, AT.timestamp())
    assert extra["response"]["usage"]["prompt_tokens"] == 100
    assert extra["response"]["usage"]["prompt_tokens_details"] == {"cached_tokens": 80}


def test_the_usage_of_the_server_is_written_as_it_came() -> None:
    usage = Usage(input_total=1, output_total=1, source="provider", raw={"prompt_tokens": 1, "vendor": 2})
    assert of(turn(usage=usage))["messages"][1]["extra"]["response"]["usage"] == usage.raw


def test_a_result_has_its_whole_output_and_its_return_code() -> None:
    result = of(turn())["messages"][2]
    assert result["content"] == "<output>a.py</output>"
    assert (result["extra"]["raw_output"], result["extra"]["returncode"]) == ("a.py", 0)


def test_a_cost_that_is_not_known_is_null_and_no_zero() -> None:
    found = of(turn(usage=Usage()))
    assert found["info"]["model_stats"] == {"instance_cost": None, "api_calls": 1}
    assert found["messages"][1]["extra"]["cost"] is None
    assert "usage" not in found["messages"][1]["extra"]["response"]


def test_a_patch_that_is_not_recorded_is_no_empty_submission() -> None:
    assert "submission" not in of(turn(), patch=None)["info"]
    assert of(turn(), patch="")["info"]["submission"] == ""


def test_why_it_ended_is_said_in_the_words_of_the_program() -> None:
    assert (
        of(exit_reason=ExitReason.MAX_TURNS, native_reason="max_turns")["info"]["exit_status"]
        == "LimitsExceeded"
    )
    overflow = FailedRequest(error="context_overflow", message="too long")
    full = ExitReason.MAX_CONTEXT_LEN
    assert of(turn(), exit_reason=full)["info"]["exit_status"] == "LimitsExceeded"
    assert of(turn(), overflow, exit_reason=full)["info"]["exit_status"] == "ContextWindowExceededError"
    own = Origin(format="mini-swe-agent-1", file="", sha256="")
    assert of(origin=own, native_reason="SomeError", exit_reason=None)["info"]["exit_status"] == "SomeError"
    assert of(exit_reason=None)["info"]["exit_status"] is None
    assert [message["role"] for message in of(partial=True)["messages"]] == ["system"]


def test_calls_of_other_tools_are_written_where_a_command_would_stand() -> None:
    call = Call(id="a", name="file_editor", arguments={"path": "a.py"})
    (action,) = of(turn(call))["messages"][1]["extra"]["actions"]
    assert action["command"] == 'file_editor {"path":"a.py"}'


def test_what_is_no_message_is_kept_with_its_place() -> None:
    new = ({"role": "user", "content": "in short"},)
    failed = FailedRequest(error="server", message="500")
    told = Message(message={"role": "user", "content": "one command"}, reason="format_error")
    found = of(turn(), failed, told, Rewritten(reason="condensed", messages=new))
    own = found["info"]["trajectory_lab"]
    assert own["failed_requests"] == [{"before_message": 3, "error": "server", "message": "500"}]
    assert own["rewritten"] == [{"before_message": 4, "reason": "condensed", "messages": [new[0]]}]
    assert found["messages"][3]["extra"]["interrupt_type"] == "FormatError"
    assert all(sentence in own["notes"] for sentence in MiniSweAgent.lost)


@given(trajectories())
@settings(max_examples=40, deadline=None)
def test_every_run_becomes_a_document(found: Trajectory) -> None:
    (member,) = MiniSweAgent().members([exported(found)])
    assert json.loads(b"".join(member.pieces))["info"]["trajectory_lab"]["run"] == 7
