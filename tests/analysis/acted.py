"""Steps as they are aligned, made by hand and by chance."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from lab.analysis.alignment import Action


def read(path: str, result: str = "as it was", lines: str = "") -> Action:
    return Action("read", f"read {path}", lines, result, reads=(path,))


def grep(pattern: str, result: str = "found") -> Action:
    return Action("read", f"grep {pattern}", "", result)


def edit(path: str, content: str, result: str = "done") -> Action:
    return Action("edit", f"edit {path}", content, result, edits=(path,))


def write(path: str, content: str) -> Action:
    return Action("edit", f"write {path}", content, "done", edits=(path,))


def pytest(arguments: str = "-q", result: str = "1 failed") -> Action:
    return Action("test", "pytest", arguments, result)


def shell(subject: str, arguments: str = "", result: str = "printed") -> Action:
    return Action("shell", subject, arguments, result)


def answer(words: str = "done") -> Action:
    return Action("final", "answer", words)


class Picture(NamedTuple):
    """Two runs of a task, which files end alike in them, and the rows in which they stand (steps from 1)."""

    one: tuple[Action, ...]
    other: tuple[Action, ...]
    same_files: dict[str, bool]
    rows: tuple[tuple[int | None, int | None], ...]


_COMMON = (
    Action("read", "find *.py", ".", "4 files"),
    read("tickwell/schedule.py"),
    pytest(),
)

PICTURE = Picture(
    one=(
        *_COMMON,
        shell("python <<", "#one", "25 hours"),
        read("tickwell/zones.py"),
        grep("astimezone"),
        edit("tickwell/schedule.py", "candidate + one day"),
        write("tests/test_dst.py", "a new test"),
        pytest(result="45 passed"),
        shell("git diff", "--stat"),
        answer("a local day is not always 24 hours"),
    ),
    other=(
        *_COMMON,
        shell("python <<", "#other", "24 hours"),
        read("tickwell/zones.py"),
        edit("tickwell/zones.py", "without the cache"),
        shell("python <<", "#third", "23 hours"),
        edit("tickwell/zones.py", "with a key"),
        pytest(result="1 failed"),
        edit("tickwell/zones.py", "four lines more"),
        pytest("-q -k daily", "6 passed"),
        answer("the cached offset was the cause"),
    ),
    same_files={"tickwell/schedule.py": False, "tickwell/zones.py": False, "tests/test_dst.py": False},
    rows=(
        *((step, step) for step in range(1, 6)),
        (6, None),
        (7, 6),
        (8, None),
        (None, 7),
        (None, 8),
        (9, 9),
        (10, None),
        (None, 10),
        (None, 11),
        (11, 12),
    ),
)


def actions(*, edits: bool = True) -> st.SearchStrategy[Action]:
    """Steps of few kinds, subjects, arguments and results, so that many are the same in part."""
    few = st.sampled_from(("1", "2", "3"))
    known = st.sampled_from(("", "1", "2"))
    kinds = [
        st.builds(read, st.sampled_from(("src/a.py", "src/b.py", "docs/c.md")), known, few),
        st.builds(shell, st.sampled_from(("ls", "git status", "make")), few, known),
        st.builds(pytest, few, known),
        st.builds(answer, few),
    ]
    if edits:
        kinds.append(st.builds(edit, st.sampled_from(("src/a.py", "src/b.py")), few, known))
    return st.one_of(kinds)


def runs(*, most: int = 12, edits: bool = True) -> st.SearchStrategy[list[Action]]:
    return st.lists(actions(edits=edits), max_size=most)
