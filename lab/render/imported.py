"""What an imported log says of the file it was made from, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.engine.events import KEPT_FOR_OPERATORS
from lab.render.blocks import moment_body, more_link, output_block
from lab.render.fold import LogEvent
from lab.render.text import excerpt, line_html, visible_html, words_of

_TIMES = {
    "recorded": "",
    "partly": "; some times are not recorded",
    "not_recorded": "; its times are not recorded: those shown are the import's",
}
_NOTES = {"guessed": "guessed", "lost": "lost", "missing": "not in the file"}


def trajectory_imported(run: int, event: LogEvent) -> tuple[str, str, str, str]:
    """Where the attempt's log came from: words, class, icon and details, as of every event outside steps."""
    payload = event.payload
    place = f", {line_html(payload.get('place'))}" if payload.get("place") else ""
    times = _TIMES.get(words_of(payload.get("times")), "")
    name, file = line_html(payload.get("format")), line_html(payload.get("file"))
    words = f"Imported as {name} from <b>{file}</b>{place}{times}"
    details = _notes(payload.get("notes")) + _totals(payload.get("totals"))
    return words, "attempt", "down", moment_body(details + _kept(run, event))


def kept_block(run: int | None, event: LogEvent) -> str:
    """What the file holds of a step besides what the step shows: folded."""
    about = words_of(event.payload.get("about")).replace("_", " ")
    call = words_of(event.payload.get("call_id"))
    of_call = f" <code>{line_html(call, 60)}</code>" if call else ""
    return (
        f'<details class="kept"><summary>Recorded besides, of this {line_html(about)}{of_call}</summary>'
        f"{_kept(run, event)}</details>"
    )


def source_kept(run: int, event: LogEvent) -> tuple[str, str, str, str]:
    """What the file holds at this place and the lab has no place for."""
    about = words_of(event.payload.get("about")).replace("_", " ")
    if event.payload.get("about") in KEPT_FOR_OPERATORS:
        link = more_link(run, event.seq, "kept", "show it: it may hold a gold patch or hidden tests")
        shown = f'<div class="output"><p class="foot">{link}</p></div>'
        words = f"Recorded besides, of this {line_html(about)}, for operators"
        return words, "kept", "down", moment_body(shown)
    kept = line_html(event.payload.get("kept"))
    words = f"Recorded besides, of this {line_html(about)}: <code>{kept}</code>"
    return words, "kept", "down", moment_body(_kept(run, event))


def _notes(value: Any) -> str:
    notes = [note for note in value or [] if isinstance(note, Mapping)]
    items = "".join(
        f"<li>{_NOTES.get(words_of(note.get('kind')), '')}: <code>{line_html(note.get('field'))}</code> "
        f"{line_html(note.get('detail'), 600)}</li>"
        for note in notes
    )
    return f'<ul class="import-notes">{items}</ul>' if items else ""


def _totals(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return ""
    said = ", ".join(f"{line_html(name)} {visible_html(str(number))}" for name, number in value.items())
    return f"<p>The file's own totals: {said}</p>"


def _kept(run: int | None, event: LogEvent) -> str:
    kept = event.payload.get("kept")
    if not kept:
        return ""
    title = "As it stood in the file"
    return output_block(excerpt(kept), run=run, seq=event.seq, part="kept", title=title, icon_name="file")
