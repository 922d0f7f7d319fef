"""Leaf: five native tools, one linear conversation, the first reply without a tool call ends the run.

What the loop counts is folded from the log, so that another worker child goes on in the middle of a step. The
order of the loop's checks is Leaf's. Deliberately different: wall time counts from the first model call
and interrupts whatever is running; so does a person's cancel. Reasoning is sent back under the field name it
came in. Ids that a server left out or used twice are the client's own.
"""

from __future__ import annotations

from decimal import Decimal

import jinja2
import jinja2.sandbox

from lab.engine.errors import (
    AttemptStoppedError,
    ExitReason,
    InvalidValueError,
)
from lab.engine.events import (
    LimitReached,
    ModelCallFinished,
)
from lab.engine.harnesses.arguments import parse_arguments, protocol_notes
from lab.engine.harnesses.base import Ending, HarnessConfig, Session
from lab.engine.harnesses.conversation import cap_field
from lab.engine.harnesses.leaf_counts import LeafCounts
from lab.engine.harnesses.tool_calls import ToolCalls
from lab.engine.harnesses.turns import estimated_tokens, provider_total, turn_cap
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.client import ContextOverflowError, complete_body

_SMALLEST_CAP = 1_024


class Leaf:
    name = "leaf"

    def opening(self, config: HarnessConfig, statement: str) -> list[JSONObject]:
        """The system message, then the task's statement.

        Raises:
            InvalidValueError: a prompt template that cannot be rendered.
        """
        return [
            {"role": "system", "content": _rendered("system_prompt", config.system_prompt, statement)},
            {"role": "user", "content": _rendered("task_prompt", config.task_prompt, statement)},
        ]

    def parameters(self, config: HarnessConfig, model: ModelConfig, limits: Limits) -> JSONObject:
        """Everything of the request body but `messages`. Sampling and `extra_body` are the model's."""
        parameters: JSONObject = {
            "model": model.model_id,
            "tools": [tool.on_the_wire() for tool in config.tools],
            "tool_choice": "auto",
            "parallel_tool_calls": config.parallel_tool_calls,
            **model.sampling,
            **model.extra_body,
        }
        cap = turn_cap(model, limits)
        if cap is not None:
            # One name only: servers refuse both, and the log could not say which one counts.
            field = cap_field(parameters)
            parameters.pop("max_completion_tokens", None)
            parameters[field] = cap
        return complete_body(parameters)

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """Role, content, tool calls, and reasoning under the name it came in; nothing else of the reply.

        Under `explain`, arguments that are no JSON object become `{}`, so that the next request is valid.
        """
        message: JSONObject = {"role": "assistant", "content": reply.content}
        if reply.reasoning and reply.reasoning_field:
            message[reply.reasoning_field] = reply.reasoning
        if reply.tool_calls:
            explain = config.malformed_arguments == "explain"
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": _sent_back(call.arguments, explain=explain),
                    },
                }
                for call in reply.tool_calls
            ]
        return message

    def person_message(self, config: HarnessConfig, text: str) -> JSONObject:
        """A user message."""
        return {"role": "user", "content": text}

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end; the limit that ended it is an event of its own.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
        """
        loop = _Loop(self, session)
        try:
            ending = loop.run()
        except AttemptStoppedError as stopped:
            ending = Ending(stopped.reason, stopped.native_reason, stopped.detail)
        loop.say_limit(ending.reason)
        if not ending.native_reason and ending.reason in _LEAFS_OWN:
            ending.native_reason = ending.reason.value
        return ending


def _sent_back(raw: str, *, explain: bool) -> str:
    return "{}" if explain and parse_arguments(raw).malformed else raw


# Leaf's own words, kept as native reason; the others are the lab's.
_LEAFS_OWN = frozenset(
    {
        ExitReason.AGENT,
        ExitReason.MAX_TURNS,
        ExitReason.MAX_TIME,
        ExitReason.MAX_CONTEXT_LEN,
        ExitReason.MAX_TOKENS_PER_TURN,
        ExitReason.CANCELLED,
    }
)


class _Loop:
    """The state of one run through the loop."""

    def __init__(self, leaf: Leaf, session: Session) -> None:
        self.leaf = leaf
        self.session = session
        self.calls = ToolCalls(session)
        self.counts = LeafCounts()
        session.follow(self.counts.apply)

    def run(self) -> Ending:
        ending = self._go_on()
        while ending is None:
            self.session.checkpoint.look()
            ending = self._limit_reached() or self._turn()
        return ending

    def _go_on(self) -> Ending | None:
        """What is left of a step that an earlier worker child began; None when the next request is due."""
        standing = self.session.standing
        failure, reply = standing.failure, standing.reply.reply if standing.reply else None
        if standing.ended is not None:
            is_last = reply is not None and (reply.cut_by_length or not reply.tool_calls)
            return Ending(standing.ended, final_message=_last_words(reply) if reply and is_last else "")
        if failure is not None and failure.error == "context_overflow" and failure.retry_in is None:
            return Ending(ExitReason.MAX_CONTEXT_LEN, detail=failure.message)
        return self._answer(reply) if reply is not None else None

    def _limit_reached(self) -> Ending | None:
        limits, counts = self.session.limits, self.counts
        if limits.max_context_tokens and counts.context_tokens >= limits.max_context_tokens:
            return Ending(ExitReason.MAX_CONTEXT_LEN)
        if limits.max_format_errors is not None and counts.format_errors >= limits.max_format_errors:
            return Ending(ExitReason.FORMAT_ERRORS)
        if limits.max_steps is not None and counts.answered >= limits.max_steps:
            return Ending(ExitReason.MAX_TURNS)
        return None

    def _turn(self) -> Ending | None:
        """One model call and the tool calls it asks for; an ending when the run is over."""
        checkpoint = self.session.checkpoint
        checkpoint.before_request()
        checkpoint.deliver_messages()
        try:
            reply = self._ask()
        except ContextOverflowError as overflow:
            return Ending(ExitReason.MAX_CONTEXT_LEN, detail=str(overflow))
        return self._answer(reply)

    def _answer(self, reply: Reply) -> Ending | None:
        """What a reply asks for, as far as it was not done before; an ending when it is the last one."""
        if reply.cut_by_length:
            return Ending(self._cut_reason(reply), final_message=_last_words(reply))
        if not reply.tool_calls:
            if self._is_spoken_to():
                return None
            return Ending(ExitReason.AGENT, final_message=_last_words(reply))
        standing = self.session.standing
        begun = standing.step == self.counts.answered
        for call in self.calls.of(reply):
            if begun and call.index in standing.finished_calls:
                continue
            self.session.checkpoint.look()
            again = begun and call.index == standing.interrupted_call
            self.calls.execute(call, step=self.counts.answered, again=again)
        return None

    def _is_spoken_to(self) -> bool:
        """Whether a person's message waits while the agent would end, and there is a budget to answer it."""
        checkpoint = self.session.checkpoint
        if self.session.stop.is_set():
            return False
        checkpoint.steer()
        return checkpoint.has_message and self._limit_reached() is None and checkpoint.spent() is None

    def _ask(self) -> Reply:
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
        message = self.leaf.assistant_message(session.config, reply)
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
                notes=self._notes(reply),
            )
        )
        return reply

    def _notes(self, reply: Reply) -> list[str]:
        notes = protocol_notes(reply)
        if any(call.synthesised_id for call in reply.tool_calls):
            notes.append(
                "the server left a call id out or used it twice; the lab gave the call one of its own"
            )
        return notes

    def _cap(self) -> int | None:
        """The turn's cap in tokens; without one by limits, what is left of the context, if known."""
        fixed = turn_cap(self.session.model, self.session.limits)
        if fixed is not None:
            return fixed
        windows = (self.session.limits.max_context_tokens, self.session.model.context_window)
        window = min((size for size in windows if size), default=None)
        if window is None:
            return None
        # Before the first answer nothing is counted yet: half a token a byte is more than any text has.
        used = self.counts.context_tokens or 2 * estimated_tokens(
            [*self.session.conversation.messages, self.session.conversation.parameters]
        )
        return max(window - used - window // 50, _SMALLEST_CAP)

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

    def say_limit(self, reason: ExitReason) -> None:
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


def _last_words(reply: Reply) -> str:
    return reply.content or reply.refusal


_TEMPLATES = jinja2.sandbox.SandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


def _rendered(field: str, template: str, statement: str) -> str:
    try:
        return _TEMPLATES.from_string(template).render(task={"statement": statement})
    except Exception as error:  # whatever a template does wrong (1 / 0) is the template's
        raise InvalidValueError(
            field, template[:80], f"cannot be rendered: {error}; see {{{{ task.statement }}}}"
        ) from None
