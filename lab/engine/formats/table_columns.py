"""The tables of an export: their columns, in this order for ever, and a run's rows.

Units stand in the names. None is unknown: an empty cell, never a zero.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from lab.engine.formats.exported import (
    Exported,
    money,
    own_money,
    reward,
    spent,
    whole_sum,
    words_of,
    written,
)
from lab.engine.formats.trajectory import Call, FailedRequest, Turn
from lab.engine.verify.base import TestOutcome
from lab.engine.verify.rules import passes

Kind = Literal["text", "whole", "real", "moment", "truth"]
Cell = str | int | float | bool | dt.datetime | None
Row = list[Cell]


class Table(NamedTuple):
    """`columns` by name with the kind of their cells, `rows` those of one run in the columns' order."""

    name: str
    columns: Mapping[str, Kind]
    rows: Callable[[Exported], Iterator[Row]]


# What every row begins with, so that each table can be read by itself.
_KEYS: dict[str, Kind] = {
    "run": "whole",
    "experiment": "whole",
    "arm": "text",
    "instance_id": "text",
    "seed": "whole",
    "attempt": "whole",
}
_TOKENS: dict[str, Kind] = {
    "input_tokens": "whole",
    "cache_read_tokens": "whole",
    "cache_write_tokens": "whole",
    "output_tokens": "whole",
    "reasoning_tokens": "whole",
}


def _keys(run: Exported) -> Row:
    # No attempt has begun where it is 0.
    return [run.run, run.experiment, run.arm, run.instance_id, run.seed, run.attempt or None]


def _tokens(turn: Turn) -> Row:
    usage = turn.usage
    return [usage.input_total, usage.cache_read, usage.cache_write, usage.output_total, usage.reasoning]


RUN_COLUMNS: dict[str, Kind] = {
    **_KEYS,
    "experiment_name": "text",
    "experiment_kind": "text",
    "task_set": "text",
    "task": "text",
    "harness": "text",
    "harness_version": "text",
    "harness_digest": "text",
    "model": "text",
    "model_recorded": "text",
    "provider": "text",
    "source_format": "text",
    "status": "text",
    "exit_reason": "text",
    "native_reason": "text",
    "verdict": "text",
    "rule": "text",
    "reward": "real",
    "started_at": "moment",
    "ended_at": "moment",
    "agent_seconds": "real",
    "steps": "whole",
    "tool_calls": "whole",
    "failed_requests": "whole",
    **_TOKENS,
    "answers_with_unknown_tokens": "whole",
    "cost_usd": "real",
    "cost_source": "text",
    "requests_with_unknown_cost": "whole",
    "patch_bytes": "whole",
    "tests": "whole",
    "tests_passed": "whole",
    "tests_fail_to_pass": "whole",
    "tests_fail_to_pass_passed": "whole",
    "tests_pass_to_pass": "whole",
    "tests_pass_to_pass_passed": "whole",
}


def run_rows(run: Exported) -> Iterator[Row]:
    found, grading = run.trajectory, run.grading
    turns = found.turns if found.steps_recorded else ()
    counted = found.steps_recorded and run.attempt > 0
    money_spent = spent(found)
    tokens = [whole_sum(column) for column in zip(*map(_counts, turns), strict=True)] if turns else [None] * 5
    failed = sum(isinstance(item, FailedRequest) for item in found.items)
    yield [
        *_keys(run),
        run.experiment_name,
        run.kind,
        run.task_set,
        run.task,
        run.harness,
        run.harness_version,
        run.harness_digest,
        run.model,
        found.model.name,
        run.provider,
        found.origin.format,
        run.status,
        found.exit_reason.value if found.exit_reason else "",
        found.native_reason,
        grading.outcome.value if grading else "",
        grading.rule if grading else "",
        reward(grading),
        found.started_at,
        found.ended_at,
        found.totals.seconds,
        len(turns) if counted else None,
        sum(len(turn.calls) for turn in turns) if counted else None,
        failed if counted else None,
        *tokens,
        sum(turn.usage.total is None for turn in turns) if counted else None,
        None if money_spent.amount is None else float(money_spent.amount),
        money_spent.source,
        money_spent.unknown_requests if counted else None,
        None if found.patch is None else len(found.patch.encode("utf-8", "surrogatepass")),
        *_tests_counted(grading.tests if grading else ()),
    ]


