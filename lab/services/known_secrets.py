"""What the lab knows that must never be stored or sent on: keys and headers of endpoints, its own secrets."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping

from lab.engine.key_shapes import mask_key_shapes
from lab.engine.redact import MINIMUM_LENGTH, Redactor
from lab.models import Endpoint
from lab.own_secrets import own_secrets
from lab.services.endpoints import key_variables_in_use
from lab.terminal import remember

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|passw|credential|session|signature", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[^\s]{20,}")
_SCHEME = re.compile(r"[A-Za-z]{1,20} +")


def known_secrets() -> dict[str, str]:
    """Name -> value of every secret this process could leak into a run's log.

    What is logged from now on holds none of them either.
    """
    found = {name: os.environ.get(name, "") for name in key_variables_in_use()}
    for endpoint in Endpoint.objects.exclude(headers={}):
        found |= header_secrets(endpoint.headers, of=endpoint.name)
    remember(found)
    found |= own_secrets()
    return {name: value for name, value in found.items() if value}


def redactor() -> Redactor:
    """Replaces what `known_secrets` names."""
    return Redactor(known_secrets())


SHORT = f"fewer than {MINIMUM_LENGTH} characters are too few to be found and replaced in what programs print"


def too_short(endpoint: Endpoint) -> list[str]:
    """The names of its key and headers that cannot be told from ordinary text: see `SHORT`."""
    secrets = header_secrets(endpoint.headers, of=endpoint.name)
    if endpoint.key_variable:
        secrets[endpoint.key_variable] = os.environ.get(endpoint.key_variable, "")
    # Of a header's value the parts count that are long enough: a scheme or a user's name hides nothing.
    long = {name.partition(" (")[0] for name, value in secrets.items() if len(value) >= MINIMUM_LENGTH}
    return [name for name in Redactor(secrets).too_short if name.partition(" (")[0] not in long]


def header_secrets(headers: Mapping[str, str], *, of: str) -> dict[str, str]:
    """Name -> value of what is secret in the headers of endpoint `of`: by the header's name, or its looks."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        text = str(value).strip()
        if not _SECRET_HEADER.search(name) and not _RANDOM.fullmatch(text) and mask_key_shapes(text) == text:
            continue
        for n, part in enumerate(_parts(text), start=1):
            found[f"header {name} of {of}{'' if n == 1 else f' ({n})'}"] = part
    return found


def _parts(value: str) -> Iterator[str]:
    """A header's value, and the secret within it: behind a scheme, in a login, in each cookie."""
    bare = _SCHEME.sub("", value, count=1) if _SCHEME.match(value) else value
    yield from dict.fromkeys([bare, value, *_login(bare), *_cookies(value)])


def _login(credentials: str) -> list[str]:
    """User, colon and password of basic authentication, and the password alone."""
    try:
        login = base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError):
        return []
    return [login, login.partition(":")[2]] if ":" in login else []


def _cookies(value: str) -> list[str]:
    pairs = [part.partition("=") for part in value.split(";")]
    return [text.strip() for _, sign, text in pairs if sign and text.strip()]
