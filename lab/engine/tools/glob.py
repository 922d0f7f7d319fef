"""Glob: files by pattern, with the rules of Python's glob, listed by find inside the sandbox."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from pydantic import Field

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import TOOL_TIMEOUT_SECONDS, Settings, ToolContext, ToolResult, bounded, required

_MAGIC = re.compile(r"[*?[]")
# Bytes of file names taken from find: about 250,000 paths.
_LISTING_BYTES = 20_000_000
NO_MATCH = "No files matched the pattern."


class GlobSettings(Settings):
    """`limit` is how many paths are shown, 0: all."""

    limit: int = Field(default=1000, ge=0)


class Glob:
    Settings = GlobSettings
    read_only = True
    needs = (("pattern",),)

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Sorted displayed paths of the files that match, one a line; past the limit, how many are hidden."""
        pattern = required(arguments, "pattern")
        start = arguments.get("path")
        root = context.resolve(required(arguments, "path")) if start else context.workspace
        base, segments = split_pattern(posixpath.join(root, pattern))
        listed, interrupted = _files(context, base, segments)
        rules = [rule_of(segment) for segment in segments]
        paths = [
            posixpath.join(base, path) if path else base
            for path in listed
            if matches(path.split("/") if path else [], rules)
        ]
        shown = sorted({context.redactor.text(context.shown(path)) for path in paths})
        limit = context.settings(GlobSettings).limit or len(shown)
        lines, hidden = shown[:limit], shown[limit:]
        if hidden:
            lines.append(f"[{len(hidden)} more files not shown]")
        return ToolResult(
            observation="\n".join(lines) or NO_MATCH,
            whole=bounded("\n".join(shown)) if hidden else None,
            dropped=len("\n".join(hidden)),
            interrupted=interrupted,
        )


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """An absolute pattern as its literal beginning (a folder) and the segments from the first wildcard on."""
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    # A pattern that ends in a slash asks for folders, and only files are listed: the empty name matches none.
    trailing = [""] if pattern.endswith("/") else []
    literal = 0
    while literal < len(parts) and not _MAGIC.search(parts[literal]):
        literal += 1
    base = posixpath.normpath("/" + "/".join(parts[:literal]))
    return base, parts[literal:] + trailing


# A segment's rule: None for `**`, else the expression a name must match and whether hidden names may.
Rule = tuple[re.Pattern[str], bool] | None


def rule_of(segment: str) -> Rule:
    """The rule of one segment of a pattern."""
    if segment == "**":
        return None
    return re.compile(fnmatch.translate(segment), re.DOTALL), segment.startswith(".")


def matches(names: Sequence[str], rules: Sequence[Rule]) -> bool:
    """Whether a path, as names below the pattern's literal beginning, matches the rules.

    `**` takes any number of names, hidden ones excepted; wildcards do not match a leading dot.
    """
    reachable = {0}
    for rule in rules:
        reachable = _advance(names, rule, reachable)
        if not reachable:
            return False
    return len(names) in reachable


def _advance(names: Sequence[str], rule: Rule, reachable: set[int]) -> set[int]:
    if rule is not None:
        return {at + 1 for at in reachable if at < len(names) and _name_matches(names[at], rule)}
    after = set(reachable)
    for at in reachable:
        while at < len(names) and not names[at].startswith("."):
            at += 1
            after.add(at)
    return after


def _name_matches(name: str, rule: tuple[re.Pattern[str], bool]) -> bool:
    expression, hidden_allowed = rule
    return (hidden_allowed or not name.startswith(".")) and expression.match(name) is not None


def _files(context: ToolContext, base: str, segments: list[str]) -> tuple[list[str], bool]:
    """Regular files below `base` (links followed), relative to it, no deeper than the pattern can reach."""
    argv = ["find", "-L", base]
    if "**" not in segments:
        argv += ["-maxdepth", str(len(segments))]
    if not any(segment.startswith(".") for segment in segments):
        # Nothing hidden can match: large hidden folders (.git, .venv) are not even looked into.
        argv += ["-mindepth", "1", "-name", ".*", "-prune", "-o"] if segments else []
    argv += ["-type", "f", "-print0"]
    result = context.sandbox.exec(
        argv, timeout=TOOL_TIMEOUT_SECONDS, output_limit=_LISTING_BYTES, stop=context.stop
    )
    if result.timed_out:
        raise TimeoutError(f"listing the files took longer than {TOOL_TIMEOUT_SECONDS:.0f} seconds")
    if result.exit_code == 127:
        raise FileNotFoundError("find is not installed in this sandbox")
    # 1: something below could not be read. Beyond it find did not run, or not to its end.
    if result.exit_code is not None and result.exit_code > 1:
        said = result.stderr.text().strip()[:300]
        raise OSError(f"the files could not be listed (exit code {result.exit_code}): {said}")
    names = result.stdout.head.decode("utf-8", "replace").split("\0")
    prefix = base.rstrip("/") + "/"
    return [name.removeprefix(prefix) if name != base else "" for name in names[:-1]], result.interrupted
