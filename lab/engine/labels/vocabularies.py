"""The vocabularies that come with the lab: one YAML file each."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from lab.engine.errors import InvalidValueError
from lab.engine.labels.taxonomy import Taxonomy

DEFAULT_VOCABULARY = "coding"

_FOLDER = Path(__file__).parent / "presets"


def vocabulary_names() -> list[str]:
    """Their slugs, the default one first."""
    names = (file.stem for file in _FOLDER.glob("*.yaml"))
    return sorted(names, key=lambda name: (name != DEFAULT_VOCABULARY, name))


@functools.cache
def load_vocabulary(slug: str) -> Taxonomy:
    """The vocabulary of this slug.

    Raises:
        InvalidValueError: there is none.
    """
    if slug not in vocabulary_names():
        known = ", ".join(vocabulary_names())
        raise InvalidValueError("taxonomy", slug, f"does not come with the lab; choose one of {known}")
    return Taxonomy(**yaml.safe_load((_FOLDER / f"{slug}.yaml").read_text(encoding="utf-8")))
