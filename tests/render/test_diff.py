"""Diffs: signs and numbers apart from the text, words marked, everything said in words."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.render.diff import line_counts, replaced, unified
from tests.timing import require_growth

PATCH = """diff --git a/money/split.py b/money/split.py
index 1111111..2222222 100644
--- a/money/split.py
+++ b/money/split.py
@@ -10,3 +10,3 @@ def split(total):
     parts = []
-    share = total / count
+    share = total // count
     return parts
\\ No newline at end of file
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+x = 1
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-x = 1
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/logo.png b/logo.png
new file mode 100644
index 0000000..1234567
GIT binary patch
literal 3
KcmZQzU|

diff --git a/old name.py b/new name.py
similarity index 100%
rename from old name.py
rename to new name.py
"""
_TAG = re.compile(r"<[^>]*>")


def shown(markup: str) -> str:
    return html.unescape(_TAG.sub("", markup))


def test_every_file_says_what_its_lines_cannot() -> None:
    heads = [" ".join(shown(head).split()) for head in re.findall(r"<header>(.*?)</header>", unified(PATCH))]
    assert heads == [
        "money/split.py +1 −1",
        "new.py new +1 −0",
        "gone.py deleted +0 −1",
        "run.sh mode was 100644 mode is 100755 +0 −0",
        "logo.png new binary binary",
        "new name.py renamed from old name.py +0 −0",
    ]


def test_lines_carry_the_numbers_of_the_file_they_stand_in() -> None:
    first = unified(PATCH).partition("</section>")[0]
    cells = re.findall(r'<span class="no">(\d*)</span><span class="sign">(.?)</span>', first)
    assert cells == [("", ""), ("10", ""), ("11", "−"), ("11", "+"), ("12", ""), ("", "")]
    assert "No newline at end of file" in first


def test_a_diff_that_is_cut_off_is_shown_as_its_text() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-old\n+cut <off>"
    assert f"x shown as text{text}" in shown(unified(text)).replace(" \n", "\n")
    assert "−" not in shown(unified(text))
    assert "no diff at all" in shown(unified("no diff at all"))


def test_changed_words_are_marked() -> None:
    markup = unified(PATCH)
    assert '<span class="line add">' not in markup
    assert 'total /<span class="word">/</span> count' in markup
    assert '<span class="plus">+1</span> <span class="minus">−1</span>' in markup


def test_a_file_of_more_than_400_lines_is_folded() -> None:
    body = "".join(f"+line {number}\n" for number in range(500))
    markup = unified(f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,500 @@\n{body}")
    assert '<details class="diff">' in markup
    assert "501 lines" in markup


def test_a_header_like_line_inside_a_hunk_is_content() -> None:
    markup = unified("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n--- old\n+++ new\n")
    assert '<span class="plus">+1</span> <span class="minus">−1</span>' in markup
    assert shown(markup).splitlines()[-2:] == ["1−-- old", "1+++ new"]


@given(st.text(max_size=500))
@settings(max_examples=200)
def test_any_text_as_a_diff_is_shown_as_text(text: str) -> None:
    for markup in (
        unified(text),
        unified("diff --git a/x b/x\n@@ -1 +1 @@\n" + text),
        replaced(text, text[::-1]),
    ):
        for tag in _TAG.findall(markup):
            assert re.match(r"</?(?:section|details|summary|header|code|span|div|p)[\s>]", tag)
            assert not re.search(r"\son\w+=", tag)


def test_replaced_text_shows_common_lines_as_context() -> None:
    markup = replaced("a\nb = 1\nc", "a\nb = 2\nc")
    plain = html.unescape(_TAG.sub("", markup))
    assert plain.splitlines() == ["a", "−b = 1", "+b = 2", "c"]
    assert line_counts("a\nb = 1\nc", "a\nb = 2\nc") == (1, 1)
    assert line_counts("a", "a\nb") == (1, 0)


@pytest.mark.serial
@pytest.mark.parametrize(
    ("show", "whole"),
    [
        (lambda lines: replaced("a\n" * lines, "b\n" * lines), 20_000),
        (lambda characters: replaced("x" * characters, "y" * characters), 1_000_000),
        (lambda lines: unified("diff --git a/a b/a\n@@ -1 +1 @@\n" + "-a\n+b\n" * lines), 50_000),
    ],
    ids=["many lines", "a long line", "a diff"],
)
def test_the_time_of_a_long_text_grows_with_its_length_only(show: Callable[[int], str], whole: int) -> None:
    require_growth(show, whole=whole)
