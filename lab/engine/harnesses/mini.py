"""mini: one shell tool; a marker in its output submits; a reply that cannot be read is dropped and answered.

The calls come as native tool calls, or the text of a reply holds exactly one command, in a fenced block or in
an element. A reply of which not all is understood does not join the conversation: only the answer to it does,
and three in a row end the run. Deliberately different: a reply that was cut by its length is never executed,
even where the command in it is whole; wall time counts from the first model call and interrupts whatever is
running.

Templates know mini-swe-agent's names. What changes between steps (`n_model_calls`, `model_cost`,
`elapsed_seconds`) is zero in the prompts, which are made before the first request. In observations it is what
the run had come to then; the log keeps the message as it was made, so that nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from lab.engine import registry
from lab.engine.errors import ExitReason
from lab.engine.events import ToolCallFinished
from lab.engine.harnesses.arguments import ParsedArguments
from lab.engine.harnesses.base import Ending, Feedback, HarnessConfig, PromptFacts, Session, ToolDefinition
from lab.engine.harnesses.calls import CUT, NO_CALL, Call, Reading, native_calls
from lab.engine.harnesses.family import CommonFamily
from lab.engine.harnesses.fenced_calls import commands_in
from lab.engine.harnesses.loop import Loop
from lab.engine.harnesses.options import options_of
from lab.engine.limits import Limits
from lab.engine.llm.base import Frozen, JSONObject, Reply
from lab.engine.tools.base import ToolResult

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# Problems beside those that every family knows.
FORMAT_ERROR = "format_error"
SEVERAL_CALLS = "several_calls"

_FORMAT_ERROR_TEMPLATE = """\
{% if cut -%}
Your reply ended before it held a whole command (finish_reason={{ finish_reason }}), so nothing was run. \
Think and write less, and give the command.
{%- else -%}
Nothing of your reply was run.

<error>
{{ error }}
</error>
{% if protocol == "native" %}
Every reply needs at least one call of {{ tools | join(" or ") }}, with its arguments as one JSON object, \
such as {"command": "ls"}.
{%- elif protocol == "fenced" %}
Every reply needs exactly one command, in a block of its own:

```{{ tag }}
ls
```
{%- else %}
Every reply needs exactly one command, in an element of its own:

