"""Can the lab work on this machine? Each check gives a finding with the way out; nothing here raises."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from lab.engine.redact import Redactor
from lab.engine.sandboxes.processes import descendants, snapshot
from lab.models import Endpoint
from lab.own_secrets import own_secrets
from lab.services import doctor_sandboxes, doctor_servers, heartbeats
from lab.services.findings import Finding, State
from lab.services.known_secrets import SHORT, too_short
from lab.services.mounts import file_system, is_network

__all__ = ["Finding", "State", "check_data_folder", "check_port", "examine"]

GIB = 1024**3
LEAST_SPACE_BYTES = 1 * GIB
COMFORTABLE_SPACE_BYTES = 5 * GIB
MOST_SKEW_SECONDS = 2.0
WORKER_PREFIX = "runs@"


def examine() -> list[Finding]:
    """Every check, in the order a person would mend things."""
    servers = doctor_servers.examine()
    # A server that is away is waited for once.
    answers = all(finding.state != "problem" for finding in servers if finding.check == "database")
    return [
        check_python(),
        check_git(),
        check_data_folder(),
        check_disk_space(),
        *servers,
        check_clock(ask_database=answers),
        check_port(),
        check_processes(),
        *doctor_sandboxes.examine(),
        *check_keys(ask_database=answers),
    ]


def check_python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 11):  # noqa: UP036 - a lab may be started by an interpreter nobody checked
        return Finding("python", "problem", f"Python {version} is too old", "install Python 3.11 or newer")
    return Finding("python", "ok", f"Python {version}")


def check_data_folder() -> Finding:
    """Write a file where the lab writes. Modes are not asked: root writes past them, but not past mounts."""
    folder = Path(settings.LAB_DATA_DIR)
    remedy = (
        "make it writable for this user, or choose another folder: LAB_DATA_DIR=/path/to/folder "
        "(in the environment or in .env)"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as probe:
            probe.write(b"x")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            "data folder", "problem", f"LAB_DATA_DIR: {folder} cannot be written to: {reason}", remedy
        )
    if connection.vendor == "sqlite" and is_network(folder):
        return Finding(
            "data folder",
            "warning",
            f"{folder} is on a network file system ({file_system(folder)}); SQLite loses data there",
            "put LAB_DATA_DIR on a local disk, or set DATABASE_URL to a PostgreSQL",
        )
    return Finding("data folder", "ok", str(folder))


def check_disk_space() -> Finding:
    folder = Path(settings.LAB_DATA_DIR)
    there = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    free = shutil.disk_usage(there).free
    text = f"{free / GIB:.1f} GiB free at {there}"
    if free < LEAST_SPACE_BYTES:
        return Finding(
            "disk space", "problem", text, "free at least 1 GiB, or move LAB_DATA_DIR to a larger disk"
        )
    if free < COMFORTABLE_SPACE_BYTES:
        return Finding("disk space", "warning", text, "free 5 GiB before starting many runs")
    return Finding("disk space", "ok", text)


def check_port() -> Finding:
    host, port = settings.LAB_HOST, settings.LAB_PORT
    if not 1 <= port <= 65535:
        message = f"LAB_PORT: {port} is no port"
        return Finding(
            "port", "problem", message, "use a whole number from 1 to 65535, such as LAB_PORT=8000"
        )
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the web server does: an address that only waits for late packets counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        return _no_address(host, error)
    except UnicodeError as error:
        return _no_address(host, OSError(0, str(error)))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return _no_address(host, error)
        if error.errno == errno.EADDRINUSE and _is_our_own(port):
            return Finding("port", "ok", f"{host}:{port} is used by this lab")
        reason = error.strerror or str(error)
        return Finding(
            "port",
            "problem",
            f"LAB_PORT: {port} on {host} cannot be used: {reason}",
            f"stop what listens there (another lab?), or choose another port: LAB_PORT={another_port(port)}",
        )
    return Finding("port", "ok", f"{host}:{port} is free")


def _no_address(host: str, error: OSError) -> Finding:
    message = f"LAB_HOST: {host!r} is no address of this machine: {error.strerror}"
    return Finding("port", "problem", message, "use LAB_HOST=127.0.0.1")


def another_port(port: int) -> int:
    return port + 1 if 1024 <= port < 65535 else 8001


def check_clock(*, ask_database: bool = True) -> Finding:
    """Leases compare the clocks of processes, files and database; where they differ, a run is taken away."""
    now = time.time()
    skews = {}
    try:
        with tempfile.NamedTemporaryFile(dir=settings.LAB_DATA_DIR, prefix=".doctor-") as probe:
            skews["the data folder's disk"] = os.fstat(probe.fileno()).st_mtime - now
    except OSError:
        pass
    if ask_database and connection.vendor == "postgresql" and (there := _database_time()) is not None:
        skews["the database"] = (there - dt.datetime.now(dt.UTC)).total_seconds()
    wrong = [
        f"{where} {seconds:+.1f} s" for where, seconds in skews.items() if abs(seconds) > MOST_SKEW_SECONDS
    ]
    message = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
    if wrong:
        remedy = "set the clocks by NTP: apt-get install chrony"
        return Finding("clock", "warning", f"{message}; other clocks differ: {', '.join(wrong)}", remedy)
    return Finding("clock", "ok", message)


def _database_time() -> dt.datetime | None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT now()")
            (found,) = cursor.fetchone()
    except DatabaseError:
        return None
    return found if isinstance(found, dt.datetime) else None


def check_processes() -> Finding:
    """Whether the lab of this data folder runs, and all of it."""
    if _holder() is None and not heartbeats.ages(prefix=WORKER_PREFIX):
        return Finding("lab", "ok", "it does not run; manage.py up starts it")
    ages = heartbeats.ages(prefix=WORKER_PREFIX)
    alive = bool(ages) and ages[0] < heartbeats.FRESH_SECONDS
    silent = [] if alive else ["no worker has reported lately"]
    if not heartbeats.tick_is_heard():
        silent.append("no tick has reported lately")
    if not silent:
        return Finding("lab", "ok", "it runs: worker and tick report")
    if _holder() is None:
        return Finding("lab", "ok", "it does not run; manage.py up starts it")
    remedy = "look at what manage.py up printed; it starts again what died"
    return Finding("lab", "warning", f"it runs, but {' and '.join(silent)}", remedy)


def _holder() -> int | None:
    """The process of `manage.py up` that holds the data folder, None where none does."""
    try:
        with (Path(settings.LAB_DATA_DIR) / "up.lock").open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else 0
    except OSError:
        pass
    return None


def _is_our_own(port: int) -> bool:
    """Whether a process of this data folder's lab, or this one, listens on the port. Linux only."""
    sockets = set(_listening(port))
    holder = _holder()
    own = [os.getpid(), *([holder, *descendants(snapshot(), [holder])] if holder else [])]
    return any(opened in sockets for pid in own for opened in _opened(pid))


