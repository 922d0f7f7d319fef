"""What the lab knows that must never be stored or sent on: keys of endpoints, its own secrets, passwords."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.conf import settings

from lab.services.endpoints import key_variables_in_use

_URL_SETTINGS = ("LAB_REDIS_URL", "LAB_BROKER_URL")


def known_secrets() -> dict[str, str]:
    """Name -> value of every secret this process could leak into a run's log."""
    found = {name: os.environ.get(name, "") for name in key_variables_in_use()}
    found["LAB_SECRET_KEY"] = settings.SECRET_KEY
    for name in _URL_SETTINGS:
        found[name] = _password(getattr(settings, name, ""))
    found["DATABASE_URL"] = str(settings.DATABASES["default"].get("PASSWORD") or "")
    return {name: value for name, value in found.items() if value}


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""
