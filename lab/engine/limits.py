"""Limits of an attempt: what they are, how they are read from people, how two of them combine."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import canonical_sha256

UNITS: dict[str, str] = {
    "max_steps": "steps",
    "max_context_tokens": "tokens",
    "max_tokens_per_turn": "tokens",
    "max_total_time_sec": "seconds",
    "max_tokens_total": "tokens",
    "max_cost_usd": "dollars",
    "max_format_errors": "replies",
}


class Limits(BaseModel):
    """Effective limits of an attempt. None is "no limit", chosen on purpose.

    Steps, tokens and wall time (seconds) hold per attempt; `max_cost_usd` counts over all attempts of a run.
    `max_format_errors` counts replies in a row of which not one tool call could be understood.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_steps: int | None = 100
    max_context_tokens: int | None = 65_536
    max_tokens_per_turn: int | None = 8_192
    max_total_time_sec: float | None = 10_800.0
    max_tokens_total: int | None = None
    max_cost_usd: Decimal | None = None
    max_format_errors: int | None = None

    @property
    def digest(self) -> str:
        return canonical_sha256(self.model_dump(mode="json"))

    def lifted(self, names: Collection[str]) -> Limits:
        """These limits without the named ones: "no limit", chosen on purpose and visible in the digest."""
        return self.model_copy(update=dict.fromkeys(names))

    def changed(self, name: str, after: Any) -> Limits:
        """These limits with one of them replaced, wider or tighter; `after` None is "no limit".

        Raises:
            InvalidValueError: no such limit, or a value that is none.
        """
        if name not in UNITS:
            raise InvalidValueError("limit", name, f"names no limit; write one of {', '.join(UNITS)}")
        try:
            return Limits.model_validate({**self.model_dump(), name: after})
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"]
            raise InvalidValueError(name, after, f"is no number of {UNITS[name]}: {reason}") from None

    def tightened(self, asked: dict[str, Any], *, context_window: int | None = None) -> Limits:
        """These limits with `asked` ones put over them, never wider than the harness's own.

        A name that is missing from `asked` or None keeps the limit; `lifted` is how one is taken away. The
        context is the smaller of harness and model.
        """
        values = self.model_dump()
        for name, wanted in asked.items():
            values[name] = _smaller(values[name], wanted)
        values["max_context_tokens"] = _smaller(values["max_context_tokens"], context_window)
        return Limits(**values)


def _smaller(left: Any, right: Any) -> Any:
    if left is None:
        return right
    return left if right is None else min(left, right)


# Beyond any use, and small enough for every number that is made from it.
LARGEST = 10**12
# Of what may be a fraction: dollars, hours. As many digits as arithmetic keeps.
SMALLEST = Decimal("0.000001")
_MOST_DIGITS = 28
_SEPARATOR = re.compile(r"[\s_,'’]")
# Thousands, all parted by the same sign: 1,000 or 131 072. What begins with 0 is a fraction: 0,500.
_GROUPED = re.compile(r"[1-9]\d{0,2}(?P<sign>[ \u00a0\u202f_,'’])\d{3}(?:(?P=sign)\d{3})*(?:\.\d+)?")
_SHOWN = 40


def without_grouping(text: str) -> str:
    """A number's text without the signs that part its thousands; any other use of them is left as it is."""
    plain = text.strip()
    return _SEPARATOR.sub("", plain) if _GROUPED.fullmatch(plain) else plain


def is_amount(number: Decimal) -> bool:
    """Whether a budget can be so much: from `SMALLEST` to `LARGEST`, no digit lost in arithmetic."""
    if not number.is_finite() or not SMALLEST <= number <= LARGEST:
        return False
    return len(number.as_tuple().digits) <= _MOST_DIGITS


def as_typed(text: str) -> str:
    """What a person typed, short enough to stand in a sentence."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def parse_limit(name: str, text: str) -> int | float | Decimal:
    """A limit as a person wrote it, as a positive number; a comma or space only where it groups thousands.

    Raises:
        InvalidValueError: no number, not positive, absurdly large, or a fraction where whole numbers are
            counted; names the field, the value and what to write instead.
    """
    unit, shown = UNITS[name], as_typed(text)
    plain = without_grouping(text)
    try:
        # Decimal itself would read 1_0 as ten.
        number = Decimal("" if _SEPARATOR.search(plain) else plain)
    except InvalidOperation:
        raise InvalidValueError(name, shown, f"is not a number of {unit}; {_meant(name, plain)}") from None
    if not number.is_finite() or number <= 0 or float(number) == 0:
        example = "an amount such as 0.50" if name == "max_cost_usd" else "1 or more"
        raise InvalidValueError(
            name,
            shown,
            f"is not a positive number of {unit}; write {example}, leave it empty, or choose “no limit”",
        )
    if number > LARGEST:
        raise InvalidValueError(name, shown, f"is more {unit} than any run can use; write {LARGEST} or less")
    if name == "max_cost_usd":
        return number
    if name == "max_total_time_sec":
        return float(number)
    if number != number.to_integral_value():
        raise InvalidValueError(name, shown, f"is not a whole number of {unit}; write {int(number) or 1}")
    return int(number)


def _meant(name: str, plain: str) -> str:
    """What to write in place of a text that is no number: the one number it can mean, else an example."""
    digits = re.sub(r"[^0-9.,]", "", plain)
    if re.fullmatch(r"0,\d+|\d+,\d{1,2}|\d{1,3}(\.\d{3})+,\d+", digits):
        digits = digits.replace(".", "").replace(",", ".")
    else:
        digits = digits.replace(",", "")
    if len(digits) > _SHOWN or not re.fullmatch(r"\d+(\.\d+)?", digits):
        return "write a number such as 5"
    whole = name not in {"max_cost_usd", "max_total_time_sec"}
    return f"write {max(1, int(Decimal(digits))) if whole else digits}"
