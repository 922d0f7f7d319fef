"""The loop that every family drives: ask, read the reply, execute its calls, until something ends it.

What the loop counts is folded from the log, so that another worker child goes on in the middle of a step.
Wall time counts from the first model call and interrupts whatever is running; so does a person's cancel. A
family overrides the steps in which it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar

from lab.engine.errors import AttemptStoppedError, ExitReason, InvalidValueError
from lab.engine.events import HarnessMessage, LimitReached, ModelCallFinished, ToolCallFinished
from lab.engine.harnesses.arguments import protocol_notes, unread_form
from lab.engine.harnesses.base import Ending, Family, Session
from lab.engine.harnesses.calls import CUT, NO_CALL, Call, Reading
from lab.engine.harnesses.counts import LoopCounts
from lab.engine.harnesses.templates import render
from lab.engine.harnesses.tool_calls import ToolCalls
from lab.engine.harnesses.turns import estimated_tokens, provider_total, request_cap, turn_cap
from lab.engine.llm.base import JSONObject, Reply
from lab.engine.llm.client import ContextOverflowError
from lab.engine.tools.base import ToolResult

# What a raw text may take of the feedback that is sent back to the model.
_RAW_SHOWN = 2_000
_LISTED = 20


class Loop:
    """The state of one run through the loop. `native_reasons` are the family's own words for exit reasons."""

    native_reasons: ClassVar[Mapping[ExitReason, str]] = {}

    def __init__(self, family: Family, session: Session) -> None:
        self.family = family
        self.session = session
        self.config = session.config
        self.counts = LoopCounts(self._is_format_error)
        session.follow(self.counts.apply)
        self.calls = ToolCalls(
            session,
            self.counts,
            message_of=self.result_message,
            explain=self._explanation,
            names=self.observation_names,
        )

    def drive(self) -> Ending:
        """Run to the end; the limit that ended it is an event of its own.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
            InvalidValueError: a template of the harness cannot be rendered.
        """
        try:
            ending = self._run()
        except AttemptStoppedError as stopped:
            ending = Ending(stopped.reason, stopped.native_reason, stopped.detail)
        self._say_limit(ending.reason)
        if not ending.native_reason:
            ending.native_reason = self.native_reasons.get(ending.reason, "")
        return ending

    # What families override.

    def limit_reached(self) -> Ending | None:
        """The limit that forbids another request, if any."""
        limits, counts = self.session.limits, self.counts
        if limits.max_context_tokens and self.context_measured() >= limits.max_context_tokens:
            return Ending(ExitReason.MAX_CONTEXT_LEN)
        if limits.max_format_errors is not None and counts.format_errors >= limits.max_format_errors:
            return Ending(ExitReason.FORMAT_ERRORS)
        if limits.max_steps is not None and counts.answered >= limits.max_steps:
            return Ending(ExitReason.MAX_TURNS)
        return None

    def context_measured(self) -> int:
        """The tokens that the context limit is held against."""
        return self.counts.context_tokens

    def before_request(self) -> None:
        """Where a family rewrites its history. Asked again after a continuation: it must find what it did."""

    def after_cut(self, reply: Reply) -> Ending | None:
        """The ending for a reply cut by length; None: it is answered like one that cannot be executed."""
        return Ending(self._cut_reason(reply), final_message=last_words(reply))

    def after_problem(self, reading: Reading) -> Ending | None:
        """The ending for a reply that cannot be executed; None: the model is told."""
        return None

    def after_submission(self, event: ToolCallFinished) -> Ending:
        """The ending for the call that submits the work."""
        return Ending(ExitReason.AGENT, final_message=event.observation)

    def result_message(self, call: Call, observation: str) -> JSONObject:
        """The result of a call as it joins the conversation."""
        return self.family.result_message(self.config, call, observation)

    def observation_names(self, call: Call, result: ToolResult) -> JSONObject:
        """What observation templates may use beside the common names."""
        return {}

    def problem_text(self, reading: Reading, reply: Reply) -> str:
        """Why a reply was not executed, in the words of the harness."""
        raw, finish_reason = _excerpt(reply.content), reply.finish_reason
        variables = {"detail": reading.detail, "raw": raw, "finish_reason": finish_reason}
        return self.say(reading.problem, variables)

    def feedback_message(self, reading: Reading, text: str) -> JSONObject:
        """What the harness tells the model, as it joins the conversation."""
        return self.family.person_message(self.config, text)

    def call_opening(self) -> str:
        """How calls begin that this harness takes from a text; "" where it takes none."""
        return "<function=" if self.config.protocol == "xml" else ""

    def feedback_variables(self) -> JSONObject:
        """Names that every feedback of this family may use, beside what is wrong."""
        return {"tools": [tool.name for tool in self.config.tools]}

    def say(self, feedback: str, variables: Mapping[str, object]) -> str:
        """A feedback's text: the harness's own wording, else the family's.

        Where that cannot word what a model wrote, which must not end its run: the family's, with excerpts.
        """
        field, usual = f"feedback.{feedback}", self.family.feedback[feedback].template
        names = {**self.feedback_variables(), **variables}
        try:
            return render(field, self.config.feedback.get(feedback, usual), names)
        except InvalidValueError:
            return render(field, usual, {name: _excerpt(value) for name, value in names.items()})

    # The loop itself.

    def _run(self) -> Ending:
        ending = self._go_on()
        while ending is None:
            self.session.checkpoint.look()
            ending = self.limit_reached() or self._turn()
        return ending

    def _go_on(self) -> Ending | None:
        """What is left of a step that an earlier worker child began; None when the next request is due."""
        standing = self.session.standing
        failure, reply = standing.failure, standing.reply.reply if standing.reply else None
        if standing.ended is not None:
            is_last = reply is not None and (
                reply.cut_by_length or bool(self.family.read(self.config, reply).problem)
            )
            return Ending(standing.ended, final_message=last_words(reply) if reply and is_last else "")
        if failure is not None and failure.error == "context_overflow" and failure.retry_in is None:
            return Ending(ExitReason.MAX_CONTEXT_LEN, detail=failure.message)
        return self._answer(reply, self.family.read(self.config, reply)) if reply is not None else None

    def _turn(self) -> Ending | None:
        """One model call and the tool calls it asks for; an ending when the run is over."""
        checkpoint = self.session.checkpoint
        checkpoint.before_request()
        checkpoint.deliver_messages()
        self.before_request()
        try:
            reply, reading = self._ask()
        except ContextOverflowError as overflow:
            return Ending(ExitReason.MAX_CONTEXT_LEN, detail=str(overflow))
        return self._answer(reply, reading)

    def _answer(self, reply: Reply, reading: Reading) -> Ending | None:
        """What a reply asks for, as far as it was not done before; an ending when it is the last one."""
        if reply.cut_by_length:
            ending = self.after_cut(reply)
            if ending is not None:
                return ending
            reading = Reading(problem=CUT, detail="the reply was cut by its length")
        if reading.problem == NO_CALL and self.config.stop.no_tool_call:
            if self._is_spoken_to():
                return None
            return Ending(ExitReason.AGENT, final_message=last_words(reply))
        if reading.problem:
            ending = self.after_problem(reading)
            if ending is None:
                self._tell(reading, reply)
            return None if ending is None or self._is_spoken_to() else ending
        return self._execute(reading)

    def _tell(self, reading: Reading, reply: Reply) -> None:
        """Let the model know why its reply was not executed."""
        text = self.problem_text(reading, reply)
        self.session.emit(
            HarnessMessage(
                step=self.counts.answered,
                reason=reading.problem,
                detail=reading.detail,
                message=self.feedback_message(reading, text),
            )
        )

    def _execute(self, reading: Reading) -> Ending | None:
        standing = self.session.standing
        begun = standing.step == self.counts.answered
        for call in reading.calls:
            done = begun and call.index in standing.finished_calls
            if not done:
                self.session.checkpoint.look()
                again = begun and call.index == standing.interrupted_call
                self.calls.execute(call, step=self.counts.answered, again=again)
            # An agent that is spoken to goes on; each further call of the reply needs its result first.
            if self.counts.submitted is not None and not self._is_spoken_to():
                return self.after_submission(self.counts.submitted)
        return None

    def _explanation(self, feedback: str, call: Call) -> str:
        variables = {"tool": call.tool, "detail": call.parsed.malformed, "raw": _excerpt(call.raw)}
        return self.say(feedback, variables)

    def _is_format_error(self, reply: Reply) -> bool:
        reading = self.family.read(self.config, reply)
        is_answer = reading.problem == NO_CALL and self.config.stop.no_tool_call
        return reading.is_format_error and not is_answer

    def _is_spoken_to(self) -> bool:
        """Whether a person's message waits while the agent would end, and there is a budget to answer it."""
        checkpoint = self.session.checkpoint
        if self.session.stop.is_set():
            return False
        checkpoint.steer()
        return checkpoint.has_message and self.limit_reached() is None and checkpoint.spent() is None

    def _ask(self) -> tuple[Reply, Reading]:
        session, standing = self.session, self.session.standing
        session.clock.start()
        conversation = session.conversation
        step = self.counts.answered + 1
        begun = step == standing.step
        answer = session.client.ask(
            step=step,
            body=conversation.body(self._cap()),
            message_count=len(conversation.messages),
            deadline=lambda: session.clock.remaining,
            tries_before=standing.requests if begun else 0,
            again=begun and standing.asks_again,
        )
        reply = answer.reply
        reading = self.family.read(self.config, reply)
        form = self._unread_form(reply, reading)
        message = self.family.assistant_message(self.config, reply)
        total = provider_total(reply)
        session.emit(
            ModelCallFinished(
                step=step,
                request=answer.request,
                reply=reply,
                message=message,
                cost=answer.cost,
                context_tokens=(
                    estimated_tokens([*conversation.messages, message]) if total is None else total
                ),
                context_tokens_estimated=total is None,
                notes=self.notes(reply, taken=len(reading.calls), form=form),
                unread_form=form,
            )
        )
        return reply, reading

    def notes(self, reply: Reply, *, taken: int, form: str) -> list[str]:
        """What in the reply is worth a reader's attention: `taken` calls were understood, `form` is that of
        one that was not."""
        notes = protocol_notes(
            reply,
            protocol=self.config.protocol,
            form=form,
            taken=taken,
            tools=[tool.name for tool in self.config.tools],
            parses=self._has_called(),
        )
        if any(call.synthesised_id for call in reply.tool_calls):
            notes.append(
                "the server left a call id out or used it twice; the lab gave the call one of its own"
            )
        return notes

    def _unread_form(self, reply: Reply, reading: Reading) -> str:
        """The form of a call in the reply that this harness does not take, "" for none."""
        if reading.calls:
            return ""
        tools = [tool.name for tool in self.config.tools]
        return unread_form(
            reply,
            protocol=self.config.protocol,
            opening=self.call_opening(),
            tools=tools,
            parses=self._has_called(),
        )

    def _has_called(self) -> bool:
        """Whether the server has parsed native calls of this conversation."""
        return any(message.get("tool_calls") for message in self.session.conversation.messages)

    def _cap(self) -> int | None:
        conversation = self.session.conversation
        return request_cap(
            self.session.model,
            self.session.limits,
            conversation.messages,
            conversation.parameters,
            counted=self.counts.context_tokens,
        )

    def _cut_reason(self, reply: Reply) -> ExitReason:
        """Which limit cut the reply: context or cap per turn; without usage the cap, if there is one."""
        limits = self.session.limits
        cap = turn_cap(self.session.model, limits)
        usage = reply.usage
        if usage.total is None or usage.output_total is None:
            return ExitReason.MAX_CONTEXT_LEN if cap is None else ExitReason.MAX_TOKENS_PER_TURN
        if limits.max_context_tokens and usage.total >= limits.max_context_tokens:
            return ExitReason.MAX_CONTEXT_LEN
        if cap is not None and usage.output_total >= cap:
            return ExitReason.MAX_TOKENS_PER_TURN
        return ExitReason.MAX_CONTEXT_LEN

    def _say_limit(self, reason: ExitReason) -> None:
        """The event of the limit that ended the run, if the lab's own count reached it.

        Where a server cut a reply or refused a request, the exit reason says so and no number is known.
        """
        if self.session.standing.limit_is_said:
            return
        limits, spending, counts = self.session.limits, self.session.spending, self.counts
        used: dict[ExitReason, tuple[str, Decimal | float | int, Decimal | float | int | None]] = {
            ExitReason.MAX_TURNS: ("max_steps", counts.answered, limits.max_steps),
            ExitReason.MAX_TIME: (
                "max_total_time_sec",
                self.session.clock.elapsed,
                limits.max_total_time_sec,
            ),
            ExitReason.MAX_CONTEXT_LEN: (
                "max_context_tokens",
                counts.context_tokens,
                limits.max_context_tokens or self.session.model.context_window,
            ),
            ExitReason.MAX_TOKENS_PER_TURN: (
                "max_tokens_per_turn",
                counts.last_output_tokens,
                turn_cap(self.session.model, limits),
            ),
            ExitReason.MAX_TOKENS_TOTAL: ("max_tokens_total", spending.tokens, limits.max_tokens_total),
            ExitReason.MAX_COST: ("max_cost_usd", spending.usd, limits.max_cost_usd),
            ExitReason.FORMAT_ERRORS: ("max_format_errors", counts.format_errors, limits.max_format_errors),
        }
        limit, amount, allowed = used.get(reason, ("", 0, None))
        if allowed is not None and amount >= allowed:
            self.session.emit(
                LimitReached(limit=limit, used=Decimal(str(amount)), allowed=Decimal(str(allowed)))
            )


def _excerpt(value: object) -> object:
    """The beginning of a text, or of each text of a list."""
    if isinstance(value, str):
        return value if len(value) <= _RAW_SHOWN else f"{value[:_RAW_SHOWN]}…"
    return [_excerpt(one) for one in value[:_LISTED]] if isinstance(value, list) else value


def last_words(reply: Reply) -> str:
    """What a reply says to people."""
    return reply.content or reply.refusal
