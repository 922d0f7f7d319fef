"""What an attempt has used so far, as a fold over its events: every request counts, failed ones too."""

from __future__ import annotations

from decimal import Decimal

from lab.engine.events import Event, ModelCallFailed, ModelCallFinished, ModelCallInterrupted


class Spending:
    """Tokens of this attempt and money of the whole run.

    `usd` starts with what earlier attempts cost. A request of unknown cost adds nothing and is counted in
    `unknown_costs`; a reply without usage counts as its estimated context, a failed request without usage as
    nothing.
    """

    def __init__(self, usd_before: Decimal = Decimal(0)) -> None:
        self.usd = usd_before
        self.tokens = 0
        self.unknown_costs = 0

    def apply(self, event: Event) -> None:
        if not isinstance(event, ModelCallFinished | ModelCallFailed | ModelCallInterrupted):
            return
        if event.cost.amount is None:
            self.unknown_costs += 1
        else:
            self.usd += event.cost.amount
        if isinstance(event, ModelCallFinished):
            known = event.reply.usage.total
            self.tokens += event.context_tokens if known is None else known
        else:
            self.tokens += event.usage.total or 0
