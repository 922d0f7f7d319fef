"""A descriptor for settings classes."""

from datetime import timedelta

from lapse.parsing import parse


class Field:
    """Holds a timedelta; accepts text, a timedelta, or a number of seconds.

    >>> class Settings:
    ...     timeout = Field("30s")
    >>> Settings().timeout
    datetime.timedelta(seconds=30)
    """

    def __init__(self, default):
        self.default = self._convert(default)

    def __set_name__(self, owner, name):
        self.slot = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.slot, self.default)

    def __set__(self, instance, value):
        setattr(instance, self.slot, self._convert(value))

    @staticmethod
    def _convert(value):
        if isinstance(value, timedelta):
            return value
        if isinstance(value, str):
            return parse(value)
        return timedelta(seconds=value)
