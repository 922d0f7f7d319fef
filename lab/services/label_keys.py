"""The keys of the labelling page, which each person may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.contrib.auth.models import User

from lab.models import Role
from lab.services.access import for_role, membership_of
from lab.services.errors import FieldErrorCollector

ACTIONS: Final[dict[str, tuple[str, str]]] = {
    "event": ("n", "error event at this step"),
    "evidence": ("m", "mark the selected words as evidence"),
    "root": ("r", "this step is the root cause"),
    "to_root": ("R", "jump to the root cause"),
    "sure": ("s", "sure or unsure"),
    "undo": ("z", "undo"),
    "redo": ("Z", "do again what was undone"),
    "remove": ("x", "remove the open error event"),
    "owner": ("h", "whose fault?"),
    "note": ("i", "note"),
}
"""Action -> its key, and what it does."""

# They do the same on every page, or answer fields.
RESERVED: Final = frozenset("gjkoOebdtw?[],.lvyf/") | frozenset("0123456789")


def keys_of(person: User) -> dict[str, str]:
    """The person's key of each action."""
    membership = membership_of(person)
    own: Mapping[str, str] = membership.label_keys if membership is not None else {}
    return {action: own.get(action, key) for action, (key, _) in ACTIONS.items()}


@for_role(Role.ANNOTATOR)
def change(*, by: User, keys: Mapping[str, str]) -> dict[str, str]:
    """Give actions other keys; an empty one is the lab's own again.

    Raises:
        FieldErrors: by action, a key that is no single character, has a meaning already, or is given twice.
    """
    errors = FieldErrorCollector()
    wanted = {action: (keys.get(action) or default).strip() for action, (default, _) in ACTIONS.items()}
    for action, key in wanted.items():
        others = [other for other, same in wanted.items() if same == key and other != action]
        if len(key) != 1 or not key.isprintable():
            errors.say(action, f"“{key}” is not one key; type a single character")
        elif key in RESERVED:
            errors.say(action, f"“{key}” has a meaning on every page or answers a field; choose another")
        elif others:
            errors.say(action, f"“{key}” is also the key of “{ACTIONS[others[0]][1]}”; choose another")
    errors.raise_if_any()
    membership = membership_of(by)
    if membership is not None:
        membership.label_keys = {action: key for action, key in wanted.items() if key != ACTIONS[action][0]}
        membership.save(update_fields=["label_keys"])
    return wanted
