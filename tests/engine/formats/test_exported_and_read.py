"""What is exported can be imported: the readers find in a written file what was put in."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document
from lab.engine.formats.catalogue import FORMATS
from lab.engine.formats.detection import probe, recognise
from lab.engine.formats.exported import Exported, Writer
from lab.engine.formats.trajectory import (
    Call,
    Found,
    FoundGrading,
    HarnessUsed,
    ModelUsed,
    Origin,
    Trajectory,
    Turn,
)
from lab.engine.formats.write_atif import Atif
from lab.engine.formats.write_chat import Chat
from lab.engine.formats.write_mini import MiniSweAgent
from lab.engine.formats.write_predictions import Predictions
from lab.engine.llm.usage import read_usage
from tests.engine.formats.made_trajectories import exported

BEGUN = dt.datetime(2025, 6, 1, 12, tzinfo=dt.UTC)
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n"


def turn(number: int) -> Turn:
    """One native call of a shell with its result."""
    identifier, command = f"call_{number}", f"sed -n {number}p a.py"
    raw = f'{{"command": "{command}"}}'
    function = {"name": "bash", "arguments": raw}
    message = {
        "role": "assistant",
        "content": f"turn {number}",
        "tool_calls": [{"id": identifier, "type": "function", "function": function}],
    }
    call = Call(
        id=identifier,
        name="bash",
        arguments={"command": command},
        raw_arguments=raw,
        observation=f"line {number}\n",
        message={"role": "tool", "tool_call_id": identifier, "content": f"line {number}\n"},
        exit_code=0,
    )
    usage = read_usage(
        {"prompt_tokens": 100 * number, "completion_tokens": 7, "total_tokens": 100 * number + 7}
    )
    return Turn(
        message=message,
        calls=(call,),
        usage=usage,
        model="cedar-large",
        cost_reported=Decimal("0.125"),
        finish_reason="tool_calls",
        started_at=BEGUN + dt.timedelta(minutes=number),
    )


@pytest.fixture
def run() -> Exported:
    last = turn(3)
    submitted = replace(last, calls=(replace(last.calls[0], submitted=True),))
    return exported(
        Trajectory(
            origin=Origin(format="trajectory-lab", file="", sha256=""),
            harness=HarnessUsed(name="mini"),
            model=ModelUsed(name="cedar-large"),
            instance_id="acme__widgets-1",
            opening=({"role": "system", "content": "be good"}, {"role": "user", "content": "mend it"}),
            items=(turn(1), turn(2), submitted),
            exit_reason=ExitReason.AGENT,
            native_reason="Submitted",
            patch=PATCH,
        )
    )


def read_back(folder: Path, writer: Writer, run: Exported) -> list[Found]:
    (member,) = writer.members([run])
    local = folder / "file"
    local.write_bytes(b"".join(member.pieces))
    document = Document("given/file", local)
    form = recognise(FORMATS, probe(document))
    assert form is not None
    return list(form.read([document]))


def told(found: Trajectory) -> list[tuple[object, ...]]:
    """Of each call the words that came, what it was, and what came of it."""
    return [
        (turn.message["content"], call.name, call.arguments, call.observation)
        for turn in found.turns
        for call in turn.calls
    ]


@pytest.mark.parametrize("writer", [Atif(), MiniSweAgent(), Chat()], ids=lambda writer: writer.name)
def test_a_conversation_comes_back_with_its_calls(tmp_path: Path, run: Exported, writer: Writer) -> None:
    (found,) = read_back(tmp_path, writer, run)
    assert isinstance(found, Trajectory)
    assert told(found) == told(run.trajectory)
    assert [message["content"] for message in found.opening] == ["be good", "mend it"]


@pytest.mark.parametrize("writer", [Atif(), MiniSweAgent()], ids=lambda writer: writer.name)
def test_tokens_cost_end_and_patch_come_back(tmp_path: Path, run: Exported, writer: Writer) -> None:
    (found,) = read_back(tmp_path, writer, run)
    assert isinstance(found, Trajectory)
    expected = run.trajectory
    assert [turn.usage.total for turn in found.turns] == [turn.usage.total for turn in expected.turns]
    assert [turn.cost_reported for turn in found.turns] == [Decimal("0.125")] * 3
    assert found.totals.cost == Decimal("0.375")
    assert (found.instance_id, found.model.name) == ("acme__widgets-1", "cedar-large")
    assert (found.exit_reason, found.native_reason, found.patch) == (ExitReason.AGENT, "Submitted", PATCH)


def test_a_prediction_comes_back_as_the_patch_of_its_task(tmp_path: Path, run: Exported) -> None:
    (found,) = read_back(tmp_path, Predictions(), run)
    assert isinstance(found, FoundGrading)
    assert (found.instance_id, found.patch, found.grading) == ("acme__widgets-1", PATCH, None)
