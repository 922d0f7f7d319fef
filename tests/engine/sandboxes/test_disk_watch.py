"""The limit on disk space where the daemon does not tell how much a container has written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import docker
import pytest

from lab.engine.sandboxes import docker_watch
from lab.engine.sandboxes.docker_watch import Watch
from tests.engine.sandboxes.conftest import eventually


class _Daemon(BaseHTTPRequestHandler):
    """Answers as a daemon that cannot walk through the files of `vast` in time, and knows no `gone`.

    It walks through those of `slow` until `walked` is set, and `full` has written 200 MB.
    """

    asked: list[str]
    walked: threading.Event

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.endswith("/_ping"):
            self._answer(200, b"OK")
        elif "/vast/" in self.path:
            self._answer(500, b'{"message": "context deadline exceeded"}')
        elif "/slow/" in self.path:
            self.walked.wait(60)
            self._answer(200, b'{"SizeRw": 0}')
        elif "/full/" in self.path:
            self._answer(200, b'{"SizeRw": 200000000}')
        else:
            self._answer(404, b'{"message": "No such container"}')

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self._answer(204, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    """Of the daemon above; what it was asked stands in the class."""
    _Daemon.asked, _Daemon.walked = [], threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Daemon)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield docker.DockerClient(base_url=f"tcp://127.0.0.1:{server.server_port}", version="1.41")
    _Daemon.walked.set()
    server.shutdown()
    server.server_close()


def test_a_sandbox_whose_size_cannot_be_told_again_and_again_is_ended(client: docker.DockerClient) -> None:
    watch, told = Watch(), list[str]()
    watch.add(client, "vast", 10**9, told.append)
    assert eventually(lambda: told)
    assert "could not be told" in told[0]
    assert "1 GB" in told[0]
    assert eventually(lambda: any(path.endswith("/vast/kill") for path in _Daemon.asked))


def test_a_container_that_is_just_removed_is_not_blamed(client: docker.DockerClient) -> None:
    watch, told = Watch(), list[str]()
    watch.add(client, "gone", 10**9, told.append)
    assert eventually(lambda: sum("/gone/" in path for path in _Daemon.asked) >= 4)
    watch.remove("gone")
    assert told == []


def test_a_daemon_is_asked_whether_it_answers_while_it_walks_through_files(
    client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_watch, "_PING_SECONDS", 0.1)
    watch = Watch()
    watch.add(client, "slow", 10**9, print)
    assert eventually(lambda: any("/slow/" in path for path in _Daemon.asked))
    before = len(_pings())
    # Less than what the walk is given before it counts as failed.
    assert eventually(lambda: len(_pings()) >= before + 2, 15)
    watch.remove("slow")


def _pings() -> list[str]:
    return [path for path in _Daemon.asked if path.endswith("/_ping")]


LIMITS = {"100 MB": 100 * 1024**2, "0.15 GB": int(0.15 * 1e9)}


@pytest.mark.parametrize(("said", "limit"), LIMITS.items(), ids=LIMITS.keys())
def test_a_limit_is_said_in_the_unit_it_was_given_in(
    client: docker.DockerClient, said: str, limit: int
) -> None:
    watch, told = Watch(), list[str]()
    watch.add(client, "full", limit, told.append)
    assert eventually(lambda: told)
    assert f"wrote more than {said}, its limit" in told[0]
