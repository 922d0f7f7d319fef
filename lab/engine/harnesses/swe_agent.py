"""SWE-agent: exactly one native call a reply, anything else is asked again; a submit with a review.

A reply that is no such call is answered with what was wrong. Once a call is understood, the failed exchanges
leave the conversation; as many failures in a row as `max_format_errors` says end the run. Deliberately
different: each command has a new shell; a reply that was cut by its length is asked again, never executed;
whatever ends the run, the lab captures the patch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, Field

from lab.engine.errors import ExitReason
from lab.engine.events import Event, HistoryRewritten, ToolCallFinished
from lab.engine.harnesses.arguments import ParsedArguments
from lab.engine.harnesses.base import Ending, Feedback, HarnessConfig, Session, ToolDefinition
from lab.engine.harnesses.calls import CUT, NO_CALL, Call, Reading, native_calls
from lab.engine.harnesses.family import MALFORMED, UNKNOWN_TOOL, CommonFamily
from lab.engine.harnesses.loop import Loop
from lab.engine.harnesses.options import options_of
from lab.engine.harnesses.transcript import Transcript
from lab.engine.llm.base import Frozen, JSONObject, Reply
from lab.engine.tools.shell import ShellSettings

# Problems beside those that every family knows, by SWE-agent's own codes where it has one.
MULTIPLE = "multiple"
INVALID_COMMAND = "invalid_command"
INVALID_JSON = "invalid_json"
INCORRECT_ARGS = "incorrect_args"
MISSING_ARG = "missing_arg"
UNEXPECTED_ARG = "unexpected_arg"
BLOCKED = "blocked"
EXIT = "exit"

_TOOLS = ["bash", "str_replace_editor", "submit"]
_GIT_TIMEOUT_SECONDS = 30.0


class SWEAgentOptions(Frozen):
    """SWE-agent's own limits, 0: none.

    `max_consecutive_timeouts` commands in a row that are killed for their time end the run;
    `max_execution_sec` is what all tool calls together may take before another request is made.
    """

    max_consecutive_timeouts: int = Field(default=3, ge=0)
    max_execution_sec: float = Field(default=1_800, ge=0)


def _problem(text: str, detail: str = "") -> Feedback:
    sample = {"detail": detail, "raw": "I will look.", "finish_reason": "stop", "tools": _TOOLS}
    return Feedback(f"{text} Reply again, with exactly one function call.", sample)


class SWEAgent(CommonFamily):
    name: ClassVar[str] = "swe-agent"
    protocols: ClassVar[Sequence[str]] = ("native",)
    malformed_policies: ClassVar[Sequence[str]] = ("requery", "explain")
    options: ClassVar[type[BaseModel]] = SWEAgentOptions
    feedback: ClassVar[Mapping[str, Feedback]] = {
        "unknown_tool": UNKNOWN_TOOL,
        "malformed": MALFORMED,
        NO_CALL: _problem("Your last reply made no function call, so nothing was done."),
        CUT: _problem("Your last reply was cut off because it was too long, so nothing was done. Be brief."),
        MULTIPLE: _problem("Nothing was done: {{ detail }}.", "there were 2 function calls"),
        INVALID_COMMAND: _problem(
            "Nothing was done: {{ detail }}. There are {{ tools | join(', ') }}.",
            "there is no function 'look'",
        ),
        INVALID_JSON: _problem(
            "Nothing was done, because the arguments cannot be read: {{ detail }}.", "not valid JSON"
        ),
        INCORRECT_ARGS: _problem(
            "Nothing was done, because the arguments are none: {{ detail }}.", "a list instead of an object"
        ),
        MISSING_ARG: _problem("Nothing was done: {{ detail }}.", "bash needs the argument 'command'"),
        UNEXPECTED_ARG: _problem("Nothing was done: {{ detail }}.", "bash knows no argument 'cwd'"),
        BLOCKED: _problem(
            "Nothing was done: {{ detail }}. It waits for a person, or does not end.", "'vim' cannot run here"
        ),
    }

    def read(self, config: HarnessConfig, reply: Reply) -> Reading:
        """The one call of a reply, or which of SWE-agent's format errors it is."""
        if reply.cut_by_length:
            return Reading(problem=CUT, detail="the reply was cut by its length")
        calls = native_calls(config, reply)
        if not calls:
            return Reading(problem=NO_CALL, detail="there is no function call")
        if len(calls) > 1:
            return Reading(problem=MULTIPLE, detail=f"there were {len(calls)} function calls")
        call, tool = calls[0], config.tool(calls[0].tool)
        if tool is None:
            return Reading(problem=INVALID_COMMAND, detail=f"there is no function {call.tool!r}")
        if not call.raw.strip() and not tool.parameters.get("required"):
            # What servers send for a function without parameters.
            call = replace(call, parsed=ParsedArguments({}, ""))
        problem, detail = _wrong_arguments(call, tool) or _refused_command(call, tool) or ("", "")
        return Reading(problem=problem, detail=detail) if problem else Reading((call,))

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """A reply that is answered with what was wrong joins without its calls: none of them has a result."""
        if self.read(config, reply).problem:
            return {"role": "assistant", "content": reply.content}
        return super().assistant_message(config, reply)

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
            InvalidValueError: a template or an option of the harness cannot be used.
        """
        return _Loop(self, session).drive()


def _wrong_arguments(call: Call, tool: ToolDefinition) -> tuple[str, str] | None:
    arguments, malformed = call.parsed
    if malformed:
        kind = INCORRECT_ARGS if malformed.endswith("instead of a JSON object") else INVALID_JSON
        return kind, malformed
    missing = [name for name in tool.parameters.get("required") or [] if name not in arguments]
    if missing:
        return MISSING_ARG, f"{tool.name} needs the argument {missing[0]!r}"
    unknown = [name for name in arguments if name not in (tool.parameters.get("properties") or {})]
    if unknown:
        return UNEXPECTED_ARG, f"{tool.name} knows no argument {unknown[0]!r}"
    return None


def _refused_command(call: Call, tool: ToolDefinition) -> tuple[str, str] | None:
    command = call.parsed.arguments.get("command")
    if tool.executor != "shell" or not isinstance(command, str):
        return None
    if command.strip() == "exit":
        return EXIT, "the model left with the command exit"
    if ShellSettings.model_validate(tool.settings).blocked.blocks(command):
        first = command.strip().splitlines()[0][:100]
        return BLOCKED, f"the command '{first}' cannot run here"
    return None


class _Loop(Loop):
    # A limit on calls is a limit on cost to SWE-agent.
    native_reasons: ClassVar[Mapping[ExitReason, str]] = {
        ExitReason.AGENT: "submitted",
        ExitReason.MAX_COST: "exit_cost",
        ExitReason.MAX_TURNS: "exit_cost",
        ExitReason.MAX_TOKENS_TOTAL: "exit_cost",
        ExitReason.MAX_CONTEXT_LEN: "exit_context",
        ExitReason.MAX_TOKENS_PER_TURN: "exit_context",
        ExitReason.FORMAT_ERRORS: "exit_format",
        ExitReason.MAX_TIME: "exit_total_execution_time",
    }

    def __init__(self, family: SWEAgent, session: Session) -> None:
        self.options = options_of(session.config, SWEAgentOptions)
        self.timeouts_in_a_row = 0
        self.execution_sec = 0.0
        self.transcript = Transcript(session.conversation.messages, self._is_format_error)
        super().__init__(family, session)
        session.follow(self.transcript.apply)
        session.follow(self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, ToolCallFinished):
            self.timeouts_in_a_row = self.timeouts_in_a_row + 1 if event.timed_out else 0
            self.execution_sec += event.seconds or 0.0

    def drive(self) -> Ending:
        """Where an error ends the run and something was changed, SWE-agent submits it by itself."""
        ending = super().drive()
        status = ending.native_reason
        if status.startswith("exit_") and status != "exit_command" and self._has_changes():
            ending.native_reason = f"submitted ({status})"
        return ending

    def _has_changes(self) -> bool:
        found = self.session.sandbox.exec(["git", "status", "--porcelain"], timeout=_GIT_TIMEOUT_SECONDS)
        return found.exit_code == 0 and found.stdout.total > 0

    def limit_reached(self) -> Ending | None:
        """The family's own limits, then the common ones."""
        allowed, seconds = self.options.max_consecutive_timeouts, self.options.max_execution_sec
        if allowed and self.timeouts_in_a_row >= allowed:
            return Ending(
                ExitReason.MAX_TIME, "exit_command_timeout", f"{allowed} commands in a row were killed"
            )
        if seconds and self.execution_sec > seconds:
            return Ending(
                ExitReason.MAX_TIME,
                "exit_total_execution_time",
                f"tool calls took more than {seconds:g} seconds together",
            )
        return super().limit_reached()

    def after_cut(self, reply: Reply) -> Ending | None:
        """The model is asked again, unless that was the last of its context."""
        limit = self.session.limits.max_context_tokens
        if limit and self.counts.context_tokens >= limit:
            return Ending(ExitReason.MAX_CONTEXT_LEN, final_message=reply.content)
        return None

    def after_problem(self, reading: Reading) -> Ending | None:
        """The command `exit` ends the run; everything else is asked again."""
        if reading.problem == EXIT:
            return Ending(ExitReason.AGENT, "exit_command", reading.detail)
        return None

    def before_request(self) -> None:
        """Take failed exchanges out of the conversation once a call was understood."""
        places = self.transcript.failed_exchanges()
        if self.config.malformed_calls != "requery" or not places:
            return
        gone = sum(self.transcript.parts[place].tokens for place in places)
        self.session.emit(
            HistoryRewritten(
                step=self.counts.answered + 1,
                reason="requeried",
                replaced={place: {} for place in places},
                context_tokens=max(self.counts.context_tokens - gone, 1),
            )
        )
