"""The text of the kept control shell and of what it is told to run: bash, quoted byte for byte."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Variables bash refuses to set or answers with values of its own; `env` hands them to the command instead.
_OWNED_BY_BASH = frozenset(
    {
        "BASHOPTS",
        "BASHPID",
        "BASH_ARGV0",
        "BASH_COMMAND",
        "BASH_SUBSHELL",
        "BASH_VERSINFO",
        "COMP_WORDBREAKS",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "LINENO",
        "OLDPWD",
        "OPTIND",
        "PPID",
        "PWD",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "UID",
        "_",
    }
)
# Variables that change what the control shell does: how it splits, waits, matches or reads.
_STEERING = frozenset(
    {"CHILD_MAX", "EXECIGNORE", "FUNCNEST", "GLOBIGNORE", "IFS", "POSIXLY_CORRECT", "TMOUT"}
)
CANNOT_CHANGE_FOLDER = 126
# What could end a kept shell and may be sent by what it runs. It ignores them; each command has them reset.
# A trap would not do: its handler leaves bash's `wait` midway, and a child that ends just then is forgotten.
IGNORED_SIGNALS = "HUP INT QUIT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM PROF SYS"


class Descriptors(NamedTuple):
    """The file descriptors the control shell inherits. A command it starts has none of them."""

    commands: int
    status: int
    leaders: int
    folder: int


def as_bytes(text: str) -> bytes:
    """Text as a command receives it; file names that are no UTF-8 survive, stray surrogates become `?`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def quote(text: str) -> bytes:
    """One word on one line: a newline is said by the variable every kept shell has for it."""
    quoted = as_bytes(text).replace(b"'", b"'\\''")
    return b"'" + quoted.replace(b"\n", b"'\"$lab_newline\"'") + b"'"


def control_program(fds: Descriptors) -> str:
    """What the control shell runs from start to end: on each line read, it runs the file named `next`.

    It ignores signals, so that a command cannot end it with one it is allowed to send. `set -m` gives every
    command a process group of its own.
    """
    return (
        f"trap '' {IGNORED_SIGNALS}; set -m; "
        "umask 022; LC_ALL=C; cd /; unset SHLVL OLDPWD; "
        f". /proc/self/fd/{fds.folder}/begin; "
        f"printf 'R %d\\n' $$ >&{fds.status}; exec 2>/dev/null; "
        f"while IFS= read -r -u {fds.commands} lab_line; do "
        f". /proc/self/fd/{fds.folder}/next || printf 'L\\n' >&{fds.status}; done"
    )


def begin_file(environment: Mapping[str, str], fds: Descriptors) -> bytes:
    """What every command needs: its environment, and an honest exit code when `wait` was disturbed.

    `wait` returns early when a signal comes or the command is stopped; `wait -f` would not, but spins for
    ever when the command has ended before it begins (bash 5.2). The pause is a read from a silent pipe: where
    no process can be made any more, a fork would end the shell.

    The environment is set once, here, but for names that would change how the control shell itself works.
    """
    inherited, others = steering(environment)
    settle = (
        b'lab_settle() { while kill -0 "$lab_pid" 2>/dev/null; do read -r -t 0.05 -u %d lab_line; done; '
        b'wait "$lab_pid" 2>/dev/null; lab_again=$?; [[ $lab_again -eq 127 ]] || lab_code=$lab_again; }\n'
    ) % fds.commands
    environment_function = b"\n".join([b"lab_environment() {", *exports(others), b":", b"}", settle])
    return b"\n".join([b"lab_newline='", b"'", *exports(inherited), environment_function])


def next_file(fds: Descriptors, token: bytes, streams: tuple[bytes, bytes, bytes], body: bytes) -> bytes:
    """One command: `streams` are what it reads, its output and its error output, as shell words."""
    source, output, error = streams
    return b"".join(
        (
            b"[[ $lab_line == %s ]] || return 0\n" % token,
            b"( trap - %s; exec 0<%s 1>%s 2>%s " % (IGNORED_SIGNALS.encode(), source, output, error),
            b"%d<&- %d>&- %d>&- %d<&-\n" % fds,
            body,
            b"\n) &\nlab_pid=$!; printf '%s %%d\\n' \"$lab_pid\" >&%d; " % (token, fds.leaders),
            b'wait "$lab_pid"; lab_code=$?; if [[ $lab_code -gt 128 ]]; then lab_settle; fi; ',
            b"printf 'E %s %%d\\n' \"$lab_code\" >&%d\n" % (token, fds.status),
        )
    )


def command_body(argv: Sequence[str], folder: str, environment: Mapping[str, str]) -> bytes:
    """Replace the forked shell by the command, in its folder and with its environment."""
    words = [quote(word) for word in argv]
    odd = unexportable(environment)
    if odd:
        words = [b"/usr/bin/env", *(quote(f"{name}={value}") for name, value in odd.items()), *words]
    return b"\n".join(
        [
            b"lab_environment",
            *exports(environment),
            b"cd -- %s || exit %d" % (quote(folder), CANNOT_CHANGE_FOLDER),
            b"unset OLDPWD",
            b"exec -- " + b" ".join(words),
        ]
    )


def unexportable(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables bash cannot set; they must be given anew to each command."""
    return {name: value for name, value in environment.items() if not _exportable(name)}


def steering(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables a kept shell can hold all the time, and those that would change how it works itself."""
    names = {name for name in environment if name in _STEERING or name.startswith(("BASH", "LC_", "HIST"))}
    inherited = {name: value for name, value in environment.items() if name not in names}
    return inherited, {name: environment[name] for name in environment if name in names}


def exports(environment: Mapping[str, str]) -> list[bytes]:
    """Shell statements that set the variables which a shell can set."""
    return [
        b"export %s=%s" % (name.encode(), quote(value))
        for name, value in environment.items()
        if _exportable(name)
    ]


def _exportable(name: str) -> bool:
    # Names of the kept shell's own are given to the command alone.
    return _NAME.match(name) is not None and name not in _OWNED_BY_BASH and not name.startswith("lab_")
