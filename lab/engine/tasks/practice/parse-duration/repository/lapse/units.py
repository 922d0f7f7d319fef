"""The units and their spellings, in microseconds."""

MICROSECOND = 1
MILLISECOND = 1000 * MICROSECOND
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

SPELLINGS = {
    "w": WEEK,
    "week": WEEK,
    "d": DAY,
    "day": DAY,
    "h": HOUR,
    "hr": HOUR,
    "hour": HOUR,
    "m": MINUTE,
    "min": MINUTE,
    "minute": MINUTE,
    "s": SECOND,
    "sec": SECOND,
    "second": SECOND,
    "ms": MILLISECOND,
    "milli": MILLISECOND,
    "millisecond": MILLISECOND,
    "us": MICROSECOND,
    "micro": MICROSECOND,
    "microsecond": MICROSECOND,
}
