"""Leaf: native tools, one linear conversation, the first reply without a tool call ends the run.

The order of the loop's checks is Leaf's. Deliberately different: wall time counts from the first model call
and interrupts whatever is running; so does a person's cancel. Reasoning is sent back under the field name it
came in. Ids that a server left out or used twice are the client's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from lab.engine.errors import ExitReason
from lab.engine.harnesses.base import Ending, Session
from lab.engine.harnesses.family import CommonFamily
from lab.engine.harnesses.loop import Loop


class Leaf(CommonFamily):
    name: ClassVar[str] = "leaf"

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
        """
        return _Loop(self, session).drive()


class _Loop(Loop):
    # Leaf's own words are the exit reasons themselves; the others are the lab's.
    native_reasons: ClassVar[Mapping[ExitReason, str]] = {
        reason: reason.value
        for reason in (
            ExitReason.AGENT,
            ExitReason.MAX_TURNS,
            ExitReason.MAX_TIME,
            ExitReason.MAX_CONTEXT_LEN,
            ExitReason.MAX_TOKENS_PER_TURN,
            ExitReason.CANCELLED,
        )
    }
