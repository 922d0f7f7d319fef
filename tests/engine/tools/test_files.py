"""Read, Write, Edit and Glob as the model meets them."""

from __future__ import annotations

import pytest

from lab.engine.tools.base import ToolContext
from tests.engine.tools.conftest import Run


def put(context: ToolContext, path: str, text: str | bytes) -> None:
    context.sandbox.write(path, text.encode() if isinstance(text, str) else text)


def got(context: ToolContext, path: str) -> bytes:
    return context.sandbox.read(path)


def test_read_shows_the_path_and_then_numbered_lines(context: ToolContext, run: Run) -> None:
    put(context, "src/a.py", "one\n  two\n\nfour")
    result = run("read", {"file_path": "src/a.py"})
    assert result.observation == "src/a.py\n1. one\n2.   two\n3. \n4. four"
    assert not result.failed


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"offset": 2}, "2. b\n3. c"),
        ({"offset": 2, "limit": 1}, "2. b"),
        ({"offset": 0, "limit": 1}, "1. a"),
        ({"offset": -5}, "1. a\n2. b\n3. c"),
        ({"limit": 0}, "1. a\n2. b\n3. c"),
        ({"limit": -1}, "1. a\n2. b\n3. c"),
        ({"offset": "2", "limit": "1"}, "2. b"),
    ],
)
def test_read_takes_a_range_counted_from_one(
    context: ToolContext, run: Run, arguments: dict[str, object], lines: str
) -> None:
    put(context, "a", "a\nb\nc\n")
    assert run("read", {"file_path": "a", **arguments}).observation == f"a\n{lines}"


@pytest.mark.parametrize(
    ("tool", "arguments", "key"),
    [
        ("read", {"file_path": ""}, "file_path"),
        ("write", {"path": "", "content": "x"}, "file_path"),
        ("bash", {"command": ""}, "command"),
        ("glob", {"pattern": ""}, "pattern"),
    ],
)
def test_an_empty_argument_counts_as_missing(
    run: Run, tool: str, arguments: dict[str, object], key: str
) -> None:
    assert run(tool, arguments).observation == f"ValueError: missing required argument: {key}"


def test_read_past_the_end_and_of_an_empty_file_shows_the_path_alone(context: ToolContext, run: Run) -> None:
    put(context, "a", "a\n")
    put(context, "empty", "")
    assert run("read", {"file_path": "a", "offset": 9}).observation == "a"
    assert run("read", {"file_path": "empty"}).observation == "empty"


def test_paths_inside_are_shown_relative_and_outside_as_given(context: ToolContext, run: Run) -> None:
    put(context, "src/a", "x")
    inside = f"{context.workspace}/src/../src/a"
    assert run("read", {"file_path": inside}).observation == "src/a\n1. x"
    assert run("read", {"path": "./src/a"}).observation == "src/a\n1. x"
    assert run("read", {"file_path": "", "path": "src/a"}).observation == "src/a\n1. x"
    outside = run("read", {"file_path": "/etc/passwd", "limit": 1}).observation
    assert outside.startswith("/etc/passwd\n1. ")


def test_a_tilde_is_the_sandboxs_home(context: ToolContext, run: Run) -> None:
    run("write", {"file_path": "~/note", "content": "hi"})
    assert "STDOUT:\nhi\n" in run("bash", {"command": "cat ~/note; rm ~/note; echo"}).observation


def test_read_replaces_what_is_no_utf8(context: ToolContext, run: Run) -> None:
    put(context, "latin", b"caf\xe9\r\nnext\r\n")
    assert run("read", {"file_path": "latin"}).observation == "latin\n1. caf\ufffd\n2. next"


def test_a_long_file_is_cut_at_the_head_with_the_number_of_dropped_characters(
    context: ToolContext, run: Run
) -> None:
    put(context, "long", "x" * 30_000)
    result = run("read", {"file_path": "long"})
    assert result.observation == "long\n1. " + "x" * 19_992 + "\n[10008 characters truncated]"
    assert result.dropped == 10_008
    assert result.whole == "long\n1. " + "x" * 30_000