def _opened(pid: int) -> Iterator[str]:
    """What the process has open, as the kernel names it."""
    try:
        files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for file in files:
        # Closed since, as is the one that listed them.
        with contextlib.suppress(OSError):
            yield str(file.readlink())


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen on the port, as the kernel names them in a process's files."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def check_git() -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", "problem", "git is not installed", "apt-get install git")
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", "problem", f"{path} does not run: {error}", "apt-get install --reinstall git")
    return Finding("git", "ok", said.strip())


def check_keys(*, ask_database: bool = True) -> list[Finding]:
    """Is there a key for each endpoint that names a variable? The value itself is never shown."""
    if not ask_database or not doctor_servers.can_be_asked():
        return [Finding("keys", "ok", "no endpoint can be looked up in the database yet")]
    try:
        endpoints = list(Endpoint.objects.exclude(key_variable="", headers={}))
    except DatabaseError as error:
        return [Finding("keys", "warning", f"the endpoints cannot be looked up: {error}", "manage.py up")]
    found = [check_key(endpoint) for endpoint in endpoints]
    short = Redactor(own_secrets()).too_short
    if short:
        found.append(Finding("keys", "warning", f"{', '.join(short)}: {SHORT}", "use a longer one"))
    return found or [Finding("keys", "ok", "no endpoint needs a key")]


def check_key(endpoint: Endpoint) -> Finding:
    variable = endpoint.key_variable
    if variable and not os.environ.get(variable):
        return Finding(
            "keys",
            "warning",
            f"endpoint {endpoint}: the variable {variable} is not set",
            f"export {variable}=… before starting the lab, or put it into .env",
        )
    if short := too_short(endpoint):
        message = f"endpoint {endpoint}: {', '.join(short)}: {SHORT}"
        return Finding("keys", "warning", message, "use a longer one")
    return Finding("keys", "ok", f"endpoint {endpoint}: {variable or 'its headers'} can be used")
