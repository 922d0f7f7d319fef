"""What can be wrong with what a person asked, beyond a single value."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import PermissionDenied

from lab.engine.errors import InvalidValueError, LabError


class AccessDeniedError(LabError, PermissionDenied):
    """The person may not do this; a page answers 403."""


class FieldErrors(LabError):
    """Several values of one form cannot be used: field name -> text that names field, value and way out."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("\n".join(self.errors.values()))


class FieldErrorCollector:
    """Gathers what is wrong with each field, so that a person sees everything at once."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}

    def add(self, error: InvalidValueError, *, field: str = "") -> None:
        self.errors.setdefault(field or error.field, str(error))

    def say(self, field: str, text: str) -> None:
        self.errors.setdefault(field, text)

    def raise_if_any(self) -> None:
        """Raises: FieldErrors."""
        if self.errors:
            raise FieldErrors(self.errors)
