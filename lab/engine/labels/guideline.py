"""Which step counts as the root cause: the definitions in use, of which a guideline version names one."""

from __future__ import annotations

from typing import Final

DEFINITIONS: Final[dict[str, tuple[str, str]]] = {
    "first_unrecoverable": (
        "First unrecovered error",
        "The earliest error that the run never recovered from. Mark all errors, walk back from the end, and "
        "take the earliest one that was not repaired. Where one mistake is repeated, it is the first.",
    ),
    "sufficient_correction": (
        "Sufficient correction",
        "The earliest step whose correction alone would have turned the failure into a success.",
    ),
    "inevitable": (
        "Point of no return",
        "The earliest step after which every continuation fails. A check that missed its chance to catch the "
        "mistake counts.",
    ),
}
"""Name -> its title, and the sentence that people read while they label."""

OWN: Final = "own"
DEFAULT: Final = "first_unrecoverable"
