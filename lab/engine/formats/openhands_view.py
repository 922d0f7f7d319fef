"""What a model of OpenHands is shown, event by event: condensing forgets some and adds a summary."""

from __future__ import annotations

from typing import Any, NamedTuple

from lab.engine.llm.base import JSONObject


class _Seen(NamedTuple):
    event_id: Any
    message: JSONObject | None


class View:
    """Events in their order with the message each one brought into the conversation, None for none."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []

    def add(self, event_id: Any, message: JSONObject | None) -> None:
        self._seen.append(_Seen(event_id, message))

    def replace(self, event_id: Any, message: JSONObject) -> None:
        """Another message for an event, when its answer turns out to have further calls."""
        for place in range(len(self._seen) - 1, -1, -1):
            if self._seen[place].event_id == event_id:
                self._seen[place] = _Seen(event_id, message)
                return

    def condense(self, forgotten: set[Any], summary: str, offset: int | None) -> tuple[JSONObject, ...]:
        """Forgets events, puts the summary at `offset` of those that are left, and returns all messages."""
        self._seen = [one for one in self._seen if not _among(one.event_id, forgotten)]
        if summary and offset is not None:
            self._seen.insert(offset, _Seen(None, {"role": "user", "content": summary}))
        return tuple(one.message for one in self._seen if one.message is not None)


def _among(event_id: Any, forgotten: set[Any]) -> bool:
    return isinstance(event_id, (str, int)) and event_id in forgotten
