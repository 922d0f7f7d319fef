"""Diffs of several patches beside each other."""

from __future__ import annotations

import re
import time

from lab.render.compared_patches import notes_of, shown_diffs

HEAD = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n"


def section(*lines: str, start: int = 1) -> str:
    return f"{HEAD}@@ -{start},9 +{start},9 @@ def f():\n" + "".join(f"{line}\n" for line in lines)


def marked(html: str) -> list[str]:
    """The lines with a mark, without their markup."""
    rows = re.findall(r'<div class="line [^"]*apart">.*?<span>(.*?)\n</span></div>', html, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", row) for row in rows]


def words(html: str) -> list[str]:
    return re.findall(r'<span class="word">(.*?)</span>', html)


def test_only_what_the_other_patch_lacks_is_marked_wherever_the_lines_stand() -> None:
    first, second = shown_diffs(
        [section(" a", "-b", "+c", "+d"), section(" a", "-b", "+c", "+e", start=40)], most=100
    )
    assert (marked(first.html), marked(second.html)) == (["d"], ["e"])
    assert '<span class="no">41</span>' in second.html


def test_in_a_line_that_is_nearly_the_same_the_words_are_marked() -> None:
    first, second = shown_diffs(
        [section("+    return one + two"), section("+    return one + three")], most=100
    )
    assert (words(first.html), words(second.html)) == (["two"], ["three"])


def test_a_diff_alone_has_no_mark() -> None:
    (only,) = shown_diffs([section("-a", "+b")], most=100)
    assert (marked(only.html), only.shown, only.more) == ([], 3, 0)


def test_what_is_too_long_is_cut_and_counted() -> None:
    (only,) = shown_diffs([section(*["+x"] * 500)], most=100)
    assert (only.shown, only.more, only.html.count('class="line ')) == (100, 401, 100)


def test_long_patches_are_matched_without_looking_at_every_pair() -> None:
    ours, theirs = [f"+line {n}" for n in range(3000)], [f"+line {n}" for n in range(1, 3001)]
    first, second = shown_diffs([section(*ours), section(*theirs)], most=5000)
    assert (marked(first.html), marked(second.html)) == (["line 0"], ["line 3000"])


def test_text_of_a_patch_stays_text_and_keys_are_masked() -> None:
    (only,) = shown_diffs([section("+<script>", "+sk-" + "a1B2" * 12)], most=100)
    assert "<script>" not in only.html
    assert "&lt;script&gt;" in only.html
    assert "a1B2a1B2a1B2a1B2" not in only.html


def test_no_part_of_a_key_is_left_where_a_diff_is_cut() -> None:
    long = section(f"+{'x ' * 199_982}", "+sk-" + "a1B2" * 12)
    (only,) = shown_diffs([long], most=100)
    assert "x x x" in only.html
    assert "sk-a1" not in only.html


def test_of_a_diff_that_is_not_shown_only_the_length_is_told() -> None:
    ours, theirs = ["+" + "one two " * 40] * 499, ["+" + "two one " * 40] * 499
    begins = time.perf_counter()
    found = [shown_diffs([section(*ours), section(*theirs)], most=0) for _ in range(100)]
    assert {(diff.html, diff.shown, diff.more) for diffs in found for diff in diffs} == {("", 0, 500)}
    # With words matched it takes a second each.
    assert time.perf_counter() - begins < 20


def test_what_lines_cannot_say_is_said_in_words() -> None:
    assert notes_of(
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n"
    ) == ["new link"]
    assert notes_of("diff --git a/x b/x\ndeleted file mode 100644\nGIT binary patch\nliteral 0\n") == [
        "deleted",
        "binary",
    ]
    assert notes_of("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n") == ["mode"]
    assert notes_of(section("+new file mode")) == []
