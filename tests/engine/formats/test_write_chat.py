"""Conversations for training: what is to be learned from, and what for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

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
from lab.engine.formats.write_chat import Chat, samples
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome
from tests.engine.formats.made_trajectories import exported, trajectories

CALL = Call(
    id="a", name="bash", arguments={}, observation="a.py", message={"role": "tool", "content": "a.py"}
)
TURN = Turn(message={"role": "assistant", "content": "look"}, calls=(CALL,))


def trajectory(*items: Item, **changes: object) -> Trajectory:
    fields: dict[str, object] = {
        "origin": Origin(format="trajectory-lab", file="", sha256=""),
        "harness": HarnessUsed(name="leaf"),
        "opening": ({"role": "user", "content": "mend it"},),
        "tools": ({"type": "function"},),
        "items": items,
    }
    return Trajectory(**(fields | changes))  # type: ignore[arg-type]


def of(*items: Item, **changes: object) -> list[JSONObject]:
    return list(samples(exported(trajectory(*items, **changes))))


def roles(sample: JSONObject) -> list[str]:
    return [message["role"] for message in sample["messages"]]


def test_only_the_models_own_turns_are_learned_from() -> None:
    told = Message(message={"role": "user", "content": "one command"})
    (sample,) = of(TURN, told, TURN)
    assert roles(sample) == ["user", "assistant", "tool", "user", "assistant", "tool"]
    assert sample["loss_mask"] == [0, 1, 0, 0, 1, 0]
    assert sample["tools"] == [{"type": "function"}]


def test_a_turn_that_was_copied_is_learned_from_where_it_was_first_said() -> None:
    (sample,) = of(replace(TURN, copied=True), TURN)
    assert sample["loss_mask"] == [0, 0, 0, 1, 0]


def test_a_rewritten_history_begins_a_sample_of_its_own() -> None:
    new = ({"role": "user", "content": "in short"}, {"role": "assistant", "content": "I looked"})
    first, second = of(TURN, Rewritten(reason="condensed", messages=new), TURN)
    assert (roles(first), first["loss_mask"]) == (["user", "assistant", "tool"], [0, 1, 0])
    assert (roles(second), second["loss_mask"]) == (["user", "assistant", "assistant", "tool"], [0, 0, 1, 0])
    assert (first["id"], second["id"]) == ("run-7-1", "run-7-2")


def test_a_conversation_without_a_turn_of_the_model_is_no_sample() -> None:
    failed = FailedRequest(error="server", message="500")
    assert of(failed) == []
    (sample,) = of(TURN, Rewritten(reason="condensed", messages=({"role": "user", "content": "x"},)), failed)
    assert sample["id"] == "run-7-1"


@pytest.mark.parametrize(
    ("grading", "reward"),
    [
        (None, None),
        (Grading(rule="r", outcome=Outcome.RESOLVED), 1.0),
        (Grading(rule="r", outcome=Outcome.UNRESOLVED), 0.0),
        (Grading(rule="r", outcome=Outcome.INFRASTRUCTURE), None),
        (Grading(rule="r", outcome=Outcome.UNRESOLVED, rewards={"reward": 0.25, "style": 1.0}), 0.25),
        (Grading(rule="r", outcome=Outcome.UNRESOLVED, rewards={"score": 0.5}), 0.5),
    ],
)
def test_the_reward_is_the_recorded_one_or_the_verdict_and_unknown_is_null(
    grading: Grading | None, reward: float | None
) -> None:
    (sample,) = of(TURN, gradings=(grading,) if grading else ())
    assert sample["reward"] == reward
    assert (sample["reward"] is None) == (reward is None)


def test_the_verdict_in_force_is_the_latest() -> None:
    first, second = (Grading(rule="r", outcome=one) for one in (Outcome.UNRESOLVED, Outcome.RESOLVED))
    assert of(TURN, gradings=(first, second))[0]["reward"] == 1.0


def test_what_is_left_out_is_counted() -> None:
    left_out = Turn(message={}, kept={"left_out_reply": "two commands"})
    of_subagent = replace(TURN, agent="helper")
    (sample,) = of(left_out, of_subagent, TURN)
    assert roles(sample) == ["user", "assistant", "tool"]
    assert sample["notes"] == {"replies_left_out": 1, "turns_of_subagents_left_out": 1}


def test_thoughts_that_are_no_part_of_the_message_stand_beside_it() -> None:
    (sample,) = of(replace(TURN, reasoning="hm"))
    assert sample["reasoning"] == ["", "hm", ""]
    said = {"role": "assistant", "content": "look", "reasoning_content": "hm"}
    (sample,) = of(replace(TURN, reasoning="hm", message=said))
    assert "reasoning" not in sample


@given(trajectories())
@settings(max_examples=40, deadline=None)
def test_each_message_has_its_place_in_the_mask(found: Trajectory) -> None:
    (member,) = Chat().members([exported(found)])
    for line in b"".join(member.pieces).split(b"\n")[:-1]:
        sample = json.loads(line)
        assert len(sample["messages"]) == len(sample["loss_mask"])
        assert 1 in sample["loss_mask"]
