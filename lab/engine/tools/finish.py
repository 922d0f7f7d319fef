"""finish: the model says that it is done, and with what result."""

from __future__ import annotations

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import Settings, ToolContext, ToolResult, required


class Finish:
    Settings = Settings
    read_only = True
    needs = (("command",),)

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Takes the command submit alone: anything else submits nothing."""
        try:
            command = required(arguments, "command")
        except (ValueError, TypeError) as error:
            return ToolResult(observation=f"ERROR: {error}", failed=True, submits=False)
        if command != "submit":
            return ToolResult(
                observation=f"ERROR: There is no command {command!r}; the only one is submit.",
                failed=True,
                submits=False,
            )
        return ToolResult(observation="The work was submitted.")
