"""Patches: captured from a workspace and applied to a fresh one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lab.engine.diffs import Change
from lab.engine.errors import InfrastructureError, LabError
from lab.engine.events import FileChange
from lab.engine.preparing import Base
from lab.engine.sandboxes.base import Sandbox
from lab.engine.scripts import GIT_FUNCTIONS, broken_script, run_script
from lab.engine.tasks.spec import TaskSpec
from lab.engine.workspace_archive import shown

PATCH_LIMIT_BYTES = 20_000_000

# A core dump or a data set is no patch: larger new files stay out, and the patch says so.
FILE_LIMIT_BYTES = 10_000_000


class InvalidPatchError(LabError):
    """A patch does not apply. The text is git's own message."""


@dataclass(frozen=True)
class CapturedPatch:
    """Everything the agent changed against the base, as a git diff ("" when nothing).

    `commits` counts the commits the agent made, on any branch. `left_out` are sentences about what is not in
    the patch and why.
    """

    patch: str
    files: list[FileChange]
    commits: int
    left_out: list[str] = field(default_factory=list)


# The reference repository is built anew from the base's files, outside the workspace: nothing the agent did
# to its own .git (configuration, hooks, attributes, index, history, its removal) can hide or add a change.
# Git would reduce a repository nested in the workspace to a link, so its .git is put aside for a moment.
# Standard output: a line of four sizes and the count of commits, then the four parts.
_CAPTURE = (
    GIT_FUNCTIONS
    + r"""
workspace=$PWD
chmod u+rwx . "${TMPDIR:-/tmp}" 2> /dev/null || :
private=$(mktemp -d)
aside=.git-aside-${private##*[./]}
put_back() {
    cd "$workspace"
    find . -depth -mindepth 2 -name "$aside" -exec sh -c 'mv "$1" "${1%/*}/.git"' lab {} \;
    rm -rf "$private"
}
trap put_back EXIT
base=$1 snapshot=$2 file_limit=$3
shift 3
mkdir "$private/tree"
tar -xpf - -C "$private/tree"
make_repository "$private/tree"
commit_snapshot "$private/tree"
if [ -n "$snapshot" ] && [ "$commit" != "$snapshot" ]; then
    echo "the snapshot is $commit, the attempt began from $snapshot" >&2
    exit 9
fi
find . \( -type d ! -perm -u+rwx -o -type f ! -perm -u+r \) -exec chmod u+rwX {} \;
find . -mindepth 2 -name .git -prune -exec sh -c 'mv "$1" "${1%/*}/$2"' lab {} "$aside" \;
private_git() { safe_git --git-dir="$private/tree/.git" --work-tree="$workspace" "$@"; }
private_git ls-files -o --exclude-standard -z | xargs -0 -r printf './%s\0' |
    FILE_LIMIT=$file_limit xargs -0 -r sh -c \
        'find "$@" -maxdepth 0 -type f -size +"$FILE_LIMIT"c -print0' lab > "$private/large"
{
    printf '.\0'
    for glob; do printf ':(exclude,glob)%s\0' "$glob"; done
    printf ':(exclude,glob)**/%s/**\0:(exclude,glob)**/%s\0' "$aside" "$aside"
    xargs -0 -r printf ':(exclude,literal)%s\0' < "$private/large"
} > "$private/paths"
if ! private_git add -A --ignore-errors --pathspec-from-file="$private/paths" --pathspec-file-nul \
    2> "$private/complaints" && grep -Eq 'No space left|^fatal:' "$private/complaints"; then
    cat "$private/complaints" >&2
    exit 8
fi
take() {
    private_git diff --cached --no-ext-diff --no-textconv --no-renames --no-color --full-index "$@" "$commit"
}
take --raw --numstat -z > "$private/summary"
take --binary --src-prefix=a/ --dst-prefix=b/ > "$private/patch"
: > "$private/binary"
if grep -qa '[^[:print:][:space:]]' "$private/patch"; then
    echo '* -diff' >> "$private/tree/.git/info/attributes"
    take --binary --src-prefix=a/ --dst-prefix=b/ > "$private/binary"
fi
commits=$(HOME=/nonexistent git -c safe.directory='*' --git-dir="$workspace/.git" \
    rev-list --count --all HEAD "^$base" 2> /dev/null) || commits=0
for part in summary patch binary large; do printf '%s ' "$(wc -c < "$private/$part")"; done
echo "$commits"
cat "$private/summary" "$private/patch" "$private/binary" "$private/large"
"""
)


