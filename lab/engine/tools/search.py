"""search: a term in the files of a folder, counted, or in one file, with line numbers."""

from __future__ import annotations

import posixpath

from pydantic import Field

from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import ExecResult
from lab.engine.tools.base import (
    TOOL_TIMEOUT_SECONDS,
    Settings,
    ToolContext,
    ToolResult,
    local_error,
    required,
)
from lab.engine.tools.documents import BrokenOffError, EditorError, kind_of

_LISTING_BYTES = 10_000_000
_NO_MATCH = 1

# Counts are lines that contain the term as it is written. Files that cannot be read are passed over.
_COUNT = r"""
folder=$1 names=$2 term=$3
find "$folder" -mindepth 1 -name '.*' -prune -o -name "$names" \( -type f -o -type l -exec test -f {} \; \) \
    -exec grep -cHsF -e "$term" -- {} + | grep -v ':0$'
exit 0
"""


class SearchSettings(Settings):
    """`python_only`: a folder's search looks at files whose name ends in .py alone. `files` are the most that
    are listed; where more contain the term, the search is to be narrowed."""

    python_only: bool = True
    files: int = Field(default=100, ge=1)


class Search:
    Settings = SearchSettings
    read_only = True
    needs = (("search_term",),)

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """For a folder the number of lines by file; for a file what `grep -n` finds, a basic expression."""
        path = str(arguments.get("path") or ".")
        try:
            term = required(arguments, "search_term")
            if "\n" in term or "\0" in term or "\0" in path:
                raise EditorError("search_term and path must each be one line of text.")
            resolved = context.resolve(path)
            kind = kind_of(context, resolved)
            if kind == "missing":
                raise EditorError(f"There is nothing at '{path}'.")
            look = _in_folder if kind == "folder" else _in_file
            return ToolResult(observation=context.redactor.text(look(context, term, path, resolved)))
        except BrokenOffError:
            return ToolResult(observation="", interrupted=True)
        except OSError as error:
            problem = str(local_error(error, path))
        except (EditorError, ValueError, TypeError) as error:
            problem = str(error)
        return ToolResult(observation=f"ERROR: {context.redactor.text(problem)}", failed=True)


def _in_folder(context: ToolContext, term: str, path: str, resolved: str) -> str:
    settings = context.settings(SearchSettings)
    names, what = ("*.py", "Python files") if settings.python_only else ("*", "files")
    # A link to the folder is one to look into; links below it are not followed to folders.
    base = posixpath.join(resolved, "")
    result = _run(context, ["/bin/sh", "-c", _COUNT, "lab", base, names, term])
    counts = _counts(result.stdout.head.decode("utf-8", "replace"))
    if not counts:
        return f'No lines with "{term}" in the {what} of {path}.'
    if len(counts) > settings.files:
        return f'{len(counts)} {what} of {path} contain "{term}", too many to list. Narrow your search.'
    rows = [f"{_shown(context, name, path)} ({count} matches)" for name, count in sorted(counts.items())]
    total = sum(counts.values())
    return "\n".join([f'Found {total} matches for "{term}" in the {what} of {path}:', *rows])


def _in_file(context: ToolContext, term: str, path: str, resolved: str) -> str:
    result = _run(context, ["grep", "-n", "-e", term, "--", resolved])
    if result.exit_code == _NO_MATCH:
        return f'No lines with "{term}" in {path}.'
    if result.exit_code != 0:
        raise EditorError(f"grep failed: {result.stderr.text().strip()[:300]}")
    return f'Lines with "{term}" in {path}:\n{result.stdout.text().rstrip()}'


def _run(context: ToolContext, argv: list[str]) -> ExecResult:
    result = context.sandbox.exec(
        argv,
        timeout=TOOL_TIMEOUT_SECONDS,
        environment={"LC_ALL": "C"},
        output_limit=_LISTING_BYTES,
        stop=context.stop,
    )
    if result.interrupted:
        raise BrokenOffError
    if result.timed_out:
        raise EditorError(f"The search took longer than {TOOL_TIMEOUT_SECONDS:g} seconds. Narrow it.")
    return result


def _counts(listing: str) -> dict[str, int]:
    counts = {}
    for row in listing.splitlines():
        name, _, count = row.rpartition(":")
        if count.isdigit():
            counts[name] = int(count)
    return counts


def _shown(context: ToolContext, name: str, path: str) -> str:
    shown = context.shown(posixpath.normpath(name))
    return shown if shown.startswith("/") else f"./{shown}"
