"""Recorded runs of the lab's harness families: a trajectory holds the conversation that the log has."""

from __future__ import annotations

import atif
import pytest

from lab.engine.formats.exported import written
from lab.engine.formats.from_events import from_events
from lab.engine.formats.trajectory import Message, Rewritten, Trajectory, Turn
from lab.engine.formats.write_atif import document
from lab.engine.formats.write_chat import samples
from lab.engine.harnesses.conversation import messages_after
from lab.engine.llm.base import JSONObject
from lab.services import sample_log
from tests.engine.formats.made_trajectories import exported


def conversation(found: Trajectory) -> list[JSONObject]:
    """The messages at the end, as somebody reads them who has the trajectory alone."""
    messages = list(found.opening)
    for item in found.items:
        if isinstance(item, Rewritten):
            messages = list(item.messages)
        elif isinstance(item, Turn):
            messages += [item.message, *(call.message for call in item.calls)]
        elif isinstance(item, Message):
            messages.append(item.message)
    return [message for message in messages if message]


@pytest.mark.parametrize("harness", ["leaf-compatible", "leaf-bash-only", "r2e", "mini"])
def test_the_conversation_of_a_recorded_run_is_whole(harness: str) -> None:
    runs = [run for run in sample_log.read().runs if run.cell.harness == harness]
    assert len(runs) > 10
    for run in runs:
        records = run.read().records
        found = from_events(records)
        assert conversation(found) == messages_after(records), run.cell
        answered = sum(record.event.kind == "model_call_finished" for record in records)
        called = sum(record.event.kind == "tool_call_finished" for record in records)
        assert len(found.turns) == answered
        assert sum(call.observation is not None for turn in found.turns for call in turn.calls) == called
        assert found.gradings
        assert not found.partial
        atif.Trajectory.model_validate_json(written(document(exported(found))))
        learned = sum(sum(sample["loss_mask"]) for sample in samples(exported(found)))
        assert learned == sum(bool(turn.message) for turn in found.turns)
