"""Command lines as simple commands: what is run on what, without what stands around it."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import NamedTuple

from lab.render.kinds import HEREDOC, without_documents

# Of a longer line only the beginning is read.
_READ_CHARACTERS = 1_500
_OPERATORS = ";<>|&()\n"
_PLAIN = re.compile(r"[^\s;<>|&()]+|[;<>|&()\n]+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TOKEN = re.compile(r"""(?:[^\s;<>|&()'"]|'[^']*'|"[^"]*")+|[;<>|&()\n]+""")
# A quote that is left open, or white space that is none to a shell.
_UNUSUAL = re.compile(r"['\"]|[^\S \t\r\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_WRAPPERS = frozenset(
    ("env", "time", "timeout", "nohup", "nice", "sudo", "exec", "command", "xvfb-run", "stdbuf", "builtin")
)
_LAUNCHERS = frozenset(("uv", "poetry", "pipenv", "pdm", "hatch", "rye"))
_WORDS_OF_SHELL = frozenset(("do", "then", "else", "if", "while", "!", "{", "}", "fi", "done"))
# Alone they do nothing that matters.
_NEUTRAL = frozenset(
    ("export", "set", "true", "false", "exit", "source", ".", ":", "unset", "alias", "conda", "wait", "sleep")
)
_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")


class Simple(NamedTuple):
    """One command: its words, quotes taken off; `piped`: it reads what the one before prints.

    `writes` and `appends`: the file its output goes to, "" for none. `document`: it is given a here-document.
    """

    words: tuple[str, ...]
    piped: bool = False
    writes: str = ""
    appends: bool = False
    document: bool = False

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2] if self.words else ""


class Line(NamedTuple):
    """A whole command line: the folder it goes to first ("" for none) and its commands in order."""

    folder: str
    commands: tuple[Simple, ...]
    words: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_line(command: str) -> Line:
    """The commands of a line, without `cd`, assignments and wrappers such as `timeout 60`. Never raises."""
    command = command.replace("\\\n", " ")
    begins = HEREDOC.search(command[:_READ_CHARACTERS])
    text = without_documents(command[: 4 * _READ_CHARACTERS]) if begins else command
    tokens = _tokens(text.strip()[:_READ_CHARACTERS])
    folder = ""
    commands: list[Simple] = []
    for simple in _simple_commands(tokens, document=begins is not None):
        if simple.program in ("cd", "pushd") and not simple.writes:
            if not commands and len(simple.words) > 1:
                folder = _joined(folder, simple.words[1])
            continue
        commands.append(simple)
    return Line(folder, tuple(_without_neutral(commands)), tuple(tokens))


def document_in(command: str) -> str | None:
    """The text of the one here-document of a command, None where there are none or several."""
    begins = list(HEREDOC.finditer(command))
    if not begins:
        return None
    lines = command[begins[0].end() :].partition("\n")[2].split("\n")
    end = next((at for at, line in enumerate(lines) if line.strip() == begins[0][1]), None)
    if end is None or any(HEREDOC.search(line) for line in lines[end + 1 :]):
        return None
    return "\n".join(lines[:end])


def _joined(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder and not path.startswith(("/", "~")) else path


def _without_neutral(commands: list[Simple]) -> list[Simple]:
    """Without what only prepares or says something, unless there is nothing else."""
    kept = [one for one in commands if one.program not in _NEUTRAL or one.writes]
    speaking = [one for one in kept if one.program in ("echo", "printf", "pwd") and not one.writes]
    return [one for one in kept if one not in speaking] or kept or commands


def _unquoted(quoted: re.Match[str]) -> str:
    return quoted[0][1:-1]


def _tokens(text: str) -> list[str]:
    if "\\" not in text and not _UNUSUAL.search(_QUOTED.sub("", text)):
        # What shlex finds, twenty times as fast.
        return [_QUOTED.sub(_unquoted, token) for token in _TOKEN.findall(text)]
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
        lexer.whitespace = " \t\r"
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:
        return _PLAIN.findall(text.replace('"', "").replace("'", ""))


def _is_operator(token: str) -> bool:
    return bool(token) and not token.strip(_OPERATORS)


def _simple_commands(tokens: list[str], *, document: bool) -> list[Simple]:
    found: list[Simple] = []
    words: list[str] = []
    writes, appends, piped = "", False, False
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if not _is_operator(token):
            words.append(token)
            continue
        if ">" in token or "<" in token:
            target = tokens[at] if at < len(tokens) and not _is_operator(tokens[at]) else ""
            number = words.pop() if words and words[-1] in ("1", "2") and ">" in token else ""
            at += bool(target)
            if ">" in token and "&" not in token and number != "2" and target != "/dev/null":
                writes, appends = target, ">>" in token
            if "\n" not in token:
                continue
        if words or writes:
            found.append(Simple(_bare(words), piped, writes, appends, document))
        words, writes, appends = [], "", False
        piped = "|" in token and "||" not in token
    if words or writes:
        found.append(Simple(_bare(words), piped, writes, appends, document))
    return [one for one in found if one.words or one.writes]


def _bare(words: list[str]) -> tuple[str, ...]:
    """The words without assignments, wrappers and words of the shell's own before the command."""
    at, last = 0, len(words)
    while at < last:
        name = words[at].rpartition("/")[2]
        if name in _WORDS_OF_SHELL or _ASSIGNMENT.fullmatch(words[at]):
            at += 1
        elif name in _WRAPPERS:
            at = _after_options(words, at + 1)
        elif name in _LAUNCHERS and at + 1 < last and words[at + 1] == "run":
            at = _after_options(words, at + 2)
        else:
            break
    return tuple(words[at:])


def _after_options(words: list[str], at: int) -> int:
    while at < len(words) and (words[at].startswith("-") or _DURATION.fullmatch(words[at])):
        # `-k 5`, `-s KILL`, `-n 10`, `-u user`: short options with a value of their own.
        at += 2 if words[at] in ("-k", "-s", "-n", "-u") else 1
    return at
