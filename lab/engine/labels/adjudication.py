"""Settling labels that differ: what of one reading goes into the third record."""

from __future__ import annotations

from typing import Final

from lab.engine.errors import InvalidValueError
from lab.engine.labels.label import Label, RootCause

PARTS: Final = ("all", "owner", "phase", "root", "sure")


def taken(label: Label, source: Label, part: str) -> Label:
    """The label with one part of `source` in it: all of it, a field, or its root cause with that event.

    Raises:
        InvalidValueError: there is no such part, or `source` points at no root cause.
    """
    if part == "all":
        return source.model_copy(update={"next_key": max(source.next_key, label.next_key)})
    if part in {"owner", "phase", "sure"}:
        return label.model_copy(update={part: getattr(source, part)})
    if part != "root":
        raise InvalidValueError("part", part, f"is none of {', '.join(PARTS)}")
    if source.root is None or source.root_cause is None:
        raise InvalidValueError("root_cause", "none", "is what this reading names; take another one's")
    same = [one for one in label.events if _same(one, source.root)]
    key = same[0].key if same else label.next_key
    root = source.root.model_copy(update={"key": key, "caused_by": None})
    kept = tuple(root if one.key == key else one for one in label.events)
    return label.model_copy(
        update={
            "events": kept if same else (*kept, root),
            "root_cause": RootCause(event=key, reason=source.root_cause.reason),
            "next_key": max(label.next_key, key + 1),
        }
    )


def _same(one: object, other: object) -> bool:
    names = ("attempt", "step", "category")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def agreed(labels: list[Label]) -> Label:
    """What all readings say alike: where the third record begins. Differing fields stay open."""
    first, rest = labels[0], labels[1:]
    start = Label()
    for name in ("owner", "phase"):
        if all(getattr(one, name) == getattr(first, name) for one in rest):
            start = taken(start, first, name)
    if first.root is not None and all(one.root is not None and _same(one.root, first.root) for one in rest):
        start = taken(start, first, "root")
    return start
