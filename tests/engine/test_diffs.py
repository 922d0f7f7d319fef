"""Unified diffs are read whole or kept as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.engine.diffs import parse_patch

MODIFIED = """diff --git a/core.py b/core.py
index 1..2 100644
--- a/core.py
+++ b/core.py
@@ -1,3 +1,3 @@ def answer():
 def answer():
-    return 41
+    return 42
 # end
"""
ADDED = """diff --git "a/\\303\\274.txt" "b/\\303\\274.txt"
new file mode 100644
index 0..1
--- /dev/null
+++ "b/\\303\\274.txt"
@@ -0,0 +1 @@
+x
\\ No newline at end of file
"""
BINARY = """diff --git a/data b/data
new file mode 100644
index 0..1
GIT binary patch
literal 3
Kcmd<$WB>pF00aO4

literal 0
HcmV?d00001

"""
MODE = "diff --git a/tool.sh b/tool.sh\nold mode 100644\nnew mode 100755\n"
EMPTY = "diff --git a/none b/none\ndeleted file mode 100644\nindex e69de29..0000000\n"


def test_a_modified_file_has_numbered_lines() -> None:
    (file,) = parse_patch(MODIFIED)
    assert (file.path, file.old_path, file.change) == ("core.py", "core.py", "modified")
    assert (file.added, file.removed) == (1, 1)
    (hunk,) = file.hunks
    assert hunk.heading == "def answer():"
    assert [tuple(line) for line in hunk.lines] == [
        (" ", "def answer():", 1, 1),
        ("-", "    return 41", 2, None),
        ("+", "    return 42", None, 2),
        (" ", "# end", 3, 3),
    ]


def test_every_kind_of_section_is_told_in_order() -> None:
    found = parse_patch(MODIFIED + ADDED + BINARY + MODE + EMPTY)
    assert [(file.path, file.change, file.binary) for file in found] == [
        ("core.py", "modified", False),
        ("ü.txt", "added", False),
        ("data", "added", True),
        ("tool.sh", "mode", False),
        ("none", "deleted", False),
    ]
    assert found[1].hunks[0].lines[1].mark == "\\"


def test_a_diff_without_git_headers_is_read() -> None:
    plain = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n"
    assert [(file.path, file.added) for file in parse_patch(plain)] == [("x", 1), ("y", 1)]


def test_what_is_no_diff_keeps_its_text() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-cut off"
    (file,) = parse_patch(text)
    assert (file.path, file.hunks, file.raw) == ("x", (), text)


def test_nothing_has_no_files() -> None:
    assert parse_patch("") == []


@given(st.text(alphabet='dif -+@ab/\n\t"\\019,é', max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    sections = [MODIFIED + text, text, "diff --git " + text, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + text]
    for section in sections:
        parse_patch(section)
