"""Quotes out of a run's log: found where they stand, and known to hold as long as the text is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab.engine.errors import InvalidValueError
from lab.engine.key_shapes import mask_key_shapes
from lab.engine.labels.evidence import Found, locate, text_hash
from lab.engine.labels.label import Evidence
from lab.models import Event
from lab.services import payloads
from lab.services.blobs import BodyMissingError
from lab.services.trajectories import text_of

LONGEST_QUOTE = 4_000
# What a step shows first is taken where a quote stands in several texts with the same surroundings.
_ORDER = ("reply", "arguments", "stdout", "stderr", "observation")


def find(*, run_id: int, attempt: int, step: int, quote: str, prefix: str = "", suffix: str = "") -> Evidence:
    """The marked words as a quote with offsets into the text of the step's log that holds them.

    `part` is the path of that text in the event, such as `reply.content`. Of several places the one whose
    surroundings are as on the page: `prefix` and `suffix` are some characters before and after.

    Raises:
        InvalidValueError: nothing is marked, too much, or the step does not hold these words.
    """
    if not quote.strip():
        raise InvalidValueError("evidence", quote, "is empty; mark some words of the step first")
    if len(quote) > LONGEST_QUOTE:
        raise InvalidValueError(
            "evidence", f"{quote[:40]}…", f"has {len(quote):,} characters; mark at most {LONGEST_QUOTE:,}"
        )
    best: tuple[int, int, Evidence] | None = None
    for event in Event.objects.filter(run_id=run_id, attempt=attempt, step=step).order_by("seq"):
        for part, text in _texts(event.payload):
            found = locate(text, quote, prefix=prefix, suffix=suffix)
            if found is None:
                continue
            rank = (found.context, -_place(part))
            if best is None or rank > best[:2]:
                best = (*rank, _evidence(event.seq, part, text, found))
    if best is None:
        raise InvalidValueError(
            "evidence",
            f"{quote[:60]}…" if len(quote) > 60 else quote,
            f"is not in step {step} word for word; mark words inside of one text or output of it",
        )
    return best[2]


def _place(part: str) -> int:
    head = part.partition(".")[0]
    return _ORDER.index(head) if head in _ORDER else len(_ORDER)


def _evidence(seq: int, part: str, text: str, found: Found) -> Evidence:
    return Evidence(
        quote=text[found.start : found.end],
        seq=seq,
        part=part,
        start=found.start,
        end=found.end,
        sha256=text_hash(text),
    )


def holds(*, run_id: int, evidence: Evidence) -> bool:
    """Whether a quote still stands where it says: its text was neither purged nor is it masked otherwise."""
    if evidence.seq is None or evidence.part is None:
        return False
    event = Event.objects.filter(run_id=run_id, seq=evidence.seq).first()
    if event is None:
        return False
    text = dict(_texts(event.payload)).get(evidence.part)
    return text is not None and text_hash(text) == evidence.sha256


def _texts(payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text of an event by its path, whole and masked as pages show it, but those that are gone."""
    yield from _leaves(dict(payload), "")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) or payloads.is_reference(value):
        try:
            text = text_of(value)
        except BodyMissingError:
            return
        yield path, mask_key_shapes(text)
    elif isinstance(value, dict):
        for name, item in value.get("$plain", value).items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{path}.{place}")