def capture_patch(sandbox: Sandbox, base: Base, *, task: TaskSpec) -> CapturedPatch:
    """What the agent changed against the base, committed or not; ignored and cache files stay out.

    The patch is always UTF-8 text without NUL: a file that is not (Latin-1, say) is in it as git's binary
    diff, which loses nothing. Names outside ASCII are quoted in git's way.

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: the patch could not be taken (full disk, git missing, snapshot changed).
    """
    result = run_script(
        sandbox,
        _CAPTURE,
        base.commit,
        base.commit if base.archive is None else "",
        str(FILE_LIMIT_BYTES),
        *task.cache_globs,
        stdin=base.files(task),
        output_limit=2 * PATCH_LIMIT_BYTES,
    )
    if result.exit_code != 0:
        raise broken_script(sandbox, result, "the patch could not be taken")
    if result.stdout.truncated:
        raise InfrastructureError(
            f"the patch is larger than {PATCH_LIMIT_BYTES} bytes; let the task ignore what its build makes",
            retryable=False,
        )
    head, _, rest = result.stdout.head.partition(b"\n")
    *sizes, commits = (int(number) for number in head.split())
    parts = []
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    summary, patch, binary, large = parts
    return CapturedPatch(
        patch=_as_text(patch, binary),
        files=_read_summary(summary),
        commits=max(0, commits - base.others),
        left_out=[
            f"{shown(path).removeprefix('./')} is larger than {FILE_LIMIT_BYTES} bytes"
            for path in large.split(b"\0")
            if path
        ],
    )


def _as_text(patch: bytes, binary: bytes) -> str:
    """The patch as text; a file whose diff is no plain UTF-8 text is taken from the all-binary patch."""
    try:
        text = patch.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return text
    pairs = zip(_file_sections(patch), _file_sections(binary), strict=True)
    return "".join((plain if _is_plain(plain) else coded).decode("utf-8") for plain, coded in pairs)


def _is_plain(section: bytes) -> bool:
    try:
        return "\0" not in section.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _file_sections(patch: bytes) -> list[bytes]:
    # No line of a hunk and none of a binary diff can begin with these words: the former have a mark in front,
    # the latter no blank.
    return [section for section in re.split(rb"(?m)^(?=diff --git )", patch) if section]


def _read_summary(summary: bytes) -> list[FileChange]:
    """Files of `git diff --raw --numstat -z`."""
    fields = iter(summary.split(b"\0"))
    changes: dict[str, FileChange] = {}
    for entry in fields:
        if entry.startswith(b":"):
            before, after, old, new, status = entry[1:].split(b" ")
            path = shown(next(fields))
            changes[path] = FileChange(
                path=path,
                change=_change(status[:1], same_content=old == new),
                mode=int(after, 8) & 0o7777 or None if before and status[:1] != b"D" else None,
            )
        elif entry:
            added, removed, name = entry.split(b"\t", 2)
            path = shown(name)
            if added != b"-":
                changes[path] = changes[path].model_copy(
                    update={"added": int(added), "removed": int(removed)}
                )
    return list(changes.values())


def _change(status: bytes, *, same_content: bool) -> Change:
    if status == b"A":
        return "added"
    if status == b"D":
        return "deleted"
    return "mode" if same_content else "modified"


_APPLY = (
    GIT_FUNCTIONS
    + r"""
private=$(mktemp -d)
trap 'rm -rf "$private"' EXIT
make_repository "$private"
cat > "$private/patch"
safe_git --git-dir="$private/.git" --work-tree="$PWD" apply --whitespace=nowarn "$private/patch" \
    2> "$private/said" || {
    cat "$private/said" >&2
    exit 7
}
"""
)


def apply_patch(sandbox: Sandbox, patch: str) -> None:
    """Apply a git diff to the workspace, all of it or nothing. A patch of blanks changes nothing.

    Raises:
        InvalidPatchError: it does not apply; git's message.
        SandboxLostError: the sandbox is gone.
        InfrastructureError: git is missing, the disk is full.
    """
    if not patch.strip():
        return
    result = run_script(sandbox, _APPLY, stdin=patch.encode("utf-8", "surrogateescape"))
    if result.exit_code == 7 and b"No space left" not in result.stderr.head:
        raise InvalidPatchError(result.stderr.text().strip()[:4000])
    if result.exit_code != 0:
        raise broken_script(sandbox, result, "the patch could not be applied")
