"""What stands where, and what never stands anywhere."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib.metadata import packages_distributions
from pathlib import PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.tree import PRACTICE, ROOT, own_python, project_files, read

TOP_LEVEL = {
    *(
        "lab",
        "templates",
        "static",
        "tests",
        "deploy",
        ".ci",
        "manage.py",
        "pyproject.toml",
        "requirements.lock",
    ),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "THIRD-PARTY-LICENSES.md", "Makefile"),
    *(".gitignore", ".gitattributes", ".pre-commit-config.yaml", ".editorconfig", ".dockerignore"),
}
VAGUE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
BINARY = (".png", ".ico", ".woff2", ".gz", ".zst", ".tar", ".zip", ".sqlite3", ".bundle", ".bin")

# Written so that no pattern matches itself.
FOREIGN = re.compile(
    r"(?<![\w.])/wor[k]/|/root/\.pyen[v]|/opt/pyp[i]|\bpypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org"
)
UNFINISHED = re.compile(r"\bTOD[O]\b|\bFIXM[E]\b|NotImplementedErro[r]|pytest\.mark\.(?:skip|xfail)\b")


def text_files() -> list[str]:
    return [name for name in project_files() if not name.endswith(BINARY)]


def lines_matching(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_only_agreed_entries_stand_at_the_top() -> None:
    assert {name.split("/")[0] for name in project_files()} - TOP_LEVEL == set()


def test_the_entries_that_people_look_for_are_there() -> None:
    expected = "README.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile requirements.lock manage.py .ci/run"
    assert [name for name in expected.split() if not (ROOT / name).is_file()] == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = [
        name
        for name in project_files()
        if not name.startswith(PRACTICE)
        and (PurePosixPath(name).name in VAGUE_NAMES or "common" in PurePosixPath(name).parts[:-1])
    ]
    assert vague == []


def test_nothing_names_a_path_of_one_machine_or_the_host_of_a_registry() -> None:
    assert lines_matching(FOREIGN, text_files()) == []


def test_nothing_is_left_unfinished() -> None:
    assert lines_matching(UNFINISHED, own_python()) == []


def locked(lock: str) -> set[str]:
    """The names of the distributions that a lock pins."""
    pins = re.findall(r"^([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?==\S+)", read(lock), re.M)
    return {canonicalize_name(Requirement(pin).name) for pin in pins}


def imported_modules(name: str) -> set[str]:
    return modules_in(ast.walk(ast.parse(read(name))))


def imported_at_once(name: str) -> set[str]:
    """Without what a function imports when it is called: an extra may be missing until then."""
    lazy = (ast.FunctionDef, ast.AsyncFunctionDef)
    left = [ast.parse(read(name))]
    nodes: list[ast.AST] = []
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            nodes.append(child)
            if not isinstance(child, lazy):
                left.append(child)
    return modules_in(nodes)


def modules_in(nodes: Iterable[ast.AST]) -> set[str]:
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.split(".")[0])
    return modules - set(sys.stdlib_module_names) - {"lab", "tests"}


# Scripts that run in an environment of their own, where another program is installed.
MAKERS = "tests/engine/formats/makers/"


@pytest.mark.parametrize(
    ("under", "lock", "modules_of"),
    [
        ("lab/", "requirements.lock", imported_at_once),
        ("lab/", "deploy/requirements.lock", imported_modules),
        ("tests/", "tests/requirements.lock", imported_modules),
    ],
)
def test_what_the_code_imports_is_in_the_lock_it_is_installed_from(
    under: str, lock: str, modules_of: Callable[[str], set[str]]
) -> None:
    providers, pinned = packages_distributions(), locked(lock)
    unlocked = [
        f"{name} imports {module}"
        for name in own_python()
        if name.startswith(under) and not name.startswith(MAKERS)
        for module in sorted(modules_of(name))
        if not pinned & {canonicalize_name(d) for d in providers.get(module, [module])}
    ]
    assert unlocked == []


LOCKS = ["requirements.lock", "deploy/requirements.lock", "tests/requirements.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_hashed_releases_and_nothing_else(lock: str) -> None:
    entry = re.compile(
        r"[a-z0-9][\w.-]*(\[[\w,-]+\])?==[^\s;/:]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|\s*#.*"
    )
    assert [line for line in read(lock).splitlines() if not entry.fullmatch(line)] == []


@pytest.mark.parametrize(("smaller", "larger"), [*itertools.pairwise(LOCKS)])
def test_each_lock_pins_the_same_releases_as_the_smaller_one(smaller: str, larger: str) -> None:
    def pins(lock: str) -> set[str]:
        return {
            line.split(" ")[0] for line in read(lock).splitlines() if "==" in line and line[0] not in " #"
        }

    assert pins(smaller) - pins(larger) == set()


def declared(group: str) -> set[str]:
    project = tomllib.loads(read("pyproject.toml"))
    of = {
        "runtime": project["project"]["dependencies"],
        "extras": itertools.chain(*project["project"]["optional-dependencies"].values()),
        "dev": project["dependency-groups"]["dev"],
    }
    return {canonicalize_name(Requirement(text).name) for text in of[group]}


@pytest.mark.parametrize(("group", "lock"), [*zip(["runtime", "extras", "dev"], LOCKS, strict=True)])
def test_the_locks_hold_every_dependency_that_is_declared(group: str, lock: str) -> None:
    assert declared(group) - locked(lock) == set()
