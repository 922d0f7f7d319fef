"""Child programs of a benchmark: started, listened to, and gone when the block ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 10
_WHOLE_SECONDS = 600
_START_SECONDS = 60
# An installed lab has its modules compiled: compiling them again in each process is not what is measured.
_NOT_INHERITED = {"PYTHONDONTWRITEBYTECODE"}


def module(name: str, *words: str) -> list[str]:
    """The command line of one of the benchmarks' own programs."""
    return [sys.executable, "-m", f"tests.bench.contestants.{name}", *words]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder that sandbox users may pass through."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def running(
    words: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program that serves until the block ends; its standard output can be read."""
    process = subprocess.Popen(
        words, cwd=ROOT, env=_environment(environment), stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON object a server prints when it is ready.

    Raises:
        RuntimeError: it ended instead.
    """
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RuntimeError(f"{process.args} ended with code {process.wait()} before it was ready")
    ready: dict[str, Any] = json.loads(line)
    return ready


def run_whole(
    words: Sequence[str], *, environment: Mapping[str, str] | None = None, only: bool = False
) -> dict[str, Any]:
    """Run a program to its end; the JSON object on the last line it prints, {} without one.

    `only`: the environment is exactly the given one, nothing inherited.

    Raises:
        RuntimeError: it failed; the text has the end of what it said.
    """
    whole = dict(environment or {}) if only else _environment(environment)
    done = subprocess.run(words, cwd=ROOT, env=whole, capture_output=True, text=True, timeout=_WHOLE_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{words} failed:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    lines = done.stdout.strip().splitlines()
    last: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return last


@contextmanager
def lab_web(environment: Mapping[str, str]) -> Iterator[str]:
    """The lab's web process, started as the lab itself starts it; gives its host and port.

    Raises:
        RuntimeError: it ended, or does not answer.
    """
    port = free_port()
    words = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--log-level", "warning", "--no-access-log", "--lifespan", "off"]
    with running([*words, "--timeout-graceful-shutdown", "1"], environment=environment) as process:
        wait_for_http(process, f"http://127.0.0.1:{port}/healthz")
        yield f"127.0.0.1:{port}"


def wait_for_http(process: subprocess.Popen[str], url: str) -> None:
    """Return when the server answers.

    Raises:
        RuntimeError: it ended, or said nothing for a minute.
    """
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args} does not answer")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def lab_environment(folder: Path) -> dict[str, str]:
    """The environment of a benchmark's own lab, of which nothing touches another one."""
    return {
        "LAB_DATA_DIR": str(folder / "lab"),
        "DJANGO_SETTINGS_MODULE": "lab.settings",
        "DATABASE_URL": "",
        "LAB_REDIS_URL": "",
        "LAB_BROKER_URL": "",
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
    }


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return inherited | dict(extra or {})
