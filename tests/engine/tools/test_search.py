"""search as R2E-Gym's models meet it."""

from __future__ import annotations

import pytest

from lab.engine.errors import ExitReason
from lab.engine.redact import Redactor
from lab.engine.tools.base import ToolContext
from tests.engine.tools.using import call, put, shell


def test_a_folder_gives_the_number_of_matching_lines_by_file(context: ToolContext) -> None:
    put(context, "src/a.py", "needle\nneedle needle\nhay\n")
    put(context, "src/deep/b.py", "a needle\n")
    put(context, "src/c.py", "hay\n")
    result = call(context, "search", {"search_term": "needle"})
    head, *rows = result.observation.splitlines()
    assert "Found 3 matches" in head
    assert rows == ["./src/a.py (2 matches)", "./src/deep/b.py (1 matches)"]
    below = call(context, "search", {"search_term": "needle", "path": "src/deep"}).observation
    assert below.splitlines()[1:] == ["./src/deep/b.py (1 matches)"]
    absolute = call(context, "search", {"search_term": "needle", "path": f"{context.workspace}/src"})
    assert absolute.observation.splitlines()[1:] == rows


def test_a_folders_search_takes_the_term_as_it_is_written(context: ToolContext) -> None:
    put(context, "a.py", "x = f(a.b)[0]  # $1 'q' \\n -e\n")
    put(context, "b.py", "x = f(aXb)0\n")
    for term in ("f(a.b)[0]", "$1 'q' \\n", "-e"):
        rows = call(context, "search", {"search_term": term}).observation.splitlines()[1:]
        assert rows == ["./a.py (1 matches)"], term
    assert not call(context, "search", {"search_term": "F(A.B)"}).observation.splitlines()[1:]


def test_a_file_gives_numbered_lines_by_a_basic_expression(context: ToolContext) -> None:
    put(context, "notes.txt", "one\ntwo needle\nthree\nNeedle\nneedles\n")
    result = call(context, "search", {"search_term": "needle", "path": "notes.txt"})
    assert result.observation.splitlines()[1:] == ["2:two needle", "5:needles"]
    assert not result.failed
    by_expression = call(context, "search", {"search_term": "^t.*e$", "path": "notes.txt"})
    assert by_expression.observation.splitlines()[1:] == ["2:two needle", "3:three"]
    put(context, "latin.txt", b"caf\xe9 needle\n")
    latin = call(context, "search", {"search_term": "needle", "path": "latin.txt"})
    assert latin.observation.splitlines()[1:] == ["1:caf\ufffd needle"]
    dashed = call(context, "search", {"search_term": "-n", "path": "notes.txt"})
    assert not dashed.failed
    assert "No lines" in dashed.observation


def test_hidden_things_and_other_files_are_left_out(context: ToolContext) -> None:
    for path in (".git/a.py", "src/.hidden.py", "src/.venv/b.py", "notes.txt", "c.pyi", "d.py"):
        put(context, path, "needle\n")
    rows = call(context, "search", {"search_term": "needle"}).observation.splitlines()[1:]
    assert rows == ["./d.py (1 matches)"]
    everything = call(context, "search", {"search_term": "needle"}, python_only=False).observation
    assert everything.splitlines()[1:] == [
        "./c.pyi (1 matches)",
        "./d.py (1 matches)",
        "./notes.txt (1 matches)",
    ]


def test_more_than_a_hundred_files_are_counted_and_not_listed(context: ToolContext) -> None:
    shell(context, "for n in $(seq 100); do echo needle > $n.py; done")
    assert len(call(context, "search", {"search_term": "needle"}).observation.splitlines()) == 101
    put(context, "more.py", "needle")
    result = call(context, "search", {"search_term": "needle"})
    assert "101" in result.observation
    assert "arrow" in result.observation
    assert len(result.observation.splitlines()) == 1
    few = call(context, "search", {"search_term": "needle", "path": "more.py"}, files=1)
    assert few.observation.splitlines()[1:] == ["1:needle"]


def test_no_match_is_said_and_is_no_failure(context: ToolContext) -> None:
    put(context, "a.py", "hay\n")
    for path in (".", "a.py", ""):
        result = call(context, "search", {"search_term": "needle", "path": path})
        assert not result.failed
        assert "needle" in result.observation
        assert len(result.observation.splitlines()) == 1


def test_links_pipes_binary_and_closed_files_do_not_stop_a_search(context: ToolContext) -> None:
    put(context, "real/a.py", "needle\n")
    put(context, "real/binary.py", b"\0\xffneedle\n")
    put(context, "real/latin.py", b"caf\xe9 needle\n")
    put(context, "real/odd name\t.py", "needle\n")
    put(context, "closed.py", "needle\n")
    shell(
        context,
        "ln -s real/a.py link.py; ln -s real around; ln -s around/none.py broken.py; ln -s . real/loop.py;"
        " mkfifo pipe.py; ln -s pipe.py topipe.py; chmod 000 closed.py",
    )
    result = call(context, "search", {"search_term": "needle"})
    rows = [row for row in result.observation.splitlines()[1:] if "closed" not in row]
    assert rows == [
        "./link.py (1 matches)",
        "./real/a.py (1 matches)",
        "./real/binary.py (1 matches)",
        "./real/latin.py (1 matches)",
        "./real/odd name\t.py (1 matches)",
    ]
    through = call(context, "search", {"search_term": "needle", "path": "around"}).observation
    assert "./around/a.py (1 matches)" in through
    assert call(context, "search", {"search_term": "needle", "path": "real/binary.py"}).observation


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"search_term": ""},
        {"search_term": 7},
        {"search_term": "a\nb"},
        {"search_term": "a\0b"},
        {"search_term": "a", "path": "none"},
        {"search_term": "a", "path": "no\0ne"},
        {"search_term": "a", "path": ["x"]},
        {"search_term": "[", "path": "a.py"},
    ],
)
def test_what_cannot_be_searched_gets_a_sentence(context: ToolContext, arguments: dict[str, object]) -> None:
    put(context, "a.py", "[\n")
    result = call(context, "search", arguments)
    assert result.failed
    assert result.observation.startswith("ERROR: ")
    assert len(result.observation) < 400


def test_a_search_that_the_lab_breaks_off_is_no_answer(context: ToolContext) -> None:
    put(context, "a.py", "needle\n")
    context.stop.set(ExitReason.CANCELLED)
    for executor, arguments in (
        ("search", {"search_term": "needle"}),
        ("search", {"search_term": "needle", "path": "a.py"}),
        ("file_editor", {"command": "view", "path": "."}),
    ):
        result = call(context, executor, arguments)
        # Only a command that was faster than the stop has an answer.
        assert result.interrupted or "a.py" in result.observation
        assert not result.failed


def test_a_known_secret_is_not_shown(context: ToolContext) -> None:
    secret = "xyzzy-0123456789abcdef"
    context.redactor = Redactor({"MY_KEY": secret})
    put(context, "a.py", f"key = '{secret}'\n")
    assert "[redacted: MY_KEY]" in call(context, "search", {"search_term": "key", "path": "a.py"}).observation
    assert secret not in call(context, "search", {"search_term": secret}).observation
