"""What people type for endpoints, models and prices, read field by field; all that is wrong is gathered."""

from __future__ import annotations

import datetime as dt
import fnmatch
import json
import os
import re
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.dateparse import parse_date, parse_datetime

from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed, without_grouping
from lab.engine.llm.base import JSONObject
from lab.services import typed_json
from lab.services.errors import FieldErrorCollector

SCRIPTED_PREFIX = "scripted/"
REPLAY_PREFIX = "replay/"
# What the columns hold.
_LONGEST = {"base_url": 500, "model_id": 200, "key_variable": 100, "name": 200, "source": 500}
_LONGEST |= {"endpoint_name": 100, "price_provider": 64, "price_model": 200}
_SHORTEST_KEY = 8
_JSON_CHARACTERS = 20_000
# The lab's own of every request.
_OURS = frozenset({"messages", "model", "stream", "stream_options", "tools"})
# What every server reads as a number; what else it knows is its own affair.
_NUMBERS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens"}
    | {"presence_penalty", "frequency_penalty", "repetition_penalty"}
)
_LONGEST_SECONDS = 86_400.0
# Nobody sold tokens before.
_EARLIEST_YEAR = 2000
MOST_DOLLARS = Decimal(1_000_000)


def base_url(text: str, errors: FieldErrorCollector) -> str:
    """An address without login, query and fragment."""
    from lab.engine.llm.endpoint import normal_base_url

    try:
        url = normal_base_url(text)
    except InvalidValueError as error:
        errors.add(error)
        return ""
    check_length("base_url", url, errors)
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        errors.add(
            InvalidValueError(
                "base_url",
                f"{parts.scheme}://{parts.hostname}",
                "has a name, password, query or fragment in it; put the key into a variable and name that",
            )
        )
    return url


def model_id(text: str, errors: FieldErrorCollector) -> str:
    """The id as the server knows the model."""
    if not text.strip():
        errors.add(
            InvalidValueError("model_id", text, "is empty; write the id the server knows the model by")
        )
    check_text("model_id", text.strip(), errors)
    return text.strip()


def model_name(name: str, errors: FieldErrorCollector) -> str:
    """A name of a model in the lab; those of the lab's own begin with scripted/ and replay/."""
    for prefix in (SCRIPTED_PREFIX, REPLAY_PREFIX):
        if name.lower().startswith(prefix):
            reason = f"begins like the lab's own models; write a name that does not begin with {prefix}"
            errors.add(InvalidValueError("name", as_typed(name), reason))
    # A name that was left empty is the model id, which is named by itself then.
    if "model_id" not in errors.errors:
        check_text("name", name, errors)
    return name


def check_text(column: str, text: str, errors: FieldErrorCollector, *, field: str = "") -> None:
    """It fits its column and holds nothing that cannot be seen. `field` where the form has another name."""
    from lab.engine.llm.endpoint import refuse_invisible

    check_length(column, text, errors, field=field)
    try:
        refuse_invisible(field or column, text)
    except InvalidValueError as error:
        errors.add(error)


def check_length(column: str, text: str, errors: FieldErrorCollector, *, field: str = "") -> None:
    """It fits its column."""
    most = _LONGEST[column]
    if len(text) > most:
        reason = f"has {len(text):,} characters; write at most {most}"
        errors.add(InvalidValueError(field or column, as_typed(text), reason))


def key_variable(text: str, errors: FieldErrorCollector) -> str:
    """The name of a variable that may hold a key, and does."""
    name = text.strip()
    if not name:
        return ""
    if looks_like_key(name):
        reason = "looks like a key and not like the name of a variable; put the key into a variable of the "
        way_out = "lab's environment, start the lab again and write the variable's name here"
        errors.add(InvalidValueError("key_variable", f"{name[:3]}…", reason + way_out))
        return ""
    check_length("key_variable", name, errors)
    patterns = [pattern.strip() for pattern in settings.LAB_KEY_VARIABLES]
    refused = fnmatch.fnmatchcase(name, "LAB_*") or fnmatch.fnmatchcase(name, "*SECRET*")
    if refused or not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        errors.add(
            InvalidValueError(
                "key_variable",
                name,
                f"may not be named by an endpoint; allowed are {', '.join(patterns)}, never LAB_* or "
                "*SECRET* (write the variable's name here, not the key itself)",
            )
        )
    elif not os.environ.get(name):
        errors.add(
            InvalidValueError(
                "key_variable",
                name,
                "is not set in the lab's environment; export it and start the lab again",
            )
        )
    return name


def looks_like_key(text: str) -> bool:
    """Whether this may be a key, pasted where the name of its variable belongs; it is not to be repeated."""
    name = text.strip()
    if len(name) < _SHORTEST_KEY or name in os.environ:
        return False
    words = re.fullmatch(r"[A-Z_]+|[a-z_]+|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", name)
    return words is None or len(name) > _LONGEST["key_variable"]


def tokens(field: str, value: int | str | None, errors: FieldErrorCollector) -> int | None:
    """A number of tokens up to the largest window there is; None for an empty field."""
    from lab.engine.llm.endpoint import LARGEST_WINDOW

    return whole(field, value, errors, most=LARGEST_WINDOW, unit="tokens", way="32768, or leave it empty")


