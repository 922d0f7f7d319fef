"""What file_editor and str_replace_editor have in common: files, bytes, and taking edits back."""

from __future__ import annotations

import pytest

from lab.engine.llm.base import JSONObject
from lab.engine.preparing import prepare_workspace
from lab.engine.redact import Redactor
from lab.engine.stop import StopSignal
from lab.engine.tools.base import ToolContext, ToolResult
from lab.engine.workspace import WorkspaceTracker, restore
from tests.engine.conftest import MakeTask, Start
from tests.engine.tools.using import call, got, put, shell

BOTH = pytest.mark.parametrize("editor", ["file_editor", "str_replace_editor"])


@pytest.fixture(autouse=True)
def _no_history(context: ToolContext) -> None:
    shell(context, "rm -rf $HOME/.lab-edits")


def edit(
    context: ToolContext, editor: str, command: str, path: str = "a.py", **arguments: object
) -> ToolResult:
    given: JSONObject = {"command": command, "path": path, **arguments}
    return call(context, editor, given)


@BOTH
@pytest.mark.parametrize("path", ["src/a.py", "./src/../src/a.py", "{workspace}/src/a.py"])
def test_paths_are_absolute_or_start_at_the_workspace(context: ToolContext, editor: str, path: str) -> None:
    put(context, "src/a.py", "one\n")
    path = path.format(workspace=context.workspace)
    assert edit(context, editor, "view", path).observation.endswith("one")
    assert path in edit(context, editor, "view", path).observation
    assert not edit(context, editor, "str_replace", path, old_str="one", new_str="two").failed
    assert got(context, "src/a.py") == b"two\n"


@BOTH
def test_a_replacement_needs_exactly_one_match(context: ToolContext, editor: str) -> None:
    put(context, "a.py", "x = 1\ny = 1\nx = 2\n")
    none = edit(context, editor, "str_replace", old_str="z", new_str="q")
    assert none.failed
    assert "a.py" in none.observation
    many = edit(context, editor, "str_replace", old_str="x = ", new_str="q = ")
    assert many.failed
    assert "2 times" in many.observation
    assert "lines 1, 3" in many.observation
    assert edit(context, editor, "str_replace", old_str="", new_str="q").failed
    put(context, "many.py", "x\n" * 1000)
    many = edit(context, editor, "str_replace", "many.py", old_str="x", new_str="q")
    assert "1000 times" in many.observation
    assert "19, 20, …" in many.observation
    assert got(context, "a.py") == b"x = 1\ny = 1\nx = 2\n"


@BOTH
def test_a_replacement_without_a_new_text_removes_the_old(context: ToolContext, editor: str) -> None:
    put(context, "a.py", "one\ntwo\n")
    assert not edit(context, editor, "str_replace", old_str="one\n").failed
    assert got(context, "a.py") == b"two\n"


@BOTH
def test_an_edit_shows_four_lines_above_and_below(context: ToolContext, editor: str) -> None:
    put(context, "a.py", "".join(f"line {number}\n" for number in range(1, 31)))
    shown = edit(context, editor, "str_replace", old_str="line 15", new_str="new\nlines").observation
    numbers = [row.split("\t")[0].strip() for row in shown.splitlines() if "\t" in row]
    assert numbers == [str(number) for number in range(11, 21)]
    assert "    15\tnew\n    16\tlines\n    17\tline 16\n" in shown
    shown = edit(context, editor, "insert", insert_line=2, new_str="more").observation
    numbers = [row.split("\t")[0].strip() for row in shown.splitlines() if "\t" in row]
    assert numbers == [str(number) for number in range(1, 8)]
    assert "     2\tline 2\n     3\tmore\n     4\tline 3\n" in shown


@BOTH
@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("a\nb\n", 0, "new\na\nb\n"),
        ("a\nb\n", 1, "a\nnew\nb\n"),
        ("a\nb\n", "2", "a\nb\nnew\n"),
        ("a\nb", 2, "a\nb\nnew"),
        ("", 0, "new\n"),
    ],
)
def test_insert_puts_lines_after_the_one_named(
    context: ToolContext, editor: str, before: str, line: object, after: str
) -> None:
    put(context, "a.py", before)
    assert not edit(context, editor, "insert", insert_line=line, new_str="new").failed
    assert got(context, "a.py").decode() == after


@BOTH
@pytest.mark.parametrize("line", [-1, 3, "many", None])
def test_insert_outside_of_the_file_says_what_is_possible(
    context: ToolContext, editor: str, line: object
) -> None:
    put(context, "a.py", "a\nb\n")
    result = edit(context, editor, "insert", insert_line=line, new_str="new")
    assert result.failed
    assert (
        "[0, 2]" in result.observation or "insert_line" in result.observation or "int()" in result.observation
    )
    assert got(context, "a.py") == b"a\nb\n"


