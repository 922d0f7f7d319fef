"""file_editor: what R2E-Gym's editor shows, refuses and cuts."""

from __future__ import annotations

import pytest

from lab.engine.tools.base import ToolContext
from lab.engine.tools.file_editor import CLIPPED
from tests.engine.tools.using import call, got, put

# 120 lines: a class with a long docstring, and methods short and long.
LONG = (
    "import os\n\n\nclass Thing:\n"
    + '    """What it is.\n\n    At length,\n    and more.\n    """\n\n'
    + "    def short(self):\n        return 1\n\n"
    + "    def long(self):\n"
    + "".join(f"        x{number} = {number}\n" for number in range(106))
)


def test_a_short_python_file_is_shown_whole(context: ToolContext) -> None:
    put(context, "a.py", "x = 1\n\n\ty = 2\n")
    shown = call(context, "file_editor", {"command": "view", "path": "a.py"})
    assert shown.observation == "Here is a.py with line numbers:\n     1 x = 1\n     2 \n     3 \ty = 2"
    assert not shown.failed


def test_a_file_of_a_hundred_and_ten_lines_is_whole_and_one_more_is_condensed(context: ToolContext) -> None:
    body = "def f():\n" + "    x = 1\n" * 109
    put(context, "a.py", body)
    put(context, "b.py", body + "    x = 1\n")
    whole = call(context, "file_editor", {"command": "view", "path": "a.py"}).observation
    assert "   110     x = 1" in whole
    condensed = call(context, "file_editor", {"command": "view", "path": "b.py"}).observation
    assert condensed.splitlines()[1:] == ["     1 def f():", "     2 ... lines 2-111 left out ..."]
    more = call(context, "file_editor", {"command": "view", "path": "b.py"}, condense_above=111).observation
    assert "   111     x = 1" in more


def test_the_skeleton_keeps_signatures_short_bodies_and_line_numbers(context: ToolContext) -> None:
    put(context, "a.py", LONG)
    shown = call(context, "file_editor", {"command": "view", "path": "a.py"}).observation
    assert shown.splitlines()[1:] == [
        "     1 import os",
        "     2 ",
        "     3 ",
        "     4 class Thing:",
        '     5     """What it is.',
        "     6 ... lines 6-8 left out ...",
        '     9     """',
        "    10 ",
        "    11     def short(self):",
        "    12         return 1",
        "    13 ",
        "    14     def long(self):",
        "    15 ... lines 15-120 left out ...",
    ]


def test_a_range_shows_the_lines_themselves_and_concise_condenses_them(context: ToolContext) -> None:
    put(context, "a.py", LONG)
    given = {"command": "view", "path": "a.py", "view_range": [14, 16]}
    assert call(context, "file_editor", given).observation.splitlines()[1:] == [
        "    14     def long(self):",
        "    15         x0 = 0",
        "    16         x1 = 1",
    ]
    condensed = call(context, "file_editor", {**given, "concise": "True"}).observation
    assert condensed.splitlines()[1:] == [
        "    14     def long(self):",
        "    15 ... lines 15-120 left out ...",
    ]


@pytest.mark.parametrize("value", [True, "true", "True", 1])
def test_concise_condenses_a_short_file_too(context: ToolContext, value: object) -> None:
    put(context, "a.py", "def f():\n" + "    x = 1\n" * 4)
    shown = call(context, "file_editor", {"command": "view", "path": "a.py", "concise": value}).observation
    assert shown.splitlines()[1:] == ["     1 def f():", "     2 ... lines 2-5 left out ..."]


def test_a_broken_long_file_is_told_apart_and_can_be_seen_by_range(context: ToolContext) -> None:
    put(context, "a.py", "x = 1\n" * 150 + "def (\n")
    result = call(context, "file_editor", {"command": "view", "path": "a.py"})
    assert result.failed
    assert "line 151" in result.observation
    assert "view_range" in result.observation
    given = {"command": "view", "path": "a.py", "view_range": [151, 151]}
    assert call(context, "file_editor", given).observation.endswith("   151 def (")


