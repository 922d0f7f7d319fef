"""Who&When: logs of failed runs of several agents, one JSON document each, with the label beside the log.

The label (`mistake_agent`, `mistake_step`, `mistake_reason`) is no part of what the agents did: it is read by
`lab.engine.labels.formats.who_and_when` and left out of the run, so that nobody who labels it reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.formats.base import Document, Probe
from lab.engine.formats.counted_entries import entry_turn, steps_note
from lab.engine.formats.json_values import Value, found_in
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import items, mapping, text
from lab.engine.formats.trajectory import Found, Grading, HarnessUsed, Note, Origin, Trajectory
from lab.engine.llm.base import JSONObject
from lab.engine.verify.base import Outcome

LABEL_FIELDS = ("mistake_agent", "mistake_step", "mistake_reason", "mistake_type")
# The collection's two spellings of whether the run's answer is right.
VERDICT_FIELDS = ("is_correct", "is_corrected")
_READ: dict[str, type | tuple[type, ...]] = {
    "history": list,
    "question": str,
    "question_ID": str,
    "is_correct": bool,
    "is_corrected": bool,
}
_OTHERWISE = "is no log of Who&When: it needs `history` with entries that have `content` and `role` or `name`"


class WhoAndWhen:
    """Reads logs of several agents; each entry of `history` is one step."""

    name = "who-and-when"
    title = "Who&When: logs of failed multi-agent runs (.json)"

    def recognises(self, probe: Probe) -> bool:
        if probe.kind == "jsonl":
            return bool(probe.objects) and all(is_log(one) for one in probe.objects)
        return is_log(probe.root)

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON.
        """
        yield from found_in(documents, is_log, self._trajectory, otherwise=_OTHERWISE)

    def _trajectory(self, document: Document, value: Value) -> Trajectory:
        root: JSONObject = value.value
        history = [mapping(one) for one in root["history"]]
        question = text(root.get("question")) or text(history[0].get("content"))
        # The label's fields are left out: see above.
        kept = {name: one for name, one in unread(root, _READ).items() if name not in LABEL_FIELDS}
        left = [name for name in LABEL_FIELDS if name in root]
        notes = [steps_note("history")]
        if left:
            detail = "a label is no part of the run; import the same file as labels"
            notes.append(Note(kind="lost", field=", ".join(left), detail=detail))
        return Trajectory(
            origin=Origin(format=self.name, file=document.path, place=value.place, sha256=value.sha256),
            harness=HarnessUsed(name=""),
            instance_id=text(root.get("question_ID")),
            statement=question,
            items=tuple(
                entry_turn(
                    speaker=speaker_of(entry),
                    content=text(entry.get("content")),
                    kept=unread(entry, {"content": str, "role": str, "name": str}),
                )
                for entry in history
            ),
            final_message=text(history[-1].get("content")),
            gradings=_gradings(root),
            notes=tuple(notes),
            kept=kept,
        )


def is_log(value: Any) -> bool:
    root = mapping(value)
    history = items(root.get("history"))
    named = "question_ID" in root or "mistake_step" in root
    return named and bool(history) and all(_is_entry(one) for one in history)


def _is_entry(value: Any) -> bool:
    entry = mapping(value)
    return isinstance(entry.get("content"), str) and bool(speaker_of(entry))


def speaker_of(entry: JSONObject) -> str:
    """Who spoke: `name` where the file has one (`role` is then the wire's), else `role`."""
    return text(entry.get("name")) or text(entry.get("role"))


def _gradings(root: JSONObject) -> tuple[Grading, ...]:
    verdict = next((root[name] for name in VERDICT_FIELDS if isinstance(root.get(name), bool)), None)
    if verdict is None:
        return ()
    outcome = Outcome.RESOLVED if verdict else Outcome.UNRESOLVED
    return (Grading(rule="who-and-when", outcome=outcome, detail="the answer, against the right one"),)
