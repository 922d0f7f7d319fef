"""Trajectories of which every entry is a step, as the labels of their collections count them.

What people and tools said is a step of its own there, so that step n is the file's n-th entry and a label's
number points where its author pointed.
"""

from __future__ import annotations

from lab.engine.formats.trajectory import Note, Turn
from lab.engine.llm.base import JSONObject

# Whoever asks: a run's steps are its model's, and these are not.
EVERY_ENTRY = "every entry is a step, those of people and tools as well: labels of these files count them so"


def entry_turn(*, speaker: str, content: str, kept: JSONObject, message: JSONObject | None = None) -> Turn:
    """One entry as a step by `speaker`; `message` where it says more than its content."""
    said = message or {"role": "assistant", "content": content}
    return Turn(message=said, agent=speaker, kept=kept)


def steps_note(field: str) -> Note:
    return Note(kind="guessed", field=field, detail=EVERY_ENTRY)
