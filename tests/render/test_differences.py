"""Two texts as a diff that hides nothing, and nothing that is a key."""

from __future__ import annotations

import html
import re

from lab.render.differences import text_difference, value_text


def lines_of(markup: str) -> list[str]:
    """Number, sign and text of each line of a diff."""
    rows = re.findall(r'<div class="line [a-z]*">(.*?)</div>', markup, flags=re.S)
    return [html.unescape(re.sub(r"<[^>]+>", "", row)).rstrip("\n") for row in rows]


def test_changed_lines_stand_with_three_equal_ones_around_them() -> None:
    old = [f"line {number}" for number in range(1, 21)]
    new = [*old[:9], "another", *old[10:]]
    assert lines_of(text_difference("system_prompt", "\n".join(old), "\n".join(new))) == [
        "@@ -7 +7 @@",
        *("7line 7", "8line 8", "9line 9"),
        *("10−line 10", "10+another"),
        *("11line 11", "12line 12", "13line 13"),
    ]


def test_equal_texts_have_no_difference_and_an_empty_one_is_all_new() -> None:
    assert text_difference("a", "same\n", "same\n") == ""
    assert lines_of(text_difference("a", "", "one\ntwo"))[1:] == ["1+one", "2+two"]


def test_a_newline_at_the_end_is_a_difference_that_is_seen() -> None:
    assert lines_of(text_difference("a", "one", "one\n"))[1:] == ["1one", "2+"]


def test_lines_that_look_like_a_diff_of_their_own_are_text() -> None:
    old = "a\n--- a/x\n+++ b/x\n@@ -1 +1 @@\ndiff --git a/x b/x"
    found = lines_of(text_difference("a", old, old + "\n<script>alert(1)</script>"))
    assert found[-1] == "6+<script>alert(1)</script>"
    assert "<script>" not in text_difference("a", old, old + "\n<script>alert(1)</script>")


def test_a_difference_at_the_end_of_a_huge_text_is_shown() -> None:
    old = "\n".join(f"line {number}" for number in range(100_000))
    new = old + "\nthe end"
    assert lines_of(text_difference("a", old, new))[-1] == "100001+the end"
    far = text_difference("a", old, old.replace("7", "8"))
    assert "more lines of the difference" in far


def test_keys_are_masked_also_where_only_they_differ() -> None:
    left, right = ("Use sk-ant-api03-" + letter * 93 + "AA" for letter in "xy")
    assert "masked" in text_difference("a", left, right)
    assert "sk-ant-api03-" + "x" * 20 not in text_difference("a", left, "Use none")


def test_values_are_json_in_one_line_or_indented() -> None:
    assert [value_text(value) for value in (True, None, 1.0, "", "plain")] == [
        "true",
        "null",
        "1.0",
        '""',
        "plain",
    ]
    assert value_text({"type": "object"}) == '{"type": "object"}'
    assert "\n" in value_text({"enum": [f"value {number}" for number in range(20)]})
