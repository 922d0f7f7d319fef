"""What a check of this machine found: a state in one word, a sentence, and the way out."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "absent", "warning", "problem"]


class Finding(NamedTuple):
    """One check.

    A problem keeps the lab from working, a warning takes something away, what is absent is not needed; the
    remedy says how to mend it or to get it, and is empty when there is nothing to do.
    """

    check: str
    state: State
    message: str
    remedy: str = ""
