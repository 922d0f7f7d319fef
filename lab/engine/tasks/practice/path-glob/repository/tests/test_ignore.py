from pathmatch import IgnoreList

TEXT = """
# build products
*.log
/dist/
!keep.log
docs/**/draft.md
"""


def test_comments_and_blank_lines_are_no_rules():
    assert len(IgnoreList.from_text(TEXT).rules) == 4


def test_a_pattern_without_slash_matches_at_any_depth():
    ignore = IgnoreList.from_text(TEXT)
    assert ignore.ignored("a.log")
    assert ignore.ignored("logs/2024/a.log")


def test_a_folder_ignores_everything_below_it():
    ignore = IgnoreList.from_text(TEXT)
    assert ignore.ignored("dist/pkg/a.whl")
    assert not ignore.ignored("dist")


def test_the_last_matching_line_decides():
    ignore = IgnoreList.from_text(TEXT)
    assert not ignore.ignored("logs/keep.log")
    assert IgnoreList(["!keep.log", "*.log"]).ignored("keep.log")


def test_prune_keeps_the_order():
    ignore = IgnoreList.from_text(TEXT)
    assert ignore.prune(["z.py", "x.log", "docs/a/draft.md", "a.py"]) == ["z.py", "a.py"]
