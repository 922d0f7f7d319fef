"""Readable addresses for pages."""

from slugs.registry import Registry
from slugs.text import slugify

__all__ = ["Registry", "slugify"]
