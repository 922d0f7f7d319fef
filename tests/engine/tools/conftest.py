"""The tools in a real sandbox: plain process everywhere, bubblewrap where it exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.stop import StopSignal
from lab.engine.tools.base import ToolContext, ToolResult, execute

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
    return ToolContext(sandbox=sandbox, stop=StopSignal(), limits={"read": 20_000, "bash": 30_000})


@pytest.fixture
def run(context: ToolContext) -> Run:
    def run_tool(name: str, arguments: JSONObject) -> ToolResult:
        return execute(registry.executor(name), context, arguments)

    return run_tool
