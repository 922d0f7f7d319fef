"""What Leaf's loop counts, as a fold over events: the live loop and a continued one use the same code."""

from __future__ import annotations

from lab.engine.events import (
    Event,
    MessageSent,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.llm.base import JSONObject


class LeafCounts:
    """`answered` is the last step with a reply, `format_errors` counts replies in a row of which not one tool
    call was understood. `context_tokens` is what the server counted last, and what was added since estimated;
    0 before the first reply. `last_output_tokens` is the size of the last reply.
    """

    def __init__(self) -> None:
        self.answered = 0
        self.context_tokens = 0
        self.last_output_tokens = 0
        self.format_errors = 0
        self._waiting = 0
        self._understood = 0

    def apply(self, event: Event) -> None:
        if isinstance(event, ModelCallFinished):
            self.answered = event.step
            self.context_tokens = event.context_tokens
            self.last_output_tokens = event.reply.usage.output_total or 0
            self._waiting, self._understood = len(event.reply.tool_calls), 0
        elif isinstance(event, ToolCallFinished):
            self._add(event.message)
            self._waiting -= 1
            if self._waiting == 0:
                self.format_errors = 0 if self._understood else self.format_errors + 1
        elif isinstance(event, ToolCallStarted) and not event.again:
            self._understood += bool(event.executor) and not event.malformed
        elif isinstance(event, MessageSent) and self.context_tokens:
            self._add(event.message)

    def _add(self, message: JSONObject) -> None:
        self.context_tokens += estimated_tokens([message])
