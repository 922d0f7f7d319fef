"""A chat-completions server on loopback that answers from a script of one entry a request.

It stands for every server an endpoint may name: OpenAI, SGLang, vLLM, llama.cpp, a proxy that answers with an
HTML page, a server that dies in the middle of a stream. It speaks real HTTP/1.1 over real sockets, so that
time-outs, cut connections and cancelling are the real thing. The last entry of a script answers all further
requests.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

JSONObject = dict[str, Any]


@dataclass
class Answer:
    """What one request gets. Times in seconds, `cut_after` in bytes of the body.

    `pieces` are sent one by one with `pause` between them. `silence` follows the last piece before the end.
    `cut_after` drops the connection in the middle; `endless` repeats the last piece until the client goes.
    """

    pieces: Iterable[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    delay: float = 0.0
    pause: float = 0.0
    silence: float = 0.0
    cut_after: int | None = None
    endless: bool = False


@dataclass
class Request:
    """What arrived. Names of headers are in lower case; `at` is the monotonic clock."""

    path: str
    headers: dict[str, str]
    raw: bytes
    at: float
    header_list: list[tuple[str, str]]

    @property
    def body(self) -> JSONObject:
        decoded: JSONObject = json.loads(self.raw)
        return decoded


def event(chunk: Any) -> bytes:
    """One data line; a str or bytes goes out as it is."""
    if isinstance(chunk, bytes):
        return b"data: " + chunk + b"\n\n"
    text = chunk if isinstance(chunk, str) else json.dumps(chunk)
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


DONE = event("[DONE]")


def delta(
    *, finish: str | None = None, usage: JSONObject | None = None, model: str = "fake", **fields: Any
) -> JSONObject:
    """A `chat.completion.chunk` whose delta has the given fields."""
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
        "usage": usage,
    }


def usage_chunk(**usage: Any) -> JSONObject:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "choices": [], "usage": usage}


def stream(*chunks: Any, done: bool = True, **options: Any) -> Answer:
    """A stream of these chunks (objects, or raw text of a data line), each a piece of its own."""
    return Answer(pieces=[event(chunk) for chunk in chunks] + ([DONE] if done else []), **options)


def says(text: str, *, finish: str = "stop", prompt: int = 10, completion: int = 5, **options: Any) -> Answer:
    """A good streamed answer with usage."""
    *words, last = text.split(" ")
    pieces = [delta(content=word + " ") for word in words] + [delta(content=last)]
    used = usage_chunk(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
    return stream(*pieces, delta(finish=finish), used, **options)


def plain(value: Any, *, status: int = 200, **options: Any) -> Answer:
    """One JSON answer without a stream."""
    return Answer(
        pieces=[json.dumps(value).encode()], status=status, content_type="application/json", **options
    )


def html(text: str = "<!doctype html><title>Welcome</title>", *, status: int = 200) -> Answer:
    return Answer(pieces=[text.encode()], status=status, content_type="text/html")


def models(*entries: JSONObject | str) -> Answer:
    listed = [{"id": entry, "object": "model"} if isinstance(entry, str) else entry for entry in entries]
    return plain({"object": "list", "data": listed})


class FakeOpenAI:
    """Answers POST requests from `answers` and GET /v1/models from `listed` while the block runs.

    With `tls`, over HTTPS.
    """

    def __init__(
        self, *answers: Answer, listed: Answer | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.answers = list(answers) or [says("hello")]
        self.listed = listed if listed is not None else models("fake")
        self.requests: list[Request] = []
        # Guards requests and the place in the script: each connection has a thread.
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def base_url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/v1"

    @property
    def calls(self) -> list[Request]:
        """The chat requests so far."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    def __enter__(self) -> FakeOpenAI:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if request.path.endswith("/models"):
                return self.listed
            return self.answers[min(len(self.calls), len(self.answers)) - 1]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, fake: FakeOpenAI) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _answer(self, raw: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.fake.take(
            Request(self.path, headers, raw, time.monotonic(), self.headers.items())
        )
        time.sleep(answer.delay)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send_body(answer)

    def _send_body(self, answer: Answer) -> None:
        left = answer.cut_after
        piece = b""
        for piece in answer.pieces:
            if left is not None and len(piece) >= left:
                self._send_piece(piece[:left])
                self.close_connection = True
                return
            left = None if left is None else left - len(piece)
            self._send_piece(piece)
            time.sleep(answer.pause)
        while answer.endless:
            self._send_piece(piece)
        time.sleep(answer.silence)
        self.wfile.write(b"0\r\n\r\n")

    def _send_piece(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
