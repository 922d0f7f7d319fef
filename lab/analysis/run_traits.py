"""What a run shows of its behaviour: whether it is whole, why it failed, behind which figures it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.analysis.observations import BROKEN, CANCELLED, UNRESOLVED, Behaviour, Observation

MAX_TURNS = "max_turns"
UNKNOWN_REASON = "unknown"
UNPARSED = "unparsed"
FAILURES = ("empty_patch", "never_ran", "both", "regression", "never_fixed")
UNKNOWN_CLASS = "unknown"
_CUT_SHORT = BROKEN | {CANCELLED}

Trait = Callable[[Observation], bool]


def is_whole(run: Observation) -> bool:
    """Whether the agent or a limit ended it: its behaviour is all there was to be.

    A graded run is whole whatever its exit reason. So is an imported one whose file does not say why it
    ended. One that a person cancelled is not, nor one that something broken of lab or endpoint ended.
    """
    return run.ended and (run.graded or run.exit_reason not in _CUT_SHORT)


def exit_of(run: Observation) -> str:
    """Why it ended; "unknown" also where a record has no word for it."""
    return run.exit_reason or UNKNOWN_REASON


def tokens_of(run: Observation) -> int | None:
    """Input and output over all attempts; None where the usage of one request is unknown."""
    if run.usage_unknown or run.output_total is None:
        return None
    if run.input_total is not None:
        return run.input_total + run.output_total
    if run.input_uncached is None or run.cache_read is None:
        return None
    # Servers without a count of cache writes have none: theirs are part of what was not cached.
    return run.input_uncached + run.cache_read + (run.cache_write or 0) + run.output_total


def failure_of(run: Observation) -> str | None:
    """Its class in `FAILURES`, "unknown", or None where it is no failure: not unresolved, not unparsed.

    The first that is so counts:
    `empty_patch`: no file was changed.
    `never_ran`: the verdict is unparsed, or not one expected test passed although some pass without a patch:
    the tests could not run, or the patch breaks them all.
    `unknown`: the record has no test results, or all that it has are as they should be.
    `both`: tests that should be fixed fail, and so do some that passed before.
    `regression`: all that should be fixed is, and a test that passed before fails.
    `never_fixed`: a test that should be fixed fails, and nothing that passed before does.
    """
    cancelled_unparsed = run.verdict == UNPARSED and run.exit_reason == CANCELLED
    if not run.ended or run.verdict not in (UNRESOLVED, UNPARSED) or cancelled_unparsed:
        return None
    if run.changed_files == 0:
        return "empty_patch"
    if run.verdict == UNPARSED:
        return "never_ran"
    if run.fail_to_pass is None or run.pass_to_pass is None:
        return UNKNOWN_CLASS
    (fixed, to_fix), (kept, to_keep) = run.fail_to_pass, run.pass_to_pass
    if to_keep and not fixed and not kept:
        return "never_ran"
    return {(True, True): "both", (False, True): "regression", (True, False): "never_fixed"}.get(
        (fixed < to_fix, kept < to_keep), UNKNOWN_CLASS
    )


def timed(runs: Sequence[Observation]) -> list[tuple[Observation, tuple[float, ...]]]:
    """The whole ones with their seconds with the model, in tools and waiting, where all three are known.

    Records of other programs do not say how long a run waited. Where no run's waiting is known, the seconds
    are two: with the model and in tools.
    """
    found = []
    for run in runs:
        if run.behaviour is not None and is_whole(run):
            one = run.behaviour
            found.append((run, (one.model_seconds, one.tool_seconds, one.waiting_seconds)))
    parts = 3 if any(None not in seconds for _, seconds in found) else 2
    known = ((run, [one for one in seconds[:parts] if one is not None]) for run, seconds in found)
    return [(run, tuple(seconds)) for run, seconds in known if len(seconds) == parts]


def trait(key: str) -> Trait:
    """Whether a run is behind the figure of that key: see `lab.analysis.conduct` for what there is.

    Raises:
        ValueError: no figure has such a key.
    """
    if key in _TRAITS:
        return _TRAITS[key]
    family, _, name = key.partition(":")
    if family not in _FAMILIES or not name:
        known = ", ".join([*_TRAITS, *(f"{one}:…" for one in _FAMILIES)])
        raise ValueError(f"{key!r} is no figure of behaviour; use one of {known}")
    belongs = _FAMILIES[family]
    return lambda run: belongs(run, name)


def _of_behaviour(belongs: Callable[[Behaviour], bool]) -> Trait:
    """True only of whole runs whose behaviour is known."""
    return lambda run: run.behaviour is not None and is_whole(run) and belongs(run.behaviour)


def _graded_steps(run: Observation) -> bool:
    return run.ended and run.graded and run.steps is not None


def _graded_tokens(run: Observation) -> bool:
    return run.ended and run.graded and tokens_of(run) is not None


_TRAITS: dict[str, Trait] = {
    "open": lambda run: not run.ended,
    "ended": lambda run: run.ended,
    "whole": is_whole,
    "graded": lambda run: run.ended and run.graded,
    "limit": lambda run: is_whole(run) and run.exit_reason == MAX_TURNS,
    "behaviour:unknown": lambda run: is_whole(run) and run.behaviour is None,
    "steps": _graded_steps,
    "steps:resolved": lambda run: _graded_steps(run) and run.resolved,
    "steps:unresolved": lambda run: _graded_steps(run) and not run.resolved,
    "steps:unknown": lambda run: run.ended and run.graded and run.steps is None,
    "tokens": _graded_tokens,
    "tokens:resolved": lambda run: _graded_tokens(run) and run.resolved,
    "tokens:unresolved": lambda run: _graded_tokens(run) and not run.resolved,
    "tokens:unknown": lambda run: run.ended and run.graded and tokens_of(run) is None,
    "calls": _of_behaviour(lambda one: True),
    "parallel": _of_behaviour(lambda one: one.parallel_steps > 0),
    "malformed": _of_behaviour(lambda one: one.malformed > 0),
    "format_errors": lambda run: is_whole(run) and run.replies is not None and bool(run.format_errors),
    "failed": _of_behaviour(lambda one: bool(one.failed_commands)),
    "repeated": _of_behaviour(lambda one: one.repeats > 0),
    "repeats": _of_behaviour(lambda one: True),
    "cycles": _of_behaviour(lambda one: True),
    "habit:tested": _of_behaviour(lambda one: one.tests > 0),
    "habit:untested": _of_behaviour(lambda one: one.tests == 0),
    "habit:cycled": _of_behaviour(lambda one: one.cycles > 0),
    "habit:tested_last": _of_behaviour(lambda one: one.tested_after_last_edit is True),
    "habit:untested_last": _of_behaviour(lambda one: one.tested_after_last_edit is False),
    "habit:no_edit": _of_behaviour(lambda one: one.tested_after_last_edit is None),
    "memory": lambda run: is_whole(run) and run.peak_memory_bytes is not None,
    "memory:unknown": lambda run: is_whole(run) and run.peak_memory_bytes is None,
    "tests:failures": lambda run: failure_of(run) is not None,
}
_FAMILIES: dict[str, Callable[[Observation, str], bool]] = {
    "exit": lambda run, name: run.ended and exit_of(run) == name,
    "kind": lambda run, name: _of_behaviour(lambda one: one.kinds.get(name, 0) > 0)(run),
    "tool": lambda run, name: _of_behaviour(lambda one: one.tools.get(name, 0) > 0)(run),
    "tests": lambda run, name: failure_of(run) == name,
}