@BOTH
def test_create_makes_a_file_and_overwrites_none(context: ToolContext, editor: str) -> None:
    made = edit(context, editor, "create", "new.txt", file_text="one\n")
    assert not made.failed
    assert "new.txt" in made.observation
    again = edit(context, editor, "create", "new.txt", file_text="two\n")
    assert again.failed
    assert edit(context, editor, "create", ".", file_text="two\n").failed
    lost = edit(context, editor, "create", "no/such/folder.txt", file_text="")
    assert lost.failed
    assert f"{context.workspace}/no/such" in lost.observation
    assert got(context, "new.txt") == b"one\n"
    assert shell(context, "ls") == "new.txt\n"


@BOTH
def test_undo_goes_back_edit_by_edit_and_then_says_that_none_is_left(
    context: ToolContext, editor: str
) -> None:
    put(context, "a.py", "zero\n")
    put(context, "b.py", "other\n")
    edit(context, editor, "str_replace", old_str="zero", new_str="one")
    edit(context, editor, "insert", insert_line=1, new_str="two")
    edit(context, editor, "str_replace", "b.py", old_str="other", new_str="changed")
    back = edit(context, editor, "undo_edit")
    assert not back.failed
    assert "     1\tone" in back.observation
    assert got(context, "a.py") == b"one\n"
    assert not edit(context, editor, "undo_edit", f"{context.workspace}/a.py").failed
    assert got(context, "a.py") == b"zero\n"
    assert edit(context, editor, "undo_edit").failed
    assert got(context, "b.py") == b"changed\n"


@BOTH
def test_undo_lives_in_the_repository_where_no_patch_sees_it(context: ToolContext, editor: str) -> None:
    shell(context, "git init -q .")
    put(context, "a.py", "zero\n")
    edit(context, editor, "str_replace", old_str="zero", new_str="one")
    assert shell(context, "ls .git/lab-edits | wc -l").strip() == "1"
    assert shell(context, "git status --porcelain --ignored") == "?? a.py\n"
    assert not edit(context, editor, "undo_edit").failed
    assert got(context, "a.py") == b"zero\n"
    assert shell(context, "ls .git/lab-edits; ls -a $HOME | grep lab-edits || true") == ""


@BOTH
def test_edits_are_undone_in_a_run_that_continues_in_another_sandbox(
    start: Start, make_task: MakeTask, editor: str
) -> None:
    task = make_task({"a.py": "zero\n"})
    first, second = start(), start()
    prepare_workspace(first, task)
    tracker = WorkspaceTracker(first, task)
    tracker.baseline()
    context = ToolContext(sandbox=first, stop=StopSignal())
    archives = []
    for old, new in (("zero", "one"), ("one", "two")):
        edit(context, editor, "str_replace", old_str=old, new_str=new)
        delta = tracker.changes()
        assert [change.path for change in delta.changes] == ["a.py"]
        archives.append(delta.archive or b"")
    prepare_workspace(second, task)
    restore(second, archives, task=task)
    context = ToolContext(sandbox=second, stop=StopSignal())
    for text in (b"one\n", b"zero\n"):
        assert not edit(context, editor, "undo_edit").failed
        assert got(context, "a.py") == text
    assert edit(context, editor, "undo_edit").failed


@BOTH
def test_without_a_repository_undo_lives_in_the_home_folder(context: ToolContext, editor: str) -> None:
    put(context, "a.py", "zero\n")
    edit(context, editor, "str_replace", old_str="zero", new_str="one")
    assert shell(context, "ls -A") == "a.py\n"
    assert not edit(context, editor, "undo_edit").failed
    assert got(context, "a.py") == b"zero\n"


def test_the_history_keeps_the_newest_fifty_edits(context: ToolContext) -> None:
    shell(context, "mkdir .git")
    put(context, "a.py", "<0>")
    for number in range(52):
        edit(context, "file_editor", "str_replace", old_str=f"<{number}>", new_str=f"<{number + 1}>")
    undone = 0
    while not edit(context, "file_editor", "undo_edit").failed:
        undone += 1
    assert undone == 50
    assert got(context, "a.py") == b"<2>"


def test_the_history_stays_below_five_megabytes(context: ToolContext) -> None:
    shell(context, "mkdir .git")
    put(context, "a.py", "<0>" + "long\n" * 180_000)
    for number in range(7):
        edit(context, "file_editor", "str_replace", old_str=f"<{number}>", new_str=f"<{number + 1}>")
    assert int(shell(context, "cat .git/lab-edits/* | wc -c")) <= 5_000_000
    undone = 0
    while not edit(context, "file_editor", "undo_edit").failed:
        undone += 1
    assert undone == 5
    assert got(context, "a.py").startswith(b"<2>")