def _counts(turn: Turn) -> tuple[int | None, ...]:
    usage = turn.usage
    return (usage.input_total, usage.cache_read, usage.cache_write, usage.output_total, usage.reasoning)


def _tests_counted(tests: tuple[TestOutcome, ...]) -> Row:
    """All, those that the rule lets pass, and both again by group; nothing where no test is recorded."""
    if not tests:
        return [None] * 6
    row: Row = []
    for group in (None, "fail_to_pass", "pass_to_pass"):
        of_group = [test for test in tests if group in (None, test.group)]
        row += [len(of_group), sum(passes(test.group, test.status) for test in of_group)]
    return row


STEP_COLUMNS: dict[str, Kind] = {
    **_KEYS,
    "step": "whole",
    "subagent": "text",
    "copied": "truth",
    "model": "text",
    "finish_reason": "text",
    "started_at": "moment",
    "ended_at": "moment",
    "seconds": "real",
    "first_token_seconds": "real",
    "failed_requests_before": "whole",
    **_TOKENS,
    "cost_usd": "real",
    "cost_source": "text",
    "cost_by_lab_prices_usd": "real",
    "tool_calls": "whole",
    "content_characters": "whole",
    "reasoning_characters": "whole",
}


def step_rows(run: Exported) -> Iterator[Row]:
    for step, (turn, failed) in enumerate(_turns(run), start=1):
        said, own = money(turn), own_money(turn)
        yield [
            *_keys(run),
            step,
            turn.agent,
            turn.copied,
            turn.model,
            turn.finish_reason,
            turn.started_at,
            turn.ended_at,
            turn.seconds,
            turn.first_token_seconds,
            failed,
            *_tokens(turn),
            None if said.amount is None else float(said.amount),
            said.source,
            None if own is None else float(own),
            len(turn.calls),
            len(words_of(turn)),
            len(turn.reasoning),
        ]


def _turns(run: Exported) -> Iterator[tuple[Turn, int]]:
    """Each turn, and how many requests failed right before it."""
    failed = 0
    for item in run.trajectory.items:
        if isinstance(item, FailedRequest):
            failed += 1
        elif isinstance(item, Turn):
            yield item, failed
            failed = 0


CALL_COLUMNS: dict[str, Kind] = {
    **_KEYS,
    "step": "whole",
    "call": "whole",
    "call_id": "text",
    "tool": "text",
    "arguments": "text",
    "malformed": "text",
    "has_result": "truth",
    "exit_code": "whole",
    "failed": "truth",
    "timed_out": "truth",
    "submitted": "truth",
    "started_at": "moment",
    "ended_at": "moment",
    "seconds": "real",
    "observation_characters": "whole",
}


def call_rows(run: Exported) -> Iterator[Row]:
    for step, turn in enumerate(run.trajectory.turns, start=1):
        for number, call in enumerate(turn.calls, start=1):
            yield [*_keys(run), step, number, *_call(call)]


def _call(call: Call) -> Row:
    seen = call.observation is not None
    return [
        call.id,
        call.name,
        call.raw_arguments or written(call.arguments),
        call.malformed,
        seen,
        call.exit_code,
        call.failed if seen else None,
        call.timed_out if seen else None,
        call.submitted if seen else None,
        call.started_at,
        call.ended_at,
        call.seconds,
        len(call.observation or "") if seen else None,
    ]


TEST_COLUMNS: dict[str, Kind] = {
    **_KEYS,
    "grading": "whole",
    "rule": "text",
    "outcome": "text",
    "group": "text",
    "test": "text",
    "status": "text",
    "assertion": "text",
}


def test_rows(run: Exported) -> Iterator[Row]:
    for number, grading in enumerate(run.trajectory.gradings, start=1):
        for test in grading.tests:
            yield [
                *_keys(run),
                number,
                grading.rule,
                grading.outcome.value,
                test.group,
                test.test_id,
                test.status.value,
                test.assertion,
            ]


TABLES = (
    Table("runs", RUN_COLUMNS, run_rows),
    Table("steps", STEP_COLUMNS, step_rows),
    Table("calls", CALL_COLUMNS, call_rows),
    Table("tests", TEST_COLUMNS, test_rows),
)
