"""The same done through two interfaces is the same action; nothing a model makes up breaks the reading."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.analysis.alignment import Action
from lab.render.actions import Standing, action_of
from lab.render.command_lines import read_line
from lab.render.fold import LogEvent, step_of
from lab.render.normal_form import StoredText, output_of

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOWHERE = Standing()
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"


def event(seq: int, kind: str, **payload: Any) -> LogEvent:
    return LogEvent(seq, 1, 1, kind, NOW, payload)


def started(tool: str, arguments: Any, *, index: int = 1, malformed: str = "", raw: Any = "") -> LogEvent:
    facts = {"malformed": malformed, "raw_arguments": raw}
    return event(
        index, "tool_call_started", index=index, tool=tool, executor="", arguments=arguments, **facts
    )


def ended(output: Any, *, index: int = 1, **facts: Any) -> LogEvent:
    return event(10 + index, "tool_call_finished", index=index, observation=output, **facts)


def action(*events: LogEvent, standing: Standing = NOWHERE) -> Action:
    return action_of(step_of(list(events)), standing).action


def called(tool: str, *, standing: Standing = NOWHERE, **arguments: Any) -> Action:
    return action(started(tool, arguments), standing=standing)


def ran(command: str, *, standing: Standing = NOWHERE) -> Action:
    return called("bash", standing=standing, command=command)


def asked(one: Action) -> tuple[str, str, str]:
    return one.kind, one.subject, one.arguments


@pytest.mark.parametrize(
    "same",
    [
        (
            ran("open src/a.py 12"),
            ran('open "src/a.py" 12'),
            called("open", path="src/a.py", line_number=12),
        ),
        (ran("create b.py"), called("create", filename="b.py")),
        (ran('find_file "a.py" src'), called("find_file", file_name="a.py", dir="src")),
        (ran('search_dir "x y" src'), called("search_dir", search_term="x y", dir="src")),
        (ran("cat src/a.py"), called("Read", file_path="/workspace/src/a.py"), ran("nl -ba ./src/a.py")),
        (
            ran("sed -n '3,9p' a.py"),
            called("Read", file_path="a.py", offset=3, limit=7),
            called("str_replace_editor", command="view", path="/testbed/a.py", view_range=[3, 9]),
            ran("cd /testbed && nl -ba a.py | sed -n 3,9p"),
        ),
        (ran("head -n 20 a.py"), ran("head -20 a.py"), called("Read", file_path="a.py", limit=20)),
        (
            called("Write", file_path="a.py", content="x = 1\ny = 2\n"),
            called("str_replace_editor", command="create", path="/repo/a.py", file_text="x = 1\ny = 2"),
            ran("cat > a.py <<'EOF'\nx = 1\ny = 2  \nEOF"),
        ),
        (
            called("Edit", file_path="a.py", old_string="x", new_string="y", replace_all=False),
            called("str_replace_editor", command="str_replace", path="/app/a.py", old_str="x", new_str="y"),
        ),
        (
            ran("pytest  -q  'tests/a.py'"),
            ran("cd /testbed && pytest -q /testbed/tests/a.py"),
            called("shell", command=["bash", "-lc", "pytest -q tests/a.py"]),
        ),
        (ran("python a.py"), ran("python3 a.py"), ran("cd /testbed && /usr/bin/python3.11 a.py")),
        (ran("python - <<'E'\nx\nE"), ran("python3 - <<'E'\nx\nE")),
    ],
)
def test_the_same_through_several_interfaces_is_the_same_action(same: tuple[Action, ...]) -> None:
    assert len({asked(one) for one in same}) == 1, same


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("python -m pytest a", "pytest a"),
        ("timeout 60 env A=1 python3.11 -m pytest -x -k 'b and c' a", "pytest a"),
        ("A=1 B=2 uv run pytest tests/a.py::test_b", "pytest tests/a.py::test_b"),
        ("grep -rn 'x y' src", "grep x y"),
        ("grep -nC 3 'x y' src/a.py", "grep x y"),
        ("rg -t py 'x y'", "grep x y"),
        ("git grep -n 'x y'", "grep x y"),
        ("find . -type f -name '*.py' | xargs grep -l Clock | head", "grep Clock"),
        ("find . -name a.py", "find a.py"),
        ("find . -name .git -prune -o -not -name 'x*' -type f -name '*.py' -print", "find *.py"),
        ("ls -la /testbed/src", "ls src"),
        ("cd src && ls", "ls src"),
        ("python <<'EOF'\nprint(1)\nEOF", "python <<"),
        ("python - <<EOF\nprint(1)\nEOF", "python <<"),
        ("python3 -c 'print(1)'", "python -c"),
        ("python a.py --fast", "python a.py"),
        ("sed -i 's/a/b/' ./src/a.py", "edit src/a.py"),
        ("echo 'x = 1' >> a.py", "edit a.py"),
        ("echo done; pytest -q", "pytest"),
        ("git --no-pager diff -- a.py", "git diff a.py"),
        ("pip install -e .", "pip install ."),
        ("make clean && make", "make clean && make"),
        ("./bin/test tests/a.py", "bin/test tests/a.py"),
        ("str_replace_editor view /testbed/a.py --view_range 1 9", "read a.py"),
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF", "edit a.py"),
        ("submit", "submit"),
        ("", "bash"),
        ("'", "nothing"),
        ("grep 'a\nb'", "grep a b"),
    ],
)  # fmt: skip
def test_a_command_has_a_verb_and_a_target(command: str, subject: str) -> None:
    assert ran(command).subject == subject


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("awk 'BEGIN {n=0} {print}' a.py > a.py.edited && mv a.py.edited a.py", True),
        ("awk -v n=3 'NR!=n' a.py >a.tmp; mv -f a.tmp ./a.py", True),
        ("cd /testbed && sed 's/x/y/' a.py > /tmp/new && cp /tmp/new a.py && rm /tmp/new", True),
        ("sed 's/x/y/' a.py > /tmp/new && cat /tmp/new > a.py", True),
        (
            "NEW='x' awk 'BEGIN {n=0} {print ENVIRON[\"NEW\"]}' a.py > a.py.edited && cat a.py.edited > a.py "
            "&& rm a.py.edited && echo done || { rm -f a.py.edited; echo 'not once' >&2; false; }",
            True,
        ),
        ("cat a.py | tr a b > a.tmp && mv a.tmp /testbed/a.py", True),
        ("perl -i -pe 's/x/y/' a.py", False),
        ("awk -i inplace '{print}' a.py", False),
    ],
)
def test_a_file_written_beside_and_put_in_place_is_an_edit_of_that_file_alone(
    command: str, reads: bool
) -> None:
    one = ran(command)
    assert (one.kind, one.subject, one.edits) == ("edit", "edit a.py", ("a.py",))
    assert one.reads == (("a.py",) if reads else ())


def test_what_is_written_beside_and_stays_there_is_edited() -> None:
    assert ran("awk '{print}' a.py > b.py").edits == ("b.py",)
    assert ran("awk '{print}' a.py > b.py").subject == "write b.py"
    assert ran("python make.py > b.tmp && mv b.tmp b.py")[1:2] == ("python make.py",)
    assert ran("python make.py > b.tmp && mv b.tmp b.py").edits == ("b.py",)
    assert ran("sed 's/x/y/' a.py > b.py && cp b.py a.py").edits == ("a.py", "b.py")
    assert set(ran("make > b.log && mv a.py c.py").edits) == {"b.log", "a.py", "c.py"}
    assert ran("cat > b.tmp <<'EOF'\nx\nEOF\nmv b.tmp b.py").subject == "write b.py"


def test_the_program_of_awk_is_no_subject() -> None:
    assert ran("awk 'NR<9 {print}' a.py").subject == "read a.py"
    assert ran("awk -F: '{print}' a.py b.py").reads == ("a.py", "b.py")


def test_files_are_named_in_the_workspace() -> None:
    standing = Standing(roots=("/srv/lab-7/work",))
    assert called("Read", standing=standing, file_path="/srv/lab-7/work/src/../a.py").reads == ("a.py",)
    assert called("Read", file_path="/workspace/owner__name__1.2/src/a.py").reads == ("src/a.py",)
    assert called("Read", file_path="/etc/hosts").reads == ("/etc/hosts",)
    assert ran("rm a.py b.py").edits == ("a.py", "b.py")
    assert ran("cp a.py b.py").edits == ("b.py",)
    assert ran("python make.py > out.txt").edits == ("out.txt",)
    assert ran("python make.py 2> /dev/null").edits == ()


def test_where_a_run_goes_first_is_its_workspace() -> None:
    view = step_of([started("bash", {"command": "cd /data/project && cat /data/project/a.py"})])
    first, standing = action_of(view, Standing())
    assert first.reads == ("a.py",)
    assert called("Read", standing=standing, file_path="/data/project/b.py").reads == ("b.py",)
    beside = step_of([started("bash", {"command": "cd /tmp && ls"})])
    assert action_of(beside, Standing()).standing.roots == ()


def test_an_edit_of_lines_is_of_the_file_opened_last() -> None:
    standing = Standing()
    found = []
    for command in (
        "open src/a.py",
        "edit 3:5\nx = 1\nend_of_edit",
        "create b.py",
        "edit 1:1\ny\nend_of_edit",
    ):
        one, standing = action_of(step_of([started("bash", {"command": command})]), standing)
        found.append(one)
    assert [one.edits for one in found] == [(), ("src/a.py",), ("b.py",), ("b.py",)]
    called_so = {"replacement_text": "x = 1", "start_line": 3, "end_line": 5}
    same = called("edit", standing=Standing(opened="src/a.py"), **called_so)
    assert asked(same) == asked(found[1])
    indented = called(
        "edit", standing=Standing(opened="src/a.py"), **{**called_so, "replacement_text": "  x = 1"}
    )
    assert indented.subject == same.subject
    assert indented.arguments != same.arguments


def test_calls_side_by_side_are_one_action() -> None:
    one = action(
        started("Read", {"file_path": "a.py"}),
        started("Bash", {"command": "ls"}, index=2),
        ended("1"),
        ended("2", index=2),
    )
    assert (one.kind, one.subject, one.reads) == ("read", "read a.py + ls .", ("a.py",))
    assert one.result


def test_a_call_that_was_not_understood_is_named_by_its_tool() -> None:
    one = action(started("Bash", {}, malformed="no JSON", raw="{'command"))
    assert (one.subject, one.arguments) == ("Bash not understood", "{'command")


def test_an_answer_is_final_and_an_unusable_reply_is_not() -> None:
    reply = event(1, "model_call_finished", reply={"content": "I am  done."}, joined_calls=0)
    assert action(reply) == Action("final", "answer", "I am done.")
    told = event(2, "harness_message", reason="no_call", detail="no call found")
    assert action(reply, told) == Action("shell", "not understood", "no call found")


def test_a_step_that_has_only_begun_is_pending() -> None:
    assert action(event(1, "model_call_started")).subject == "pending"
    assert action(started("Bash", {"command": "ls"})).result == ""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("7 passed in 0.12s", "7 passed in 1.3s"),
        ("\x1b[32mok\x1b[0m  \n", "ok"),
        ("10%\r100%\r\ndone", "100%\ndone\n\n"),
        ("<Clock at 0x7f03a1b2c3d4>", "<Clock at 0x7f990011aabb>"),
        ("2026-03-01T12:00:01Z start", "2026-03-02T08:00:00Z start"),
        ("-rw-r--r-- 1 a a 9 Mar  1 12:00 a.py", "-rw-r--r-- 1 a a 9 Apr 12 2025 a.py"),
        ("/testbed/a.py:3: error", "a.py:3: error"),
    ],
)
def test_what_differs_each_time_is_no_other_result(first: str, second: str) -> None:
    call = started("Bash", {"command": "x"})
    assert action(call, ended(first)).result == action(call, ended(second)).result
    assert action(call, ended(first)).result != action(call, ended("else")).result


def test_exit_code_and_end_are_part_of_the_result() -> None:
    call = started("Bash", {"command": "x"})
    ends = [
        ended("", exit_code=0),
        ended("", exit_code=1),
        ended("", timed_out=True),
        ended("", failed=True),
        ended("", submitted=True),
        event(9, "tool_call_interrupted", index=1),
    ]
    assert len({action(call, end).result for end in ends}) == len(ends)
    streams = {"stdout": {"text": "a"}, "stderr": {"text": ""}}
    assert action(call, ended("", **streams)).result != action(call, ended("")).result


def test_stored_texts_are_known_by_their_hash() -> None:
    def stored(sha256: str) -> StoredText:
        return StoredText("x = 1", 9_000, None, 9_000, sha256=sha256)

    call = started("Write", {"file_path": "a.py", "content": stored("a")})
    assert asked(action(call)) == ("edit", "write a.py", "#a")
    results = {action(call, ended(stored(name))).result for name in ("b", "b", "c")}
    assert len(results) == 2
    long = started("Bash", {"command": StoredText("cat > a.py <<EOF\nx", 9_000, None, 9_000, sha256="d")})
    assert asked(action(long)) == ("edit", "write a.py", "#d")


def test_keys_are_masked_in_everything_that_may_be_shown() -> None:
    key = "sk-ant-api03-" + "a1B2c3D4e5" * 4
    for one in (
        ran(f"curl -H {key} example.org"),
        called("Read", file_path=f"/workspace/{key}.py"),
        called(f"tool-{key}", query=key),
        called("Bash", command=f"grep {key} a.py"),
    ):
        assert key not in repr(one)


texts = st.text(max_size=60) | st.text("ab/.*'\"\\$<>|&;()\n\t -=:{}[]0", max_size=60)
WORDS = (
    *("cd", "cat", "sed", "-n", "-i", "1,3p", "python", "-m", "pytest", "-c", "<<EOF", "EOF", ">", "a.py"),
    *("|", "&&", "\n", "git", "grep", "-e", "find", "-name", "xargs", "timeout", "5", "env", "A=1", "edit"),
    *(
        "1:2",
        "open",
        "submit",
        "tee",
        "str_replace_editor",
        "view",
        "bash",
        "'",
        '"',
        "\\",
        ";",
        "rm",
        "head",
    ),
)
commands = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=12).map(" ".join)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | commands,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    *("command", "cmd", "path", "file_path", "filename", "content", "file_text", "old_str", "new_string"),
    *("view_range", "offset", "limit", "pattern", "search_term", "dir", "replacement_text", "start_line"),
)
TOOLS = (
    *("Bash", "Read", "Write", "Edit", "Glob", "Grep", "LS", "str_replace_editor", "open", "create", "edit"),
    *("find_file", "search_dir", "search_file", "submit", "finish", "apply_patch", "undo_edit", "think"),
)
arguments = st.dictionaries(st.sampled_from(NAMES) | texts, anything, max_size=5) | st.dictionaries(
    st.just("command"),
    commands | st.sampled_from(("view", "create", "insert")) | st.lists(commands),
    min_size=1,
)


@settings(max_examples=150, deadline=None)
@given(tool=st.sampled_from(TOOLS) | texts, arguments=arguments, output=anything, opened=texts)
def test_whatever_a_model_makes_up_is_an_action(tool: str, arguments: Any, output: Any, opened: str) -> None:
    call = started(tool, arguments)
    one = action(call, ended(output), standing=Standing(("/workspace",), opened))
    assert one.subject
    assert all(sign >= " " for sign in one.subject)
    assert len(one.subject) <= 400
    assert len(one.arguments) <= 400
    assert one == action(call, ended(output), standing=Standing(("/workspace",), opened))


@given(st.text("ab'\" \t$#=/é", max_size=20))
def test_words_are_those_that_a_shell_takes(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        return
    assert list(read_line(text).words) == expected


@pytest.mark.parametrize(
    "command",
    [
        "'" * 4_000,
        "<<A " * 1_000,
        "$(" * 2_000,
        "a|" * 2_000,
        "\\\n" * 2_000,
        "cd " * 1_000,
        "bash -c " * 500,
    ],
)
def test_long_nonsense_is_read_in_no_time_to_speak_of(command: str) -> None:
    assert ran(command).subject


def test_arguments_nested_beyond_reading_are_an_action() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    assert called("think", thought=nested).subject == "think"


def test_what_a_carriage_return_overwrote_is_no_difference_and_long_lines_cost_no_more_than_short_ones() -> (
    None
):
    assert output_of("10 %\r60 %\r100 %\nok\n") == output_of("100 %\nok")
    assert output_of("a\rb\r\nc\r") == "b\nc"
    # Looked at anew from each of its characters this line would take minutes.
    assert len(output_of(f"a\rb{'x' * 1_000_000}\n")) == 1_000_001
