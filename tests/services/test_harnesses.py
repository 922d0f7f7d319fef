from __future__ import annotations

from lab.engine.harnesses.presets import load_preset
from lab.models import Harness, HarnessVersion
from lab.services import harnesses


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
