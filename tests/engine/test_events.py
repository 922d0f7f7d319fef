"""The log's contract: what was written once can be read for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pydantic
import pytest

from lab.engine.events import Event, ModelCallFinished, Record, read_record

SAMPLES = Path(__file__).parent / "samples" / "events-schema-1.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]


def kinds_of_the_union() -> set[str]:
    union = get_args(Event)[0]
    return {get_args(member.model_fields["kind"].annotation)[0] for member in get_args(union)}


def holds(stored: Any, now: Any) -> bool:
    """Whether everything stored is still there, unchanged; newer fields may stand beside it."""
    if isinstance(stored, dict):
        return all(key in now and holds(value, now[key]) for key, value in stored.items())
    if isinstance(stored, list):
        return len(stored) == len(now) and all(holds(*pair) for pair in zip(stored, now, strict=True))
    return bool(stored == now)


def test_there_is_a_stored_sample_of_every_kind_of_event() -> None:
    assert {line["kind"] for line in LINES} == kinds_of_the_union()


@pytest.mark.parametrize("stored", LINES, ids=[line["kind"] for line in LINES])
def test_a_line_of_schema_1_is_read_and_written_again_with_nothing_lost_or_changed(
    stored: dict[str, Any],
) -> None:
    record = read_record(stored)
    assert record.schema_version == 1
    written = json.loads(record.to_line())
    written["at"] = stored["at"]
    assert holds(stored, written)


def test_fields_of_a_newer_lab_are_kept() -> None:
    stored = {**LINES[0], "mood": {"newer": True}}
    assert json.loads(read_record(stored).to_line())["mood"] == {"newer": True}


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(pydantic.ValidationError, match="no_such_kind"):
        read_record({**LINES[0], "kind": "no_such_kind"})


def test_unknown_counts_and_costs_stay_unknown() -> None:
    line = next(line for line in LINES if line["kind"] == "model_call_finished")
    bare = {**line, "reply": {"content": "x"}, "cost": {}}
    event = read_record(bare).event
    assert isinstance(event, ModelCallFinished)
    assert event.reply.usage.total is None
    assert event.cost.amount is None


def test_records_cannot_be_changed() -> None:
    record = read_record(LINES[0])
    with pytest.raises(pydantic.ValidationError):
        record.seq = 2  # type: ignore[misc]
    assert isinstance(record, Record)
