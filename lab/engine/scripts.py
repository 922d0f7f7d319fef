"""The lab's own shell scripts inside a sandbox, and the git they use.

A phase is one script, because each exec costs time. Nothing but a POSIX shell, coreutils, find, tar and git
is needed inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.engine.errors import InfrastructureError
from lab.engine.sandboxes.base import OUTPUT_HEAD_BYTES, ExecResult, Sandbox

SCRIPT_TIMEOUT_SECONDS = 600.0
# A sandbox's exit code for a command whose folder cannot be entered.
_NOT_BEGUN = 126

# Nobody's git configuration has a say: not the machine's, not the agent's. The fixed identity and date make
# the snapshot's commit id depend on its files alone.
GIT_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "snapshot",
    "GIT_AUTHOR_EMAIL": "snapshot@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "snapshot",
    "GIT_COMMITTER_EMAIL": "snapshot@localhost",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+0000",
}

# HOME stands in for versions of git that do not know GIT_CONFIG_GLOBAL. The attributes keep a blob equal to
# the file's bytes whatever attributes the tree itself names; they have the last word in git.
GIT_FUNCTIONS = r"""
set -eu
safe_git() { HOME=/nonexistent command git -c safe.directory='*' -c core.hooksPath=/dev/null "$@"; }
make_repository() {
    safe_git init -q --template= "$1"
    mkdir -p "$1/.git/info"
    printf '%s\n' '* -text -ident -filter -working-tree-encoding !eol !diff !merge !whitespace' \
        > "$1/.git/info/attributes"
    safe_git --git-dir="$1/.git" symbolic-ref HEAD refs/heads/main
}
commit_snapshot() {
    ( cd "$1" && safe_git add -A -f . )
    tree=$(safe_git -C "$1" write-tree)
    commit=$(echo snapshot | safe_git -C "$1" commit-tree "$tree")
    safe_git -C "$1" update-ref refs/heads/main "$commit"
}
"""


def run_script(
    sandbox: Sandbox,
    script: str,
    *arguments: str,
    stdin: bytes = b"",
    timeout: float = SCRIPT_TIMEOUT_SECONDS,
    output_limit: int = OUTPUT_HEAD_BYTES,
) -> ExecResult:
    """Run one of the lab's own shell scripts in the workspace, in git's fixed environment.

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: the script did not end within `timeout` seconds.
    """
    return run_program(
        sandbox,
        ["sh", "-c", script, "lab", *arguments],
        stdin=stdin,
        timeout=timeout,
        output_limit=output_limit,
        environment=GIT_ENVIRONMENT,
    )


def run_program(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    timeout: float = SCRIPT_TIMEOUT_SECONDS,
    output_limit: int = OUTPUT_HEAD_BYTES,
    environment: Mapping[str, str] | None = None,
) -> ExecResult:
    """Run one program for the lab in the workspace, opened first where the agent closed it to itself.

    Raises: as `run_script`.
    """

    def run() -> ExecResult:
        return sandbox.exec(
            argv, timeout=timeout, stdin=stdin, environment=environment, output_limit=output_limit
        )

    result = run()
    if result.exit_code == _NOT_BEGUN and open_workspace(sandbox):
        result = run()
    if result.timed_out:
        raise InfrastructureError(f"a script of the lab did not end within {timeout:.0f} s in the sandbox")
    return result


def open_workspace(sandbox: Sandbox) -> bool:
    """Give the owner of a closed workspace its modes back; True when it was closed and is open now.

    In a folder that its user cannot enter no command begins, the one that would open it again included.

    Raises:
        SandboxLostError: the sandbox is gone.
    """
    script = '{ [ ! -r "$1" ] || [ ! -x "$1" ]; } && chmod u+rwx "$1"'
    result = sandbox.exec(
        ["sh", "-c", script, "lab", sandbox.facts.workspace],
        timeout=SCRIPT_TIMEOUT_SECONDS,
        cwd="/",
        environment=GIT_ENVIRONMENT,
    )
    return result.exit_code == 0


def broken_script(sandbox: Sandbox, result: ExecResult, what: str) -> InfrastructureError:
    """The error for a script of the lab that failed: names missing programs where that is the reason."""
    looked = run_script(
        sandbox, 'for tool in git tar find mktemp; do command -v "$tool" >/dev/null || echo "$tool"; done'
    )
    missing = looked.stdout.text().split()
    if missing:
        names = ", ".join(missing)
        return InfrastructureError(
            f"{what}: the sandbox has no {names}; install it in the task's environment", retryable=False
        )
    said = result.stderr.text().strip()[-2000:]
    return InfrastructureError(f"{what} (exit code {result.exit_code}): {said or 'nothing was said'}")
