"""A harness as a YAML file: written to be read and edited by people, read without trusting who wrote it."""

from __future__ import annotations

from typing import Any

import yaml

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import read_config
from lab.engine.harnesses.yaml_reading import plain_yaml
from lab.engine.llm.base import JSONObject

_HEADING = (
    "# A harness of Trajectory Lab: what a model is shown, and how its replies are read and answered.\n"
)
_WIDTH = 100
# Shown even where they are at their defaults: what a harness is cannot be told without them.
_ALWAYS = ("protocol", "stop")

# Top-level names of files that are something else, and what to do with one.
_OTHER_FILES: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"services"}), "is a compose file; give a harness, such as `manage.py export_harness` writes"),
    (
        frozenset({"agent", "environment"}),
        "is a configuration of mini-swe-agent; read it with `manage.py import_harness --mini FILE`",
    ),
    (
        frozenset({"agent", "model"}),
        "is a configuration of mini-swe-agent; read it with `manage.py import_harness --mini FILE`",
    ),
    (
        frozenset({"system_template", "instance_template"}),
        "is a configuration of mini-swe-agent; read it with `manage.py import_harness --mini FILE`",
    ),
    (
        frozenset({"instance_prompt", "command_files"}),
        "is a configuration of R2E-Gym; read it with `manage.py import_harness --r2e CHECKOUT`",
    ),
    (
        frozenset({"system_prompt", "instance_prompt"}),
        "is a configuration of R2E-Gym; read it with `manage.py import_harness --r2e CHECKOUT`",
    ),
    (frozenset({"apiVersion", "kind"}), "is a file for Kubernetes; give a harness"),
)


def to_yaml(config: HarnessConfig) -> str:
    """The harness as YAML, fields in their order and those at their defaults left out; reading it gives a
    harness of the same digest."""
    fields = config.model_dump(mode="json", exclude_defaults=True)
    whole = config.model_dump(mode="json", include=set(_ALWAYS))
    shown = {
        name: fields.get(name, whole.get(name))
        for name in HarnessConfig.model_fields
        if name in fields or name in whole
    }
    text: str = yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return _HEADING + text


def from_yaml(text: str, *, source: str = "", plugins: bool = False) -> HarnessConfig:
    """The harness that a YAML text describes. `source` and `plugins` as for `checks.read_config`.

    Raises:
        InvalidValueError: no YAML, too much of it, or something else than a harness; names the line.
        InvalidConfigError: a harness that cannot be used, with every problem.
    """
    data = plain_yaml(text)
    if not isinstance(data, dict):
        what = "is empty" if data is None else f"holds a {_KINDS.get(type(data), 'value')}"
        raise InvalidValueError(
            "YAML", text[:80], f"{what}; give a mapping with name, family, system_prompt and tools"
        )
    _refuse_other_files(data)
    return read_config(data, source=source, plugins=plugins)


_KINDS: dict[type, str] = {list: "list", str: "text"}


def _refuse_other_files(data: JSONObject) -> None:
    if "family" in data:
        return
    for names, reason in _OTHER_FILES:
        if names <= data.keys():
            raise InvalidValueError("YAML", ", ".join(sorted(data))[:80], reason)
    if not data.keys() & HarnessConfig.model_fields.keys():
        raise InvalidValueError(
            "YAML",
            ", ".join(sorted(data))[:80],
            "is no harness; give a mapping with name, family, system_prompt and tools",
        )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, short lists in one line, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # Breaks and marks that nobody sees are read back only where they are written as escapes.
    plain = all(line.isprintable() for line in value.split("\n"))
    style = ("|" if _fits_a_block(value) else None) if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _fits_a_block(value: str) -> bool:
    """Whether a block shows a printable text as it is, and is read back as it was."""
    lines = value.split("\n")
    if len(lines) < 2 or not lines[0] or lines[0][0].isspace():
        return False
    return not any(line.endswith(" ") for line in lines)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    short = (
        all(isinstance(item, str | int | float | bool) for item in value) and len(str(value)) < _WIDTH - 40
    )
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
