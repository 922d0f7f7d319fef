"""Ignore files."""

from typing import NamedTuple

from pathmatch.patterns import matches


class Rule(NamedTuple):
    """One line of an ignore file."""

    pattern: str
    keeps: bool

    @classmethod
    def parse(cls, line):
        """Return the rule of a line, or None for blank lines and comments."""
        text = line.strip()
        if not text or text.startswith("#"):
            return None
        keeps = text.startswith("!")
        pattern = text[1:] if keeps else text
        below = "**" if pattern.endswith("/") else ""
        if "/" not in pattern.rstrip("/"):
            pattern = "**/" + pattern
        return cls(pattern.lstrip("/") + below, keeps)


class IgnoreList:
    """Rules in the order of their lines; the last one that matches decides."""

    def __init__(self, lines):
        parsed = (Rule.parse(line) for line in lines)
        self.rules = [rule for rule in parsed if rule is not None]

    @classmethod
    def from_text(cls, text):
        return cls(text.splitlines())

    def ignored(self, path):
        return self.deciding_rule(path) is not None and not self.deciding_rule(path).keeps

    def deciding_rule(self, path):
        """Return the rule that decides about `path`, or None."""
        for rule in reversed(self.rules):
            if matches(rule.pattern, path):
                return rule
        return None

    def prune(self, paths):
        """Return the paths that are not ignored, in their order."""
        return [path for path in paths if not self.ignored(path)]
