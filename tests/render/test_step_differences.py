"""Rows of steps side by side, opened: equal is said once, what differs is marked, all of it is text."""

from __future__ import annotations

import datetime as dt
import html
import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.events import Event
from lab.engine.sinks import ListSink
from lab.render.fold import LogEvent, StepView, step_of
from lab.render.marks import compared, lines_of
from lab.render.step_differences import RowColumn, row_body
from tests import builders

AT = dt.datetime(2026, 11, 29, 14, 32, 8, tzinfo=dt.UTC)
_TAG = re.compile(r"<[^>]*>")
_MARKS = re.compile(r'<mark class="differs">(.*?)</mark>', re.DOTALL)


def step(*events: Event) -> StepView:
    sink = ListSink(attempt=1, first_seq=1, clock=lambda: AT)
    for event in events:
        sink.append(event)
    return step_of([LogEvent.of(record) for record in sink.records])


def bash(
    command: str, stdout: str, *, exit_code: int = 0, reasoning: str = "", content: str = "", **more: object
) -> StepView:
    return step(
        builders.asked(1),
        builders.answered(1, ("Bash", "{}"), reasoning=reasoning, content=content),
        builders.called(1, "Bash", {"command": command, **more}),
        builders.printed(1, stdout, exit_code=exit_code),
    )


def edit(path: str, old: str, new: str) -> StepView:
    return step(
        builders.asked(1),
        builders.answered(1, ("Edit", "{}")),
        builders.called(1, "Edit", {"file_path": path, "old_string": old, "new_string": new}),
        builders.told(1, f"{path}: 1 replacement"),
    )


def cells(*views: StepView | None, static: bool = False) -> list[str]:
    columns = [RowColumn(10 + place, "ABCDEF"[place], view) for place, view in enumerate(views)]
    markup = row_body(columns, static=static)
    return re.split(r'<div class="body-cell[^>]*>', markup)[1:]


