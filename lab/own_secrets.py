"""The secrets that stand in the settings and the environment of each of the lab's processes, by name.

Without a database: what is logged before there is one must not show them either.
"""

from __future__ import annotations

import fnmatch
import os
import urllib.request
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import settings

_URL_SETTINGS = ("LAB_REDIS_URL", "LAB_BROKER_URL")
_SECRET_SETTINGS = ("LAB_*_KEY", "LAB_*SECRET*", "LAB_*TOKEN*", "LAB_*PASSWORD*")


def own_secrets() -> dict[str, str]:
    """Name -> value: the lab's own secrets, and the passwords of database, broker and proxy."""
    found = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _SECRET_SETTINGS)
    }
    found["LAB_SECRET_KEY"] = settings.SECRET_KEY
    for name in _URL_SETTINGS:
        found |= passwords_in(name, str(getattr(settings, name, "")))
    found |= passwords_in("DATABASE_URL", os.environ.get("DATABASE_URL", ""))
    found["DATABASE_URL"] = str(settings.DATABASES["default"].get("PASSWORD") or "")
    for scheme, address in urllib.request.getproxies().items():
        if scheme != "no":
            found |= passwords_in(f"the {scheme} proxy", address)
    return {name: value for name, value in found.items() if value}


def keys_an_endpoint_may_name() -> dict[str, str]:
    """Name -> value of every variable of the environment that an endpoint may use as its key."""
    return {
        name: value
        for name, value in os.environ.items()
        if value and any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in settings.LAB_KEY_VARIABLES)
    }


def passwords_in(name: str, address: str) -> dict[str, str]:
    """The passwords in an address, as they are and as they stand in it."""
    return {
        f"{name}{'' if n == 1 else f' ({n})'}": text for n, text in enumerate(_passwords(address), start=1)
    }


def _passwords(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
        written = parts.password or ""
    except ValueError:
        # It cannot be told where the password is.
        yield address
        return
    given = [unquote(written), written]
    given += [value for field, value in parse_qsl(parts.query) if "password" in field.lower()]
    yield from dict.fromkeys(text for text in given if text)
