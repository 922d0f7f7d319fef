from datetime import timedelta

import pytest

from lapse import DurationError, parse


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("5min", 300),
        ("5mins", 300),
        ("90minutes", 5400),
        ("1h", 3600),
        ("2hrs", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1d", 86400),
        ("2weeks", 1209600),
    ],
)
def test_common_spellings(text, seconds):
    assert parse(text) == timedelta(seconds=seconds)


def test_spaces_and_commas_between_parts():
    assert parse(" 2 days, 4 hours ") == timedelta(days=2, hours=4)


def test_case_does_not_matter():
    assert parse("1H 5Min") == timedelta(minutes=65)


def test_minus_applies_to_the_whole_span():
    assert parse("-1d 12h") == -timedelta(days=1, hours=12)


def test_microseconds():
    assert parse("250us") == timedelta(microseconds=250)


@pytest.mark.parametrize(
    ("text", "position"),
    [("", 0), ("-", 1), ("5", 0), ("1h x", 3), ("3 parsecs", 0), ("1h 5mx", 3)],
    ids=["empty", "sign", "no-unit", "no-amount", "unknown-unit", "longer-unit"],
)
def test_errors_say_where_reading_stopped(text, position):
    with pytest.raises(DurationError) as caught:
        parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("1ms", 1), ("2.5ms", 2.5), ("7MS", 7), ("1s250ms", 1250), ("1m,1ms", 60001)],
)
def test_milliseconds_in_short(text, milliseconds):
    assert parse(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["40milli", "40millis", "40milliseconds"])
def test_milliseconds_in_words(text):
    assert parse(text) == timedelta(milliseconds=40)


def test_short_minutes_and_milliseconds_stay_apart():
    assert parse("3m 3ms") == timedelta(minutes=3, milliseconds=3)
    assert parse("3mins 3millis") == timedelta(minutes=3, milliseconds=3)