def words(markup: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", markup)).split())


def marked(markup: str) -> list[str]:
    """The lines that are marked, as they read."""
    return [html.unescape(_TAG.sub("", line)).rstrip("\n") for line in _MARKS.findall(markup)]


def test_equal_steps_say_so_once_and_mark_nothing() -> None:
    left, right = cells(
        bash("ls -l", "a\nb\nc\n", reasoning="I look."), bash("ls -l", "a\nb\nc\n", reasoning="I look.")
    )
    assert marked(left) == marked(right) == []
    assert "equal output, 3 lines, 6 bytes" in words(left)
    assert "equal reasoning, 2 words" in words(right)
    assert "same call as A" in words(right)
    assert "same call" not in words(left)
    assert '<details class="alike">' in right


def test_the_lines_of_an_output_that_differ_are_marked_on_both_sides() -> None:
    left, right = cells(bash("ls", "same\nleft side\nend\n"), bash("ls", "same\nright side\nend\nmore\n"))
    assert marked(left) == ["left side"]
    assert marked(right) == ["right side", "more"]
    assert '<span class="word">left</span>' in left
    assert '<span class="word">right</span>' in right


def test_the_words_of_a_command_that_differ_are_marked() -> None:
    left, right = cells(bash("sed -n 1,60p a.py", "x\n"), bash("sed -n 1,90p a.py", "x\n"))
    assert marked(left) == ["sed -n 1,60p a.py"]
    assert '<span class="word">60p</span>' in left
    assert '<span class="word">90p</span>' in right


def test_an_argument_that_differs_is_shown_though_the_row_leaves_it_out() -> None:
    left, right = cells(bash("make", "x\n", timeout=20), bash("make", "x\n", timeout=600))
    assert "timeout 20" in words(left)
    assert "timeout 600" in words(right)
    assert "make" not in words(right)


def test_the_first_column_is_marked_wherever_one_of_the_others_differs() -> None:
    first, second, third = cells(bash("ls", "a\nb\nc\n"), bash("ls", "a\nB\nc\n"), bash("ls", "a\nb\nC\n"))
    assert marked(first) == ["b", "c"]
    assert marked(second) == ["B"]
    assert marked(third) == ["C"]


def test_columns_without_a_step_are_passed_over() -> None:
    gap, first, second = cells(None, bash("ls", "a\n"), bash("ls", "b\n"))
    assert words(gap) == ""
    assert marked(first) == ["a"]
    assert "same call as B" in words(second)


def test_a_step_that_only_one_run_took_is_its_own_body() -> None:
    (alone, gap) = cells(bash("grep -rn x .", "a.py:3: x\n", reasoning="I search. " * 40), None)
    assert "more words" in words(alone)
    assert "a.py:3: x" in words(alone)
    assert "equal" not in words(alone)
    assert marked(alone) == []


def test_output_that_differs_in_durations_only_is_said_to_be_equal_but_for_them() -> None:
    left, right = cells(bash("pytest", "2 passed in 0.42s\n"), bash("pytest", "2 passed in 0.55s\n"))
    assert "output equal but for durations, 1 line, 18 bytes" in words(left)
    assert marked(right) == ["2 passed in 0.55s"]


def test_output_that_differs_in_the_ends_of_its_lines_only_is_equal_but_for_them() -> None:
    left, right = cells(bash("ls", "a\nb\n"), bash("ls\n", "a\r\nb\r\n"))
    assert "output equal but for the ends of lines" in words(right)
    assert "same call as A" in words(right)
    assert marked(left) == marked(right) == []
    _, last = cells(bash("ls", "a\nb\n"), bash("ls", "a\nb"))
    assert "output equal but for the newline at the end, 2 lines, 3 bytes" in words(last)


def test_numbers_that_a_tool_puts_before_lines_are_no_difference() -> None:
    plain = ["import re", "", "x = 1", "    y = 2"]
    numbered = [f"{number}. {line}" for number, line in enumerate(plain, start=1)]
    left, right = cells(bash("cat a.py", "\n".join(plain)), bash("cat -n a.py", "\n".join(numbered)))
    assert "output equal but for the numbers of lines" in words(right)
    assert marked(right) == ["cat -n a.py"]
    other = [
        f"{number}\t{line}" for number, line in enumerate(["import re", "new", *plain[1:3], "    y = 3"], 1)
    ]
    left, right = cells(bash("x", "\n".join(numbered)), bash("x", "\n".join(other)))
    assert marked(left) == ["4.     y = 2"]
    assert marked(right) == ["2\tnew", "5\t    y = 3"]
    assert '<span class="word">3</span>' in right


def test_a_terminals_line_ends_hide_no_line() -> None:
    left, right = cells(bash("ls", "a\nb\nc\n"), bash("ls", "a\r\nx\r\nc\r\n"))
    assert marked(left) == ["b"]
    assert marked(right) == ["x"]


def test_what_was_said_is_equal_whether_a_command_stood_in_it_or_came_as_a_call() -> None:
    left, right = cells(
        bash("ls", "a\n", content="I look.\n```\nls\n```"), bash("ls", "a\n", content="I look.")
    )
    assert "said the same, 2 words" in words(left)
    assert "said the same, 2 words" in words(right)


def test_equal_output_with_another_exit_code_says_both_codes() -> None:
    left, right = cells(bash("x", "a\n"), bash("x", "a\n", exit_code=3))
    assert "exit 0" in words(left)
    assert "exit 3" in words(right)


def test_edits_of_one_file_are_diffs_and_their_new_texts_are_held_against_each_other() -> None:
    left, right = cells(edit("a/b.py", "x = 1\n", "x = 2\n"), edit("/testbed/a/b.py", "x = 1\n", "x = 3\n"))
    assert "new text" not in words(left)
    assert "new text, A → B" in words(right)
    same, again = cells(edit("b.py", "x", "y"), edit("b.py", "x", "y"))
    assert 'class="diff"' in same
    assert "same edit as A" in words(again)
    assert 'class="diff"' not in again
    _, other_file = cells(edit("a.py", "x", "y"), edit("b.py", "x", "z"))
    assert "new text" not in words(other_file)


def test_a_call_that_was_not_understood_shows_its_raw_text_and_the_reason() -> None:
    bad = step(
        builders.asked(1),
        builders.answered(1, ("Bash", '{"command')),
        builders.called(1, "Bash", {}, malformed="no JSON", raw='{"command'),
        builders.told(1, "arguments are no JSON", failed=True),
    )
    left, right = cells(bad, bash("ls", "a\n"))
    assert "not understood, told the model. no JSON" in words(left)
    assert '{"command' in words(left)
    assert marked(left) == marked(right) == []


def test_far_apart_differences_stand_with_the_lines_around_them() -> None:
    lines = [f"line {number}" for number in range(500)]
    other = [*lines[:400], "changed", *lines[401:]]
    left, right = cells(bash("x", "\n".join(lines)), bash("x", "\n".join(other)))
    assert marked(left) == ["line 400"]
    assert marked(right) == ["changed"]
    assert "397 equal lines" in words(left)
    assert "show all: 500 lines" in words(left)


def test_a_file_without_a_server_links_to_nothing_and_says_what_is_not_in_it() -> None:
    long = "".join(f"line {number}\n" for number in range(500))
    left, right = cells(
        bash("x", long, reasoning="why " * 300, content="said " * 2000),
        bash("x", long.replace("line 3\n", "other\n"), reasoning="how " * 300),
        static=True,
    )
    for cell in (left, right):
        assert "more characters are not in this file" in words(cell)
        assert "hx-" not in cell
        assert "<a" not in cell


class Balanced(HTMLParser):
    """Fails where an element is closed that is not the open one, or stays open."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.names: set[str] = set()
        self.feed(markup)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


_TEXTS = st.text() | st.lists(
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "\x1b[31mred",
            "\x1b]8;;http://x\x07",
            "same",
            "a\rb",
            "",
            "'\"<mark>",
            "</pre>",
        ]
    )
).map("\n".join)


@settings(max_examples=60, deadline=None)
@given(_TEXTS, _TEXTS, _TEXTS, _TEXTS)
def test_whatever_texts_hold_they_are_text(command: str, output: str, thought: str, other: str) -> None:
    one = bash(command, output, reasoning=thought, content=other)
    two = bash(other, thought, reasoning=output, content=command)
    three = edit(other, command, output)
    for static in (False, True):
        found = Balanced(
            row_body(
                [RowColumn(1, "A", one), RowColumn(2, "B", two), RowColumn(3, "C", three)], static=static
            )
        )
        assert not found.names & {"script", "img", "style"}
        assert "style" not in found.attributes


@settings(max_examples=100, deadline=None)
@given(_TEXTS, _TEXTS)
def test_exchanging_the_columns_exchanges_the_marks(one: str, other: str) -> None:
    left, right = cells(bash("x", one), bash("x", other))
    there, here = cells(bash("x", other), bash("x", one))
    assert (marked(left), marked(right)) == (marked(here), marked(there))


@settings(max_examples=60, deadline=None)
@given(_TEXTS, _TEXTS)
def test_equal_steps_have_no_marks(command: str, output: str) -> None:
    for cell in cells(*[bash(command, output) for _ in range(3)]):
        assert marked(cell) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), max_size=40), st.lists(st.sampled_from("abcdef"), max_size=40))
def test_what_is_not_marked_is_the_same_on_both_sides(left: list[str], right: list[str]) -> None:
    of_left, of_right = compared(left, right)
    kept = [line for place, line in enumerate(left) if place not in of_left.differs]
    assert kept == [line for place, line in enumerate(right) if place not in of_right.differs]


def test_long_texts_that_repeat_few_lines_take_no_longer_than_others() -> None:
    left = [f"x{number % 7}" for number in range(20_000)]
    right = [f"x{number % 5}" for number in range(20_000)] + ["only here"]
    of_left, of_right = compared(left, right)
    assert of_right.differs == {20_000}
    assert {left[place] for place in of_left.differs} == {"x5", "x6"}
    assert lines_of("a\nb\n") == ["a", "b"]
