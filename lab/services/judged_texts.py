"""A run as a judge reads it: each step of an attempt as text, masked as pages show it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab.engine.judge.chunks import StepText
from lab.engine.key_shapes import mask_key_shapes
from lab.engine.redact import Redactor
from lab.models import Event, Run
from lab.services import known_facts
from lab.services.blobs import BodyMissingError
from lab.services.trajectories import text_of

_GONE = "[this text is not there any more]"


def newest_attempt(run: Run) -> int:
    """The attempt that counts; 1 where none is recorded."""
    newest = Event.objects.filter(run=run).order_by("-attempt").values_list("attempt", flat=True).first()
    return newest or 1


def steps_of(run: Run, *, attempt: int, redactor: Redactor) -> list[StepText]:
    """What the model wrote, called and was told in each step, in its order and whole."""
    texts: dict[int, list[str]] = {}
    rows = Event.objects.filter(run=run, attempt=attempt, step__isnull=False).order_by("seq")
    for row in rows.iterator(chunk_size=200):
        said = _said(row.kind, row.payload)
        held = texts.setdefault(row.step or 0, [])
        if said:
            held.append(said)
    return [
        StepText(step, _clean("\n".join(parts) or "[nothing is recorded of this step]", redactor))
        for step, parts in sorted(texts.items())
        if step > 0
    ]


def about(run: Run, *, attempt: int, redactor: Redactor, most: int) -> str:
    """The task as it was given, what tests and exit reason say, and the patch; cut at `most` characters each.

    Nothing of the arm: neither model, harness nor price.
    """
    known = "\n".join(f"- {one.words}" for one in known_facts.of(run))
    parts = [f"TASK\n{_cut(run.task.statement or run.task.title, most)}"]
    parts.append(f"WHAT IS KNOWN OF THE END\n{known}")
    captured = Event.objects.filter(run=run, attempt=attempt, kind="patch_captured").order_by("-seq").first()
    if captured is not None:
        patch = _text(captured.payload.get("patch"))
        parts.append(f"THE PATCH\n{_cut(patch, most) if patch else '(empty)'}")
    return _clean("\n\n".join(parts), redactor)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} characters more]"


def _clean(text: str, redactor: Redactor) -> str:
    return redactor.text(mask_key_shapes(text))


def _said(kind: str, payload: Mapping[str, Any]) -> str:
    reader = _READERS.get(kind)
    return reader(payload) if reader is not None else ""


def _reply(payload: Mapping[str, Any]) -> str:
    reply = payload.get("reply") or {}
    parts = [("THOUGHT", _text(reply.get("reasoning"))), ("MODEL", _text(reply.get("content")))]
    return "\n".join(f"{name}: {text}" for name, text in parts if text)


def _call(payload: Mapping[str, Any]) -> str:
    malformed = _text(payload.get("malformed"))
    arguments = payload.get("arguments") or {}
    inner = arguments.get("$plain", arguments)
    if malformed or not inner:
        return f"CALL {payload.get('tool')}: {_text(payload.get('raw_arguments'))}" + (
            f"\n(not understood: {malformed})" if malformed else ""
        )
    lines = [f"CALL {payload.get('tool')}"]
    for name, value in inner.items():
        shown = _text(value) if isinstance(value, str) or _is_text(value) else json.dumps(value)
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and "$blob" in value


def _observation(payload: Mapping[str, Any]) -> str:
    return f"OUTPUT: {_text(payload.get('observation'))}"


def _message(payload: Mapping[str, Any]) -> str:
    message = payload.get("message") or {}
    inner = message.get("$plain", message)
    return f"HARNESS: {_text(inner.get('content'))}"


def _failed(payload: Mapping[str, Any]) -> str:
    return f"(a request to the model failed: {_text(payload.get('message'))})"


_READERS = {
    "model_call_finished": _reply,
    "model_call_failed": _failed,
    "tool_call_started": _call,
    "tool_call_finished": _observation,
    "harness_message": _message,
}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(_text(one.get("text", "")) for one in value if isinstance(one, dict))
    try:
        return text_of(value)
    except BodyMissingError:
        return _GONE
