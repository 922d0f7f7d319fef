"""What exists is explained, and what is explained exists."""

from __future__ import annotations

import re
import typing

import pytest
from django.core.management import get_commands

import lab
from lab.engine.events import Event
from lab.engine.formats.catalogue import FORMATS
from tests.house.tree import ROOT, files, read


def own_commands() -> list[str]:
    names = [
        name.rsplit("/", 1)[1].removesuffix(".py") for name in files(".py", under="lab/management/commands/")
    ]
    return sorted(name for name in names if not name.startswith("_"))


def event_kinds() -> list[str]:
    union = typing.get_args(typing.get_args(Event)[0])
    return [typing.get_args(typing.get_type_hints(event)["kind"])[0] for event in union]


def settings_read() -> set[str]:
    """The variables that lab/settings.py reads; a secret may come from a file as well."""
    source = read("lab/settings.py")
    names = set(re.findall(r"""\(["'](LAB_[A-Z_]+|DATABASE_URL)["']""", source))
    secrets = re.findall(r"""secret\(["'](LAB_[A-Z_]+|DATABASE_URL)["']""", source)
    return names | {f"{name}_FILE" for name in secrets}


def settings_explained() -> set[str]:
    return set(re.findall(r"^#?(LAB_[A-Z_]+|DATABASE_URL\w*)=", read("deploy/env.example"), re.M))


def test_every_setting_is_explained_in_env_example() -> None:
    assert settings_read() - settings_explained() == set()


def test_env_example_explains_no_setting_that_does_not_exist() -> None:
    assert settings_explained() - settings_read() == set()


def test_every_entry_of_env_example_has_words_of_its_own() -> None:
    lines = read("deploy/env.example").splitlines()
    bare = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if re.match(r"#?(LAB_|DATABASE_URL)\w*=", line) and not re.match(r"# |#?LAB_|#?DATABASE_URL", above)
    ]
    assert bare == []


def test_the_readme_names_every_command_and_make_target() -> None:
    readme = read("README.md")
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), re.M)
    expected = [f"make {target}" for target in targets if "environment" not in target]
    expected += own_commands()
    assert "vendor" in expected
    assert [name for name in expected if not re.search(rf"\b{re.escape(name)}\b", readme)] == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_command_that_a_document_names_exists(document: str) -> None:
    named = set(re.findall(r"manage\.py ([a-z_]+)", read(document)))
    assert named - set(get_commands()) == set()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_setting_that_a_document_names_exists(document: str) -> None:
    named = set(re.findall(r"\bLAB_[A-Z_]+[A-Z]\b", read(document)))
    assert {name for name in named if not name.startswith("LAB_TEST_")} - settings_read() == set()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_file_that_a_document_links_to_exists(document: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", read(document))
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_readme_explains_every_kind_of_event() -> None:
    assert len(event_kinds()) >= 23
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", read("README.md"), re.M))
    assert set(event_kinds()) - rows == set()


def test_the_readme_says_of_every_format_what_is_kept_guessed_and_lost() -> None:
    rows = re.findall(r"^\| (`[^:]+`): ", read("README.md"), re.M)
    told = {name.strip("`") for row in rows for name in row.split(", ")}
    assert {one.name for one in FORMATS} - told == set()


def test_the_changelog_has_a_place_for_this_version() -> None:
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.M)
    assert headings
    assert headings[0] == "Unreleased" or headings[0].startswith(lab.__version__)
