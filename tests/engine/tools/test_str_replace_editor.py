"""str_replace_editor: what SWE-agent's editor shows and refuses."""

from __future__ import annotations

from lab.engine.tools.base import ToolContext
from tests.engine.tools.using import call, got, put


def test_any_text_file_is_shown_with_numbers_as_cat_writes_them(context: ToolContext) -> None:
    path = f"{context.workspace}/notes.md"
    put(context, path, "one\n\ttwo\n\nfour")
    shown = call(context, "str_replace_editor", {"command": "view", "path": path}).observation
    head, _, body = shown.partition("\n")
    assert path in head
    assert body == "     1\tone\n     2\t\ttwo\n     3\t\n     4\tfour"
    numbered = context.sandbox.exec(["cat", "-n", path], timeout=30).stdout.text()
    assert body.splitlines() == numbered.splitlines()


def test_a_replacement_by_the_same_text_is_refused(context: ToolContext) -> None:
    put(context, "a.txt", "one\n")
    given = {"command": "str_replace", "path": "a.txt", "old_str": "one", "new_str": "one"}
    result = call(context, "str_replace_editor", given)
    assert result.failed
    assert "same" in result.observation


def test_tabs_stay_tabs_where_an_edit_is_made(context: ToolContext) -> None:
    put(context, "Makefile", "all:\n\techo one\n\techo two\n")
    given = {"command": "str_replace", "path": "Makefile", "old_str": "\techo one", "new_str": "\techo 1"}
    assert not call(context, "str_replace_editor", given).failed
    assert got(context, "Makefile") == b"all:\n\techo 1\n\techo two\n"


def test_what_was_created_is_not_undone_only_its_edits_are(context: ToolContext) -> None:
    call(context, "str_replace_editor", {"command": "create", "path": "fresh.txt", "file_text": "one\n"})
    given = {"command": "insert", "path": "fresh.txt", "insert_line": 1, "new_str": "two"}
    call(context, "str_replace_editor", given)
    undo = {"command": "undo_edit", "path": "fresh.txt"}
    assert not call(context, "str_replace_editor", undo).failed
    assert got(context, "fresh.txt") == b"one\n"
    assert call(context, "str_replace_editor", undo).failed
    assert got(context, "fresh.txt") == b"one\n"


def test_a_large_python_file_is_abbreviated_unless_it_is_broken_or_asked_for_by_lines(
    context: ToolContext,
) -> None:
    body = "def f():\n" + "    x = 'a long line of text'\n" * 600
    put(context, "a.py", body)
    view = {"command": "view", "path": "a.py"}
    shown = call(context, "str_replace_editor", view).observation.splitlines()
    assert shown[1:-1] == ["     1 def f():", "     2 ... lines 2-601 left out ..."]
    by_lines = call(context, "str_replace_editor", {**view, "view_range": [600, 601]}).observation
    assert by_lines.endswith("   601\t    x = 'a long line of text'")
    assert "   601\t" in call(context, "str_replace_editor", view, condense_above=0).observation
    put(context, "a.py", body + "def (\n")
    assert "   602\tdef (" in call(context, "str_replace_editor", view).observation
    put(context, "a.txt", body)
    assert "   601\t" in call(context, "str_replace_editor", {**view, "path": "a.txt"}).observation
