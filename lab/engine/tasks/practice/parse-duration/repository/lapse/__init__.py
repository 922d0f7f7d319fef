"""Read and write spans of time the way people type them."""

from lapse.field import Field
from lapse.parsing import DurationError, parse
from lapse.rendering import render

__all__ = ["DurationError", "Field", "parse", "render"]
