"""What is new about runs side by side: how far each one is, at most once a second.

Nothing is rendered here. Alignment depends on all columns, so that the page fetches the rows of its own
window; one message tells all who watch the same runs that there is something to fetch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from lab.live import messages
from lab.live.hub import Message, Topic
from lab.live.run_feed import RunState

COMPARISON_SECONDS = 1.0

COMPARISON = "comparison"
# What was read of each run that is there.
Progress = Mapping[int, RunState]


class ComparisonFeed:
    """Turns changes of the compared runs into messages. Lives on the watcher's thread."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._seen: dict[int, tuple[int, str]] = {}
        self._at = 0.0
        self.waits = False

    def changed(self, progress: Progress) -> list[Message]:
        """A message when a run went on since the last one; `progress` holds at least the runs of the topic.

        The first look always tells: a run may have gone on after a page was told where it is.
        """
        states = _states(self._topic, progress)
        self.waits = states != self._seen
        now = time.monotonic()
        if not self.waits or now - self._at < COMPARISON_SECONDS:
            return []
        self._seen, self._at, self.waits = states, now, False
        return [messages.comparison(states)]


def comparison_now(topic: Topic, progress: Progress) -> Message:
    """Where the runs of the topic are: what a page is told when it begins to watch."""
    return messages.comparison(_states(topic, progress))


def _states(topic: Topic, progress: Progress) -> dict[int, tuple[int, str]]:
    return {run: progress[run][:2] for run in topic.runs if run in progress}
