"""How many digits follow the point."""

MINOR_DIGITS = {"CHF": 2, "EUR": 2, "GBP": 2, "JPY": 0, "KWD": 3, "USD": 2}


def minor_digits(code):
    """Return the number of digits after the point in amounts of this currency."""
    if code not in MINOR_DIGITS:
        raise ValueError(f"unknown currency {code!r}; known are {', '.join(MINOR_DIGITS)}")
    return MINOR_DIGITS[code]
