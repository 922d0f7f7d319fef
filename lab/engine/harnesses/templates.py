"""Templates of a harness, rendered in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping

import jinja2
import jinja2.sandbox

from lab.engine.errors import InvalidValueError

_E = jinja2.sandbox.ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True
)


def render(field: str, template: str, variables: Mapping[str, object]) -> str:
    try:
        return str(_E.from_string(template).render(variables))
    except Exception as error:
        raise InvalidValueError(field, template[:80], f"cannot be rendered: {error}") from None
