"""Runs for tests of analysis: by hand, and at random for what must hold of all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lab.analysis.counting import Switches
from lab.analysis.observations import Behaviour, Observation

ALL_IN = Switches(stepped_in=True)
KINDS = ("read", "edit", "test", "shell", "final")
TOOLS = ("bash", "editor", "submit")

_PLAIN_BEHAVIOUR = Behaviour(
    tools={"bash": 3, "submit": 1},
    kinds={"read": 1, "edit": 1, "test": 1, "final": 1},
    calls=4,
    steps_with_calls=4,
    parallel_steps=0,
    malformed=0,
    failed_commands=0,
    tests=1,
    edits=1,
    cycles=1,
    tested_after_last_edit=True,
    repeats=0,
    model_seconds=30.0,
    tool_seconds=10.0,
    waiting_seconds=0.0,
)
_PLAIN_RUN = Observation(
    run=1,
    experiment=1,
    arm="1.1.aa",
    task="t1",
    repository="r1",
    seed=1,
    ended=True,
    verdict="resolved",
    exit_reason="agent",
    flagged=False,
    stepped_in=False,
    steps=4,
    requests=4,
    usage_unknown=0,
    input_uncached=100,
    cache_read=900,
    cache_write=0,
    output_total=50,
    reasoning=None,
    cost=0.1,
    cost_unknown=0,
    cost_basis="price",
    cost_earlier=None,
    seconds=40.0,
    peak_memory_bytes=1000,
    fail_to_pass=(1, 1),
    pass_to_pass=(9, 9),
    changed_files=1,
    behaviour=_PLAIN_BEHAVIOUR,
    input_total=1000,
)


def behaviour(**changes: Any) -> Behaviour:
    """Four calls, an edit and a test run after it, with these fields otherwise."""
    return _PLAIN_BEHAVIOUR._replace(**changes)


def run(number: int, **changes: Any) -> Observation:
    """A resolved run that the agent ended, with these fields otherwise."""
    return _PLAIN_RUN._replace(run=number, **changes)


_few = st.integers(0, 9)
_seconds = st.one_of(st.none(), st.floats(0, 1000))
_passed = st.one_of(st.none(), st.tuples(_few, st.just(9)))


@st.composite
def _behaviours(draw: st.DrawFn) -> Behaviour:
    kinds = {kind: draw(_few) for kind in KINDS}
    calls = sum(kinds.values())
    steps = draw(st.integers(0, calls))
    edits = kinds["edit"]
    return Behaviour(
        tools={tool: draw(_few) for tool in TOOLS},
        kinds=kinds,
        calls=calls,
        steps_with_calls=steps,
        parallel_steps=draw(st.integers(0, steps)),
        malformed=draw(st.integers(0, calls)),
        failed_commands=draw(st.integers(0, calls)),
        tests=kinds["test"],
        edits=edits,
        cycles=draw(st.integers(0, min(edits, kinds["test"]))),
        tested_after_last_edit=draw(st.booleans()) if edits else None,
        repeats=draw(st.integers(0, calls)),
        model_seconds=draw(_seconds),
        tool_seconds=draw(_seconds),
        waiting_seconds=draw(_seconds),
    )


@st.composite
def _runs(draw: st.DrawFn, number: int) -> Observation:
    task = draw(st.integers(1, 4))
    return run(
        number,
        arm=draw(st.sampled_from(["1.1.aa", "2.1.aa", "1.2.bb"])),
        task=f"t{task}",
        repository=f"r{task % 2}",
        ended=draw(st.sampled_from([True, True, True, False])),
        verdict=draw(st.sampled_from(["resolved", "unresolved", "unparsed", "infrastructure", ""])),
        exit_reason=draw(st.sampled_from(["agent", "max_turns", "tool_error", "cancelled", "unknown"])),
        flagged=draw(st.booleans()),
        stepped_in=draw(st.booleans()),
        steps=draw(st.one_of(st.none(), _few)),
        usage_unknown=draw(st.integers(0, 1)),
        input_total=draw(st.one_of(st.none(), _few)),
        peak_memory_bytes=draw(st.one_of(st.none(), _few)),
        fail_to_pass=draw(_passed),
        pass_to_pass=draw(_passed),
        changed_files=draw(st.one_of(st.none(), st.integers(0, 2))),
        behaviour=draw(st.one_of(st.none(), _behaviours())),
    )


@st.composite
def observations(draw: st.DrawFn) -> list[Observation]:
    """Up to 25 runs of three arms on four tasks, whatever became of them."""
    return [draw(_runs(number)) for number in range(1, draw(st.integers(0, 25)) + 1)]


switches = st.builds(Switches, st.booleans(), st.booleans(), st.booleans())
