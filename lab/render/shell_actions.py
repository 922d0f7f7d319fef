"""What a shell command does, in a normal form: verb and target, files it reads and changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from lab.render.command_lines import Line, Simple, document_in, read_line
from lab.render.normal_form import content_of, is_root, path_in

_MOST_JOINED = 4
_OPERAND_CHARACTERS = 120
_VERSION = re.compile(r"(python|pypy|pip|node|ruby|perl)[\d.]+")
_SED_LINES = re.compile(r"(\d+)(?:,\s*(\d+|\$))?p")
# Several letters of which the last takes a value: `-nC 3`.
_GREP_VALUE = re.compile(r"-[a-zA-Z]*[ABCmef]")
_NUMBER = re.compile(r"\d{1,9}")
# `python` and `python3` are one program.
_PYTHON_3 = re.compile(r"(?:(?:/usr)?(?:/local)?/bin/)?(python|pip)3(?:\.\d{1,2})?")
_PYTHON_3_AT_START = re.compile(rf"((?:^|[;&|])\s*){_PYTHON_3.pattern}(?=\s)")
_READERS = frozenset(("cat", "head", "tail", "nl", "less", "more", "bat", "tac", "open"))
_SEARCHERS = frozenset(("grep", "egrep", "fgrep", "rg", "ag", "ack"))
_WRITERS = frozenset(("cat", "echo", "printf", "tee"))
_CHANGERS = frozenset(("rm", "mv", "cp", "touch", "unlink", "git-mv"))
_LISTERS = frozenset(("ls", "tree", "dir"))
_SHELLS = frozenset(("bash", "sh", "zsh", "dash"))
_WITH_SUBCOMMANDS = frozenset(
    (
        *("git", "hg", "pip", "uv", "poetry", "conda", "npm", "yarn", "pnpm", "go", "cargo"),
        *("docker", "apt", "apt-get"),
    )
)
# Short options that take the next word, by program; what is not named here takes none.
_VALUES: dict[str, frozenset[str]] = {
    "pytest": frozenset(("-k", "-m", "-p", "-c", "-o", "-n", "-W", "--tb", "--maxfail", "--durations")),
    "grep": frozenset(("-e", "-A", "-B", "-C", "-m", "-f", "-g", "-t", "--include", "--exclude")),
    "head": frozenset(("-n", "-c")),
    "tail": frozenset(("-n", "-c")),
    "sed": frozenset(("-e", "-f", "-l")),
    "git": frozenset(("-C", "-c")),
    "python": frozenset(("-W", "-X")),
    "nl": frozenset(("-b", "-w", "-s", "-v")),
    "awk": frozenset(("-F", "-v", "-f", "-i")),
}


class Standing(NamedTuple):
    """What earlier steps leave behind that later ones speak of.

    `roots`: folders in which the workspace stands. `opened`: the file that commands without one are about.
    """

    roots: tuple[str, ...] = ()
    opened: str = ""


class Done(NamedTuple):
    """What one call does.

    `arguments` None: the subject does not say how they are told in short. `kind` "": the words of the call
    say it. `standing` None: it leaves nothing behind.
    """

    subject: str
    arguments: str | None = None
    reads: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    kind: str = ""
    standing: Standing | None = None


class _Place(NamedTuple):
    """Where a command runs."""

    standing: Standing
    folder: str

    def path(self, word: str) -> str:
        return path_in(self.standing.roots, word, self.folder)

    def operand(self, word: str) -> str:
        """A word that may be a path."""
        if word.startswith("/") or (self.folder and ("/" in word or "." in word)):
            name, colons, rest = word.partition("::")
            return f"{self.path(name)}{colons}{rest}"
        return word.removeprefix("./")


@lru_cache(maxsize=2048)
def command_done(command: str, standing: Standing, *, depth: int = 0) -> Done:
    """What a command line does, whatever stands in it. Runs of one task give many commands in common."""
    special = _of_swe_agent(command, standing) or _of_patch(command, standing)
    if special is not None:
        return special
    line = read_line(command)
    folder, standing = _folder(line, standing)
    place = _Place(standing, folder)
    mains = _mains(line)
    parts = _put_in_place(mains, [_simple(one, place, depth) for one in mains], place.path)
    subject = " && ".join(dict.fromkeys(part.subject for part in parts[:_MOST_JOINED] if part.subject))
    arguments = _in_short(parts, line)
    if len(parts) == len(line.commands) == 1 and parts[0].subject.startswith("write "):
        # Just the text, as a tool that writes a file is given it.
        text = document_in(command)
        arguments = content_of(text) if text is not None else None
    kinds = {part.kind for part in parts}
    return Done(
        subject or "nothing",
        _said(command, line, place) if arguments is None else arguments,
        tuple(dict.fromkeys(path for part in parts for path in part.reads)),
        tuple(dict.fromkeys(path for part in parts for path in part.edits)),
        kinds.pop() if len(kinds) == 1 else "",
        standing,
    )


def _put_in_place(mains: Sequence[Simple], parts: Sequence[Done], path: Callable[[str], str]) -> list[Done]:
    """What is done, where a file written beside another and moved over it is an edit of that one alone."""
    done = list(parts)
    dropped: set[int] = set()
    for at, simple in enumerate(mains):
        beside = path(simple.writes) if simple.writes and not simple.appends else ""
        for later in range(at + 1, len(mains)) if beside else ():
            target = _moved_to(mains[later], beside, path)
            if not target:
                continue
            reads = tuple(map(path, simple.words[1:]))
            kept = done[at]
            if target in reads:
                kept = Done(f"edit {target}", reads=(target,), edits=(), kind="edit")
            elif kept.subject == f"write {beside}":
                kept = kept._replace(subject=f"write {target}")
            removed = [n for n in range(later + 1, len(mains)) if _removes(mains[n], beside, path)]
            stays = mains[later].program != "mv" and not removed and not beside.startswith("/")
            edits = (*(one for one in kept.edits if one != beside), target, *([beside] if stays else []))
            done[at] = kept._replace(arguments=None, edits=tuple(dict.fromkeys(edits)))
            dropped |= {later, *removed}
            break
    return [one for at, one in enumerate(done) if at not in dropped]


def _moved_to(simple: Simple, beside: str, path: Callable[[str], str]) -> str:
    """The file over which a command puts the one at `beside`, "" for a command that does something else."""
    operands = [path(word) for word in _operands(simple.program, simple.words[1:])]
    if simple.program == "cat" and operands == [beside] and simple.writes and not simple.appends:
        return path(simple.writes)
    is_move = simple.program in ("mv", "cp") and len(operands) == 2 and operands[0] == beside
    return operands[1] if is_move and operands[1] != "." else ""


def _removes(simple: Simple, beside: str, path: Callable[[str], str]) -> bool:
    words = simple.words[1:]
    return simple.program == "rm" and [path(one) for one in words if not one.startswith("-")] == [beside]


def _in_short(parts: Sequence[Done], line: Line) -> str | None:
    """The arguments where one file is read and nothing else is done: its lines, "" for all of them."""
    if len(parts) != 1 or parts[0].arguments is None or len(line.commands) > 2:
        return None
    if len(line.commands) == 1:
        return parts[0].arguments
    # `nl F | sed -n 1,9p`
    words = line.commands[1].words
    lines = _SED_LINES.fullmatch(words[2]) if words[:2] == ("sed", "-n") and len(words) == 3 else None
    return _range(lines[1], lines[2] or lines[1]) if lines and not parts[0].arguments else None


def _folder(line: Line, standing: Standing) -> tuple[str, Standing]:
    """The folder in which the line runs, within the workspace: "" for the workspace itself."""
    if not line.folder:
        return "", standing
    folder = path_in(standing.roots, line.folder)
    if not standing.roots and is_root(folder):
        # Nobody recorded where the workspace was: where it goes first is it.
        return "", standing._replace(roots=(folder.rstrip("/"),))
    return "" if folder == "." else folder, standing


def _mains(line: Line) -> list[Simple]:
    """One command of each pipeline: the first, or the one that `xargs` runs on what it finds."""
    mains: list[Simple] = []
    for simple in line.commands:
        if not simple.piped or not mains:
            mains.append(simple)
        elif simple.program == "xargs" and len(simple.words) > 1:
            at = next((n for n, word in enumerate(simple.words[1:], 1) if not word.startswith("-")), 0)
            if at:
                mains[-1] = simple._replace(words=simple.words[at:], piped=False)
        elif simple.program == "tee" or simple.writes:
            mains[-1] = _writing(mains[-1], simple)
    return mains


def _writing(first: Simple, last: Simple) -> Simple:
    if last.writes:
        return first._replace(writes=last.writes, appends=last.appends)
    files = [word for word in last.words[1:] if not word.startswith("-")]
    return first._replace(writes=files[0] if files else "", appends="-a" in last.words)


def _said(command: str, line: Line, place: _Place) -> str:
    """Everything that was asked, white space and quotes in their normal form; documents as they are."""
    if "<<" in command:
        first, newline, rest = content_of(command.strip()).partition("\n")
        return _PYTHON_3_AT_START.sub(r"\1\2", first) + newline + rest
    words = line.words
    if line.folder and not place.folder and words[:1] == ("cd",):
        words = words[3:]
    return " ".join(place.operand(_program(word)) if word != "\n" else ";" for word in words)


def _program(word: str) -> str:
    named = _PYTHON_3.fullmatch(word)
    return named[1] if named else word


def _simple(simple: Simple, place: _Place, depth: int) -> Done:
    program = _VERSION.sub(r"\1", simple.program)
    if simple.writes and (program in _WRITERS or not program):
        path = place.path(simple.writes)
        return Done(f"{'edit' if simple.appends else 'write'} {path}", edits=(path,), kind="edit")
    done = _HANDLERS.get(program, _other)(program, simple, place) if program else Done("")
    if program in _SHELLS and depth == 0 and len(simple.words) > 2 and simple.words[1] in ("-c", "-lc"):
        done = command_done(simple.words[2], place.standing, depth=1)
    if simple.writes:
        path = place.path(simple.writes)
        if done.subject.startswith("read "):
            return Done(f"write {path}", reads=done.reads, edits=(path,), kind="edit")
        done = done._replace(edits=(*done.edits, path), kind="")
    return done


def _operands(program: str, words: Sequence[str]) -> list[str]:
    """The words after the program that are no options and no values of options."""
    valued = _VALUES.get(program, frozenset())
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in valued or (program == "grep" and _GREP_VALUE.fullmatch(word)):
            next(rest, "")
        elif not word.startswith("-") or word == "-":
            found.append(word)
    return found


def _joined(*parts: str) -> str:
    return " ".join(part[:_OPERAND_CHARACTERS] for part in parts if part)


def _read(program: str, simple: Simple, place: _Place) -> Done:
    files = tuple(map(place.path, _operands(program, simple.words[1:])))
    if not files:
        return Done(program)
    lines: str | None = "" if len(files) == 1 else None
    if program in ("head", "tail"):
        lines = _first_lines(simple.words[1:]) if program == "head" and len(files) == 1 else None
    return Done(f"read {_joined(*files[:3])}", lines, files, kind="read")


def _first_lines(words: Sequence[str]) -> str | None:
    """The lines that `head` shows, None where they are not counted."""
    options = [word for word in words if word.startswith("-")]
    counts = [word.lstrip("-n") for word in words if _NUMBER.fullmatch(word.lstrip("-n"))]
    if not options:
        return "1:10"
    return f"1:{counts[0]}" if len(counts) == len(options) == 1 else None


def _numbered(program: str, simple: Simple, place: _Place) -> Done:
    """`sed`: reads lines of a file, or changes it."""
    words = simple.words[1:]
    operands = _operands("sed", words)
    in_place = any(re.match(r"-\w*i|--in-place", word) for word in words)
    given = any(word in ("-e", "-f") for word in words)
    files = tuple(map(place.path, operands if given else operands[1:]))
    if not files:
        return Done(program)
    if in_place:
        return Done(f"edit {_joined(*files[:3])}", edits=files, kind="edit")
    lines = _SED_LINES.fullmatch(operands[0]) if not given and "-n" in words else None
    if lines is None or len(files) > 1:
        return Done(f"read {_joined(*files[:3])}", reads=files, kind="read")
    return Done(f"read {files[0]}", _range(lines[1], lines[2] or lines[1]), files, kind="read")


def _awk(program: str, simple: Simple, place: _Place) -> Done:
    """`awk`: what it runs is no target; without a file it only reads what is piped to it."""
    words = simple.words[1:]
    operands = _operands("awk", words)
    files = tuple(map(place.path, operands if "-f" in words else operands[1:]))
    if not files:
        return Done(program)
    if ("-i", "inplace") in zip(words, words[1:], strict=False):
        return Done(f"edit {_joined(*files[:3])}", edits=files, kind="edit")
    return Done(f"read {_joined(*files[:3])}", reads=files, kind="read")


def _perl(program: str, simple: Simple, place: _Place) -> Done:
    """`perl -i -pe …` changes files; otherwise it is a program as any."""
    words = simple.words[1:]
    if not any(re.match(r"-\w*i", word) for word in words):
        return _other(program, simple, place)
    operands = [word for word in words if not word.startswith("-")]
    has_code = any(re.fullmatch(r"-\w*[eE]", word) for word in words)
    files = tuple(map(place.path, operands[1:] if has_code else operands))
    return Done(f"edit {_joined(*files[:3])}", edits=files, kind="edit") if files else Done(program)


def _range(first: object, last: object) -> str:
    return f"{first}:{last}"


def _search(program: str, simple: Simple, place: _Place) -> Done:
    words = simple.words[1:]
    if program == "git":
        words = words[1:]
    explicit = next((words[n + 1] for n, word in enumerate(words[:-1]) if word == "-e"), "")
    operands = _operands("grep", words)
    pattern = explicit or (operands[0] if operands else "")
    where = operands if explicit else operands[1:]
    files = tuple(path for word in where if "." in (path := place.path(word)).rpartition("/")[2].strip("."))
    return Done(f"grep {pattern[:_OPERAND_CHARACTERS]}", reads=files, kind="read")


def _find(program: str, simple: Simple, place: _Place) -> Done:
    words = simple.words[1:]
    for option in ("-name", "-iname", "-path", "-wholename", "-regex"):
        for at, word in enumerate(words[:-1]):
            # What is pruned or negated is not looked for.
            if (
                word == option
                and "-prune" not in words[at + 2 : at + 3]
                and words[at - 1] not in ("!", "-not")
            ):
                return Done(f"find {pattern_of(words[at + 1])}")
    operands = _operands(program, words)
    return Done(f"find {place.path(operands[0]) if operands else place.path('.')}")


def pattern_of(pattern: str) -> str:
    """A pattern of file names without the folders that stand for any."""
    return pattern.strip("\"'").removeprefix("./").removeprefix("**/")[:_OPERAND_CHARACTERS]


def _list(program: str, simple: Simple, place: _Place) -> Done:
    operands = _operands(program, simple.words[1:])
    return Done(f"ls {_joined(*map(place.path, operands[:3])) or place.path('.')}", kind="read")


def _python(program: str, simple: Simple, place: _Place) -> Done:
    words = simple.words[1:]
    valued = _VALUES["python"]
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "-c", "-m"):
        if words[at].startswith("-m") and len(words[at]) > 2:
            break
        at += 2 if words[at] in valued else 1
    if at == len(words) or words[at] == "-":
        return Done(_joined(program, "<<" if simple.document else words[0] if words else ""))
    first = words[at]
    if first == "-c":
        return Done(f"{program} -c")
    if first.startswith("-m"):
        module = words[at:] if len(first) == 2 else (first[:2], first[2:], *words[at + 1 :])
        if len(module) < 2:
            return Done(f"{program} -m")
        run = Simple(tuple(module[1:]))
        return _HANDLERS.get(run.program, _other)(run.program, run, place)
    return Done(f"{program} {place.path(first)}")


def _pytest(program: str, simple: Simple, place: _Place) -> Done:
    operands = map(place.operand, _operands("pytest", simple.words[1:]))
    return Done(_joined("pytest", *list(operands)[:4]), kind="test")


def _change(program: str, simple: Simple, place: _Place) -> Done:
    paths = tuple(map(place.path, _operands(program, simple.words[1:])))
    changed = paths[-1:] if program == "cp" else paths
    return Done(_joined(program, *paths[:3]), edits=changed)


def _git(program: str, simple: Simple, place: _Place) -> Done:
    operands = _operands("git", simple.words[1:])
    if not operands:
        return Done(program)
    name, rest = operands[0], operands[1:]
    if name == "grep":
        return _search("git", simple, place)
    if name in ("rm", "mv"):
        paths = tuple(map(place.path, rest))
        return Done(_joined("git", name, *paths[:3]), edits=paths)
    files = tuple(path for word in rest if "." in (path := place.path(word)) and path != ".")
    edits = files if name in ("checkout", "restore") else ()
    # A message or a place in the history is no target.
    targets = rest[:1] if name in ("stash", "apply", "clone") else files[:3]
    return Done(_joined("git", name, *targets), edits=edits)


def _other(program: str, simple: Simple, place: _Place) -> Done:
    count = 2 if program in _WITH_SUBCOMMANDS else 1
    operands = _operands(program, simple.words[1:])[:count]
    if simple.document and not operands:
        return Done(f"{program} <<")
    if "/" in simple.words[0]:
        # A program of the workspace is called by its path.
        path = place.path(simple.words[0])
        program = program if path.startswith(("/", "~")) else path
    return Done(_joined(program, *map(place.operand, operands)))


def _editor(program: str, simple: Simple, place: _Place) -> Done:
    """An editor with commands of its own that is called in a shell."""
    words = simple.words[1:]
    path = place.path(words[1]) if len(words) > 1 else ""
    name = words[0] if words else ""
    if name == "view":
        return Done(_joined("read", path), reads=(path,) if path else (), kind="read")
    verb = "write" if name == "create" else "edit"
    return Done(_joined(verb, path), edits=(path,) if path else (), kind="edit")


_Handler = Callable[[str, Simple, _Place], Done]
_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(_READERS, _read),
    **dict.fromkeys(_SEARCHERS, _search),
    **dict.fromkeys(_LISTERS, _list),
    **dict.fromkeys(_CHANGERS, _change),
    **dict.fromkeys(("python", "pypy"), _python),
    **dict.fromkeys(("pytest", "py.test"), _pytest),
    **dict.fromkeys(("str_replace_editor", "str_replace_based_edit_tool", "file_editor"), _editor),
    **dict.fromkeys(("find", "fd", "fdfind"), _find),
    **dict.fromkeys(("awk", "gawk", "mawk"), _awk),
    "perl": _perl,
    "sed": _numbered,
    "git": _git,
}


# Patches in the form of `apply_patch`, which comes as a command or as a tool.

_PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)
_PATCH_BEGINS = "*** Begin Patch"


def _of_patch(command: str, standing: Standing) -> Done | None:
    return patch_applied(command, standing) if _PATCH_BEGINS in command else None


def patch_applied(patch: str, standing: Standing) -> Done:
    """The edit that a patch in the form of `apply_patch` makes, whatever stands around it."""
    files = [(verb, path_in(standing.roots, path)) for verb, path in _PATCHED.findall(patch)]
    paths = tuple(dict.fromkeys(path for _, path in files))
    is_new = bool(files) and all(verb == "Add" for verb, _ in files)
    verb = "write" if is_new else "edit"
    at = max(0, patch.find(_PATCH_BEGINS))
    return Done(_joined(verb, *paths[:3]), content_of(patch[at:]), edits=paths, kind="edit")


# Commands of SWE-agent, which its programs bring into the shell.

_EDIT_LINES = re.compile(r"\s*edit\s+(\d+):(\d+)\s*\n(.*)", re.DOTALL)
_END_OF_EDIT = "end_of_edit"
_SCROLLS = frozenset(("goto", "scroll_up", "scroll_down"))
_OWN_WORDS = _SCROLLS | {"open", "create", "edit", "find_file", "search_dir", "search_file", "submit"}
_FIRST_WORD = re.compile(r"\s*([a-z_]+)(?=\s|$)")


def _of_swe_agent(command: str, standing: Standing) -> Done | None:
    first = _FIRST_WORD.match(command)
    if first is None or first[1] not in _OWN_WORDS:
        return None
    name = first[1]
    if name == "edit":
        lines = _EDIT_LINES.match(command)
        if lines is None:
            return None
        text, begins, last = lines[3].rstrip().rpartition("\n")
        return lines_edited(
            standing, lines[1], lines[2], text if last == _END_OF_EDIT else f"{text}{begins}{last}"
        )
    line = read_line(command)
    if len(line.commands) != 1:
        return None
    words = line.commands[0].words
    if words[:1] != (name,):
        return None
    return text_command(name, words[1:], standing)


def text_command(name: str, words: Sequence[str], standing: Standing) -> Done:
    """What a command of SWE-agent does; one that names no file is about the one opened last."""
    first, second = [*words, "", ""][:2]
    if name == "submit":
        return Done("submit", kind="final")
    if name in _SCROLLS:
        file = standing.opened
        return Done(_joined("read", file), _joined(name, first), (file,) if file else (), kind="read")
    if name == "find_file":
        return Done(f"find {pattern_of(first)}", path_in(standing.roots, second or "."), kind="read")
    if name in ("search_dir", "search_file"):
        place = path_in(standing.roots, second) if second else ""
        file = place or standing.opened
        reads = (file,) if name == "search_file" and file else ()
        return Done(f"grep {first[:_OPERAND_CHARACTERS]}", place, reads, kind="read")
    path = path_in(standing.roots, first)
    opened = standing._replace(opened=path)
    if name == "create":
        return Done(_joined("write", path), edits=(path,) if path else (), kind="edit", standing=opened)
    return Done(_joined("read", path), second, (path,) if path else (), kind="read", standing=opened)


def lines_edited(standing: Standing, first: object, last: object, text: object) -> Done:
    """An edit of lines of the file that was opened last."""
    file = standing.opened
    arguments = f"{_range(first, last)} {content_of(text)}"
    return Done(_joined("edit", file), arguments, edits=(file,) if file else (), kind="edit")
