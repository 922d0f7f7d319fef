"""Trajectories of every sort, as a log can hold them, and the logs that are made of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.events import Record
from lab.engine.formats.exported import Exported
from lab.engine.formats.to_events import Standing, to_events
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Cost, JSONObject, Usage
from lab.engine.verify.base import Outcome, TestOutcome, TestStatus

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
names = st.text("abcdefgh_", min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(names, values, max_size=3)
counts = st.integers(0, 10**9)
dollars = st.none() | st.decimals(0, 100, places=4)


def messages(role: str) -> st.SearchStrategy[JSONObject]:
    return st.builds(lambda content: {"role": role, "content": content}, words)


usages = st.just(Usage()) | st.builds(
    lambda entered, left: Usage(
        input_total=entered, output_total=left, source="provider", raw={"n": entered}
    ),
    counts,
    counts,
)


@st.composite
def calls(draw: st.DrawFn, index: int) -> Call:
    observed = draw(st.none() | words)
    text = draw(words.filter(lambda output: output != observed))
    return Call(
        id=f"call_{index}",
        name=draw(names),
        arguments=draw(objects),
        raw_arguments=draw(words),
        malformed=draw(st.just("") | words),
        observation=observed,
        message={} if observed is None else draw(messages("tool")),
        output=None if observed is None else draw(st.sampled_from([None, text])),
        exit_code=None if observed is None else draw(st.none() | st.integers(0, 255)),
        failed=observed is not None and draw(st.booleans()),
        timed_out=observed is not None and draw(st.booleans()),
        submitted=observed is not None and draw(st.booleans()),
        seconds=None if observed is None else draw(st.none() | st.floats(0.25, 9)),
        synthesised_id=True,
        kept=draw(objects),
    )


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    native = draw(st.booleans())
    called = [draw(calls(index)) for index in range(draw(st.integers(0, 3)))]
    if native:
        called = [replace(call, synthesised_id=draw(st.booleans())) for call in called]
    message = draw(messages("assistant"))
    if native and called:
        message["tool_calls"] = [{"id": call.id} for call in called]
    return Turn(
        message=message,
        reasoning=draw(words),
        calls=tuple(called),
        finish_reason=draw(words),
        model=draw(words),
        response_id=draw(words),
        usage=draw(usages),
        cost_reported=draw(dollars),
        seconds=draw(st.none() | st.floats(0.25, 9)),
        first_token_seconds=draw(st.none() | st.floats(0, 9)),
        agent=draw(st.just("") | names),
        kept=draw(objects),
    )


failures = st.builds(
    FailedRequest,
    error=names,
    message=words,
    status=st.none() | st.integers(400, 599),
    usage=usages,
    cost_reported=dollars,
    seconds=st.none() | st.floats(0, 9),
    kept=objects,
)
rewritings = st.builds(
    Rewritten,
    reason=words,
    messages=st.lists(messages("user"), min_size=1, max_size=3).map(tuple),
    kept=objects,
)
persons = st.builds(Message, message=messages("user"), by=st.just("person"), kept=objects)
feedback = st.builds(Message, message=messages("user"), reason=st.just("") | names, kept=objects)


@st.composite
def item_lists(draw: st.DrawFn) -> tuple[Item, ...]:
    """Items in an order that a log can tell: the harness speaks only after a turn."""
    found: list[Item] = []
    for _ in range(draw(st.integers(0, 5))):
        after_turn = bool(found) and isinstance(found[-1], Turn)
        allowed = [turns(), failures, rewritings, persons] + ([feedback] if after_turn else [])
        found.append(draw(st.one_of(allowed)))
    return tuple(found)


gradings = st.builds(
    Grading,
    rule=names,
    outcome=st.sampled_from(Outcome),
    tests=st.lists(
        st.builds(
            TestOutcome,
            test_id=words,
            group=st.sampled_from(["fail_to_pass", "pass_to_pass"]),
            status=st.sampled_from(TestStatus),
        ),
        max_size=2,
    ).map(tuple),
    rewards=st.dictionaries(names, st.floats(0, 1), max_size=2),
    detail=words,
    log=words,
    seconds=st.none() | st.floats(0, 9),
    kept=objects,
)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    patch = draw(st.none() | words)
    return Trajectory(
        origin=Origin(format=draw(names), file=draw(words), place=draw(words), sha256="0" * 64),
        harness=HarnessUsed(
            name=draw(names), version=draw(words), family=draw(names), config=draw(objects), complete=False
        ),
        model=ModelUsed(
            name=draw(names), provider=draw(words), base_url=draw(words), sampling=_without(draw(objects))
        ),
        instance_id=draw(words),
        statement=draw(words),
        task_kept=draw(objects),
        seed=draw(st.integers(1, 9)),
        opening=tuple(draw(st.lists(messages("user"), max_size=2))),
        tools=tuple(draw(st.lists(objects, max_size=2))),
        items=draw(item_lists()),
        exit_reason=draw(st.none() | st.sampled_from(ExitReason)),
        native_reason=draw(words),
        error=draw(words),
        final_message=draw(words),
        patch=patch,
        totals=draw(st.builds(Totals, cost=dollars, calls=st.none() | counts, seconds=st.none() | counts)),
        gradings=tuple(draw(st.lists(gradings, max_size=2))),
        steps_recorded=draw(st.booleans()),
        limits=draw(objects),
        notes=tuple(draw(st.lists(st.builds(Note, kind=st.just("guessed"), field=words), max_size=2))),
        kept=_without(draw(objects)),
    )


def _without(found: JSONObject) -> JSONObject:
    return {name: value for name, value in found.items() if name not in ("task", "tools", "model")}


def standing(found: Trajectory) -> Standing:
    harness, model = found.harness, found.model
    return Standing(
        task={"id": found.instance_id, "statement": found.statement},
        harness={
            "name": harness.name,
            "version": harness.version,
            "family": harness.family,
            "config": harness.config,
        },
        model={"name": model.name, "provider": model.provider, "base_url": model.base_url},
        seed=found.seed or 1,
        lab_version="1",
    )


def nothing_known(usage: Usage, model: str, at: dt.datetime | None) -> Cost:
    return Cost()


def logged(found: Trajectory, price: Callable[..., Cost] = nothing_known) -> list[Record]:
    timed = to_events(found, standing(found), price=price, imported_at=NOW)
    return [Record(seq=n, attempt=1, at=at, event=event) for n, (at, event) in enumerate(timed, 1)]


def exported(found: Trajectory, **changes: object) -> Exported:
    """The trajectory as run 7 of experiment 3."""
    fields: dict[str, object] = {
        "run": 7,
        "experiment": 3,
        "experiment_name": "nightly",
        "kind": "launched",
        "arm": "A",
        "task_set": "practice 1",
        "task": "click-1",
        "harness": "leaf-compatible",
        "harness_version": "4",
        "harness_digest": "d" * 64,
        "model": "cedar",
        "provider": "",
        "seed": found.seed or 1,
        "attempt": 1,
        "status": "ended",
        "trajectory": found,
    }
    return Exported(**(fields | changes))  # type: ignore[arg-type]
