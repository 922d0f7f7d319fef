"""Events as somebody reads them who must not know which arm they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lab.render.fold import LogEvent

# What a reply or its request says of model, limits and price.
_TELLING: dict[str, frozenset[str]] = {
    "model_call_started": frozenset(
        {"model", "endpoint", "max_tokens", "sampling", "extra_body", "request_sha256"}
    ),
    "model_call_finished": frozenset({"model", "cost", "price", "endpoint", "fingerprint"}),
}
_HIDDEN = "hidden until you submit: what the server said may name the model"
# Of events outside steps only what people said to the agent is part of what it did.
_SHOWN_MOMENTS = frozenset({"message_sent"})


def is_shown(event: LogEvent) -> bool:
    """Whether an event has a place on a blind page: those of steps, and what the agent was told."""
    return event.step is not None or event.kind in _SHOWN_MOMENTS


def blinded(event: LogEvent) -> LogEvent:
    """The event without what names or betrays its arm."""
    payload: dict[str, Any] = dict(event.payload)
    for name in _TELLING.get(event.kind, ()):
        payload.pop(name, None)
    if event.kind in {"model_call_failed", "model_call_interrupted"}:
        payload |= {"message": _HIDDEN, "partial": "", "raw": "", "reason": _HIDDEN}
    reply = payload.get("reply")
    if isinstance(reply, Mapping):
        payload["reply"] = {name: value for name, value in reply.items() if name != "model"}
    if event.kind == "model_call_finished":
        payload["notes"] = []
    return replace(event, payload=payload)