def test_an_edit_of_a_file_too_large_to_keep_forgets_what_undo_would_skip_to(context: ToolContext) -> None:
    shell(context, "mkdir .git")
    put(context, "a.py", "small")
    edit(context, "file_editor", "str_replace", old_str="small", new_str="<large>" * 200_000)
    put(context, "a.py", "<large>" * 200_000 + "!")
    edit(context, "file_editor", "str_replace", old_str="!", new_str="")
    assert edit(context, "file_editor", "undo_edit").failed
    assert got(context, "a.py") == b"<large>" * 200_000


@BOTH
def test_carriage_returns_stay_and_are_not_shown(context: ToolContext, editor: str) -> None:
    put(context, "a.py", b"one\r\ntwo\r\nthree\r\n")
    assert "\r" not in edit(context, editor, "view").observation
    edit(context, editor, "str_replace", old_str="one\ntwo", new_str="1\n2")
    edit(context, editor, "insert", insert_line=3, new_str="four")
    assert got(context, "a.py") == b"1\r\n2\r\nthree\r\nfour\r\n"
    edit(context, editor, "undo_edit")
    edit(context, editor, "undo_edit")
    assert got(context, "a.py") == b"one\r\ntwo\r\nthree\r\n"


@BOTH
def test_where_line_ends_are_mixed_all_others_stay(context: ToolContext, editor: str) -> None:
    put(context, "a.py", b"one\r\ntwo\r\nthree\nfour\r\n")
    assert not edit(context, editor, "str_replace", old_str="one\ntwo", new_str="1\n2").failed
    assert got(context, "a.py") == b"1\r\n2\r\nthree\nfour\r\n"
    assert "\r" not in edit(context, editor, "view").observation


@BOTH
def test_bytes_that_are_no_text_stay_where_they_are(context: ToolContext, editor: str) -> None:
    put(context, "a.py", b"caf\xe9 = 1\nx = 2\n")
    assert "caf\ufffd = 1" in edit(context, editor, "view").observation
    shown = edit(context, editor, "str_replace", old_str="x = 2", new_str="x = '\ud800\u00e9'")
    assert "caf\ufffd = 1" in shown.observation
    assert got(context, "a.py") == b"caf\xe9 = 1\nx = '?\xc3\xa9'\n"


@BOTH
def test_what_no_editor_can_take_is_an_answer_and_changes_nothing(context: ToolContext, editor: str) -> None:
    put(context, "binary.py", b"a\0b")
    put(context, "closed.py", "x")
    shell(context, "mkfifo pipe.py; mkdir folder.py; ln -s loop.py loop.py; chmod 000 closed.py")
    shell(context, "head -c 11000000 /dev/zero | tr '\\0' x > huge.py")
    paths = ["binary.py", "pipe.py", "folder.py", "loop.py", "huge.py", "missing.py", "binary.py/x.py"]
    if shell(context, "cat closed.py > /dev/null 2>&1 || echo closed"):
        paths.append("closed.py")
    for path in paths:
        for command in ("view", "str_replace", "insert", "undo_edit"):
            if (command, path) == ("view", "folder.py"):
                continue
            result = edit(context, editor, command, path, old_str="x", new_str="y", insert_line=0)
            assert result.failed, (command, path, result.observation)
            assert path.split("/")[0] in result.observation
            assert len(result.observation) < 500
    shell(context, "chmod 600 closed.py")
    assert got(context, "binary.py") == b"a\0b"
    assert got(context, "closed.py") == b"x"


def test_of_a_file_of_nothing_but_line_ends_only_as_much_is_numbered_as_is_kept(context: ToolContext) -> None:
    put(context, "a.txt", "\n" * 5_000_000)
    shown = edit(context, "str_replace_editor", "view", "a.txt").observation
    assert len(shown) < 2_000_000
    assert shown.endswith(" more lines]")
    last = edit(context, "str_replace_editor", "view", "a.txt", view_range=[4_999_999, -1]).observation
    assert last.splitlines()[1:] == ["4999999\t", "5000000\t"]


@BOTH
def test_links_are_followed_and_stay_links(context: ToolContext, editor: str) -> None:
    put(context, "src/a.py", "one\n")
    shell(context, "ln -s src/a.py link.py; ln -s src folder; ln -s nowhere.py dangling.py")
    assert not edit(context, editor, "str_replace", "link.py", old_str="one", new_str="two").failed
    assert not edit(context, editor, "str_replace", "folder/a.py", old_str="two", new_str="three").failed
    assert got(context, "src/a.py") == b"three\n"
    assert shell(context, "readlink link.py folder") == "src/a.py\nsrc\n"
    assert edit(context, editor, "view", "dangling.py").failed
    assert "folder/a.py" in edit(context, editor, "view", "folder").observation


