"""Can the lab work on this machine? Each check gives a finding with the way out; nothing here raises."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from django.conf import settings
from django.db import DatabaseError, connection

from lab.engine.errors import InvalidValueError
from lab.engine.redact import Redactor
from lab.models import Endpoint
from lab.own_secrets import own_secrets
from lab.services import isolation
from lab.services.known_secrets import SHORT, too_short

GIB = 1024**3
LEAST_SPACE_BYTES = 1 * GIB
COMFORTABLE_SPACE_BYTES = 5 * GIB
LEAST_SQLITE = (3, 35, 0)
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}

State = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """One check. A problem keeps the lab from working, a warning takes something away; no remedy when ok."""

    check: str
    state: State
    message: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Every check, in the order a person would mend things."""
    checks: list[Callable[[], Finding | list[Finding]]] = [
        check_python,
        check_sqlite,
        check_data_folder,
        check_disk_space,
        check_port,
        check_git,
        check_bubblewrap,
        check_keys,
    ]
    findings: list[Finding] = []
    for check in checks:
        found = check()
        findings += found if isinstance(found, list) else [found]
    return findings


def check_python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 11):  # noqa: UP036 - a lab may be started by an interpreter nobody checked
        return Finding("python", "problem", f"Python {version} is too old", "install Python 3.11 or newer")
    return Finding("python", "ok", f"Python {version}")


def check_sqlite() -> Finding:
    if connection.vendor != "sqlite":
        return Finding("database", "ok", f"{connection.display_name} by DATABASE_URL")
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        least = ".".join(str(part) for part in LEAST_SQLITE)
        return Finding(
            "database",
            "problem",
            f"SQLite {sqlite3.sqlite_version} is older than {least}",
            "use a newer Python, or a PostgreSQL by DATABASE_URL",
        )
    return Finding("database", "ok", f"SQLite {sqlite3.sqlite_version}")


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
    kind = file_system(folder)
    if connection.vendor == "sqlite" and kind in NETWORK_FILE_SYSTEMS:
        return Finding(
            "data folder",
            "warning",
            f"{folder} is on a network file system ({kind}); SQLite loses data there",
            "put LAB_DATA_DIR on a local disk, or set DATABASE_URL to a PostgreSQL",
        )
    return Finding("data folder", "ok", str(folder))


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`, "" where the machine does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holding = [
        fields for fields in mounts if folder.resolve().is_relative_to(fields[1].replace("\\040", " "))
    ]
    return max(holding, key=lambda fields: len(fields[1]))[2] if holding else ""


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


def check_bubblewrap() -> Finding:
    """Tried as runs would use it: with the user id of the settings."""
    try:
        reason = isolation.provider(isolation.ISOLATED).available()
    except InvalidValueError as error:
        return Finding("bubblewrap", "problem", str(error), "use LAB_SANDBOX_UID=65534, or leave it unset")
    if reason:
        return Finding(
            "bubblewrap",
            "warning",
            reason,
            "until then scripted models on practice tasks run without isolation; the rest waits for "
            "bubblewrap, or for an admin who allows runs without isolation",
        )
    if settings.LAB_SANDBOX == isolation.PLAIN:
        message = "bubblewrap works here, but LAB_SANDBOX=process makes runs go without isolation"
        return Finding("bubblewrap", "warning", message, "unset LAB_SANDBOX")
    return Finding("bubblewrap", "ok", "sandboxes are isolated with bubblewrap")


def check_keys() -> list[Finding]:
    """Is there a key for each endpoint that names a variable? The value itself is never shown."""
    try:
        endpoints = list(Endpoint.objects.exclude(key_variable="", headers={}))
    except DatabaseError:
        return [Finding("keys", "ok", "no endpoint yet: the database is made at the first start")]
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
