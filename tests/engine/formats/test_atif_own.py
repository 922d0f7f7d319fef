"""What the lab writes as ATIF comes back as it was, as far as the format and its `extra` hold it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from lab.engine.errors import ExitReason
from lab.engine.formats.atif import Atif
from lab.engine.formats.exported import written
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    Origin,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.formats.write_atif import document
from lab.engine.llm.base import Cost
from lab.engine.verify.base import Outcome
from tests.engine.formats.made_trajectories import exported, trajectories
from tests.engine.formats.mutations import document_of, found_by, mutated, only, survives

READER = Atif()
OF_RUN = (
    "opening", "tools", "exit_reason", "native_reason", "error", "final_message", "statement", "gradings",
    "limits", "patch", "steps_recorded", "task_kept", "seed",
)  # fmt: skip
OF_TURN = (
    "reasoning", "finish_reason", "response_id", "cost_reported", "seconds", "first_token_seconds", "agent",
    "kept",
)  # fmt: skip
OF_CALL = (
    "id", "name", "arguments", "raw_arguments", "malformed", "observation", "exit_code", "failed",
    "timed_out",
    "submitted", "seconds", "synthesised_id", "kept",
)  # fmt: skip


def of(one: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(one, name) for name in names]


def _of_call(call: Call) -> list[Any]:
    # An empty output beside what the model saw of it is left out.
    return [*of(call, OF_CALL), call.output or None]


def again(folder: Path, found: Trajectory) -> Trajectory:
    return only(found_by(READER, document_of(folder, json.loads(written(document(exported(found)))))))


def told(item: Item) -> list[Any]:
    """What must come back of an item; times and the raw form of usage are the format's own."""
    if isinstance(item, Turn):
        usage = (item.usage.input_total, item.usage.output_total)
        content = item.message.get("content")
        return [content, usage, of(item, OF_TURN), [_of_call(call) for call in item.calls]]
    if isinstance(item, Message):
        return [item.message, item.by, item.reason, item.kept]
    if isinstance(item, FailedRequest):
        return [item.error, item.message, item.status, item.cost_reported, item.seconds, item.kept]
    return [getattr(item, "reason", ""), getattr(item, "messages", ()), item.kept]


@settings(deadline=None, max_examples=40)
@given(found=trajectories())
def test_a_run_that_was_written_as_atif_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, found: Trajectory
) -> None:
    back = again(tmp_path_factory.mktemp("own"), found)
    assert of(back, OF_RUN) == of(found, OF_RUN)
    assert (back.model.sampling, back.harness.config) == (found.model.sampling, found.harness.config)
    assert found.totals.cost is None or back.totals.cost == found.totals.cost
    for kind in (Turn, Message, Rewritten, FailedRequest):
        mine = [told(one) for one in found.items if isinstance(one, kind)]
        theirs = [told(one) for one in back.items if isinstance(one, kind)]
        assert theirs == mine
    in_order = (Turn, Message, Rewritten)
    assert [type(one) for one in back.items if isinstance(one, in_order)] == [
        type(one) for one in found.items if isinstance(one, in_order)
    ]


@settings(deadline=None, max_examples=25)
@given(found=trajectories())
def test_the_same_run_written_twice_is_the_same_twice(
    tmp_path_factory: pytest.TempPathFactory, found: Trajectory
) -> None:
    folder = tmp_path_factory.mktemp("own")
    once = again(folder, found)
    twice = again(folder, once)
    assert twice.items == once.items
    assert of(twice, OF_RUN) == of(once, OF_RUN)


EXAMPLE = Trajectory(
    origin=Origin(format="trajectory-lab", file="", sha256=""),
    harness=HarnessUsed(name="leaf", version="4"),
    opening=({"role": "user", "content": "Mend it."},),
    items=(
        FailedRequest(error="timeout", message="slow"),
        Turn(
            message={"role": "assistant", "content": "Done."},
            priced=Cost(amount=Decimal("0.5"), basis="table"),
            kept={"a": 1},
        ),
    ),
    exit_reason=ExitReason.AGENT,
    gradings=(Grading(rule="tests", outcome=Outcome.RESOLVED),),
)


def test_a_price_of_the_labs_is_not_what_was_recorded(tmp_path: Path) -> None:
    document_of_it = json.loads(written(document(exported(EXAMPLE))))
    assert document_of_it["final_metrics"]["total_cost_usd"] == 0.5
    found = again(tmp_path, EXAMPLE)
    assert (found.turns[0].cost_reported, found.totals.cost) == (None, None)
    assert [type(one).__name__ for one in found.items] == ["FailedRequest", "Turn"]


@settings(deadline=None, max_examples=150)
@given(value=mutated(json.loads(written(document(exported(EXAMPLE))))))
def test_a_broken_document_of_the_labs_own_stops_no_reader(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    assert survives(READER, document_of(tmp_path_factory.mktemp("own"), value))
