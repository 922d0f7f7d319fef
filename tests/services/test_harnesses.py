from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, StopRules
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.problems import InvalidConfigError
from lab.engine.harnesses.yaml_form import to_yaml
from lab.models import Harness, HarnessVersion, Role
from lab.services import harnesses
from lab.services.errors import AccessDeniedError
from tests.services.builders import person


@pytest.fixture
def operator(db: None) -> User:
    return person(Role.OPERATOR, "olga")


@pytest.fixture
def viewer(db: None) -> User:
    return person(Role.VIEWER, "vera")


def test_presets_are_there_once_however_often_the_lab_starts(db: None) -> None:
    first = harnesses.sync_presets()
    assert harnesses.sync_presets() == first
    assert "leaf-compatible" in {version.harness.name for version in first}
    assert all(version.harness.preset for version in first)


def test_a_version_holds_the_whole_configuration(db: None) -> None:
    config = load_preset("leaf-compatible")
    version = harnesses.store_version(config=config)
    stored = type(config).model_validate(version.config)
    assert (stored, version.digest) == (config, config.digest)


def test_equal_content_is_the_same_version_and_a_change_is_the_next(db: None) -> None:
    config = load_preset("leaf-compatible")
    first = harnesses.store_version(config=config)
    renamed = harnesses.store_version(config=config.model_copy(update={"wording": "other words about it"}))
    second = harnesses.store_version(config=config.model_copy(update={"system_prompt": "Another prompt."}))
    assert first == renamed
    assert (first.version, second.version, second.harness) == (1, 2, first.harness)
    assert list(HarnessVersion.objects.newest()) == [second]
    assert Harness.objects.count() == 1


def edited(**fields: Any) -> HarnessConfig:
    return load_preset("leaf-compatible").model_copy(update={"name": "mine", **fields})


def test_a_person_makes_versions_and_each_says_who_made_it_and_of_what(operator: User) -> None:
    preset = harnesses.sync_presets()[0]
    first = harnesses.create_version(by=operator, config=edited(system_prompt="A."), based_on=preset)
    second = harnesses.create_version(by=operator, config=edited(system_prompt="B."), based_on=first)
    assert [str(first), str(second)] == ["mine v1", "mine v2"]
    assert first.source == {"kind": "edited", "by": operator.username, "based_on": "leaf-compatible v1"}
    assert second.source["based_on"] == "mine v1"
    assert not second.harness.preset


def test_equal_content_is_the_version_that_is_there_whatever_its_name(operator: User) -> None:
    preset = harnesses.sync_presets()[0]
    assert harnesses.create_version(by=operator, config=edited()) == preset
    assert harnesses.stored(config=edited()) == (preset, False)
    assert not Harness.objects.filter(name="mine").exists()


def test_a_presets_name_is_taken_and_another_is_proposed(operator: User) -> None:
    harnesses.sync_presets()
    with pytest.raises(InvalidConfigError) as raised:
        harnesses.create_version(by=operator, config=edited(name="leaf-compatible", system_prompt="A."))
    assert str(raised.value) == (
        "name: 'leaf-compatible' is a preset of the lab, which nobody changes; choose another name, such as "
        "my-leaf-compatible"
    )


def test_a_name_keeps_its_family(operator: User) -> None:
    harnesses.create_version(by=operator, config=edited(system_prompt="A."))
    other = load_preset("r2e").model_copy(update={"name": "mine", "system_prompt": "B."})
    with pytest.raises(InvalidConfigError, match="is a harness of the family leaf, and this one is of r2e"):
        harnesses.create_version(by=operator, config=other)


def test_a_preset_that_comes_later_leaves_a_persons_harness_of_its_name_alone(operator: User) -> None:
    own = harnesses.create_version(by=operator, config=edited(name="leaf-compatible", system_prompt="A."))
    preset = harnesses.sync_presets()[0]
    own.harness.refresh_from_db()
    assert (own.harness.name, own.harness.preset) == ("my-leaf-compatible", False)
    assert (str(preset), preset.harness.preset) == ("leaf-compatible v1", True)


def test_nothing_that_cannot_be_used_is_stored(operator: User) -> None:
    with pytest.raises(InvalidConfigError, match="stop.tool: 'Submit' can never fire"):
        harnesses.create_version(by=operator, config=edited(stop=StopRules(tool="Submit")))
    assert not HarnessVersion.objects.exists()


def test_only_operators_make_versions(viewer: User) -> None:
    text = to_yaml(edited(system_prompt="A."))
    for make in (
        lambda: harnesses.create_version(by=viewer, config=edited(system_prompt="A.")),
        lambda: harnesses.import_yaml(by=viewer, text=text),
    ):
        with pytest.raises(AccessDeniedError, match="operator"):
            make()


