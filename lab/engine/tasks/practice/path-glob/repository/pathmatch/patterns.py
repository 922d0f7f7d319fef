"""Glob patterns to regular expressions."""

import re
from functools import lru_cache


class PatternError(ValueError):
    """A pattern that cannot be understood."""


def matches(pattern, path):
    """Tell whether `pattern` matches the whole of `path`. Both use forward slashes."""
    return compile_pattern(pattern).fullmatch(path) is not None


@lru_cache(maxsize=512)
def compile_pattern(pattern):
    """Return the regular expression of a pattern, to be used with `fullmatch`."""
    if not pattern:
        raise PatternError("a pattern cannot be empty")
    pieces = []
    position = 0
    while position < len(pattern):
        piece, position = _translate(pattern, position)
        pieces.append(piece)
    return re.compile("".join(pieces), re.DOTALL)


def _translate(pattern, position):
    """Translate what begins at `position`; return its expression and where it ends."""
    char = pattern[position]
    if char == "*":
        return _translate_stars(pattern, position)
    if char == "?":
        return "[^/]", position + 1
    if char == "[":
        return _translate_set(pattern, position)
    if char == "\\" and position + 1 < len(pattern):
        return re.escape(pattern[position + 1]), position + 2
    return re.escape(char), position + 1


def _translate_stars(pattern, position):
    end = position
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    starts_folder = position == 0 or pattern[position - 1] == "/"
    if end - position == 2 and starts_folder:
        if end == len(pattern):
            return ".+", end
        if pattern[end] == "/":
            return ".*/?", end + 1
    return "[^/]*", end


def _translate_set(pattern, position):
    end = position + 1
    negated = pattern[end : end + 1] == "!"
    if negated:
        end += 1
    close = pattern.find("]", end + 1)
    if close < 0:
        raise PatternError(f"{pattern!r}: the set that begins at position {position} has no end")
    members = pattern[end:close].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    return f"(?!/)[{'^' if negated else ''}{members}]", close + 1
