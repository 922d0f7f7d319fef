"""A tool bound to an executor with settings of the test's own, and what lies in the workspace."""

from __future__ import annotations

from lab.engine import registry
from lab.engine.harnesses.base import ToolDefinition
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import ToolContext, ToolResult, execute


def call(context: ToolContext, executor: str, arguments: JSONObject, **settings: object) -> ToolResult:
    context.tool = ToolDefinition(name=executor, executor=executor, settings=settings)
    return execute(registry.executor(executor), context, arguments)


def put(context: ToolContext, path: str, text: str | bytes) -> None:
    context.sandbox.write(path, text.encode() if isinstance(text, str) else text)


def got(context: ToolContext, path: str) -> bytes:
    return context.sandbox.read(path)


def shell(context: ToolContext, command: str) -> str:
    """Run a command as the agent would have; returns what it wrote."""
    result = context.sandbox.exec(["/bin/sh", "-c", command], timeout=60)
    assert result.exit_code == 0, result.stderr.text()
    return result.stdout.text()
