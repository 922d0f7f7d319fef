"""R2E-Gym's edit agent: one call a reply, written as XML in the text or native, and a count of steps left.

The loop's checks are in R2E-Gym's order. Deliberately different: wall time counts from the first model call
and interrupts whatever is running; a reply cut by its length is never executed; the protocol is what the
harness says, whatever the model's name is; what is condensed once stays condensed, which comes to the same,
because the conversation only grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel, Field

from lab.engine.errors import ExitReason
from lab.engine.events import (
    Event,
    HistoryRewritten,
    ModelCallFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.arguments import ParsedArguments
from lab.engine.harnesses.base import Ending, Feedback, HarnessConfig, PromptFacts, Session
from lab.engine.harnesses.calls import CUT, NO_CALL, Call, Reading, native_calls
from lab.engine.harnesses.family import MALFORMED, UNKNOWN_TOOL, CommonFamily
from lab.engine.harnesses.loop import Loop
from lab.engine.harnesses.options import options_of
from lab.engine.harnesses.templates import render
from lab.engine.harnesses.transcript import Transcript
from lab.engine.harnesses.turns import estimated_tokens
from lab.engine.harnesses.xml_calls import block_notes, documentation, first_block, why_no_block
from lab.engine.limits import Limits
from lab.engine.llm.base import Frozen, JSONObject, Reply

_TOOLS = ["file_editor", "execute_bash", "search", "finish"]


class R2EOptions(Frozen):
    """R2E-Gym's own settings.

    `soft_max_steps` is the number of steps the model is told it has, 0: it is told nothing; it may go on
    until the limit `max_steps`, and where that is smaller, it is told that one. `condense_above_tokens`: in a
    longer conversation old observations give way to a placeholder, 0: never; with XML calls only.
    """

    soft_max_steps: int = Field(default=40, ge=0)
    condense_above_tokens: int = Field(default=28_000, ge=0)


class R2E(CommonFamily):
    name: ClassVar[str] = "r2e"
    protocols: ClassVar[Sequence[str]] = ("xml", "native")
    malformed_policies: ClassVar[Sequence[str]] = ("explain", "as_leaf")
    options: ClassVar[type[BaseModel]] = R2EOptions
    feedback: ClassVar[Mapping[str, Feedback]] = {
        "unknown_tool": UNKNOWN_TOOL,
        "malformed": MALFORMED,
        NO_CALL: Feedback(
            "Your last reply made no function call that could be read. Every reply must make exactly one, in "
            "the format that was described. Go on with the work now, without asking anybody; when it is "
            "done, call the function that hands it in.",
            {"detail": "there is no call", "raw": "Let me see.", "finish_reason": "stop", "tools": _TOOLS},
        ),
        CUT: Feedback(
            "Your last reply was cut off because it was too long, so nothing of it was executed. Reply "
            "again, in fewer words and with exactly one function call.",
            {"detail": "the reply was cut", "raw": "Let me", "finish_reason": "length", "tools": _TOOLS},
        ),
        "steps_left": Feedback(
            "{% if remaining > 0 %}Steps Remaining: {{ remaining }}"
            "{% else %}No steps remain. Hand in what you have NOW.{% endif %}",
            {"remaining": 40, "tools": _TOOLS},
        ),
        "condensed": Feedback("<Observation left out to save context>", {"tools": _TOOLS}),
    }

    def prompt_variables(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> JSONObject:
        """Beside the usual names: `protocol`, and `functions`, the documentation of all tools."""
        return {
            **facts.variables(config, limits),
            "protocol": config.protocol,
            "functions": documentation(config.tools),
        }

    def opening(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> list[JSONObject]:
        """System message and task; the task says how many steps there are.

        Raises:
            InvalidValueError: a template that cannot be rendered, or an option that cannot be used.
        """
        *before, task = super().opening(config, facts, limits)
        return [*before, _with_note(task, self.steps_note(config, limits, answered=0))]

    def steps_note(self, config: HarnessConfig, limits: Limits, *, answered: int) -> str:
        """What the model is told of its steps after so many replies; "" when it is told nothing.

        Raises:
            InvalidValueError: the text cannot be rendered, or an option cannot be used.
        """
        steps = soft_steps(config, limits)
        if steps is None:
            return ""
        template = config.feedback.get("steps_left", self.feedback["steps_left"].template)
        names = {"tools": [tool.name for tool in config.tools], "remaining": steps - answered}
        return render("feedback.steps_left", template, names)

    def read(self, config: HarnessConfig, reply: Reply) -> Reading:
        """The first call alone. A reply that was cut by its length has none."""
        if reply.cut_by_length:
            return Reading(problem=CUT, detail="the reply was cut by its length")
        if config.protocol == "native":
            calls = native_calls(config, reply)[:1]
            return Reading(calls) if calls else Reading(problem=NO_CALL, detail="there is no native call")
        block = first_block(reply.content)
        if block is None or not block.name:
            detail = "the function has no name" if block else why_no_block(reply.content)
            return Reading(problem=NO_CALL, detail=detail)
        tool = config.tool(block.name)
        call = Call(
            index=1,
            call_id="xml-1",
            tool=block.name,
            executor=tool.executor if tool else "",
            raw=block.raw,
            parsed=ParsedArguments(dict(block.values), ""),
        )
        return Reading((call,))

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """Native: the reply with its first call alone. XML: thought and first block, nothing behind it."""
        if config.protocol == "native":
            message = super().assistant_message(config, reply)
            calls = [] if reply.cut_by_length else message.pop("tool_calls", [])[:1]
            message.pop("tool_calls", None)
            return {**message, "tool_calls": calls} if calls else message
        block = None if reply.cut_by_length else first_block(reply.content)
        if block is None or not block.name:
            return {"role": "assistant", "content": reply.content}
        content = f"{block.thought}\n\n{block.written()}" if block.thought else block.written()
        return {"role": "assistant", "content": content}

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
            InvalidValueError: a template or an option of the harness cannot be used.
        """
        return _Loop(self, session).drive()


