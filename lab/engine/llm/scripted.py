"""Scripted models: deterministic, without intelligence, spoken to like any other OpenAI-compatible server.

A plan of tool-neutral actions lies beside a task. The seed picks the plan, the assistant messages in the
request pick the step, so the server keeps no state and a retried or resumed request gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import JSONObject
from lab.engine.llm.local_server import LocalServer
from lab.engine.llm.scripted_tools import Toolbox, Turn
from lab.engine.tasks.plans import Plans

SCRIPTED_MODELS = ("scripted/solver", "scripted/struggler")
CONTEXT_WINDOW = 131_072
NO_PLAN = "I am a scripted model: there is no plan for this task."
PLAN_ENDED = "My script for this task ends here."
# Of a conversation with so many turns dropped, the place in the plan is still found.
_MOST_DROPPED = 50

_PLANS: TypeAdapter[Any] = TypeAdapter(Plans)


def parse_plans(raw: object, source: str) -> dict[str, list[JSONObject]]:
    """Plans as they are in a file (model id -> list of plans), checked and otherwise unchanged.

    Raises:
        InvalidValueError: not in the shape of `tasks.plans`; the text names the source, the place and why.
    """
    try:
        _PLANS.validate_python(raw)
    except ValidationError as failed:
        first = failed.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidValueError(
            f"{source}: {place or 'plans'}", first.get("input"), f"is no plan: {first['msg']}"
        ) from None
    plans: dict[str, list[JSONObject]] = raw  # type: ignore[assignment] # just checked
    return plans


class ScriptedServer(LocalServer):
    """The scripted models of one run, on a loopback port of their own while the block runs.

    `plans` are a task's (model id -> list of plans); `seed` counts from 1; `chunk_seconds` is the pause after
    each streamed piece, so that there is something to watch.
    """

    def __init__(
        self, plans: Mapping[str, Sequence[JSONObject]], *, seed: int, chunk_seconds: float = 0.015
    ) -> None:
        super().__init__(
            [
                {"id": name, "object": "model", "owned_by": "scripted", "max_model_len": CONTEXT_WINDOW}
                for name in SCRIPTED_MODELS
            ],
            chunk_seconds=chunk_seconds,
        )
        self._plans = parse_plans({name: list(listed) for name, listed in plans.items()}, "plans")
        self._seed = seed

    def answer(self, body: JSONObject) -> JSONObject:
        """The whole chat completion for a request's body."""
        model = str(body.get("model"))
        position = self._position(body["messages"], model)
        turn = self._turn(body, model, position)
        usage, finish_reason = _measure(body, turn)
        identity = self._identity(model, position)
        message: JSONObject = {"role": "assistant", "content": turn.content}
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": _call_id(identity, index),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for index, (name, arguments) in enumerate(turn.calls)
            ]
        return {
            "id": f"chatcmpl-{identity[:24]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": usage,
        }

    def _turn(self, body: JSONObject, model: str, position: int) -> Turn:
        plans = self._plans.get(model)
        if not plans:
            return Turn(content=NO_PLAN)
        toolbox = Toolbox(body)
        steps = toolbox.steps(plans[(self._seed - 1) % len(plans)]["steps"])
        return toolbox.turn(steps[position] if position < len(steps) else {"finish": {"message": PLAN_ENDED}})

    def _identity(self, model: str, position: int) -> str:
        return hashlib.sha256(f"{model} {self._seed} {position}".encode()).hexdigest()

    def _position(self, messages: Sequence[JSONObject], model: str) -> int:
        """How many turns were taken: a harness may drop some from the conversation, but the id of the last
        call says which turn made it."""
        answers = [message for message in messages if message.get("role") == "assistant"]
        for after, message in enumerate(reversed(answers)):
            for call in message.get("tool_calls") or []:
                for position in range(len(answers) - after - 1, len(answers) + _MOST_DROPPED):
                    if call.get("id") == _call_id(self._identity(model, position), 0):
                        return position + 1 + after
        return len(answers)


def _call_id(identity: str, index: int) -> str:
    return "call_" + hashlib.sha256(f"{identity} {index}".encode()).hexdigest()[:24]


def _measure(body: JSONObject, turn: Turn) -> tuple[JSONObject, str]:
    """Usage at four characters a token, and the finish reason; a turn over the cap is cut like a real one."""
    messages = body["messages"]
    prompt = _tokens(json.dumps([messages, body.get("tools")], ensure_ascii=False))
    last = max(
        (at for at, message in enumerate(messages) if message.get("role") == "assistant"), default=None
    )
    seen = [] if last is None else [messages[:last], body.get("tools")]
    reasoning = _tokens(turn.reasoning)
    completion = reasoning + _tokens(turn.content + "".join(name + raw for name, raw in turn.calls))
    finish_reason = "tool_calls" if turn.calls else "stop"
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    if isinstance(cap, int) and completion > cap:
        turn.calls, finish_reason, completion = [], "length", cap
        turn.reasoning = turn.reasoning[: cap * 4]
        turn.content = turn.content[: max(0, cap * 4 - len(turn.reasoning))]
        reasoning = min(reasoning, cap)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": min(prompt, _tokens(json.dumps(seen, ensure_ascii=False))) if seen else 0
        },
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    return usage, finish_reason


def _tokens(text: str) -> int:
    return math.ceil(len(text) / 4)
