"""Harness versions: immutable, equal content is the same row."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.import_mini import import_mini
from lab.engine.harnesses.import_r2e import import_r2e
from lab.engine.harnesses.imports import import_leaf
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.harnesses.problems import InvalidConfigError, Problem, error
from lab.engine.harnesses.yaml_form import from_yaml, to_yaml
from lab.engine.llm.base import JSONObject
from lab.models import Harness, HarnessVersion, Role
from lab.services.access import for_role
from lab.services.locks import one_at_a_time

_NAMES_TRIED = 100


class Stored(NamedTuple):
    """A version with the content that was asked for; `created` is False where it was there before, perhaps
    under another name."""

    version: HarnessVersion
    created: bool


class NewerVersionError(InvalidConfigError):
    """A version was stored that somebody who stores the next one has not seen; `newest` is it."""

    def __init__(self, newest: HarnessVersion) -> None:
        self.newest = newest
        person = newest.source.get("by")
        made = f"{newest} was made{f' by {person}' if person else ''} since you looked"
        reason = f"{made}, and is not part of this; see what differs, then save again to make the next one"
        super().__init__([Problem("harness", "", reason)])


def sync_presets() -> list[HarnessVersion]:
    """The presets that come with the lab, each as a version; a changed preset becomes a new one.

    Raises:
        InvalidValueError: a preset's file is broken.
    """
    return [store_version(config=load_preset(name), preset=True) for name in preset_names()]


@for_role(Role.OPERATOR)
def create_version(
    *,
    by: User,
    config: HarnessConfig,
    based_on: HarnessVersion | None = None,
    seen_newest: int | None = None,
) -> HarnessVersion:
    """The version with this content: the one that is there, else a new one of the harness `config.name`.

    Its source says who made it, and from which version, and what that one was made from. `seen_newest` is
    the harness's newest version as its maker knows it, None where any may have been stored since.

    Raises:
        AccessDeniedError: `by` is no operator.
        NewerVersionError: there is a newer version than `seen_newest`.
        InvalidConfigError: everything that is wrong with it, or a name that is a preset's or another
            family's.
    """
    source: JSONObject = {"kind": "edited", "by": by.get_username()}
    if based_on is not None:
        source |= {"based_on": str(based_on), **_origin(based_on.source)}
    made = config.model_copy(update={"source": source})
    return stored(config=made, seen_newest=seen_newest).version


@for_role(Role.OPERATOR)
def import_yaml(*, by: User, text: str, name: str | None = None) -> HarnessVersion:
    """The version that a YAML text describes, under its own name or `name`.

    Raises:
        AccessDeniedError: `by` is no operator.
        InvalidValueError: no YAML of a harness; InvalidConfigError: as `create_version`.
    """
    return store_yaml(text=text, name=name, person=by.get_username())


def store_yaml(*, text: str, name: str | None = None, person: str = "", file: str = "") -> HarnessVersion:
    """As `import_yaml`, for the command line; `file` is where the text was read."""
    config = from_yaml(text, source=file)
    told = {"by": person, "file": file}
    source: JSONObject = {"kind": "yaml", **{key: text for key, text in told.items() if text}}
    source |= _origin(config.source)
    renamed = {"name": name} if name else {}
    return store_version(config=config.model_copy(update={"source": source, **renamed}))


def _origin(source: JSONObject) -> JSONObject:
    """What a harness was read from in the beginning, however often it was edited or exported since."""
    origin = source.get("of") or source
    known = isinstance(origin, dict) and origin.get("kind") not in {None, "preset", "edited", "yaml"}
    return {"of": origin} if known else {}


def export_yaml(*, version: HarnessVersion) -> str:
    """The version as YAML, which `import_yaml` reads.

    Raises:
        InvalidValueError: its content is unknown.
    """
    if version.digest is None:
        raise InvalidValueError(
            "harness", str(version), "came with imported runs, and its content is unknown"
        )
    config = HarnessConfig.model_validate(version.config)
    return to_yaml(config.model_copy(update={"name": version.harness.name}))


def find_version(*, name: str) -> HarnessVersion:
    """The version that `NAME` (its newest) or `NAME@VERSION` names.

    Raises:
        InvalidValueError: there is none; says which there are.
    """
    harness_name, _, number = name.partition("@")
    versions = HarnessVersion.objects.select_related("harness").filter(harness__name=harness_name)
    newest = versions.order_by("-version").first()
    if newest is None:
        known = ", ".join(Harness.objects.values_list("name", flat=True))
        raise InvalidValueError("harness", harness_name, f"is no harness of this lab; choose one of {known}")
    if not number:
        return newest
    version = versions.filter(version=number).first() if number.isdecimal() and len(number) < 10 else None
    if version is None:
        raise InvalidValueError(
            "harness", name, f"is no version; {harness_name} has versions 1 to {newest.version}"
        )
    return version


def store_version(*, config: HarnessConfig, preset: bool = False) -> HarnessVersion:
    """The version with this content, as `stored` says."""
    return stored(config=config, preset=preset).version


def stored(*, config: HarnessConfig, preset: bool = False, seen_newest: int | None = None) -> Stored:
    """The version with this content: the one that is there, else the next one of the harness `config.name`.

    What stands outside the digest (name, wording, suggested sampling, source) makes no version of its own.

    Raises:
        NewerVersionError: it is new, and so is the harness's newest version to who has seen `seen_newest`.
        InvalidConfigError: it cannot be used; or it is new, and its name a preset's or of another family.
    """
    # The lab's own presets are checked by its tests: reading jsonschema would slow every start down.
    found = [] if preset else errors(config)
    if found:
        raise InvalidConfigError(found)
    with transaction.atomic():
        # Versions are counted: who comes second must see what the first one stored.
        one_at_a_time("harnesses")
        return _stored(config, preset, seen_newest)


def _stored(config: HarnessConfig, preset: bool, seen_newest: int | None) -> Stored:
    known = HarnessVersion.objects.filter(digest=config.digest).select_related("harness").first()
    if known is not None:
        return Stored(known, False)
    harness = _harness(config, preset)
    newest = harness.versions.select_related("harness").order_by("-version").first()
    if newest is not None and seen_newest is not None and newest.version > seen_newest:
        raise NewerVersionError(newest)
    version = HarnessVersion.objects.create(
        harness=harness,
        version=newest.version + 1 if newest else 1,
        digest=config.digest,
        config=config.model_dump(mode="json"),
        source=config.source,
    )
    return Stored(version, True)


def _harness(config: HarnessConfig, preset: bool) -> Harness:
    """The harness of this name, made if there is none.

    Raises:
        InvalidConfigError: the name is a preset's or belongs to another family.
    """
    harness = Harness.objects.filter(name=config.name).first()
    if harness is not None and preset and not harness.preset:
        # A person's harness had the name before the lab brought a preset of that name.
        Harness.objects.filter(pk=harness.pk).update(name=free_name(name=config.name))
        harness = None
    if harness is None:
        return Harness.objects.create(name=config.name, family=config.family, preset=preset)
    problem = _name_problem(config, harness, preset)
    if problem is not None:
        raise InvalidConfigError([problem])
    return harness


def name_problem(*, config: HarnessConfig) -> Problem | None:
    """What keeps a new version from having the name `config.name`, None when nothing does."""
    harness = Harness.objects.filter(name=config.name).first()
    return None if harness is None else _name_problem(config, harness, preset=False)


def _name_problem(config: HarnessConfig, harness: Harness, preset: bool) -> Problem | None:
    way_out = f"choose another name, such as {free_name(name=config.name)}"
    if harness.preset and not preset:
        return error("name", config.name, f"is a preset of the lab, which nobody changes; {way_out}")
    if harness.family != config.family:
        return error(
            "name",
            config.name,
            f"is a harness of the family {harness.family}, and this one is of {config.family}; {way_out}",
        )
    return None


def free_name(*, name: str) -> str:
    """A name like this one that no harness has."""
    taken = set(Harness.objects.filter(name__startswith=name[:90]).values_list("name", flat=True))
    numbered = (f"{name[:90]}-{number}" for number in range(2, _NAMES_TRIED + len(taken)))
    return next(one for one in [f"my-{name[:90]}", *numbered] if one not in taken) if name else "my-harness"


def import_leaf_harness(*, checkout: Path) -> HarnessVersion:
    """A version with prompt and tool schemas of the Leaf in `checkout`; nothing of the checkout is run.

    Raises:
        InvalidValueError: no such folder, or a file that does not hold what was looked for; names both.
    """
    return store_version(config=import_leaf(checkout))


def import_r2e_harness(*, checkout: Path) -> HarnessVersion:
    """A version with prompts and tools of the R2E-Gym in `checkout`; nothing of the checkout is run.

    Raises:
        InvalidValueError: no such folder, or a file that does not hold what was looked for; names both.
    """
    return store_version(config=import_r2e(checkout))


def import_mini_harness(*, file: Path) -> HarnessVersion:
    """A version with what a configuration file of mini-swe-agent makes of a harness; nothing of it is run.

    Its source says what was not carried over.

    Raises:
        InvalidValueError: no such file, no configuration, or one that a harness cannot be faithful to; names
            file and field.
    """
    return store_version(config=import_mini(file))
