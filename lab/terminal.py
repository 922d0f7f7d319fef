"""What the lab's processes print: short lines that hold no secret the lab knows, and nothing like a key."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.engine.redact import Redactor

# Guards the next two: any thread may log, and others read secrets meanwhile.
_lock = threading.Lock()
_remembered: dict[str, str] = {}
_redactor: Redactor | None = None

_log = logging.getLogger(__name__)


def remember(secrets: Mapping[str, str]) -> None:
    """From now on this process prints these values (by name) no more. For secrets out of the database."""
    global _redactor
    with _lock:
        if not secrets.items() <= _remembered.items():
            _remembered.update(secrets)
            _redactor = None


def printable(text: str) -> str:
    """The text as it may be printed."""
    # Imported late: most processes print nothing, and each would start slower.
    from lab.engine.key_shapes import mask_key_shapes

    return mask_key_shapes(_current().text(text))


def _current() -> Redactor:
    from lab.engine.redact import Redactor
    from lab.own_secrets import keys_an_endpoint_may_name, own_secrets

    global _redactor
    with _lock:
        if _redactor is None:
            _redactor = Redactor({**keys_an_endpoint_may_name(), **_remembered, **own_secrets()})
        return _redactor


class ShortFormatter(logging.Formatter):
    """A line for each record, and its traceback; redacted as a whole."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_what_nobody_caught() -> None:
    """The last words of a thread or process go through the log as well."""
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_a_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _log.critical("an error that nobody caught", exc_info=(kind, error, trace))


def _uncaught_in_a_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is None or issubclass(arguments.exc_type, SystemExit):
        return
    name = arguments.thread.name if arguments.thread else "a thread"
    error = (arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
    _log.critical("an error that nobody caught in %s", name, exc_info=error)
