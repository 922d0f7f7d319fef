"""A workspace before work begins: the task's repository, set up, at the commit that work is measured by."""

from __future__ import annotations

import time
from typing import NamedTuple

from lab.engine.errors import InfrastructureError
from lab.engine.sandboxes.base import ExecResult, Sandbox
from lab.engine.scripts import GIT_FUNCTIONS, broken_script, run_script
from lab.engine.stop import StopSignal
from lab.engine.tasks.snapshot import pack_repository
from lab.engine.tasks.spec import TaskSpec

BASE_LIMIT_BYTES = 1_000_000_000
_SAID_CHARACTERS = 4000
_NOT_EMPTY, _NOTHING_THERE = 5, 6

_TRUST = r"""
trust() {
    if [ -z "$(find . -maxdepth 0 -user "$(id -u)")" ]; then
        git config --file "$HOME/.gitconfig" --add safe.directory "$PWD"
    fi
}
"""

_UNPACK = (
    GIT_FUNCTIONS
    + _TRUST
    + r"""
[ -z "$(ls -A .)" ] || exit 5
tar -xpf -
make_repository .
commit_snapshot .
cat >> .git/config <<'END'
[user]
	name = agent
	email = agent@localhost
[gc]
	auto = 0
[maintenance]
	auto = false
END
trust
echo "$commit"
"""
)

# What git ignores stays out, and so do caches: neither is in a patch. Standard output: a line of the commit
# and of how many there are that do not lead to it, then a tar of its files, of repositories within it all.
_COMMIT_ALL = (
    GIT_FUNCTIONS
    + _TRUST
    + r"""
[ -n "$(ls -A .)" ] || exit 6
files=$1
shift
[ -e .git ] || make_repository .
for setting in user.name=agent user.email=agent@localhost gc.auto=0 maintenance.auto=false; do
    safe_git config --local "${setting%%=*}" > /dev/null ||
        safe_git config --local "${setting%%=*}" "${setting#*=}"
done
trust
{ printf '.\0'; for glob; do printf ':(exclude,glob)%s\0' "$glob"; done; } |
    safe_git add -A --pathspec-from-file=- --pathspec-file-nul
tree=$(safe_git write-tree)
if commit=$(safe_git rev-parse -q --verify HEAD); then
    if [ "$tree" != "$(safe_git rev-parse "HEAD^{tree}")" ]; then
        commit=$(echo 'What the environment adds' | safe_git commit-tree "$tree" -p "$commit")
        safe_git update-ref HEAD "$commit"
    fi
else
    commit=$(echo snapshot | safe_git commit-tree "$tree")
    safe_git update-ref HEAD "$commit"
fi
echo "$commit $(safe_git rev-list --count --all HEAD "^$commit")"
[ "$files" = no ] || safe_git ls-files -z |
    tar -cf - --format=gnu --hard-dereference --exclude=.git --null -T - || [ $? -eq 2 ]
"""
)


class Base(NamedTuple):
    """What the work in a workspace is measured against.

    `commit` is where HEAD is before it. `archive` is a tar of that commit's files where only a sandbox knows
    them, None: they are the task's snapshot. `others` counts commits of other branches.
    """

    commit: str
    archive: bytes | None = None
    others: int = 0

    def files(self, task: TaskSpec) -> bytes:
        """A tar of the files. Raises: InfrastructureError: the task's snapshot is gone or changed."""
        return pack_repository(task) if self.archive is None else self.archive


def prepare_workspace(
    sandbox: Sandbox, task: TaskSpec, *, stop: StopSignal | None = None, with_files: bool = True
) -> Base:
    """Put the task's repository into the workspace as a git repository, set it up, and commit what is there.

    The snapshot is unpacked as one commit, whose id depends on it alone; every file is in it, ignored ones
    too, byte by byte. A repository that lies in the image keeps its history. What is uncommitted there, and
    what set-up commands make that git does not ignore, becomes one commit more. `with_files` False leaves
    the archive out, for those who take no patch. `stop` breaks off set-up commands.

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: `git` or `tar` is missing in the sandbox, its disk is full, the snapshot is gone,
            the image has no such folder, a set-up command failed.
    """
    environment = task.environment
    base = Base("")
    if not environment.repository_in_image:
        result = run_script(sandbox, _UNPACK, stdin=pack_repository(task))
        _require_success(sandbox, result)
        base = Base(result.stdout.text().strip())
    _set_up(sandbox, task, stop)
    return _committed(sandbox, task, with_files=with_files) if environment.has_own_base else base


def _committed(sandbox: Sandbox, task: TaskSpec, *, with_files: bool) -> Base:
    files = "yes" if with_files else "no"
    result = run_script(sandbox, _COMMIT_ALL, files, *task.cache_globs, output_limit=BASE_LIMIT_BYTES)
    _require_success(sandbox, result)
    if result.stdout.truncated:
        raise InfrastructureError(
            f"the repository in {sandbox.facts.workspace} has more than {BASE_LIMIT_BYTES} bytes of files "
            "that git does not ignore; let it ignore what a build makes",
            retryable=False,
        )
    line, _, archive = result.stdout.head.partition(b"\n")
    commit, others = line.decode().split()
    return Base(commit, archive if with_files else None, int(others))


def _require_success(sandbox: Sandbox, result: ExecResult) -> None:
    workspace = sandbox.facts.workspace
    if result.exit_code == _NOT_EMPTY:
        raise InfrastructureError(
            f"environment.working_directory: {workspace!r} is not empty in the image, so that the repository "
            "cannot be unpacked there; name another folder, or write repository_in_image = true",
            retryable=False,
        )
    if result.exit_code == _NOTHING_THERE:
        raise InfrastructureError(
            f"environment.working_directory: {workspace!r} holds nothing in the image; name the folder where "
            "the repository lies",
            retryable=False,
        )
    if result.exit_code != 0:
        raise broken_script(sandbox, result, "the workspace could not be prepared")


def _set_up(sandbox: Sandbox, task: TaskSpec, stop: StopSignal | None) -> None:
    """Run the task's set-up commands, one after the other, in the workspace."""
    commands, allowed = task.environment.setup, task.environment.setup_timeout_sec
    ends = time.monotonic() + allowed
    for number, command in enumerate(commands, start=1):
        left = max(0.1, ends - time.monotonic())
        result = sandbox.exec(["sh", "-c", command], timeout=left, stop=stop)
        if result.exit_code == 0:
            continue
        if result.interrupted:
            how = "was broken off"
        elif result.timed_out:
            how = f"did not end; all of them have {allowed:g} s (setup_timeout_sec)"
        else:
            memory = ", out of memory" if result.out_of_memory else ""
            how = f"ended with exit code {result.exit_code}{memory}"
        said = "\n".join(stream.text().strip() for stream in (result.stdout, result.stderr) if stream.total)
        raise InfrastructureError(
            f"environment.setup: command {number} of {len(commands)} {how}: {command}\n"
            f"{said.strip()[-_SAID_CHARACTERS:] or '(it wrote nothing)'}",
            # A shell that cannot find or run a program will not do so the next time either.
            retryable=result.exit_code not in (126, 127),
        )
