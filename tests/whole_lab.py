"""A whole lab as a person starts it: `manage.py up` with its real processes, over a data folder of its own.

Tests read its database as any other program would, and change it only through programs that run with the
lab's own settings.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tests.lanes import free_port

PROJECT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"http://\S+/sign-in/\S+")
_START_SECONDS = 180.0
_STOP_SECONDS = 90.0

Found = TypeVar("Found")


def wait_for(look: Callable[[], Found], *, what: str, seconds: float = 90.0) -> Found:
    """The first true thing `look` gives, asked every 50 ms.

    Raises:
        TimeoutError: nothing within `seconds`; names `what`.
    """
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


class WholeLab:
    """One lab on loopback: web, workers, tick. `settings` are variables such as LAB_RUN_SLOTS.

    Where LAB_TEST_DATABASE_URL names a PostgreSQL, it gets a database of its own there; where
    LAB_TEST_REDIS_URL names a Redis, that is its broker and doorbell.
    """

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        # Not under pytest's own folder: commands run as another user, who must be able to walk to theirs.
        self.data_folder = Path(tempfile.mkdtemp(prefix="lab-whole-"))
        self.data_folder.chmod(0o711)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
        self.environment = {
            **inherited,
            "DATABASE_URL": _new_database(os.environ.get("LAB_TEST_DATABASE_URL", "")),
            "LAB_REDIS_URL": os.environ.get("LAB_TEST_REDIS_URL", ""),
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "LAB_DATA_DIR": str(self.data_folder),
            "LAB_PORT": str(self.port),
            "PYTHONPATH": str(PROJECT),
            "LAB_RUN_SLOTS": "4",
            **settings,
        }
        self._log = self.data_folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WholeLab:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.data_folder, ignore_errors=True)
        _drop_database(self.environment["DATABASE_URL"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """What all its processes have printed since the last start."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def link(self) -> str:
        """The link that the start printed."""
        found = _LINK.search(self.output)
        assert found, self.output
        return found[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until pages answer, workers have reported and the link is printed."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROJECT / "manage.py"), "up"],
                cwd=PROJECT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for(self._is_up, what="the lab", seconds=_START_SECONDS)

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"`manage.py up` ended with {self._process.returncode}:\n{self.output}")
        return bool(_LINK.search(self.output)) and self.get("/readyz") == 200

    def get(self, path: str) -> int:
        """The status of a page asked for without a session, 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=20) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def has_ended(self) -> bool:
        """Whether it was started and its process is no more."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """Ctrl-C; killed when that does not end it in time."""
        if self._process is None or self.has_ended():
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def child(self, *words: str) -> int:
        """The pid of the child of `up` whose command line holds all the words.

        Raises:
            LookupError: there is none now.
        """
        for pid, command in commands().items():
            if all(word in command for word in words) and _parent(pid) == self.pid:
                return pid
        raise LookupError(f"no child of `manage.py up` has {' '.join(words)}")

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of its database, read as another program reads them. Values stand for the marks `?`."""
        if url := self.environment["DATABASE_URL"]:
            return _query_postgresql(url, sql.replace("?", "%s"), values)
        address = f"file:{self.data_folder / 'lab.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=60)) as connection:
            return connection.execute(sql, values).fetchall()

    def value(self, sql: str, *values: Any) -> Any:
        """The first value of the first row, None without a row."""
        rows = self.query(sql, *values)
        return rows[0][0] if rows else None

    def program(self, code: str, *arguments: object) -> Any:
        """Run Python with the lab's settings in a process of its own.

        The code finds its arguments in `arguments`, decoded from JSON, and prints one JSON value.
        """
        prepare = "import json, sys, django; django.setup(); arguments = json.loads(sys.argv[1])\n"
        done = subprocess.run(
            [sys.executable, "-c", prepare + code, json.dumps(arguments)],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None


def _new_database(server: str) -> str:
    """The address of a new database at the PostgreSQL that `server` names, "" for a lab on SQLite."""
    if not server:
        return ""
    name = f"lab_whole_{secrets.token_hex(6)}"
    _query_postgresql(server, f"CREATE DATABASE {name}")
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def _drop_database(url: str) -> None:
    if url:
        parts = urlsplit(url)
        server = urlunsplit(parts._replace(path="/postgres"))
        _query_postgresql(server, f"DROP DATABASE IF EXISTS {parts.path.strip('/')} WITH (FORCE)")


def _query_postgresql(url: str, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql, values or None)  # type: ignore[call-overload] # no literal
        return cursor.fetchall() if cursor.description else []


def commands() -> dict[int, str]:
    """The command line of every process of this machine, by pid."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                raw = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            found[int(folder.name)] = raw.replace(b"\0", b" ").decode(errors="replace")
    return found


def _parent(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])
