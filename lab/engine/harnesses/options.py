"""A family's own settings, as its harness versions hold them."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig

S = TypeVar("S", bound=BaseModel)


def options_of(config: HarnessConfig, kind: type[S]) -> S:
    """The settings of this harness as its family understands them.

    Raises:
        InvalidValueError: a name the family does not have, or a value it cannot use.
    """
    try:
        return kind.model_validate(config.options)
    except ValidationError as failed:
        first = failed.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        known = ", ".join(kind.model_fields)
        raise InvalidValueError(
            f"options.{place}", first.get("input"), f"cannot be used: {first['msg']}; there are {known}"
        ) from None
