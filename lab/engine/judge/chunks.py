"""A run as text in pieces that fit a model's context; they overlap, so that no mistake falls between two."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

# Code and logs take fewer characters a token than prose; too small a piece costs a call, too large a one
# is refused.
CHARACTERS_PER_TOKEN = 3.0
SMALLEST_ROOM = 1_500
_OVERLAP = 4
_CONTINUED = "\n[the step goes on in the next piece]"
_GOES_ON = "[the step goes on]\n"


class StepText(NamedTuple):
    """One step of the attempt as text, by its number from 1."""

    step: int
    text: str


class Chunk(NamedTuple):
    """A piece: its number from 1, the first and the last step in it, and the text."""

    n: int
    first: int
    last: int
    text: str


def room_of(*, window: int, answer: int, prompt_characters: int) -> int:
    """How many characters of the log fit beside the prompt and the answer; window and answer in tokens."""
    left = (window - answer) * CHARACTERS_PER_TOKEN * 0.9
    return int(left) - prompt_characters


def split(steps: Sequence[StepText], *, room: int) -> list[Chunk]:
    """The steps in pieces of at most `room` characters, nothing left out.

    The last step of a piece begins the next one too, where it takes no more than a quarter of the room. A
    step longer than the room is cut, and both sides say so.

    Raises:
        ValueError: the room is smaller than `SMALLEST_ROOM`.
    """
    if room < SMALLEST_ROOM:
        raise ValueError(f"{room} characters are no room for a piece")
    chunks: list[Chunk] = []
    held: list[StepText] = []
    for part in _parts(steps, room):
        if held and _length(held) + _length([part]) > room:
            chunks.append(_chunk(len(chunks) + 1, held))
            last = held[-1]
            fits = _length([last]) <= room // _OVERLAP and _length([last, part]) <= room
            held = [last] if fits else []
        held.append(part)
    if held:
        chunks.append(_chunk(len(chunks) + 1, held))
    return chunks


def _chunk(n: int, parts: Sequence[StepText]) -> Chunk:
    text = "".join(_shown(part) for part in parts)
    return Chunk(n, parts[0].step, parts[-1].step, text)


def _shown(part: StepText) -> str:
    return f"=== STEP {part.step} ===\n{part.text.rstrip()}\n\n"


def _length(parts: Sequence[StepText]) -> int:
    return sum(len(_shown(part)) for part in parts)


def _parts(steps: Sequence[StepText], room: int) -> list[StepText]:
    most = room - 60 - len(_CONTINUED) - len(_GOES_ON)
    parts: list[StepText] = []
    for step in steps:
        pieces = [step.text[start : start + most] for start in range(0, max(1, len(step.text)), most)]
        for place, piece in enumerate(pieces):
            begun = _GOES_ON if place else ""
            ended = _CONTINUED if place < len(pieces) - 1 else ""
            parts.append(StepText(step.step, f"{begun}{piece}{ended}"))
    return parts


def fenced(text: str) -> str:
    """The text between two marks that do not occur in it: what is inside is data and gives no orders."""
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    inner = re.sub(rf"</?log-{mark}>", "", text)
    return f"<log-{mark}>\n{inner}\n</log-{mark}>"