def test_only_python_files_are_viewed_and_listed_unless_the_harness_says_so(context: ToolContext) -> None:
    put(context, "notes.md", "text\n")
    put(context, "a.py", "")
    put(context, "sub/b.txt", "")
    view = {"command": "view", "path": "notes.md"}
    refused = call(context, "file_editor", view)
    assert refused.failed
    assert refused.observation.startswith("ERROR: Only Python files")
    assert call(context, "file_editor", view, python_only=False).observation.endswith("     1 text")
    folder = {"command": "view", "path": "."}
    assert call(context, "file_editor", folder).observation.splitlines()[1:] == [".", "./a.py", "./sub"]
    everything = call(context, "file_editor", folder, python_only=False).observation
    assert everything.splitlines()[1:] == [".", "./a.py", "./notes.md", "./sub", "./sub/b.txt"]
    # Editing is another thing than viewing.
    given = {"command": "str_replace", "path": "notes.md", "old_str": "text", "new_str": "words"}
    assert not call(context, "file_editor", given).failed


def test_an_answer_is_clipped_at_ten_thousand_characters_with_a_hint(context: ToolContext) -> None:
    put(context, "a.py", "x" * 20_000)
    result = call(context, "file_editor", {"command": "view", "path": "a.py"})
    assert result.observation.endswith("x" + CLIPPED)
    assert len(result.observation) == 10_000 + len(CLIPPED)
    assert CLIPPED.startswith("<response clipped>")
    assert result.whole is not None
    assert result.dropped == len(result.whole) - 10_000
    given = {"command": "str_replace", "path": "a.py", "old_str": "x" * 20_000, "new_str": "y" * 20_000}
    assert len(call(context, "file_editor", given).observation) == 10_000 + len(CLIPPED)
    whole = call(context, "file_editor", {"command": "view", "path": "a.py"}, clip_characters=0)
    assert "clipped" not in whole.observation
    shorter = call(context, "file_editor", {"command": "view", "path": "a.py"}, clip_characters=50)
    assert len(shorter.observation) == 50 + len(CLIPPED)


def test_with_linting_an_edit_that_breaks_a_python_file_is_not_made(context: ToolContext) -> None:
    put(context, "a.py", "x = 1\n")
    put(context, "a.txt", "x = 1\n")
    broken = {"command": "str_replace", "path": "a.py", "old_str": "1", "new_str": "("}
    refused = call(context, "file_editor", broken, linting=True)
    assert refused.failed
    assert "line 1" in refused.observation
    assert got(context, "a.py") == b"x = 1\n"
    insert = {"command": "insert", "path": "a.py", "insert_line": 1, "new_str": "def ("}
    assert call(context, "file_editor", insert, linting=True).failed
    create = {"command": "create", "path": "b.py", "file_text": "def ("}
    assert call(context, "file_editor", create, linting=True).failed
    assert call(context, "file_editor", {"command": "view", "path": "b.py"}).failed
    assert not call(context, "file_editor", {**broken, "path": "a.txt"}, linting=True).failed
    assert not call(context, "file_editor", {**broken, "new_str": "2"}, linting=True).failed
    assert not call(context, "file_editor", {**broken, "old_str": "2"}).failed
    assert got(context, "a.py") == b"x = (\n"


def test_undoing_the_making_of_a_file_leaves_it_empty(context: ToolContext) -> None:
    call(context, "file_editor", {"command": "create", "path": "a.py", "file_text": "x = 1\n"})
    assert not call(context, "file_editor", {"command": "undo_edit", "path": "a.py"}).failed
    assert got(context, "a.py") == b""


def test_problems_begin_with_the_word_error(context: ToolContext) -> None:
    put(context, "folder/a.py", "x\n")
    for given in (
        {"command": "view", "path": "none.py"},
        {"command": "str_replace", "path": "folder", "old_str": "x"},
        {"command": "create", "path": "folder/a.py", "file_text": ""},
        {"path": "folder/a.py"},
        {"command": "view"},
    ):
        assert call(context, "file_editor", given).observation.startswith("ERROR: ")