def test_yaml_goes_out_and_comes_back_as_the_same_version(operator: User) -> None:
    version = harnesses.create_version(by=operator, config=edited(system_prompt="A.\n\nB."))
    text = harnesses.export_yaml(version=version)
    assert harnesses.import_yaml(by=operator, text=text) == version
    other = harnesses.import_yaml(by=operator, text=text.replace("A.", "C."), name="theirs")
    assert (str(other), other.source["kind"], other.source["by"]) == ("theirs v1", "yaml", operator.username)
    assert other.config["name"] == "theirs"


def test_yaml_of_a_preset_that_was_changed_needs_another_name(operator: User) -> None:
    text = harnesses.export_yaml(version=harnesses.sync_presets()[0]).replace(
        "max_steps: 150", "max_steps: 9"
    )
    with pytest.raises(InvalidConfigError, match="choose another name, such as my-leaf-compatible"):
        harnesses.import_yaml(by=operator, text=text)
    assert str(harnesses.import_yaml(by=operator, text=text, name="short")) == "short v1"


def test_what_a_harness_was_read_from_is_still_known_after_edits_and_files(operator: User) -> None:
    read_from = {"kind": "leaf", "commit": "c0ffee"}
    imported = harnesses.store_version(config=edited(system_prompt="A.", source=read_from))
    changed = harnesses.create_version(by=operator, config=edited(system_prompt="B."), based_on=imported)
    assert changed.source["of"] == read_from
    text = harnesses.export_yaml(version=changed).replace("system_prompt: B.", "system_prompt: C.")
    assert harnesses.import_yaml(by=operator, text=text).source["of"] == read_from


def test_versions_are_found_by_name_and_number(operator: User) -> None:
    first = harnesses.create_version(by=operator, config=edited(system_prompt="A."))
    second = harnesses.create_version(by=operator, config=edited(system_prompt="B."))
    assert harnesses.find_version(name="mine") == second
    assert harnesses.find_version(name="mine@1") == first
    for name, words in (
        ("yours", "choose one of mine"),
        ("mine@3", "has versions 1 to 2"),
        ("mine@x", "1 to 2"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            harnesses.find_version(name=name)


def test_content_that_is_unknown_cannot_be_exported(operator: User) -> None:
    version = harnesses.create_version(by=operator, config=edited(system_prompt="A."))
    version.digest = None
    with pytest.raises(InvalidValueError, match="its content is unknown"):
        harnesses.export_yaml(version=version)


def test_a_version_that_its_maker_has_not_seen_keeps_the_next_one_from_being_made(operator: User) -> None:
    first = harnesses.create_version(by=operator, config=edited(system_prompt="A."), seen_newest=0)
    second = harnesses.create_version(by=operator, config=edited(system_prompt="B."), seen_newest=1)
    with pytest.raises(
        harnesses.NewerVersionError, match="mine v2 was made by olga since you looked"
    ) as raised:
        harnesses.create_version(by=operator, config=edited(system_prompt="C."), seen_newest=1)
    assert raised.value.newest == second
    assert harnesses.create_version(by=operator, config=edited(system_prompt="A."), seen_newest=1) == first
    third = harnesses.create_version(by=operator, config=edited(system_prompt="C."), seen_newest=2)
    assert third.version == 3


def test_of_two_who_save_over_the_same_version_at_once_one_is_told(transactional_db: None) -> None:
    olga = person(Role.OPERATOR, "olga")
    harnesses.create_version(by=olga, config=edited(system_prompt="A."))
    ready = threading.Barrier(4)

    def save(number: int) -> tuple[str, int]:
        ready.wait()
        config = edited(system_prompt=f"prompt {number}")
        try:
            return "made", harnesses.create_version(by=olga, config=config, seen_newest=1).version
        except harnesses.NewerVersionError as refused:
            return "told of", refused.newest.version
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(save, range(4)))
    assert sorted(made) == [("made", 2)] + [("told of", 2)] * 3
    assert HarnessVersion.objects.count() == 2


def test_what_is_stored_at_the_same_time_is_counted_without_a_gap(transactional_db: None) -> None:
    """The same content four times, and four different ones, all at once."""
    prompts = ["same"] * 4 + [f"prompt {number}" for number in range(4)]
    ready = threading.Barrier(len(prompts))

    def store(prompt: str) -> tuple[int, int]:
        ready.wait()
        try:
            version = harnesses.store_version(config=edited(system_prompt=prompt))
            return version.pk, version.version
        finally:
            connection.close()

    with ThreadPoolExecutor(len(prompts)) as pool:
        made = list(pool.map(store, prompts))
    assert len(set(made[:4])) == 1
    assert sorted(number for _, number in set(made)) == [1, 2, 3, 4, 5]