@pytest.mark.parametrize(
    ("tool", "arguments", "observation"),
    [
        ("read", {"file_path": "no"}, "FileNotFoundError: [Errno 2] No such file or directory: 'no'"),
        ("read", {"file_path": "."}, "IsADirectoryError: [Errno 21] Is a directory: '.'"),
        ("read", {}, "ValueError: missing required argument: file_path"),
        ("read", {"file_path": 7}, "TypeError: file_path must be a string, not int"),
        ("read", {"file_path": "a\0b"}, "ValueError: embedded null byte"),
        ("read", {"file_path": "f", "offset": "x"}, "ValueError: invalid literal for int()"),
        ("write", {"file_path": "x"}, "ValueError: missing required argument: content"),
        ("write", {"file_path": ".", "content": ""}, "IsADirectoryError: [Errno 21]"),
        ("write", {"file_path": "f/below", "content": ""}, "NotADirectoryError: [Errno 20]"),
        ("edit", {"file_path": "f", "new_string": "b"}, "ValueError: missing required argument: old_string"),
        ("edit", {"file_path": "f", "old_string": "b"}, "ValueError: missing required argument: new_string"),
        ("edit", {"file_path": "no", "old_string": "a", "new_string": ""}, "FileNotFoundError: [Errno 2]"),
        ("glob", {}, "ValueError: missing required argument: pattern"),
        ("bash", {}, "ValueError: missing required argument: command"),
        ("bash", {"command": "a\0b"}, "ValueError: embedded null byte"),
        ("bash", {"command": "ls", "timeout": "soon"}, "ValueError: could not convert string to float"),
    ],
)
def test_an_error_is_an_observation_of_its_type_and_message(
    context: ToolContext, run: Run, tool: str, arguments: dict[str, object], observation: str
) -> None:
    put(context, "f", "text")
    result = run(tool, arguments)
    assert result.observation.startswith(observation)
    assert result.failed


def test_write_makes_folders_overwrites_and_counts_characters(context: ToolContext, run: Run) -> None:
    result = run("write", {"file_path": "new/deep/ä.txt", "content": "äöü"})
    assert result.observation == "Wrote 3 bytes to new/deep/ä.txt"
    run("write", {"file_path": "new/deep/ä.txt", "content": "x"})
    assert got(context, "new/deep/ä.txt") == b"x"


def test_write_keeps_the_mode_of_an_executable(context: ToolContext, run: Run) -> None:
    context.sandbox.write("tool.sh", b"#!/bin/sh\n", mode=0o755)
    run("write", {"file_path": "tool.sh", "content": "#!/bin/sh\necho hi\n"})
    assert run("bash", {"command": "./tool.sh"}).exit_code == 0


def test_edit_replaces_the_only_occurrence(context: ToolContext, run: Run) -> None:
    put(context, "a.py", "x = 1\ny = 2\n")
    result = run("edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 3"})
    assert result.observation == "Edited a.py: 1 replacement"
    assert got(context, "a.py") == b"x = 3\ny = 2\n"


def test_edit_refuses_what_is_not_there_empty_or_ambiguous_and_changes_nothing(
    context: ToolContext, run: Run
) -> None:
    put(context, "a", "x x .")
    assert (
        "was not found in a"
        in run("edit", {"file_path": "a", "old_string": "y", "new_string": "z"}).observation
    )
    assert (
        "must not be empty"
        in run("edit", {"file_path": "a", "old_string": "", "new_string": "z"}).observation
    )
    ambiguous = run("edit", {"file_path": "a", "old_string": "x", "new_string": "z"})
    assert "2 times" in ambiguous.observation
    assert "replace_all" in ambiguous.observation
    # No regular expression: the dot is a dot.
    assert run("edit", {"file_path": "a", "old_string": "...", "new_string": ""}).failed
    assert got(context, "a") == b"x x ."


