"""What tests, exit reason and log already say of a run: filled in while labelling, never asked of people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from lab.engine.llm.base import JSONObject
from lab.models import Run, RunFacts
from lab.render.moments import OUTCOMES
from lab.render.numbers import plural
from lab.services import imported_pages
from lab.services.facts import facts_of

_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|testing|conftest\.py|test_[^/]*|[^/]*_test\.\w+)(?:/|$)")
_CONFIG_PATH = re.compile(
    r"(?:^|/)(?:setup\.(?:py|cfg)|pyproject\.toml|tox\.ini|pytest\.ini|package\.json|Makefile|\.github)(?:/|$)"
)


class Known(NamedTuple):
    """One fact: `name` for programs, `words` for people, `tone` "" or how it is marked (failed, warning)."""

    name: str
    words: str
    tone: str = ""


def of(run: Run) -> list[Known]:
    """The facts in the order in which a reader wants them; what is unknown is said to be."""
    facts = facts_of(run)
    source = imported_pages.source_of(run)
    recorded = source is None or source.patch_recorded
    return [*_tests(facts), *_end(run), *_patch(facts, recorded), *_conduct(facts)]


def as_json(run: Run) -> JSONObject:
    """The same by name, as it is kept with a label: what it was based on."""
    facts = facts_of(run)
    return {
        "verdict": facts.verdict,
        "exit_reason": run.exit_reason,
        "fail_to_pass": [facts.fail_to_pass_passed, facts.fail_to_pass_total],
        "pass_to_pass": [facts.pass_to_pass_passed, facts.pass_to_pass_total],
        "known": [one.name for one in of(run)],
    }


def _tests(facts: RunFacts) -> Iterator[Known]:
    if not facts.verdict:
        yield Known("not_graded", "not graded: no test says anything")
        return
    outcome = OUTCOMES.get(facts.verdict, ("", "", facts.verdict))[2]
    if facts.verdict not in {"resolved", "unresolved"}:
        yield Known(f"verdict:{facts.verdict}", f"the verdict is {outcome}", "warning")
    fixed, to_fix = facts.fail_to_pass_passed, facts.fail_to_pass_total
    if fixed is None or to_fix is None:
        yield Known("fail_to_pass:unknown", f"{outcome}, by which tests is unknown")
    elif fixed < to_fix:
        name = "none" if not fixed else "some"
        words = f"{to_fix - fixed} of {plural(to_fix, 'target test')} still failing"
        yield Known(f"fail_to_pass:{name}", words, "failed")
    else:
        yield Known("fail_to_pass:all", f"{to_fix} of {plural(to_fix, 'target test')} passing")
    kept, to_keep = facts.pass_to_pass_passed, facts.pass_to_pass_total
    if kept is not None and to_keep is not None:
        broken = to_keep - kept
        yield Known("pass_to_pass", plural(broken, "regression"), "failed" if broken else "")


_ENDS = {
    "agent": "ended by itself",
    "cancelled": "cancelled by a person",
}


def _end(run: Run) -> Iterator[Known]:
    reason = run.exit_reason
    words = _ENDS.get(reason) or (f"ended by {reason}" if reason else "why it ended is unknown")
    limit = reason.startswith("max_") or reason == "format_errors"
    yield Known(f"exit:{reason or 'unknown'}", words, "warning" if limit else "")


def _patch(facts: RunFacts, recorded: bool) -> Iterator[Known]:
    if not recorded:
        yield Known("patch:unknown", "the record holds no patch")
        return
    files = [str(one.get("path", "")) for one in facts.changed_files or [] if isinstance(one, dict)]
    if not files and facts.verdict:
        yield Known("patch:empty", "the patch is empty", "failed")
    tests = [path for path in files if _TEST_PATH.search(path)]
    if tests and len(tests) == len(files):
        yield Known("patch:only_tests", "the patch changes tests only", "warning")
    elif tests:
        yield Known("patch:tests", f"the patch changes {plural(len(tests), 'test file')}")
    if config := [path for path in files if _CONFIG_PATH.search(path)]:
        yield Known("patch:config", f"the patch changes {config[0]}", "warning")


def _conduct(facts: RunFacts) -> Iterator[Known]:
    behaviour: dict[str, Any] = facts.behaviour or {}
    if behaviour.get("tested_after_last_edit") is False:
        yield Known("edits_after_last_test", "edited after its last test run", "warning")
    if behaviour and not behaviour.get("tests") and behaviour.get("edits"):
        yield Known("no_test_run", "never ran a test", "warning")
    if repeats := behaviour.get("repeats"):
        yield Known("repeats", f"{plural(repeats, 'call')} repeated word for word")
    if facts.format_errors:
        yield Known(
            "format_errors", f"{plural(facts.format_errors, 'reply', 'replies')} not understood", "warning"
        )
