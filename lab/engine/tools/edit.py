"""Edit: an exact piece of text replaced by another."""

from __future__ import annotations

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import Settings, ToolContext, ToolResult, file_path, local_error, required, truthy


class Edit:
    Settings = Settings
    read_only = False
    needs = (("file_path", "path"), ("old_string",), ("new_string",))

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Replaces the only occurrence of `old_string`, or every one with `replace_all`.

        Works on bytes, so that what is no UTF-8 elsewhere in the file stays as it was. Read shows lines
        without their ends: where a file ends its lines with CR LF, the strings are taken with the same ends.
        """
        path = file_path(arguments)
        old = required(arguments, "old_string", may_be_empty=True)
        new = required(arguments, "new_string", may_be_empty=True)
        if not old:
            raise ValueError("old_string must not be empty")
        resolved = context.resolve(path)
        try:
            data = context.sandbox.read(resolved)
            before, after = old.encode("utf-8", "replace"), new.encode("utf-8", "replace")
            if before not in data and b"\r\n" in data:
                before, after = _with_carriage_returns(before), _with_carriage_returns(after)
            count = data.count(before)
            _check(count, context.shown(path), truthy(arguments.get("replace_all")))
            context.sandbox.write(resolved, data.replace(before, after))
        except OSError as error:
            raise local_error(error, path) from None
        noun = "replacement" if count == 1 else "replacements"
        return ToolResult(observation=f"Edited {context.shown(path)}: {count} {noun}")


def _with_carriage_returns(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _check(count: int, shown: str, replace_all: bool) -> None:
    if count == 0:
        raise ValueError(f"old_string was not found in {shown}")
    if count > 1 and not replace_all:
        raise ValueError(
            f"old_string was found {count} times in {shown}; "
            "set replace_all to true or give a more specific old_string"
        )
