"""What a loop counts, as a fold over events: the live loop and a continued one use the same code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from lab.engine.events import (
    Event,
    HarnessMessage,
    HistoryRewritten,
    MessageSent,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.llm.base import JSONObject, Reply


class LoopCounts:
    """`answered` is the last step with a reply, `format_errors` counts replies in a row of which nothing was
    understood, as `is_format_error` says. `context_tokens` is what the server counted last, and what was
    added since estimated; 0 before the first reply. `last_output_tokens` is the size of the last reply.
    `ended_calls` counts calls that have ended by tool, `submitted` is the one that ended the agent's work,
    unless a person spoke to the agent afterwards.
    """

    def __init__(self, is_format_error: Callable[[Reply], bool]) -> None:
        self.answered = 0
        self.context_tokens = 0
        self.last_output_tokens = 0
        self.format_errors = 0
        self.ended_calls: Counter[str] = Counter()
        self.submitted: ToolCallFinished | None = None
        self._is_format_error = is_format_error
        self._tool = ""

    def apply(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, ModelCallFinished):
            self.answered = event.step
            self.context_tokens = event.context_tokens - _left_out(event)
            self.last_output_tokens = event.reply.usage.output_total or 0
            self.format_errors = self.format_errors + 1 if self._is_format_error(event.reply) else 0
        elif isinstance(event, ToolCallStarted):
            self._tool = event.tool
        elif isinstance(event, ToolCallFinished):
            self.ended_calls[self._tool] += 1
            if event.submitted:
                self.submitted = event
            self._add(event.message)
        elif isinstance(event, HarnessMessage | MessageSent):
            if isinstance(event, MessageSent):
                self.submitted = None
            self._add(event.message)
        elif isinstance(event, HistoryRewritten) and event.context_tokens is not None:
            self.context_tokens = event.context_tokens

    def _add(self, message: JSONObject) -> None:
        if self.context_tokens:
            self.context_tokens += estimated_tokens([message])


def _left_out(event: ModelCallFinished) -> int:
    """The tokens of a reply that does not join the conversation: the next request is without them."""
    return 0 if event.message or event.context_tokens_estimated else event.reply.usage.output_total or 0
