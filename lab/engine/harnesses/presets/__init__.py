"""The harnesses that come with the lab: one YAML file each, holding prompts, schemas and limits."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig

# What a person gets who chooses nothing.
DEFAULT_PRESET = "leaf-compatible"

_FOLDER = Path(__file__).parent


def preset_names() -> list[str]:
    """The presets by name, the default one first."""
    names = (file.stem for file in _FOLDER.glob("*.yaml"))
    return sorted(names, key=lambda name: (name != DEFAULT_PRESET, name))


@functools.cache
def load_preset(name: str) -> HarnessConfig:
    """The preset of this name.

    Raises:
        InvalidValueError: there is none.
    """
    if name not in preset_names():
        raise InvalidValueError("harness", name, f"is no preset; choose one of {', '.join(preset_names())}")
    return HarnessConfig(**yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