def soft_steps(config: HarnessConfig, limits: Limits) -> int | None:
    """The steps a model is told it has: the soft limit, never more than the absolute one; None: nothing."""
    soft = options_of(config, R2EOptions).soft_max_steps
    if not soft:
        return None
    return soft if limits.max_steps is None else min(soft, limits.max_steps)


def _with_note(message: JSONObject, note: str) -> JSONObject:
    return {**message, "content": f"{message['content']}\n{note}"} if note else message


class _Loop(Loop):
    native_reasons: ClassVar[Mapping[ExitReason, str]] = {
        ExitReason.AGENT: "agent",
        ExitReason.MAX_TURNS: "abs_step_limit",
        ExitReason.MAX_CONTEXT_LEN: "token_limit",
        ExitReason.MAX_TOKENS_PER_TURN: "token_limit",
        ExitReason.MAX_TOKENS_TOTAL: "token_limit",
        ExitReason.MAX_TIME: "traj_time_limit",
    }

    def __init__(self, family: R2E, session: Session) -> None:
        self.r2e = family
        self.options = options_of(session.config, R2EOptions)
        self.reply_tokens = 0
        self.arguments: JSONObject = {}
        self.transcript = Transcript(session.conversation.messages, self._is_format_error)
        super().__init__(family, session)
        session.follow(self.transcript.apply)
        session.follow(self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, ModelCallFinished):
            self.reply_tokens = event.context_tokens
        elif isinstance(event, ToolCallStarted):
            self.arguments = event.arguments

    def context_measured(self) -> int:
        """All tokens of the last response; what was observed since is counted with the next one."""
        return self.reply_tokens

    def after_cut(self, reply: Reply) -> Ending | None:
        """The model is told, unless that was the last of its tokens."""
        limit = self.session.limits.max_context_tokens
        if limit and self.reply_tokens >= limit:
            return Ending(ExitReason.MAX_CONTEXT_LEN, final_message=reply.content)
        return None

    def after_submission(self, event: ToolCallFinished) -> Ending:
        """R2E-Gym tells apart whether steps were left when the model was asked the last time."""
        ending = Ending(
            ExitReason.AGENT, final_message=str(self.arguments.get("result") or event.observation)
        )
        steps = soft_steps(self.config, self.session.limits)
        left = 1 if steps is None else steps - (self.counts.answered - 1)
        if left <= 0:
            ending.native_reason = "max_step_limit" if left == 0 else "agent_max_step_limit"
        return ending

    def result_message(self, call: Call, observation: str) -> JSONObject:
        return self._told(super().result_message(call, observation))

    def feedback_message(self, reading: Reading, text: str) -> JSONObject:
        return self._told(super().feedback_message(reading, text))

    def _told(self, message: JSONObject) -> JSONObject:
        note = self.r2e.steps_note(self.config, self.session.limits, answered=self.counts.answered)
        return _with_note(message, note)

    def notes(self, reply: Reply, *, taken: int, form: str) -> list[str]:
        notes = super().notes(reply, taken=taken, form=form)
        return notes + (block_notes(reply) if self.config.protocol == "xml" else [])

    def before_request(self) -> None:
        """Put a placeholder in place of the oldest observations until the conversation is short enough."""
        limit, tokens = self.options.condense_above_tokens, self.counts.context_tokens
        if self.config.protocol != "xml" or not limit or tokens <= limit:
            return
        placeholder: JSONObject = {"role": "user", "content": self.say("condensed", {})}
        size = estimated_tokens([placeholder])
        replaced: dict[int, JSONObject] = {}
        for place in self.transcript.old_answers():
            replaced[place] = placeholder
            tokens -= self.transcript.parts[place].tokens - size
            if tokens <= limit:
                break
        if replaced:
            self.session.emit(
                HistoryRewritten(
                    step=self.counts.answered + 1,
                    reason="condensed",
                    replaced=replaced,
                    context_tokens=max(tokens, 0),
                )
            )