<{{ tag }}>ls</{{ tag }}>
{%- endif %}
{%- if marker %}
When all is done, let the command be `echo {{ marker }}` alone.
{%- endif %}
{%- endif %}"""

_BEFORE_ANY_STEP: JSONObject = {"n_model_calls": 0, "model_cost": 0.0, "elapsed_seconds": 0}


class MiniOptions(Frozen):
    """`tag` names the fenced block or the element that holds a command. `keeps_unread_replies`: a reply that
    cannot be read stays in the conversation before the answer to it, as before version 2; in text only."""

    tag: str = Field(default="mswea_bash_command", pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")
    keeps_unread_replies: bool = False


class Mini(CommonFamily):
    """A family of one shell tool, called natively or by a command in the text."""

    name: ClassVar[str] = "mini"
    protocols: ClassVar[Sequence[str]] = ("native", "fenced", "xml")
    command_protocols: ClassVar[Sequence[str]] = ("fenced", "xml")
    malformed_policies: ClassVar[Sequence[str]] = ("explain",)
    feedback: ClassVar[Mapping[str, Feedback]] = {
        FORMAT_ERROR: Feedback(
            _FORMAT_ERROR_TEMPLATE,
            {
                "error": "The reply has to hold exactly one command, and it holds 2.",
                "actions": ["ls", "pwd"],
                "finish_reason": "stop",
                "has_tool_calls": False,
                "cut": False,
                "raw": "…",
                "tools": ["bash"],
                "protocol": "fenced",
                "tag": "mswea_bash_command",
                "marker": MARKER,
            },
        )
    }
    options: ClassVar[type[BaseModel]] = MiniOptions
    observation_sample: ClassVar[Mapping[str, object]] = {
        "step_limit": 250,
        "cost_limit": 3.0,
        "wall_time_limit_seconds": 0,
        "max_consecutive_format_errors": 3,
        "timeout": 30,
        "n_model_calls": 1,
        "model_cost": 0.01,
        "elapsed_seconds": 5,
        "cwd": "/workspace",
        "command": "ls",
        "exception": "",
    }

    def prompt_variables(self, config: HarnessConfig, facts: PromptFacts, limits: Limits) -> JSONObject:
        """The common names, those of mini-swe-agent, and how this harness is called and ended."""
        return {
            **facts.variables(config, limits),
            **limit_variables(config, limits),
            **_BEFORE_ANY_STEP,
            "cwd": facts.workspace,
            "protocol": config.protocol,
            "tag": options_of(config, MiniOptions).tag,
            "marker": config.stop.marker,
        }

    def read(self, config: HarnessConfig, reply: Reply) -> Reading:
        """All calls of a reply that is understood as a whole, else what is wrong with it first."""
        if reply.cut_by_length:
            return Reading(problem=CUT, detail="The reply was cut by its length.")
        if config.protocol == "native":
            return _read_native(config, reply)
        commands = text_commands(config, reply)
        if len(commands) != 1:
            detail = f"The reply has to hold exactly one command, and it holds {len(commands)}."
            return Reading(problem=SEVERAL_CALLS if commands else NO_CALL, detail=detail)
        tool = config.tools[0]
        arguments = ParsedArguments({"command": commands[0]}, "")
        return Reading((Call(1, "", tool.name, tool.executor, commands[0], arguments),))

    def assistant_message(self, config: HarnessConfig, reply: Reply) -> JSONObject:
        """The reply as it was; empty for one that is not understood, unless the harness keeps those."""
        keeps = config.protocol != "native" and options_of(config, MiniOptions).keeps_unread_replies
        if self.read(config, reply).problem and not keeps:
            return {}
        return super().assistant_message(config, reply)

    def drive(self, session: Session) -> Ending:
        """Run the loop to its end.

        Raises:
            InfrastructureError: endpoint or sandbox broke.
            InvalidValueError: a template of the harness cannot be rendered.
        """
        return _Loop(self, session).drive()


class _Loop(Loop):
    # mini-swe-agent's exit statuses. It knows no limit of tokens, and no status for a cancelled run.
    native_reasons: ClassVar[Mapping[ExitReason, str]] = {
        ExitReason.AGENT: "Submitted",
        ExitReason.MAX_TURNS: "LimitsExceeded",
        ExitReason.MAX_COST: "LimitsExceeded",
        ExitReason.MAX_TIME: "TimeExceeded",
        ExitReason.FORMAT_ERRORS: "RepeatedFormatError",
        ExitReason.MAX_CONTEXT_LEN: "ContextWindowExceededError",
    }

    def after_cut(self, reply: Reply) -> Ending | None:
        """None: the model is told, and asked again."""
        return None

    def after_submission(self, event: ToolCallFinished) -> Ending:
        """The submission is what the command wrote after the line with the marker."""
        text = event.stdout.text if event.stdout is not None else event.observation
        return Ending(ExitReason.AGENT, final_message=submission(text))

    def call_opening(self) -> str:
        """How the one command begins in a text; "" for native calls."""
        tag = options_of(self.config, MiniOptions).tag
        return {"fenced": f"```{tag}", "xml": f"<{tag}>"}.get(self.config.protocol, "")

    def observation_names(self, call: Call, result: ToolResult) -> JSONObject:
        """Names that observation templates may use beside the common ones."""
        session = self.session
        return {
            **limit_variables(self.config, session.limits),
            "n_model_calls": self.counts.answered,
            "model_cost": float(session.spending.usd),
            "elapsed_seconds": int(session.clock.elapsed),
            "cwd": session.sandbox.facts.workspace,
            "command": call.parsed.arguments.get("command", ""),
            "exception": exception_info(self.config, call, result),
        }

    def problem_text(self, reading: Reading, reply: Reply) -> str:
        """The one answer to whatever cannot be read."""
        return self.say(FORMAT_ERROR, format_error_variables(self.config, reading, reply))


def text_commands(config: HarnessConfig, reply: Reply) -> list[str]:
    """The commands in the text of a reply; of native tool calls nothing."""
    form: Literal["fence", "element"] = "element" if config.protocol == "xml" else "fence"
    return commands_in(reply.content, tag=options_of(config, MiniOptions).tag, form=form)


def submission(output: str) -> str:
    """What follows the first line that is not blank."""
    return "".join(output.lstrip().splitlines(keepends=True)[1:])


def limit_variables(config: HarnessConfig, limits: Limits) -> JSONObject:
    """The limits under mini-swe-agent's names, 0 for none, and the seconds of a command."""
    return {
        "step_limit": limits.max_steps or 0,
        "cost_limit": float(limits.max_cost_usd or 0),
        "wall_time_limit_seconds": int(limits.max_total_time_sec or 0),
        "max_consecutive_format_errors": limits.max_format_errors or 0,
        "timeout": command_seconds(config.tools[0]) if config.tools else 0,
    }


