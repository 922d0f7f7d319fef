"""The patterns mean what they mean to Python's glob: compared on real trees."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from lab.engine.tools.glob import matches, rule_of, split_pattern

FILES = [
    "a.py",
    "b.txt",
    ".hidden",
    "src/a.py",
    "src/deep/er/b.py",
    "src/.cache/c.py",
    "src/[x].py",
    "src/x.py",
    ".github/w/ci.yml",
    "src/.github/d.yml",
    "Ünï/ä.py",
    "with space/a b.py",
    "new\nline/a.py",
]
PATTERNS = [
    "*.py",
    "*",
    "**",
    "**/*",
    "**/*.py",
    "src/**",
    "src/**/*.py",
    "src/**/b.py",
    "**/deep/**/*.py",
    ".*",
    "**/.*",
    "**/.github/*.yml",
    ".github/**/*.yml",
    ".github/**",
    "src/.cache/*.py",
    "src/*/*.py",
    "?.py",
    "[ab].*",
    "[!a].*",
    "src/[[]x].py",
    "src/x.py",
    "no/such/*",
    "src/",
    "src/*/",
    "./src/*.py",
    "src/../*.py",
    "Ünï/*",
    "*/a b.py",
    "a**",
    "**/**/a.py",
    "new\n*/*",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_same_files_as_in_python(tree: Path, pattern: str) -> None:
    expected = {
        str(Path(path).resolve())
        for path in glob.glob(  # noqa: PTH207 - the function whose rules are claimed
            f"{glob.escape(str(tree))}/{pattern}", recursive=True
        )
        if Path(path).is_file()
    }
    base, segments = split_pattern(f"{tree}/{pattern}")
    rules = [rule_of(segment) for segment in segments]
    below = [str(tree / name) for name in FILES]
    found = set()
    for path in below:
        names = path[len(base) + 1 :].split("/") if path != base else []
        if f"{path}/".startswith(f"{base}/") and matches(names, rules):
            found.add(path)
    assert found == expected
