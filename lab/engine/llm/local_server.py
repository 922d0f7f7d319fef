"""A model server inside this process: scripted and replayed models are spoken to like any other."""

from __future__ import annotations

import abc
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from lab.engine.llm.base import JSONObject
from lab.engine.llm.reply import REASONING_FIELDS

_PIECE = re.compile(r"\s*\S{1,24}|\s+")


class RefusedError(Exception):  # becomes an answer of the server
    """A request that is answered with an error: `status`, `message` and the error's `type`."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind


class LocalServer(abc.ABC):
    """Answers chat completions on a loopback port of its own while the block runs.

    `models` is what /models lists. `chunk_seconds` is the pause after each streamed piece, so that there is
    something to watch.
    """

    def __init__(self, models: Sequence[JSONObject], *, chunk_seconds: float = 0.015) -> None:
        self.models = list(models)
        self.chunk_seconds = chunk_seconds
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True, name="model"
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @abc.abstractmethod
    def answer(self, body: JSONObject) -> JSONObject:
        """The whole chat completion for a request's body.

        Raises:
            RefusedError: there is none.
        """


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
    for field in (*REASONING_FIELDS, "content", "refusal"):
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

    def __init__(self, answering: LocalServer) -> None:
        self.answering = answering
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
        self._send_json(200, {"object": "list", "data": self.server.answering.models})

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
            return
        known = tuple(model["id"] for model in self.server.answering.models)
        if body.get("model") not in known:
            self._send_error(404, f"the model {body.get('model')!r} does not exist; there are {known}")
            return
        try:
            answer = self.server.answering.answer(body)
        except RefusedError as refused:
            self._send_error(refused.status, refused.message, kind=refused.kind)
            return
        if body.get("stream"):
            self._stream(answer)
        else:
            self._send_json(200, answer)

    def _stream(self, answer: JSONObject) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pause = self.server.answering.chunk_seconds
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

    def _send_error(self, status: int, message: str, *, kind: str = "invalid_request_error") -> None:
        self._send_json(status, {"error": {"message": message, "type": kind, "code": status}})

    def _send_json(self, status: int, value: JSONObject) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
