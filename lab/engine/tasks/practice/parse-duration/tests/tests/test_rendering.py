from datetime import timedelta

from lapse import Field, parse, render


def test_zero():
    assert render(timedelta(0)) == "0s"


def test_largest_units_first():
    assert render(timedelta(days=8, hours=2, seconds=5)) == "1w 1d 2h 5s"


def test_parts_limits_the_length():
    assert render(timedelta(hours=26, seconds=5), parts=2) == "1d 2h"


def test_negative():
    assert render(-timedelta(minutes=90)) == "-1h 30m"


def test_what_is_rendered_can_be_parsed():
    span = timedelta(days=3, minutes=7, seconds=1)
    assert parse(render(span)) == span


class Settings:
    timeout = Field("30s")


def test_field_parses_text_and_keeps_its_default():
    settings = Settings()
    assert settings.timeout == timedelta(seconds=30)
    settings.timeout = "2m"
    assert settings.timeout == timedelta(minutes=2)
    settings.timeout = 5
    assert settings.timeout == timedelta(seconds=5)
    assert Settings().timeout == timedelta(seconds=30)


def test_milliseconds_can_be_rendered_and_parsed():
    span = timedelta(seconds=2, milliseconds=750)
    assert render(span) == "2s 750ms"
    assert parse(render(span)) == span


def test_field_with_milliseconds():
    settings = Settings()
    settings.timeout = "500ms"
    assert settings.timeout == timedelta(milliseconds=500)
