"""Scripted models: deterministic, without intelligence, spoken to like any other OpenAI-compatible server.

A plan of tool-neutral actions lies beside a task. The seed picks the plan, the assistant messages in the
request pick the step, so the server keeps no state and a retried or resumed request gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import JSONObject
from lab.engine.llm.scripted_tools import Toolbox, Turn
from lab.engine.tasks.plans import Plans

SCRIPTED_MODELS = ("scripted/solver", "scripted/struggler")
CONTEXT_WINDOW = 131_072
NO_PLAN = "I am a scripted model: there is no plan for this task."
PLAN_ENDED = "My script for this task ends here."
# Of a conversation with so many turns dropped, the place in the plan is still found.
_MOST_DROPPED = 50

_PIECE = re.compile(r"\s*\S{1,24}|\s+")
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


class ScriptedServer:
    """The scripted models of one run, on a loopback port of their own while the block runs.

    `plans` are a task's (model id -> list of plans); `seed` counts from 1; `chunk_seconds` is the pause after
    each streamed piece, so that there is something to watch.
    """

    def __init__(
        self, plans: Mapping[str, Sequence[JSONObject]], *, seed: int, chunk_seconds: float = 0.015
    ) -> None:
        self._plans = parse_plans({name: list(listed) for name, listed in plans.items()}, "plans")
        self._seed = seed
        self.chunk_seconds = chunk_seconds
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True, name="scripted"
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

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


def _chunks(answer: JSONObject) -> Iterator[JSONObject]:
    """The answer as `chat.completion.chunk` objects, a few words each, usage last."""
    base = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = answer["choices"][0]
    message = choice["message"]

    def chunk(delta: JSONObject, finish_reason: str | None = None) -> JSONObject:
        return base | {
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
            "usage": None,
        }

    yield chunk({"role": "assistant", "content": ""})
    for field in ("reasoning_content", "content"):
        for piece in _pieces(message.get(field) or ""):
            yield chunk({field: piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk(
            {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        )
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield base | {"choices": [], "usage": answer["usage"]}


def _pieces(text: str) -> Iterator[str]:
    """Three words at a time."""
    words = _PIECE.findall(text)
    for start in range(0, len(words), 3):
        yield "".join(words[start : start + 3])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, scripted: ScriptedServer) -> None:
        self.scripted = scripted
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, which a cancel does, is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without Nagle's algorithm and with a buffer, each piece leaves at once and in one packet.
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the run's own log says what was asked."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            self._send_error(404, f"there is nothing at {self.path}")
            return
        models = [
            {"id": name, "object": "model", "owned_by": "scripted", "max_model_len": CONTEXT_WINDOW}
            for name in SCRIPTED_MODELS
        ]
        self._send_json(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.rstrip("/") != "/v1/chat/completions":
            self._send_error(404, f"there is nothing at {self.path}")
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self._send_error(400, "the body is not JSON")
            return
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            self._send_error(400, "the body has no list of messages")
        elif body.get("model") not in SCRIPTED_MODELS:
            self._send_error(
                404, f"the model {body.get('model')!r} does not exist; there are {SCRIPTED_MODELS}"
            )
        elif body.get("stream"):
            self._stream(self.server.scripted.answer(body))
        else:
            self._send_json(200, self.server.scripted.answer(body))

    def _stream(self, answer: JSONObject) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pause = self.server.scripted.chunk_seconds
        for chunk in _chunks(answer):
            self._send_piece(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n")
            if pause:
                self.wfile.flush()
                time.sleep(pause)
        self._send_piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _send_error(self, status: int, message: str) -> None:
        self._send_json(
            status, {"error": {"message": message, "type": "invalid_request_error", "code": status}}
        )

    def _send_json(self, status: int, value: JSONObject) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
