"""submit: the model hands in what it changed, after a review of it where the harness asks for one."""

from __future__ import annotations

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import TOOL_TIMEOUT_SECONDS, Settings, ToolContext, ToolResult

_DIFF_BYTES = 1_000_000

CHECKLIST = """\
Before your work is handed in, go through this list.

1. If you changed code after you last ran your script that reproduces the problem, run the script again, and \
go on until it passes.
2. Remove such scripts, and other files that do not belong to the solution.
3. If you changed tests that were there before, put them back, with `git checkout -- <path>`; the diff below \
shows which.
4. Then submit once more: that call hands in your work.

Everything you changed:"""

# The agent's index and objects stay as they are: new ones are written outside of the repository.
_DIFF = r"""
private=$(mktemp -d) || exit 1
trap 'rm -rf "$private"' EXIT
objects=$(git rev-parse --git-path objects) || exit 1
case $objects in /*) ;; *) objects=$PWD/$objects ;; esac
export GIT_INDEX_FILE="$private/index" GIT_OBJECT_DIRECTORY="$private" GIT_OPTIONAL_LOCKS=0
export GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
git read-tree HEAD && git add -A && git --no-pager diff --cached --no-ext-diff --no-color HEAD
"""


class SubmitSettings(Settings):
    """`review`: the first call of an attempt hands nothing in and answers with `checklist` and the diff."""

    review: bool = False
    checklist: str = CHECKLIST


class Submit:
    Settings = SubmitSettings
    read_only = True

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """Submits, unless this is the first call and there is a review. Arguments are not looked at."""
        settings = context.settings(SubmitSettings)
        if not settings.review or context.earlier_calls > 0:
            return ToolResult(observation="The work was submitted.")
        diff, interrupted = _diff(context)
        return ToolResult(
            observation=f"{settings.checklist}\n\n<diff>\n{diff.rstrip()}\n</diff>",
            submits=False,
            interrupted=interrupted,
        )


def _diff(context: ToolContext) -> tuple[str, bool]:
    """Everything that differs from the last commit, new files too, and whether the lab broke it off."""
    result = context.sandbox.exec(
        ["/bin/sh", "-c", _DIFF],
        timeout=TOOL_TIMEOUT_SECONDS,
        output_limit=_DIFF_BYTES,
        stop=context.stop,
    )
    if result.exit_code != 0:
        said = result.stderr.text().strip()[-300:] or "git did not end in time"
        return context.redactor.text(f"(the changes cannot be shown: {said})"), result.interrupted
    return context.redactor.output(result.stdout) or "(nothing was changed)", result.interrupted
