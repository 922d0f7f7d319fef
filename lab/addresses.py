"""Where the lab's servers are: addresses of databases, Redis and brokers, read, checked and shown.

Pure, because the settings are made from it before Django is there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import dj_database_url
from environs import EnvError

POSTGRESQL = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"
CONNECT_SECONDS = 5
WEB_CONNECTIONS = 20
_POSTGRESQL_SCHEMES = ("postgres", "postgresql")
_REDIS_SCHEMES = ("redis", "rediss")
_HIDDEN = "***"

# The lock that a worker frozen in the middle of a transaction holds must not stop the others for longer than
# its lease; nor may anybody wait for a lock without an end.
_SERVER_OPTIONS = "-c idle_in_transaction_session_timeout=10s -c lock_timeout=20s"


class AddressError(EnvError):
    """An address that cannot be used: the message names the setting, what is wrong, and the way out."""


def shown(url: str) -> str:
    """The address for people: without the passwords in it."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return url.partition("://")[0] + "://" + _HIDDEN
    place = parts.netloc
    if password is not None:
        user, host = place.rpartition("@")[::2]
        place = f"{user.partition(':')[0]}:{_HIDDEN}@{host}"
    query = [
        (name, _HIDDEN if "password" in name else value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    return parts._replace(netloc=place, query=urlencode(query, safe="*/:")).geturl()


def database(url: str) -> dict[str, Any]:
    """Django's settings for the database at this address.

    Raises:
        AddressError: it is no address of SQLite or PostgreSQL, or the driver is not installed.
    """
    schemes = ("sqlite", *_POSTGRESQL_SCHEMES)
    parts = _split("DATABASE_URL", url, schemes, "PostgreSQL or SQLite", "postgresql://user@host:5432/name")
    try:
        found: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError as error:
        raise AddressError(f"DATABASE_URL: {shown(url)} cannot be read ({error}).") from None
    if parts.scheme == "sqlite":
        return found
    if not found["NAME"]:
        raise AddressError(
            f"DATABASE_URL: {shown(url)} names no database; write one behind the last slash: "
            "postgresql://user@host:5432/name."
        )
    require_package("DATABASE_URL", "psycopg", extra="postgres", what="PostgreSQL")
    options = found.setdefault("OPTIONS", {})
    return {
        **found,
        "ENGINE": POSTGRESQL,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": CONNECT_SECONDS,
            # A server that vanishes without a word is given up after some 45 seconds, not after hours.
            "keepalives_idle": 30,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "application_name": "trajectory-lab",
            # READ COMMITTED, whatever the server's default: who has waited for a lock must see what was
            # committed meanwhile.
            "isolation_level": 2,
            **options,
            "options": f"{_SERVER_OPTIONS} {options.get('options', '')}".strip(),
        },
    }


def share_connections(settings: dict[str, Any]) -> None:
    """Let the threads of this process share connections to PostgreSQL, given Django's settings of it.

    For the web process, where each request has a thread of its own and would connect anew. Not for workers: a
    pool does not survive their fork.
    """
    if settings["ENGINE"] == POSTGRESQL:
        settings["OPTIONS"]["pool"] = {"min_size": 1, "max_size": WEB_CONNECTIONS, "timeout": CONNECT_SECONDS}


def redis(name: str, url: str) -> str:
    """The address of a Redis or Valkey server, checked; "" stays "".

    Raises:
        AddressError: it is none.
    """
    if url:
        _split(name, url, _REDIS_SCHEMES, "Redis (or Valkey)", "redis://host:6379/0")
    return url


def is_redis(url: str) -> bool:
    return urlsplit(url).scheme in _REDIS_SCHEMES


def channel_layers(redis_url: str) -> dict[str, dict[str, Any]]:
    """Channels' settings. The layer is a doorbell and carries no event.

    By publish and subscribe: a ring that nobody hears is gone, and leaves no key behind.
    """
    if not redis_url:
        return {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    host = {
        "address": redis_url,
        # redis-py 8 ends an idle receive after 5 s of silence by default.
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
    }
    layer = {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [host]}}
    return {"default": layer}


def require_package(setting: str, module: str, *, extra: str, what: str) -> None:
    """
    Raises:
        AddressError: the setting needs a Python package that is not installed; says how to install it.
    """
    if find_spec(module) is None:
        raise AddressError(
            f"{setting}: {what} needs Python packages that are not installed here (no {module}). "
            f"{how_to_install(extra)}"
        )


def how_to_install(extra: str) -> str:
    """One sentence: the command that adds an extra to this installation."""
    project = Path(__file__).resolve().parent.parent
    if (project / "manage.py").exists():
        return f"Install them with `make grown-up` (in {project}), or unset the variable."
    pip = f"{sys.executable} -m pip"
    return f"Install them with `{pip} install 'trajectory-lab[{extra}]'`, or unset the variable."


def _split(name: str, url: str, schemes: tuple[str, ...], kind: str, example: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        # Reading the port is what checks it.
        _ = parts.port
    except ValueError as error:
        raise AddressError(f"{name}: {shown(url)} cannot be read ({error}); write {example}.") from None
    if parts.scheme not in schemes or "://" not in url:
        what = shown(url) if "://" in url else "what it holds"
        raise AddressError(f"{name}: {what} is no address of {kind}; write {example}.")
    return parts
