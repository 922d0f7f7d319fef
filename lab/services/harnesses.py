"""Harness versions: immutable, equal content is the same row."""

from __future__ import annotations

from pathlib import Path

from django.db import transaction
from django.db.models import Max

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.imports import import_leaf
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.models import Harness, HarnessVersion


def sync_presets() -> list[HarnessVersion]:
    """The presets that come with the lab, each as a version; a changed preset becomes a new one.

    Raises:
        InvalidValueError: a preset's file is broken.
    """
    return [store_version(config=load_preset(name), preset=True) for name in preset_names()]


@transaction.atomic
def store_version(*, config: HarnessConfig, preset: bool = False) -> HarnessVersion:
    """The version with this content: the one that is there, else a new one of the harness `config.name`.

    What stands outside the digest (name, wording, suggested sampling, source) makes no version of its own.
    """
    known = HarnessVersion.objects.filter(digest=config.digest).select_related("harness").first()
    if known is not None:
        return known
    harness, _ = Harness.objects.get_or_create(
        name=config.name, defaults={"family": config.family, "preset": preset}
    )
    newest = harness.versions.aggregate(newest=Max("version"))["newest"] or 0
    return HarnessVersion.objects.create(
        harness=harness,
        version=newest + 1,
        digest=config.digest,
        config=config.model_dump(mode="json"),
        source=config.source,
    )


def import_leaf_harness(*, checkout: Path) -> HarnessVersion:
    """A version with prompt and tool schemas of the Leaf in `checkout`; nothing of the checkout is run.

    Raises:
        InvalidValueError: no such folder, or a file that does not hold what was looked for; names both.
    """
    return store_version(config=import_leaf(checkout))
