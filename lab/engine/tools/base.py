"""What every tool executor shares: its context, its result, arguments and paths.

Executors are built on a sandbox's exec, read and write alone: nothing but a shell, coreutils and find is
needed inside. Whatever goes wrong in a tool is an observation for the model; only a lost sandbox is raised.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from lab.engine.errors import SandboxLostError
from lab.engine.events import StreamFacts
from lab.engine.llm.base import Frozen, JSONObject
from lab.engine.redact import Redactor
from lab.engine.sandboxes.base import OUTPUT_HEAD_BYTES, ExecResult, Output, Sandbox
from lab.engine.stop import StopSignal

if TYPE_CHECKING:
    from lab.engine.harnesses.base import ToolDefinition

S = TypeVar("S", bound="Settings")

# Tools that run no command of the model's own get this long, as in Leaf.
TOOL_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class ToolResult:
    """What a tool call came to.

    `observation` is the tool's text and then what the model sees of it, `dropped` the characters cut from it,
    `whole` the uncut text where it differs and nothing else keeps it. `failed` marks what went wrong for the
    model. `submits`: a call of the harness's submit tool ends the run, unless the tool says not yet.
    `interrupted`: the lab broke it off.
    """

    observation: str
    whole: str | None = None
    dropped: int = 0
    failed: bool = False
    submits: bool = True
    exit_code: int | None = None
    timed_out: bool = False
    interrupted: bool = False
    out_of_memory: bool = False
    stdout: StreamFacts | None = None
    stderr: StreamFacts | None = None


@dataclass
class ToolContext:
    """Where a tool works and under which settings.

    `redactor` is applied to all text that comes out of the sandbox. `tool` is the definition that the call is
    bound to, `earlier_calls` how many calls of it have ended in this attempt.
    """

    sandbox: Sandbox
    stop: StopSignal
    redactor: Redactor = field(default_factory=lambda: Redactor({}))
    tool: ToolDefinition | None = None
    earlier_calls: int = 0
    _home: str | None = None

    def settings(self, kind: type[S]) -> S:
        """The tool's settings as its executor understands them."""
        return kind.model_validate(self.tool.settings if self.tool is not None else {})

    @property
    def workspace(self) -> str:
        return self.sandbox.facts.workspace

    def resolve(self, path: str) -> str:
        """`path` as an absolute path inside the sandbox: `~` is the sandbox's HOME, relative ones start at
        the workspace. Paths outside the workspace are allowed; the sandbox is the boundary."""
        if path == "~" or path.startswith("~/"):
            path = self.home() + path[1:]
        return posixpath.normpath(posixpath.join(self.workspace, path))

    def shown(self, path: str) -> str:
        """How observations name `path`: relative to the workspace when inside it, otherwise as given."""
        resolved = self.resolve(path)
        workspace = self.workspace.rstrip("/")
        if resolved == workspace:
            return "."
        if resolved.startswith(workspace + "/"):
            return resolved[len(workspace) + 1 :]
        return path

    def home(self) -> str:
        if self._home is None:
            result = self.sandbox.exec(
                ["/bin/sh", "-c", 'printf %s "$HOME"'], timeout=TOOL_TIMEOUT_SECONDS, stop=self.stop
            )
            self._home = result.stdout.head.decode("utf-8", "replace") or "/"
        return self._home


class Settings(Frozen):
    """An executor's settings; each has a default. Executors without any use this."""


class Executor(Protocol):
    """One tool. `run` may raise anything: `execute` turns it into an observation.

    `Settings` is what a harness may set for it. `read_only`: it only looks, so that nothing of the workspace
    can have changed. `run` gives the whole text; what the model sees of it is cut and worded by the caller.
    """

    Settings: type[Settings]
    read_only: bool

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        """Seconds after which the command is killed; None when the tool runs no command of the model's."""

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Do the work."""


def needed_parameters(executor: Executor) -> Sequence[Sequence[str]]:
    """The arguments without which no call of this executor can work, each with the names it is taken from.

    An executor that needs any declares them: `needs = (("file_path", "path"), ("content",))`.
    """
    needed: Sequence[Sequence[str]] = getattr(executor, "needs", ())
    return needed


def runs_commands(executor: Executor) -> bool:
    """Whether a call is a command of the model's own, whose output may begin with a stop marker.

    Such an executor declares `runs_commands = True`.
    """
    return bool(getattr(executor, "runs_commands", False))


def execute(executor: Executor, context: ToolContext, arguments: JSONObject) -> ToolResult:
    """Run a tool; any error of its own becomes the observation `<ExceptionType>: <message>`.

    Raises:
        SandboxLostError: the sandbox is gone, which no model shall take for the output of its command.
    """
    try:
        return executor.run(context, arguments)
    except SandboxLostError:
        raise
    except Exception as error:
        return ToolResult(observation=context.redactor.text(f"{type(error).__name__}: {error}"), failed=True)


def local_error(error: OSError, path: str) -> OSError:
    """`error` as Python words it for a local file, whichever sandbox raised it and whatever it said."""
    number = error.errno or _ERRNO.get(type(error))
    if number is None:
        return error
    return type(error)(number, os.strerror(number), path)


_ERRNO: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}


def required(arguments: JSONObject, *names: str, may_be_empty: bool = False) -> str:
    """The first of `names` that is given, as text. An empty text counts as not given, unless it may be empty.

    Raises:
        ValueError: none is given; says which key is required. TypeError: it is no string.
    """
    for name in names:
        value = arguments.get(name)
        if value is not None and (may_be_empty or value != ""):
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a string, not {type(value).__name__}")
            return value
    raise ValueError(f"missing required argument: {names[0]}")


def file_path(arguments: JSONObject) -> str:
    """The file argument; `path` is taken for `file_path`."""
    path = required(arguments, "file_path", "path")
    if "\0" in path:
        raise ValueError("embedded null byte")
    return path


def whole_number(arguments: JSONObject, name: str) -> int | None:
    """An optional whole number; numbers written as text are taken too.

    Raises:
        ValueError, TypeError: no number.
    """
    value = arguments.get(name)
    return None if value is None or value == "" else int(value)


def truthy(value: object) -> bool:
    """True, 1, or one of the words 1, true, yes, on in any case."""
    return str(value).strip().lower() in {"1", "true", "yes", "on"}


def stream_facts(output: Output, redactor: Redactor) -> StreamFacts:
    return StreamFacts(
        text=redactor.output(output),
        total_bytes=output.total,
        sha256=output.sha256,
        truncated=output.truncated,
        binary=b"\0" in output.head,
    )


def command_result(
    result: ExecResult, observation: str, *, stdout: StreamFacts, stderr: StreamFacts | None = None
) -> ToolResult:
    """What a command of the model's came to, worded by its tool; it failed unless it ended with 0."""
    return ToolResult(
        observation=observation,
        failed=result.exit_code != 0,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        interrupted=result.interrupted,
        out_of_memory=result.out_of_memory,
        stdout=stdout,
        stderr=stderr,
    )


def bounded(text: str) -> str:
    """The kept whole text, in bounded memory as a command's output is."""
    if len(text) <= OUTPUT_HEAD_BYTES:
        return text
    return f"{text[:OUTPUT_HEAD_BYTES]}\n[{len(text) - OUTPUT_HEAD_BYTES} characters were dropped here]\n"