def command_seconds(tool: ToolDefinition) -> float:
    """After how many seconds a command of this tool is stopped, 0 where that is no setting of it."""
    settings = registry.executor(tool.executor).Settings.model_validate(tool.settings)
    seconds = float(getattr(settings, "timeout_sec", 0))
    return int(seconds) if seconds.is_integer() else seconds


def exception_info(config: HarnessConfig, call: Call, result: ToolResult) -> str:
    """What mini-swe-agent calls the exception of a command: empty unless it was stopped by its time-out."""
    tool = config.tool(call.tool)
    if not result.timed_out or tool is None:
        return ""
    command = call.parsed.arguments.get("command", "")
    return (
        f"An error occurred while executing the command: Command {command!r} timed out after "
        f"{command_seconds(tool)} seconds"
    )


def format_error_variables(config: HarnessConfig, reading: Reading, reply: Reply) -> JSONObject:
    """The names of the answer to a reply that is not understood. `cut`: the server broke it off, by its
    length, or by announcing calls and sending none."""
    has_calls = bool(reply.tool_calls)
    announced = reply.finish_reason == "tool_calls" and not has_calls
    return {
        "error": reading.detail,
        "detail": reading.detail,
        "actions": [] if config.protocol == "native" else text_commands(config, reply),
        "finish_reason": reply.finish_reason,
        "has_tool_calls": has_calls,
        "cut": reply.cut_by_length or announced,
        "raw": reply.content,
        "protocol": config.protocol,
        "tag": options_of(config, MiniOptions).tag,
        "marker": config.stop.marker,
    }


def _read_native(config: HarnessConfig, reply: Reply) -> Reading:
    calls = native_calls(config, reply)
    if not calls:
        return Reading(problem=NO_CALL, detail="The reply holds no tool call, and it needs at least one.")
    for call in calls:
        detail = _wrong_with(config, call)
        if detail:
            return Reading(problem=FORMAT_ERROR, detail=detail)
    return Reading(calls)


def _wrong_with(config: HarnessConfig, call: Call) -> str:
    """What is wrong with a native call, all of it, "" for nothing."""
    found = []
    if call.parsed.malformed:
        found.append(f"The arguments of the call of {call.tool} cannot be read: {call.parsed.malformed}.")
    tool = config.tool(call.tool)
    if tool is None:
        found.append(f"There is no tool {call.tool!r}.")
    elif not call.parsed.malformed:
        wanted = tool.parameters.get("required") or []
        missing = [name for name in wanted if name not in call.parsed.arguments]
        if missing:
            found.append(f"The call of {call.tool} lacks the argument {', '.join(missing)}.")
    return " ".join(found)
