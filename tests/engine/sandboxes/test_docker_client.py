"""What is said where the address of a Docker daemon leads to none: one sentence, and the way out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_client

PAGE = b"<!DOCTYPE html>\n<html><body><h1>Welcome</h1></body></html>"


class _WebServer(BaseHTTPRequestHandler):
    """Answers everything with the same page, as many do, or with none and a page that says so."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture(params=[200, 404, 502])
def web_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of one."""
    handler = type("Handler", (_WebServer,), {"status": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"tcp://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def told(address: str) -> str:
    """The message for this address, which is one line without anything of a traceback or a page."""
    with pytest.raises(SandboxLostError) as error:
        docker_client.connected(address)
    text = str(error.value)
    assert text.startswith(f"The Docker daemon at {address} cannot be used: ")
    assert [sign for sign in ("<", ">", "\n", "Caused by", "Max retries", "fetching") if sign in text] == []
    assert "LAB_DOCKER_HOST" in text
    return text


def test_a_web_server_is_told_to_be_no_daemon(web_server: str) -> None:
    assert "what answers there is no Docker daemon" in told(web_server)


def test_a_server_that_does_not_speak_http_is_told_to_be_no_daemon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=greet, daemon=True).start()
        text = told(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
    assert "what answers there is no Docker daemon" in text


def test_a_machine_nobody_knows_is_told_so() -> None:
    assert "no machine of that name" in told("tcp://no-such-machine.invalid:2375")


@pytest.mark.parametrize("address", ["nonsense", "ftp://127.0.0.1", "ssh://nobody@127.0.0.1"])
def test_an_address_of_no_kind_that_can_be_used_is_told_so(address: str) -> None:
    assert "tcp://HOST:PORT" in told(address)


def test_where_nobody_listens_the_way_to_a_daemon_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "no Docker daemon answers there" in told(f"tcp://127.0.0.1:{port}")
