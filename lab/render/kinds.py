"""What kind of thing a tool call does, computed from tool and command: read, edit, test, shell or final."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from lab.render.text import words_of

Kind = Literal["read", "edit", "test", "shell", "final"]

_READS = {
    "read",
    "glob",
    "search",
    "grep",
    "list",
    "ls",
    "view",
    "find_file",
    "search_dir",
    "search_file",
    "open",
}
_SEARCHES = {"glob", "search", "grep", "find_file", "search_dir", "search_file"}
_EDITS = {"write", "edit", "create", "insert", "str_replace", "apply_patch", "undo_edit", "multi_edit"}
FINALS = frozenset({"submit", "finish", "exit"})
EDITORS = frozenset({"file_editor", "str_replace_editor", "str_replace_based_edit_tool"})

_SEPARATORS = re.compile(r"&&|\|\||[;|\n]")
_TEST = re.compile(
    r"(?:^|\s|/)(?:pytest|py\.test|nosetests|tox|nox|ctest|phpunit|rspec|jest|vitest|mocha)(?:\s|$)"
    r"|-m\s+(?:pytest|unittest)\b|\b(?:npm|yarn|pnpm|go|cargo|make|mvn|gradle)\s+(?:run\s+)?test\b"
    r"|manage\.py\s+test\b|(?:^|/)runtests\.py\b|(?:^|\s)(?:\./)?run_tests\b"
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_TEST_MODULES = {"pytest", "unittest", "doctest"}
# What may stand before the command that is run, with options of its own.
_BEFORE_COMMANDS = {
    "env", "time", "timeout", "nohup", "nice", "sudo", "exec", "xvfb-run", "uv", "poetry", "pipenv", "conda",
    "do", "then", "else", "if", "while", "!", "{",
}  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
# Python's options with a value of their own, which may be the next word.
_OPTIONS_WITH_VALUES = {"-W", "-X"}
_READ_COMMANDS = {
    "cat", "head", "tail", "less", "more", "grep", "egrep", "fgrep", "rg", "find", "ls", "tree", "wc", "awk",
    "file", "stat", "pwd", "nl", "cut", "sort", "uniq", "which", "type", "du", "diff", "echo", "printf",
    "sed", "true", "cd", "tr", "xargs", "column", "fd", "ack",
}  # fmt: skip
_SEARCH_COMMANDS = {"grep", "egrep", "fgrep", "rg", "find", "fd", "ack"}
_NEUTRAL = {"cd", "export", "true", "set", "echo", "printf", "pwd"}
_GIT_READS = {"log", "diff", "show", "status", "blame", "grep", "ls-files", "branch", "rev-parse"}
_EDIT = re.compile(
    r"\bsed\s+(?:-\w+\s+)*-\w*i|\bperl\s+-\w*i|\bgit\s+apply\b|(?:^|\s)patch\s+-|\btee\s|\bapply_patch\b"
    r"|(?:^|[^0-9&>])>>?\s*(?!/dev/null|&)[\w./~\"'$-]"
)
# SWE-agent's own commands where a model writes them as text; what follows the first line is the new text.
_ACI = re.compile(
    r"\s*(?:(?P<edit>edit\s+\d+:\d+\s*$|create\s+\S+\s*$)"
    r"|(?P<read>(?:open|goto|find_file|search_file|search_dir)\s+\S|scroll_(?:up|down)\s*$)"
    r"|(?P<final>submit\s*$))",
    re.MULTILINE,
)
# Where a here-document begins: `<<EOF`, `<<-'EOF'`; not the here-string `<<<`.
HEREDOC = re.compile(r"(?<!<)<<-?\s*[\"'\\]?([A-Za-z_][\w.-]*)[\"']?")
_HERE_STRING = re.compile(r"<<<.*")
_READ_CHARACTERS = 4_000


def call_kind(tool: str, executor: str, arguments: Mapping[str, Any]) -> Kind:
    """The kind of one tool call."""
    name = (executor or tool).lower()
    if name in EDITORS:
        name = words_of(arguments.get("command")).lower()
    if name in _READS:
        return "read"
    if name in _EDITS:
        return "edit"
    if name in FINALS:
        return "final"
    return command_kind(command_of(arguments)[:_READ_CHARACTERS])


def command_of(arguments: Mapping[str, Any]) -> str:
    """The command line of a shell call, "" when there is none."""
    return words_of(arguments.get("command") or arguments.get("cmd"))


# The first of these that a call has says what it is about.
_SUBJECTS = ("command", "cmd", "file_path", "filePath", "path", "pattern", "search_term", "query")


def subject_of(tool: str, executor: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about: its command, its file, what it looks for; "" where no argument says so."""
    name = (executor or tool).lower()
    path = words_of(arguments.get("path"))
    if name in EDITORS:
        lines = arguments.get("view_range")
        shown = words_of(lines) or (str(lines) if isinstance(lines, list) else "")
        return " ".join(part for part in (words_of(arguments.get("command")), path, shown) if part)
    if name in FINALS:
        return words_of(arguments.get("result") or arguments.get("message"))
    term = words_of(arguments.get("search_term"))
    if term:
        return f"{term} in {path}" if path else term
    return next((text for field in _SUBJECTS if (text := words_of(arguments.get(field)))), "")


