"""What a new version of a vocabulary may change: words, never what an id that labels hold means."""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml
from pydantic import ValidationError

from lab.engine.errors import InvalidValueError
from lab.engine.labels.taxonomy import Code, Taxonomy


def next_version(before: Taxonomy | None, after: Taxonomy) -> Taxonomy:
    """`after` as it may follow `before`: codes that it leaves out are kept and retired.

    Raises:
        InvalidValueError: an id stands twice, or there is no code to choose.
    """
    seen: set[str] = set()
    for code in after.codes:
        if code.id in seen:
            raise InvalidValueError("codes", code.id, "stands twice; an id belongs to one code")
        seen.add(code.id)
    if all(code.retired for code in after.codes):
        raise InvalidValueError(
            "codes", len(after.codes), "leave nothing to choose; keep one that is not retired"
        )
    left_out = [code for code in (before.codes if before else ()) if code.id not in seen]
    retired = tuple(code.model_copy(update={"retired": True}) for code in left_out)
    return after.model_copy(update={"codes": (*after.codes, *retired)})


def differences(before: Taxonomy, after: Taxonomy) -> list[str]:
    """One sentence for each code that was added, retired, taken up again or said otherwise."""
    sentences = []
    for code in after.codes:
        was = before.code(code.id)
        if was is None:
            sentences.append(f"{code.id} is new")
        elif was.retired != code.retired:
            sentences.append(f"{code.id} is {'retired' if code.retired else 'in use again'}")
        elif was != code:
            fields = [name for name in Code.model_fields if getattr(was, name) != getattr(code, name)]
            sentences.append(f"{code.id}: {', '.join(fields)} changed")
    gone = [code.id for code in before.codes if after.code(code.id) is None]
    return sentences + [f"{code_id} is left out" for code_id in gone]


def from_yaml(text: str) -> Taxonomy:
    """A vocabulary as its file says it.

    Raises:
        InvalidValueError: not YAML, or not a vocabulary; names the field.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidValueError("file", text[:40], f"is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise InvalidValueError("file", text[:40], "is no taxonomy: it must hold slug, name and codes")
    try:
        return Taxonomy.model_validate(data)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidValueError(place, first.get("input"), f"cannot be used: {first['msg']}") from None


def to_yaml(taxonomy: Taxonomy) -> str:
    """The vocabulary as a file that `from_yaml` reads as the same."""
    data = taxonomy.model_dump(mode="json", exclude_defaults=True)
    data["codes"] = [code.model_dump(mode="json", exclude_defaults=True) for code in taxonomy.codes]
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def find_code(taxonomy: Taxonomy, words: str) -> str | None:
    """The id of the code that a file calls `words`: by id or name, whatever its case, spelling of gaps, or
    endings such as "failure"; None where no code or more than one is meant.
    """
    wanted = _plain(words)
    if not wanted:
        return None
    exact = [code.id for code in taxonomy.codes if wanted in {_plain(code.id), _plain(code.name)}]
    if len(exact) == 1:
        return exact[0]
    part = wanted.split()
    near = [code.id for code in taxonomy.codes if _holds(_plain(code.name).split(), part)]
    return near[0] if len(near) == 1 else None


# Words that people add to or leave out of a category's name.
_FILLING = frozenset({"failure", "failures", "error", "errors", "of", "the", "a", "an"})


def _plain(words: str) -> str:
    parts = re.findall(r"[^\W_]+", words.casefold())
    kept = [part for part in parts if part not in _FILLING]
    return " ".join(kept or parts)


def _holds(name: Iterable[str], wanted: list[str]) -> bool:
    words = set(name)
    return all(word in words for word in wanted)
