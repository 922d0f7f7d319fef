"""Glob patterns for paths, and ignore files made of them."""

from pathmatch.ignore import IgnoreList
from pathmatch.patterns import PatternError, compile_pattern, matches

__all__ = ["IgnoreList", "PatternError", "compile_pattern", "matches"]
