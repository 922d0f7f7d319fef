"""Replies of judges as they come, and pieces of a run, without a server."""

from __future__ import annotations

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.judge import rubric as rubrics
from lab.engine.judge.answers import UnusableAnswerError, parsed
from lab.engine.judge.chunks import SMALLEST_ROOM, StepText, split

SCHEMA = {
    "type": "object",
    "properties": {"notes": {"type": "string"}, "events": {"type": "array"}},
    "required": ["notes"],
}


@pytest.mark.parametrize(
    "reply",
    [
        '{"notes": "n"}',
        'Sure: {"notes": "n"} as you asked.',
        'Like {this}: {"notes": "n"}',
        '```json\n{"notes": "n"}\n```',
        '<think>{"notes": "not this"}</think>{"notes": "n"}',
    ],
)
def test_an_object_is_found_alone_in_a_fence_and_among_words(reply: str) -> None:
    assert parsed(reply, schema=SCHEMA) == {"notes": "n"}


def test_of_an_answer_that_was_cut_no_part_is_taken_for_the_whole() -> None:
    with pytest.raises(UnusableAnswerError, match="cut at its limit"):
        parsed('{"notes": "n", "events": [{"notes": "inner"}, {"st', schema=SCHEMA, cut=True)


@pytest.mark.parametrize("reply", ["", "no", "[1]", "{", '{"notes": 3}', "{" * 5000])
def test_anything_else_is_unusable_with_a_reason(reply: str) -> None:
    with pytest.raises(UnusableAnswerError, match="."):
        parsed(reply, schema=SCHEMA)


@pytest.mark.parametrize("room", [SMALLEST_ROOM, 2_000, 9_000])
def test_pieces_fit_and_hold_every_character(room: int) -> None:
    steps = [StepText(n, "".join(f"<{n}.{place}>" for place in range(n * 90))) for n in range(1, 9)]
    chunks = split(steps, room=room)
    whole = "".join(chunk.text for chunk in chunks)
    assert all(len(chunk.text) <= room for chunk in chunks)
    assert {step for one in chunks for step in range(one.first, one.last + 1)} == set(range(1, 9))
    cut = whole.replace("[the step goes on]\n", "").replace("\n[the step goes on in the next piece]", "")
    assert len(cut) >= sum(len(step.text) for step in steps)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1", "is no YAML"),
        ("7", "must be a mapping"),
        ("name: a\nfields: {a: {type: string}}", "instructions"),
        ("name: a\ninstructions: b\nfields: {}", "is empty"),
        ("name: a\ninstructions: b\nfields: {a: {type: 7}}", "is no schema"),
        ("name: a\ninstructions: b\ncollected: x\nfields: {a: {type: string}}", "none of its fields"),
        ("name: a\ninstructions: b\ncollected: a\nfields: {a: {type: string}}", "must be an array"),
    ],
)
def test_a_rubric_that_cannot_be_used_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidValueError, match=named):
        rubrics.from_yaml(text)
