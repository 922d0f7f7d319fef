"""What a model is sent is read back as it was written, on each database."""

from __future__ import annotations

import json

import pytest

from lab.models import Harness, HarnessVersion

CONFIG = {
    "zulu": 1,
    "alpha": {"longer": 1, "b": 1e16, "a": 1.5, "minus": -0.0, "digits": "123"},
    "list": [3, {"y": 0, "x": None}],
}


@pytest.fixture
def version(db: None) -> HarnessVersion:
    harness = Harness.objects.create(name="exact", family="leaf")
    return HarnessVersion.objects.create(harness=harness, version=1, digest="d", config=CONFIG)


def test_order_of_keys_and_kind_of_numbers_are_kept(version: HarnessVersion) -> None:
    assert json.dumps(HarnessVersion.objects.get(pk=version.pk).config) == json.dumps(CONFIG)


def test_so_they_are_by_rows_written_together(version: HarnessVersion) -> None:
    rows = [HarnessVersion(harness=version.harness, version=n, digest=f"{n}", config=CONFIG) for n in (2, 3)]
    HarnessVersion.objects.bulk_create(rows)
    stored = HarnessVersion.objects.order_by("version").values_list("config", flat=True)
    assert [json.dumps(config) for config in stored] == [json.dumps(CONFIG)] * 3


def test_rows_are_found_by_a_value_inside(version: HarnessVersion) -> None:
    assert HarnessVersion.objects.filter(config__alpha__digits="123").exists()
    assert HarnessVersion.objects.filter(config__alpha__longer__lt=2).exists()
    assert not HarnessVersion.objects.filter(config__zulu=2).exists()


def test_a_value_inside_keeps_its_kind(version: HarnessVersion) -> None:
    assert HarnessVersion.objects.values_list("config__list__1", "config__zulu").get() == (
        {"y": 0, "x": None},
        1,
    )


def test_what_is_no_character_of_a_database_is_kept_in_json(version: HarnessVersion) -> None:
    HarnessVersion.objects.filter(pk=version.pk).update(config={"nul": "\0", "lone": "\ud800"})
    assert HarnessVersion.objects.get(pk=version.pk).config == {"nul": "\0", "lone": "\ud800"}
