"""The lab's web process as tests start it: a real uvicorn on loopback, over the test database's file."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.cookies import SimpleCookie

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

_START = """
import sys, uvicorn
from django.conf import settings
import django
settings.DATABASES["default"]["NAME"] = sys.argv[1]
django.setup()
uvicorn.run("lab.asgi:application", host="127.0.0.1", port=int(sys.argv[2]), log_level="warning",
            timeout_graceful_shutdown=1, ws_per_message_deflate=False)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LabServer:
    """A web process that can be killed and started again on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "LAB_DATA_DIR": str(settings.LAB_DATA_DIR)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(connection.settings_dict["NAME"]), str(self.port)],
            env=environment,
        )
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError("the web process ended while starting")
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{self.host}/healthz", timeout=20),
            ):
                return
            time.sleep(0.05)
        raise RuntimeError("the web process did not answer in time")

    def kill(self) -> None:
        """As kill -9 does it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def session_cookie(user: User) -> str:
    """The Cookie header of somebody who has signed in."""
    client = Client()
    client.force_login(user)
    cookie: SimpleCookie = client.cookies
    return f"{settings.SESSION_COOKIE_NAME}={cookie[settings.SESSION_COOKIE_NAME].value}"


@contextlib.contextmanager
def running_lab() -> Iterator[LabServer]:
    server = LabServer()
    try:
        server.start()
        yield server
    finally:
        server.kill()
