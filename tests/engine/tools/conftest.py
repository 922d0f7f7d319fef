"""The tools in a real sandbox: plain process everywhere, bubblewrap where it exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.harnesses.observations import observed
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.stop import StopSignal
from lab.engine.tools.base import ToolContext, ToolResult, execute

# The tools of the preset by executor, with its settings and limits.
TOOLS = {tool.executor: tool for tool in load_preset("leaf-compatible").tools}

Run = Callable[[str, JSONObject], ToolResult]


@pytest.fixture(
    scope="module", params=["process", pytest.param("bubblewrap", marks=pytest.mark.requires("bubblewrap"))]
)
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    scratch: Path = tmp_path_factory.mktemp("sandboxes")
    scratch.parent.chmod(0o755)
    started = registry.provider(request.param).start(SandboxSpec(label="tools", scratch=scratch))
    yield started
    started.stop()


@pytest.fixture
def context(sandbox: Sandbox) -> ToolContext:
    sandbox.exec(["/bin/sh", "-c", "find . -mindepth 1 -delete"], timeout=30)
    return ToolContext(sandbox=sandbox, stop=StopSignal())


@pytest.fixture
def run(context: ToolContext) -> Run:
    def run_tool(name: str, arguments: JSONObject) -> ToolResult:
        tool = TOOLS[name]
        context.tool = tool
        result = execute(registry.executor(name), context, arguments)
        return observed(result, tool, arguments=arguments, seconds=0.0)

    return run_tool
