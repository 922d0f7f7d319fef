"""What the page of an imported run says of the file it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from lab.engine.formats.to_events import NO_PATCH
from lab.models import Event, Experiment, ImportedTrajectory, Run
from lab.render.numbers import clock, dollars, plural
from lab.render.text import one_line, visible_text
from lab.services.payloads import short_text


class Source(NamedTuple):
    """Where an imported run came from. `totals`: the file's own figures of the whole run, in words.

    `import_id` is None where the import is gone. `patch_recorded` is False where the file has no place for a
    patch or leaves it empty.
    """

    format: str
    file: str
    import_id: int | None
    seq: int
    steps_recorded: bool
    totals: str
    notes: str
    patch_recorded: bool


def source_of(run: Run) -> Source | None:
    """None for a run of the lab's own."""
    if run.experiment.kind != Experiment.Kind.IMPORTED:
        return None
    event = Event.objects.filter(run=run, kind="trajectory_imported").order_by("-seq").first()
    if event is None:
        return None
    payload = event.payload
    made_by = ImportedTrajectory.objects.filter(run=run).values_list("made_by_id", flat=True).first()
    return Source(
        format=visible_text(one_line(short_text(payload.get("format")), 60)),
        file=visible_text(one_line(short_text(payload.get("file")), 300)),
        import_id=made_by,
        seq=event.seq,
        steps_recorded=payload.get("steps_recorded", True) is not False,
        totals=_totals(payload.get("totals") or {}),
        notes=_notes(payload.get("notes") or []),
        patch_recorded=_patch_recorded(run),
    )


def _patch_recorded(run: Run) -> bool:
    payload = Event.objects.filter(run=run, kind="patch_captured").values_list("payload", flat=True).last()
    return payload is not None and NO_PATCH not in (payload.get("left_out") or [])


def _totals(totals: Mapping[str, Any]) -> str:
    said = [_dollars(totals.get("cost_usd"))]
    for name, word in (("calls", "request"), ("steps", "step")):
        if isinstance(totals.get(name), int):
            said.append(plural(totals[name], word))
    for name, words in (("input_tokens", "tokens in"), ("output_tokens", "tokens out")):
        if isinstance(totals.get(name), int):
            said.append(f"{totals[name]:,} {words}")
    seconds = totals.get("seconds")
    if isinstance(seconds, int | float):
        said.append(clock(float(seconds)))
    return ", ".join(filter(None, said))


def _dollars(text: Any) -> str:
    try:
        return str(dollars(Decimal(str(text)))) if text is not None else ""
    except InvalidOperation:
        return ""


def _notes(notes: list[Any]) -> str:
    """ "2 guessed, 1 lost": what the file left to the reader."""
    kinds = [note.get("kind") for note in notes if isinstance(note, Mapping)]
    counted = [f"{kinds.count(kind)} {word}" for kind, word in _KINDS.items() if kind in kinds]
    return ", ".join(counted)


_KINDS = {"guessed": "guessed", "lost": "lost", "missing": "not in the file"}