@BOTH
def test_a_file_that_cannot_be_written_keeps_no_edit_to_undo(context: ToolContext, editor: str) -> None:
    shell(context, "mkdir .git")
    result = edit(context, editor, "str_replace", "/proc/version", old_str="Linux version", new_str="two")
    assert result.failed
    assert "/proc/version" in result.observation
    assert shell(context, "ls .git/lab-edits") == ""
    assert edit(context, editor, "undo_edit", "/proc/version").failed


@BOTH
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": "view"},
        {"command": "delete", "path": "a.py"},
        {"command": "view", "path": "a\0.py"},
        {"command": "view", "path": 7},
        {"command": ["view"], "path": "a.py"},
        {"command": "create", "path": "b.py"},
        {"command": "create", "path": "b.py", "file_text": {"x": 1}},
        {"command": "str_replace", "path": "a.py", "new_str": "x"},
        {"command": "insert", "path": "a.py", "insert_line": 1},
        {"command": "insert", "path": "a.py", "insert_line": [1], "new_str": "x"},
        {"command": "view", "path": "a.py", "view_range": [1]},
        {"command": "view", "path": "a.py", "view_range": "a few"},
        {"command": "view", "path": "a.py", "view_range": [1, "last"]},
        {"command": "view", "path": "a.py", "view_range": {"from": 1}},
        {"command": "view", "path": ".", "view_range": [1, 2]},
    ],
)
def test_arguments_that_make_no_sense_get_a_sentence(
    context: ToolContext, editor: str, arguments: JSONObject
) -> None:
    put(context, "a.py", "one\n")
    result = call(context, editor, arguments)
    assert result.failed
    assert 0 < len(result.observation) < 400
    assert got(context, "a.py") == b"one\n"
    assert shell(context, "ls") == "a.py\n"


@BOTH
@pytest.mark.parametrize(
    ("span", "lines"),
    [
        ([2, 3], ["b", "c"]),
        ([3, -1], ["c", "d"]),
        ("[1, 1]", ["a"]),
        ("[ 4 , 4 ]", ["d"]),
        (["2", "2"], ["b"]),
        ([], ["a", "b", "c", "d"]),
    ],
)
def test_view_range_counts_from_one_and_may_be_text(
    context: ToolContext, editor: str, span: object, lines: list[str]
) -> None:
    put(context, "a.py", "a\nb\nc\nd\n")
    shown = edit(context, editor, "view", view_range=span).observation.splitlines()[1:]
    assert [row[-1] for row in shown] == lines


@BOTH
@pytest.mark.parametrize("span", [[0, 2], [5, 5], [3, 2], [1, 5], [2, -2]])
def test_view_range_outside_of_the_file_says_how_long_it_is(
    context: ToolContext, editor: str, span: list[int]
) -> None:
    put(context, "a.py", "a\nb\nc\nd\n")
    result = edit(context, editor, "view", view_range=span)
    assert result.failed
    assert "4 lines" in result.observation


@BOTH
def test_a_folder_is_listed_two_levels_deep_without_hidden_things(context: ToolContext, editor: str) -> None:
    for path in (
        "src/a.py",
        "src/deep/b.py",
        "src/deep/deeper/c.py",
        ".git/config",
        "src/.hidden.py",
        "top.py",
    ):
        put(context, path, "")
    shown = edit(context, editor, "view", ".").observation.splitlines()[1:]
    assert shown == [".", "./src", "./src/a.py", "./src/deep", "./top.py"]
    absolute = edit(context, editor, "view", f"{context.workspace}/src/").observation.splitlines()[1:]
    below = f"{context.workspace}/src"
    assert absolute == [below, f"{below}/a.py", f"{below}/deep", f"{below}/deep/b.py", f"{below}/deep/deeper"]


@BOTH
def test_a_known_secret_is_not_shown_and_not_changed(context: ToolContext, editor: str) -> None:
    secret = "xyzzy-0123456789abcdef"
    context.redactor = Redactor({"MY_KEY": secret})
    put(context, "a.py", f"key = '{secret}'\nx = 1\n")
    assert secret not in edit(context, editor, "view").observation
    shown = edit(context, editor, "str_replace", old_str="x = 1", new_str="x = 2").observation
    assert "[redacted: MY_KEY]" in shown
    assert got(context, "a.py").decode() == f"key = '{secret}'\nx = 2\n"
    assert secret not in edit(context, editor, "view", f"{secret}.py").observation