@pytest.mark.parametrize("word", [True, 1, "1", "true", "YES", "on"])
def test_edit_replaces_every_occurrence_when_asked_in_any_of_leafs_words(
    context: ToolContext, run: Run, word: object
) -> None:
    put(context, "a", "x x x")
    result = run("edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": word})
    assert result.observation == "Edited a: 3 replacements"
    assert got(context, "a") == b"y y y"


@pytest.mark.parametrize("word", [False, "no", "", 0, 2, None])
def test_other_words_do_not_mean_every_occurrence(context: ToolContext, run: Run, word: object) -> None:
    put(context, "a", "x x")
    assert run("edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": word}).failed


def test_edit_leaves_other_bytes_and_line_ends_as_they_are(context: ToolContext, run: Run) -> None:
    put(context, "latin", b"caf\xe9\nold\n")
    run("edit", {"file_path": "latin", "old_string": "old", "new_string": "new"})
    assert got(context, "latin") == b"caf\xe9\nnew\n"
    put(context, "dos", b"a\r\nb\r\nc\r\n")
    run("edit", {"file_path": "dos", "old_string": "a\nb", "new_string": "1\n2"})
    assert got(context, "dos") == b"1\r\n2\r\nc\r\n"


def test_glob_lists_files_only_sorted_and_relative(context: ToolContext, run: Run) -> None:
    for name in ("b.py", "a.py", "src/deep/c.py", ".hidden/d.py", "src/.e.py", "f.txt", "with space/g h.py"):
        put(context, name, "")
    assert run("glob", {"pattern": "**/*.py"}).observation == "a.py\nb.py\nsrc/deep/c.py\nwith space/g h.py"
    assert run("glob", {"pattern": "*"}).observation == "a.py\nb.py\nf.txt"
    assert run("glob", {"pattern": "*.py", "path": "src/deep"}).observation == "src/deep/c.py"
    assert run("glob", {"pattern": ".hidden/*"}).observation == ".hidden/d.py"
    assert run("glob", {"pattern": "**/.*"}).observation == "src/.e.py"
    assert run("glob", {"pattern": "a.py"}).observation == "a.py"
    assert run("glob", {"pattern": f"{context.workspace}/s*/**"}).observation == "src/deep/c.py"


def test_glob_says_so_when_nothing_matches(context: ToolContext, run: Run) -> None:
    assert run("glob", {"pattern": "*.rs"}).observation == "No files matched the pattern."
    assert run("glob", {"pattern": "*.rs", "path": "nowhere"}).observation == "No files matched the pattern."


def test_glob_says_so_when_the_files_could_not_be_listed(context: ToolContext, run: Run) -> None:
    # Longer than any argument of a program may be: find is not even started.
    result = run("glob", {"pattern": f"{'x' * 300_000}/*"})
    assert result.failed
    assert result.observation.startswith("OSError: the files could not be listed (exit code 126)")


def test_glob_follows_links_without_end(context: ToolContext, run: Run) -> None:
    put(context, "real/a.py", "")
    context.sandbox.exec(
        ["/bin/sh", "-c", "ln -s real link; ln -s .. real/up; ln -s nowhere dead"], timeout=10
    )
    assert run("glob", {"pattern": "link/*.py"}).observation == "link/a.py"
    assert "real/a.py" in run("glob", {"pattern": "**/*.py"}).observation


def test_glob_shows_a_thousand_files_and_counts_the_rest(context: ToolContext, run: Run) -> None:
    made = "i=1000; while [ $i -lt 2203 ]; do : > f$i; i=$((i+1)); done"
    context.sandbox.exec(["/bin/sh", "-c", made], timeout=60)
    result = run("glob", {"pattern": "f*"})
    lines = result.observation.split("\n")
    assert len(lines) == 1001
    assert lines[:2] == ["f1000", "f1001"]
    assert lines[-1] == "[203 more files not shown]"
    assert result.whole is not None
    assert result.whole.endswith("f2202")
