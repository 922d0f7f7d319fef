"""A body that is encoded piece by piece is the body that encoding it whole would give."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lab.engine.llm.base import canonical_sha256
from lab.engine.llm.bodies import BodyEncoder, complete_body

texts = st.text(st.characters(exclude_categories=()), max_size=12)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": texts | st.none()},
    optional={"tool_calls": st.lists(st.dictionaries(texts, texts | st.integers(), max_size=2), max_size=2)},
)


@given(st.lists(messages, max_size=6), st.dictionaries(texts, st.integers() | st.lists(texts), max_size=3))
def test_each_body_of_a_growing_conversation_is_sent_and_hashed_as_if_it_were_encoded_whole(
    conversation: list[dict[str, Any]], parameters: dict[str, Any]
) -> None:
    encoder = BodyEncoder()
    for length in range(len(conversation) + 1):
        body = {"tools": [{"z": 1, "a": 2}], **parameters, "messages": conversation[:length]}
        encoded = encoder.encode(body)
        whole = complete_body(body)
        assert json.loads(encoded.content) == whole
        assert list(json.loads(encoded.content)) == list(whole)
        assert encoded.sha256 == canonical_sha256(whole)


def test_a_message_that_was_replaced_is_encoded_anew_with_all_that_follow() -> None:
    encoder = BodyEncoder()
    first, second, third = ({"role": "user", "content": text} for text in ("one", "two", "three"))
    encoder.encode({"messages": [first, second, third]})
    encoded = encoder.encode({"messages": [first, third]})
    assert [message["content"] for message in json.loads(encoded.content)["messages"]] == ["one", "three"]
    again = encoder.encode({"messages": [first, second]})
    assert [message["content"] for message in json.loads(again.content)["messages"]] == ["one", "two"]


def test_parameters_that_change_from_step_to_step_are_sent_as_they_are_now() -> None:
    encoder = BodyEncoder()
    for cap in (100, 99):
        assert json.loads(encoder.encode({"messages": [], "max_tokens": cap}).content)["max_tokens"] == cap