_ACI_KINDS: dict[str, Kind] = {"edit": "edit", "read": "read", "final": "final"}


@lru_cache(maxsize=4096)
def command_kind(command: str) -> Kind:
    """The kind of one command line. A test run is one whatever its result; writing a file is an edit.

    A test run starts a known test runner, or has Python run a file that is named as tests are.
    """
    own = _ACI.match(command)
    if own is not None:
        return _ACI_KINDS[own.lastgroup or ""]
    text = without_documents(command[:_READ_CHARACTERS])
    segments = [segment.split() for segment in _SEPARATORS.split(text) if segment.strip()]
    if any(_TEST.search(" ".join(words)) or _python_tests(words) for words in segments):
        return "test"
    if _EDIT.search(text):
        return "edit"
    return "read" if segments and all(_only_reads(words) for words in segments) else "shell"


def _python_tests(words: list[str]) -> bool:
    """Whether Python runs a file `test_*.py` or `*_test.py`, or a module that runs tests."""
    arguments = iter(_after_python(words))
    for word in arguments:
        if not word.startswith("-"):
            return _TEST_FILE.fullmatch(word.rpartition("/")[2]) is not None
        if word.startswith("-m"):
            return (word[2:] or next(arguments, "")) in _TEST_MODULES
        if word in ("-", "-c"):
            return False
        if word in _OPTIONS_WITH_VALUES:
            next(arguments, "")
    return False


def _after_python(words: list[str]) -> list[str]:
    """What stands after the name of Python where it is the command that is run, else nothing."""
    plain = [word.strip("()'\"") for word in words]
    at = next((n for n, word in enumerate(plain) if not _ASSIGNMENT.fullmatch(word)), len(plain))
    pythons = (n for n, word in enumerate(plain) if _PYTHON.fullmatch(word.rpartition("/")[2]))
    found = next((n for n in pythons if n >= at), None)
    if found is None or (found > at and plain[at] not in _BEFORE_COMMANDS):
        return []
    return plain[found + 1 :]


def without_documents(command: str) -> str:
    """The command without the texts of here-documents: what stands after `<<EOF` on its line is command."""
    kept, ends_with = [], None
    for line in command.split("\n"):
        if ends_with is not None:
            if line.strip() == ends_with:
                ends_with = None
            continue
        begins = HEREDOC.search(line)
        if begins:
            ends_with = begins[1]
            line = f"{line[: begins.start()]} {line[begins.end() :]}"
        kept.append(_HERE_STRING.sub("", line))
    return "\n".join(kept)


def _only_reads(words: list[str]) -> bool:
    if words[0] == "git":
        return len(words) > 1 and words[1] in _GIT_READS
    return words[0].rpartition("/")[2] in _READ_COMMANDS


def icon_of(kind: Kind, tool: str, executor: str, arguments: Mapping[str, Any]) -> str:
    """The name of the icon for a call of this kind; reading has two, a page and a lens."""
    if kind == "read":
        if (executor or tool).lower() in _SEARCHES:
            return "lens"
        segments = [words.split() for words in _SEPARATORS.split(command_of(arguments)[:_READ_CHARACTERS])]
        first = next((words for words in segments if words and words[0] not in _NEUTRAL), None)
        return "lens" if first and (first[0] in _SEARCH_COMMANDS or first[:2] == ["git", "grep"]) else "file"
    return ICONS[kind]


ICONS: dict[str, str] = {
    "read": "file",
    "edit": "pencil",
    "test": "flask",
    "shell": "prompt",
    "final": "speech",
}
