"""How the tests of the model client ask a server once."""

from __future__ import annotations

from typing import Any

import pytest

from lab.engine.llm.base import ModelConfig, Reply
from lab.engine.llm.failures import CallFailure
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.stop import StopSignal
from tests.fakes.openai_server import Answer, FakeOpenAI, delta

BODY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def model_at(base_url: str, **fields: Any) -> ModelConfig:
    return ModelConfig(name="fake", model_id="fake", base_url=base_url, **fields)


def no_draft(**_: Any) -> None:
    return


def ask(answer: Answer, *, body: dict[str, Any] = BODY, max_bytes: int = 1 << 26, **fields: Any) -> Reply:
    with (
        FakeOpenAI(answer) as server,
        ChatConnection(model_at(server.base_url, **fields), api_key="k", max_reply_bytes=max_bytes) as chat,
    ):
        return chat.try_once(step=1, body=body, stop=StopSignal(), draft=no_draft)


def failure(answer: Answer, **fields: Any) -> CallFailure:
    with pytest.raises(CallFailure) as caught:
        ask(answer, **fields)
    return caught.value


def call(index: int | None = 0, **fields: Any) -> dict[str, Any]:
    """A delta of one tool call; `name` and `arguments` go into its function."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    where = {} if index is None else {"index": index}
    return delta(tool_calls=[where | fields | {"function": function}])
