"""Runs for tests of analysis: by hand, and at random for what must hold of all of them."""

from __future__ import annotations

import random
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
    exit_codes=4,
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
    replies=4,
    format_errors=0,
)


def behaviour(**changes: Any) -> Behaviour:
    """Four calls, an edit and a test run after it, with these fields otherwise."""
    return _PLAIN_BEHAVIOUR._replace(**changes)


def run(number: int, **changes: Any) -> Observation:
    """A resolved run that the agent ended, with these fields otherwise."""
    return _PLAIN_RUN._replace(run=number, **changes)


_few = st.integers(0, 9)
_passed = st.one_of(st.none(), st.tuples(_few, st.just(9)))


def _some_behaviour(chance: random.Random) -> Behaviour:
    kinds = {kind: chance.randint(0, 9) for kind in KINDS}
    calls = sum(kinds.values())
    steps = chance.randint(0, calls)
    edits, codes = kinds["edit"], chance.randint(0, calls)
    seconds = [chance.choice([None, 0.0, chance.random() * 1000]) for _ in range(3)]
    return Behaviour(
        {tool: chance.randint(0, 9) for tool in TOOLS},
        kinds,
        calls,
        steps_with_calls=steps,
        parallel_steps=chance.randint(0, steps),
        malformed=chance.randint(0, calls),
        exit_codes=codes,
        failed_commands=chance.randint(0, codes) if codes else None,
        tests=kinds["test"],
        edits=edits,
        cycles=chance.randint(0, min(edits, kinds["test"])),
        tested_after_last_edit=chance.random() < 0.5 if edits else None,
        repeats=chance.randint(0, calls),
        model_seconds=seconds[0],
        tool_seconds=seconds[1],
        waiting_seconds=seconds[2],
    )


# Drawn field by field they would take most of the tests' time.
_behaviours = [None, *(_some_behaviour(random.Random(seed)) for seed in range(60))]


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
        exit_reason=draw(st.sampled_from(["agent", "max_turns", "tool_error", "cancelled", "unknown", ""])),
        flagged=draw(st.booleans()),
        stepped_in=draw(st.booleans()),
        steps=draw(st.one_of(st.none(), _few)),
        usage_unknown=draw(st.integers(0, 1)),
        input_total=draw(st.one_of(st.none(), _few)),
        peak_memory_bytes=draw(st.one_of(st.none(), _few)),
        fail_to_pass=draw(_passed),
        pass_to_pass=draw(_passed),
        changed_files=draw(st.one_of(st.none(), st.integers(0, 2))),
        replies=draw(st.one_of(st.none(), st.just(9))),
        format_errors=draw(_few),
        behaviour=draw(st.sampled_from(_behaviours)),
    )


@st.composite
def observations(draw: st.DrawFn) -> list[Observation]:
    """Up to 12 runs of three arms on four tasks, whatever became of them."""
    return [draw(_runs(number)) for number in range(1, draw(st.integers(0, 12)) + 1)]


switches = st.builds(Switches, st.booleans(), st.booleans(), st.booleans())
