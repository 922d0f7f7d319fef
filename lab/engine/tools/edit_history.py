"""What editors keep to take an edit back: files as they were, in a folder of the lab's own.

The folder lies in the workspace's `.git`, which a run that continues elsewhere gets back and no patch
contains; without one it lies in HOME. Entries are files `<number>-<key of the path>`, uncompressed, so that
a known secret is found in them where everything else is looked through.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from lab.engine.sandboxes.base import ExecResult
from lab.engine.tools.base import TOOL_TIMEOUT_SECONDS, ToolContext

ENTRIES = 50
TOTAL_BYTES = 5_000_000
ENTRY_BYTES = 1_000_000

_PLACE = r"""
if [ -d .git ] && [ -w .git ]; then place=.git/lab-edits; else place=${HOME:-/tmp}/.lab-edits; fi
"""

# The newest entries stay, as long as there are no more than $2 and they have no more than $3 bytes.
_PUSH = (
    _PLACE
    + r"""
mkdir -p -- "$place" && cd -- "$place" || exit 1
for newest in [0-9]*-*; do :; done
[ -e "$newest" ] || newest=100000-
name=$(( ${newest%%-*} + 1 ))-$1
{ cat > new && mv new "$name"; } || { rm -f new -- *-"$1"; exit 1; }
printf %s "$name"
count=0 bytes=0
stat -c '%s %n' [0-9]*-* | sort -r -k 2 | while read -r size entry; do
    count=$((count + 1)) bytes=$((bytes + size))
    if [ "$count" -gt "$2" ] || [ "$bytes" -gt "$3" ]; then rm -f -- "$entry"; fi
done
"""
)

_NEWEST = (
    _PLACE
    + r"""
cd -- "$place" 2> /dev/null || exit 3
for name in [0-9]*-"$1"; do :; done
[ -f "$name" ] || exit 3
printf '%s\n' "$name" && cat -- "$name"
"""
)

_REMOVE = (
    _PLACE
    + r"""
cd -- "$place" 2> /dev/null || exit 0
rm -f -- $1
"""
)


class Entry(NamedTuple):
    """A file as it was before an edit; `name` is the entry's own."""

    name: str
    data: bytes


class EditHistory:
    """The entries of one workspace, of all its files together: 50 and 5 MB at most, the oldest go first."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    def push(self, path: str, data: bytes) -> str:
        """Keep what stood at `path`; returns the entry's name, "" when it could not be kept.

        Nothing older of the path stays where this cannot: taking back would skip an edit.
        """
        if len(data) > ENTRY_BYTES:
            self._run(_REMOVE, f"*-{self._key(path)}")
            return ""
        result = self._run(_PUSH, self._key(path), str(ENTRIES), str(TOTAL_BYTES), stdin=data)
        return result.stdout.text() if result.exit_code == 0 else ""

    def newest(self, path: str) -> Entry | None:
        """What stood at `path` before its latest edit that was not taken back yet."""
        result = self._run(_NEWEST, self._key(path))
        if result.exit_code != 0:
            return None
        name, _, data = result.stdout.head.partition(b"\n")
        return Entry(name.decode("utf-8", "replace"), data)

    def remove(self, name: str) -> None:
        if name:
            self._run(_REMOVE, name)

    def _run(self, script: str, *arguments: str, stdin: bytes = b"") -> ExecResult:
        return self._context.sandbox.exec(
            ["/bin/sh", "-c", script, "lab", *arguments],
            stdin=stdin,
            timeout=TOOL_TIMEOUT_SECONDS,
            output_limit=ENTRY_BYTES + 1000,
        )

    def _key(self, path: str) -> str:
        # Relative to the workspace, which may lie elsewhere in the sandbox of a run that continues.
        shown = self._context.shown(path)
        return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]
