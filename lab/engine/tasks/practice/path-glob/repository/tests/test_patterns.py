import pytest

from pathmatch import PatternError, compile_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("setup.py", "setup.py"),
        ("*.py", "setup.py"),
        ("file?.txt", "file1.txt"),
        ("[a-c]*.txt", "b2.txt"),
        ("[!a-c]*.txt", "z.txt"),
        ("src/*/x.py", "src/app/x.py"),
        ("src/**/x.py", "src/a/b/c/x.py"),
        ("src/**/x.py", "src/x.py"),
        ("**/x.py", "x.py"),
        ("**/x.py", "a/b/x.py"),
        ("docs/**", "docs/a/b.md"),
        ("a/**/b/**/c", "a/b/c"),
        ("a/**/b/**/c", "a/1/b/2/3/c"),
        (r"\*.py", "*.py"),
        ("v1.0/**", "v1.0/notes"),
    ],
)
def test_matches(pattern, path):
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "src/setup.py"),
        ("file?.txt", "file/.txt"),
        ("[!a-c].txt", "/.txt"),
        ("src/*/x.py", "src/x.py"),
        ("src/*/x.py", "src/a/b/x.py"),
        ("docs/**", "docs"),
        ("docs/**", "docs2/a"),
        ("v1.0/**", "v1x0/notes"),
        ("a**/x", "a/b/x"),
    ],
)
def test_does_not_match(pattern, path):
    assert not matches(pattern, path)


def test_a_set_without_an_end_is_an_error():
    with pytest.raises(PatternError, match="position 3"):
        compile_pattern("abc[de")


def test_an_empty_pattern_is_an_error():
    with pytest.raises(PatternError):
        compile_pattern("")
