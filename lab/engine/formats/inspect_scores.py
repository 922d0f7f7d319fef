"""Scores of an Inspect sample as gradings: resolved or not only where a value says so."""

from __future__ import annotations

import datetime as dt
from typing import Any

from lab.engine.formats.inspect_messages import Attachments
from lab.engine.formats.reading import items, mapping, moment, number, text, without
from lab.engine.formats.trajectory import Grading, Note
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

# Inspect's letters (correct, incorrect, partial, no answer) and the numbers that it counts them as.
_LETTERS = {
    "C": (Outcome.RESOLVED, 1.0),
    "I": (Outcome.UNRESOLVED, 0.0),
    "P": (Outcome.UNRESOLVED, 0.5),
    "N": (Outcome.UNRESOLVED, 0.0),
}
_WHOLE = {1.0: Outcome.RESOLVED, 0.0: Outcome.UNRESOLVED}
_MOST_SHOWN = 200
# What the name of a rule is kept in.
_LONGEST_RULE = 32


def read_scores(sample: JSONObject, attachments: Attachments, notes: list[Note]) -> tuple[Grading, ...]:
    """A grading for each scorer, in the log's order. Older logs have one score without a name."""
    scores = attachments.resolved(mapping(sample.get("scores")))
    if not scores and isinstance(sample.get("score"), dict):
        scores = {"score": attachments.resolved(sample["score"])}
    times = _times(sample)
    return tuple(
        _grading(name, score, times.get(name), notes)
        for name, score in scores.items()
        if isinstance(score, dict)
    )


def _times(sample: JSONObject) -> dict[str, dt.datetime]:
    """When each scorer was done; the event of the only one has no name in older logs."""
    found: dict[str, dt.datetime] = {}
    names = list(mapping(sample.get("scores")))
    for event in items(sample.get("events")):
        if isinstance(event, dict) and event.get("event") == "score" and not event.get("intermediate"):
            name = text(event.get("scorer")) or (names[0] if len(names) == 1 else "")
            if (at := moment(event.get("timestamp"))) is not None:
                found[name] = at
    return found


def _grading(name: str, score: JSONObject, at: dt.datetime | None, notes: list[Note]) -> Grading:
    value = score.get("value")
    outcome, rewards, detail = _judged(name, value, notes)
    explanation = text(score.get("explanation"))
    left = without(score, "value", "explanation")
    return Grading(
        rule=f"inspect:{name}"[:_LONGEST_RULE],
        outcome=outcome,
        rewards=rewards,
        detail=detail,
        log=explanation,
        at=at,
        kept={
            "scorer": name,
            "value": value,
            **{key: kept for key, kept in left.items() if kept not in (None, {}, [])},
        },
    )


def _judged(name: str, value: Any, notes: list[Note]) -> tuple[Outcome, dict[str, float], str]:
    if isinstance(value, str):
        if value in _LETTERS:
            outcome, reward = _LETTERS[value]
            return outcome, {name: reward}, {"P": "partly correct", "N": "no answer"}.get(value, "")
        return Outcome.UNPARSED, {}, f"the value {value[:_MOST_SHOWN]!r} says neither resolved nor not"
    if isinstance(value, bool):
        return (Outcome.RESOLVED if value else Outcome.UNRESOLVED), {name: float(value)}, ""
    found = number(value)
    if found is not None:
        if found in _WHOLE:
            detail = "1 is taken as resolved and 0 as not"
            notes.append(Note(kind="guessed", field=f"scores.{name}.value", detail=detail))
            return _WHOLE[found], {name: found}, ""
        return Outcome.UNPARSED, {name: found}, f"the value {found} says neither resolved nor not"
    rewards = {key: part for key, raw in _named(value) if (part := _reward(raw)) is not None}
    return Outcome.UNPARSED, rewards, "several values, of which none says resolved or not"


def _named(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return [(str(place), part) for place, part in enumerate(items(value))]


def _reward(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return _LETTERS[value][1] if value in _LETTERS else None
    return number(value)
