"""Programs whose files the lab reads, each in an environment of its own, to make fixtures with.

An environment stays in the user's cache folder under what was asked for, so that each machine makes it once.
Tests that use one are marked `requires("package index")`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# A program with many dependencies, on a busy machine.
_INSTALL_SECONDS = 900


def environment_with(*requirements: str) -> Path:
    """The Python of an environment with these requirements ("mini-swe-agent==2.4.6") and nothing of the lab.

    Raises:
        RuntimeError: they cannot be installed; the text ends with what the installer wrote.
    """
    folder = _cache() / _digest(sys.version, *sorted(requirements))
    python = folder / "bin" / "python"
    complete = folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Of several test processes one makes it and the others wait.
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            install = ["install", "--quiet", "--no-input"]
            _run([sys.executable, "-m", "pip", "--python", str(python), *install, *requirements])
            complete.touch()
    return python


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "trajectory-lab-tests", "owners")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
