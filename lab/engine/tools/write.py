"""Write: a whole file at once."""

from __future__ import annotations

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import Settings, ToolContext, ToolResult, file_path, local_error, required


class Write:
    Settings = Settings
    read_only = False
    needs = (("file_path", "path"), ("content",))

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Creates parent folders, overwrites. The observation counts characters, called bytes as in Leaf."""
        path = file_path(arguments)
        content = required(arguments, "content", may_be_empty=True)
        resolved = context.resolve(path)
        try:
            context.sandbox.write(resolved, content.encode("utf-8", "replace"))
        except OSError as error:
            raise local_error(error, path) from None
        return ToolResult(observation=f"Wrote {len(content)} bytes to {context.shown(path)}")
