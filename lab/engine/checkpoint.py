"""The moments between two events of an agent, where people's wishes and used-up budgets take effect."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lab.engine.errors import AttemptStoppedError, ExitReason, HandedOverError, InvalidValueError
from lab.engine.events import LimitChanged, MessageSent, Paused, Resumed
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject
from lab.engine.sinks import Emit
from lab.engine.steering import Ask, Steering
from lab.engine.stop import StopSignal

if TYPE_CHECKING:
    from lab.engine.harnesses.clock import WallClock
    from lab.engine.harnesses.spending import Spending

_LONGEST_WAIT = 60.0


def wall_time_allowed(steering: Steering, limit: float) -> float | None:
    """The wall time in seconds that will hold when what is asked for takes effect, if that is more."""
    after: float | None = limit
    for ask in steering.pending():
        if ask.control == "limit" and ask.value.get("limit") == "max_total_time_sec":
            with contextlib.suppress(InvalidValueError):
                after = Limits().changed("max_total_time_sec", ask.value.get("after")).max_total_time_sec
    return None if after is None else max(limit, after)


class Checkpoint:
    """Looks into the mailbox between two events and keeps the limits that hold.

    `message_of` is a person's text as it joins the conversation. `done` are the numbers of the wishes that a
    former worker child dealt with, `is_paused` is whether it left the attempt paused.

    Raises, from every look:
        AttemptStoppedError: cancel, or a budget that is used up.
        HandedOverError: the mailbox is closed; another worker child goes on.
    """

    def __init__(
        self,
        *,
        steering: Steering,
        stop: StopSignal,
        clock: WallClock,
        spending: Spending,
        limits: Limits,
        emit: Emit,
        message_of: Callable[[str], JSONObject],
        done: Iterable[int] = (),
        is_paused: bool = False,
    ) -> None:
        self.limits = limits
        self._steering, self._stop = steering, stop
        self._clock, self._spending = clock, spending
        self._emit, self._message_of = emit, message_of
        self._done = set(done)
        self._is_paused = is_paused
        self._messages: list[Ask] = []

    @property
    def has_message(self) -> bool:
        """Whether a person's message waits to join the conversation."""
        return bool(self._messages)

    def steer(self) -> None:
        """Do what people asked for; returns when the attempt goes on, after a pause that may be long."""
        self._require_going_on()
        self._hear()
        if self._is_paused:
            with self._clock.paused():
                while self._is_paused:
                    self._steering.wait(_LONGEST_WAIT, self._stop)
                    self._require_going_on()
                    self._hear()
        self._require_going_on()

    def look(self) -> None:
        """Before a tool call: steer, then the wall time."""
        self.steer()
        remaining = self._clock.remaining
        if remaining is not None and remaining <= 0:
            raise AttemptStoppedError(ExitReason.MAX_TIME)

    def before_request(self) -> None:
        """Before each request, another try of the same step included: steer, then everything it costs."""
        self.look()
        spent = self.spent()
        if spent is not None:
            raise AttemptStoppedError(spent)

    def spent(self) -> ExitReason | None:
        """The budget of tokens or money that is used up, None while another request may be made."""
        limits, spending = self.limits, self._spending
        if limits.max_tokens_total is not None and spending.tokens >= limits.max_tokens_total:
            return ExitReason.MAX_TOKENS_TOTAL
        if limits.max_cost_usd is not None and spending.usd >= limits.max_cost_usd:
            return ExitReason.MAX_COST
        return None

    def wait_for_retry(self, seconds: float) -> None:
        """Wait before another try; what people ask for meanwhile takes effect at once."""
        until = time.monotonic() + seconds
        while True:
            looked = time.monotonic()
            self.before_request()
            # A pause only moves the wait.
            until += time.monotonic() - looked
            left = until - time.monotonic()
            if left <= 0:
                return
            self._steering.wait(left, self._stop)

    def deliver_messages(self) -> bool:
        """Let waiting messages join the conversation; False when there is none.

        Only where no tool call of the last reply waits for its result.
        """
        messages, self._messages = self._messages, []
        for ask in messages:
            text = str(ask.value.get("text", ""))
            self._emit(MessageSent(person=ask.person, message=self._message_of(text), ask=ask.number))
        return bool(messages)

    def _require_going_on(self) -> None:
        if self._stop.reason is not None:
            raise AttemptStoppedError(self._stop.reason)
        if self._steering.is_closed:
            raise HandedOverError("the attempt was handed over")

    def _hear(self) -> None:
        while waiting := self._steering.pending():
            ask = waiting[0]
            if not ask.number or ask.number not in self._done:
                self._done.add(ask.number)
                self._obey(ask)
            # Only now: until then the clock counts what is asked for, and no limit passes that was raised.
            self._steering.drop_oldest()

    def _obey(self, ask: Ask) -> None:
        if ask.control == "message":
            self._messages.append(ask)
        elif ask.control == "limit":
            self._change_limit(ask)
        elif (ask.control == "pause") is not self._is_paused:
            # Asked for twice, by two people at once, it happens once.
            self._is_paused = ask.control == "pause"
            event = Paused if self._is_paused else Resumed
            self._emit(event(person=ask.person, ask=ask.number))

    def _change_limit(self, ask: Ask) -> None:
        name, before = str(ask.value.get("limit")), self.limits
        try:
            self.limits = before.changed(name, ask.value.get("after"))
        except InvalidValueError:
            # Refused where it was typed in; the run stays as it was.
            return
        self._clock.set_limit(self.limits.max_total_time_sec)
        self._emit(
            LimitChanged(
                limit=name,
                before=before.model_dump(mode="json")[name],
                after=self.limits.model_dump(mode="json")[name],
                person=ask.person,
                ask=ask.number,
            )
        )