def whole(
    field: str, value: int | str | None, errors: FieldErrorCollector, *, most: int, unit: str, way: str
) -> int | None:
    """A whole number from 1 to `most`; None for an empty field."""
    typed = "" if value is None else str(value).strip()
    text = without_grouping(typed)
    if not text:
        return None
    # Looked at before it is read: Python refuses to read thousands of digits.
    if re.fullmatch(r"[0-9]{1,12}", text) and 1 <= int(text) <= most:
        return int(text)
    reason = f"is no number of {unit} from 1 to {most:,}; write one such as {way}"
    errors.add(InvalidValueError(field, as_typed(typed), reason))
    return None


def seconds(field: str, text: str, errors: FieldErrorCollector) -> float:
    """A time above 0 and of a day at most, in seconds."""
    number = _decimal(text)
    if number is None or not Decimal("0.1") <= number <= Decimal(_LONGEST_SECONDS):
        reason = f"is no time from 0.1 to {_LONGEST_SECONDS:,.0f} seconds; write one such as 600"
        errors.add(InvalidValueError(field, as_typed(text.strip()), reason))
        return 1.0
    return float(number)


def amount(
    field: str,
    text: str,
    errors: FieldErrorCollector,
    *,
    unit: str,
    above_zero: bool = False,
    most: Decimal = MOST_DOLLARS,
) -> Decimal | None:
    """A number from 0 to `most`, exactly as it was typed; None for an empty field."""
    if not text.strip():
        return None
    number = _decimal(text)
    low = "above 0 and at most" if above_zero else "from 0 to"
    if number is None or number < 0 or number > most or (above_zero and not number):
        reason = f"is no number of {unit} {low} {most:,}; write one such as 0.5"
        errors.add(InvalidValueError(field, as_typed(text.strip()), reason))
        return None
    return number


def _decimal(text: str) -> Decimal | None:
    plain = without_grouping(text)
    if not re.fullmatch(r"[0-9]{0,15}(\.[0-9]{0,15})?", plain) or not re.search(r"[0-9]", plain):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def moment(field: str, text: str, errors: FieldErrorCollector) -> dt.datetime | None:
    """A day (its beginning in UTC) or a day with a time, UTC unless it says otherwise; None where empty."""
    plain = text.strip()
    if not plain:
        return None
    try:
        # Python reads the digits of every script; whoever reads the page may not.
        day = parse_date(plain) if plain.isascii() else None
        at = dt.datetime.combine(day, dt.time.min) if day else parse_datetime(plain)
        if at is not None and plain.isascii() and at.year >= _EARLIEST_YEAR:
            aware = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
            # Written out, so that a year no calendar holds fails here.
            return aware.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        pass
    reason = f"is no date since {_EARLIEST_YEAR}; write one such as 2026-11-01 or 2026-11-01 14:30 (UTC)"
    errors.add(InvalidValueError(field, as_typed(plain), reason))
    return None


def json_object(field: str, text: str, errors: FieldErrorCollector) -> JSONObject:
    """A JSON object that is merged into every request; {} for an empty field.

    What it says of sampling by the standard names is a number, or null.
    """
    if not text.strip():
        return {}
    if len(text) > _JSON_CHARACTERS:
        reason = f"has {len(text):,} characters; write at most {_JSON_CHARACTERS:,}"
        errors.add(InvalidValueError(field, as_typed(text), reason))
        return {}
    try:
        found: Any = typed_json.read(text)
    except ValueError as error:
        where = (
            f"line {error.lineno}, column {error.colno}: " if isinstance(error, json.JSONDecodeError) else ""
        )
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        reason = f'is no JSON ({where}{why}); write an object such as {{"temperature": 0.7}}'
        errors.add(InvalidValueError(field, as_typed(text.strip()), reason))
        return {}
    if not isinstance(found, dict):
        reason = 'is no JSON object; write one such as {"temperature": 0.7}'
        errors.add(InvalidValueError(field, as_typed(text.strip()), reason))
        return {}
    if taken := sorted(_OURS & found.keys()):
        reason = f"sets {', '.join(taken)}, which the lab writes itself; leave it out"
        errors.add(InvalidValueError(field, as_typed(text.strip()), reason))
    for name in sorted(_NUMBERS & found.keys()):
        value = found[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            reason = f"{name} is {as_typed(json.dumps(value, ensure_ascii=False))}; write a number, such as 1"
            errors.add(InvalidValueError(field, as_typed(text.strip()), f"cannot be sent: {reason}"))
    return found


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
# Of each request itself; with another value it would not arrive.
_NOT_OURS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"})
MOST_HEADERS = 30
_HEADER_CHARACTERS = 4_000


def headers(text: str, errors: FieldErrorCollector) -> dict[str, str]:
    """Headers as lines "Name: value". What is wrong is said without a value: it may be a secret."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        problem = _header_problem(name, colon, value)
        if problem:
            errors.say("headers", f"headers: line {number} {problem}")
            continue
        found[name] = value
    return found


def _header_problem(name: str, colon: str, value: str) -> str:
    if not colon or not value:
        return "has no name with a value behind a colon; write it as in X-Team: blue"
    if not _HEADER_NAME.fullmatch(name):
        return "has a name that no header can have; write letters, digits and hyphens before the colon"
    if name.lower() in _NOT_OURS:
        return f"names {name}, which each request sets itself; leave it out"
    if len(value) > _HEADER_CHARACTERS or not re.fullmatch(r"[\t\x20-\x7e]+", value):
        return f"has a value that cannot be sent; write at most {_HEADER_CHARACTERS:,} ASCII characters"
    return ""
