"""Icons of the sprite, always beside a word."""

from __future__ import annotations

SPRITE = "/static/icons.svg"


def icon(name: str, extra: str = "") -> str:
    """One icon as markup; `name` is an id of the sprite."""
    classes = f"icon {extra}".rstrip()
    return f'<svg class="{classes}" aria-hidden="true"><use href="{SPRITE}#{name}"/></svg>'
