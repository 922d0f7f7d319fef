"""Tables of runs, steps, calls and tests: what is unknown is empty, and a text is no formula."""

from __future__ import annotations

import csv
import datetime as dt
import io
from decimal import Decimal

import pytest
from hypothesis import given, settings

from lab.engine.formats.exported import Exported
from lab.engine.formats.table_columns import TABLES
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Origin,
    Trajectory,
    Turn,
)
from lab.engine.formats.write_tables import Csv, Parquet
from lab.engine.llm.base import Cost, Usage
from lab.engine.verify.base import Outcome, TestOutcome, TestStatus
from tests.engine.formats.made_trajectories import exported, trajectories

AT = dt.datetime(2025, 6, 1, 12, tzinfo=dt.UTC)
CALL = Call(id="a", name="bash", arguments={"command": "ls"}, observation="a.py", exit_code=0, seconds=0.5)
TURN = Turn(
    message={"role": "assistant", "content": "look"},
    calls=(CALL,),
    usage=Usage(input_total=100, cache_read=80, output_total=7, source="provider"),
    priced=Cost(amount=Decimal("0.25"), basis="table"),
    ended_at=AT,
)


def run(*items: Item, **changes: object) -> Exported:
    fields: dict[str, object] = {
        "origin": Origin(format="trajectory-lab", file="", sha256=""),
        "harness": HarnessUsed(name="leaf"),
        "items": items,
    }
    return exported(Trajectory(**(fields | changes)))  # type: ignore[arg-type]


def tables(*runs: Exported) -> dict[str, list[dict[str, str]]]:
    found = {}
    for member in Csv().members(runs):
        text = b"".join(member.pieces).decode()
        found[member.name] = list(csv.DictReader(io.StringIO(text, newline="")))
    return found


def test_there_are_four_tables_with_columns_in_a_stable_order() -> None:
    found = {member.name: b"".join(member.pieces).decode() for member in Csv().members([])}
    assert list(found) == ["runs.csv", "steps.csv", "calls.csv", "tests.csv"]
    for table in TABLES:
        assert found[f"{table.name}.csv"] == ",".join(table.columns) + "\r\n"


def test_a_run_is_a_row_with_its_sums() -> None:
    tests = (
        TestOutcome(test_id="t1", group="fail_to_pass", status=TestStatus.PASSED),
        TestOutcome(test_id="t2", group="pass_to_pass", status=TestStatus.FAILED),
    )
    grading = Grading(rule="swe-bench", outcome=Outcome.UNRESOLVED, tests=tests)
    failed = FailedRequest(error="server", message="500")
    (row,) = tables(run(failed, TURN, TURN, gradings=(grading,), patch="é"))["runs.csv"]
    assert (row["run"], row["instance_id"], row["verdict"], row["reward"]) == (
        "7",
        "click-1",
        "unresolved",
        "0.0",
    )
    assert (row["steps"], row["tool_calls"], row["failed_requests"]) == ("2", "2", "1")
    assert (row["input_tokens"], row["cost_usd"], row["cost_source"]) == ("200", "0.5", "table")
    assert (row["patch_bytes"], row["tests"], row["tests_passed"]) == ("2", "2", "1")
    assert (row["tests_fail_to_pass_passed"], row["tests_pass_to_pass_passed"]) == ("1", "0")


def test_tests_passed_are_those_that_the_rule_lets_pass() -> None:
    tests = (
        TestOutcome(test_id="t1", group="fail_to_pass", status=TestStatus.SKIPPED),
        TestOutcome(test_id="t2", group="fail_to_pass", status=TestStatus.XFAIL),
        TestOutcome(test_id="t3", group="pass_to_pass", status=TestStatus.SKIPPED),
        TestOutcome(test_id="t4", group="other", status=TestStatus.SKIPPED),
    )
    grading = Grading(rule="swe-bench", outcome=Outcome.UNRESOLVED, tests=tests)
    (row,) = tables(run(TURN, gradings=(grading,)))["runs.csv"]
    assert (row["tests"], row["tests_passed"]) == ("4", "2")
    assert (row["tests_fail_to_pass"], row["tests_fail_to_pass_passed"]) == ("2", "1")
    assert (row["tests_pass_to_pass"], row["tests_pass_to_pass_passed"]) == ("1", "1")


def test_what_is_unknown_is_empty_and_no_zero() -> None:
    found = tables(run(Turn(message={"role": "assistant", "content": ""})), run())
    first, second = found["runs.csv"]
    for name in ("input_tokens", "cost_usd", "reward", "verdict", "patch_bytes", "agent_seconds", "tests"):
        assert first[name] == ""
    assert (first["steps"], first["answers_with_unknown_tokens"], first["requests_with_unknown_cost"]) == (
        *("1", "1", "1"),
    )
    assert (second["steps"], second["input_tokens"]) == ("0", "")
    (step,) = found["steps.csv"]
    assert (step["seconds"], step["output_tokens"], step["cost_usd"], step["started_at"]) == ("",) * 4


def test_a_verdict_alone_has_no_steps_to_count() -> None:
    (row,) = tables(run(steps_recorded=False))["runs.csv"]
    assert (row["steps"], row["tool_calls"], row["failed_requests"]) == ("", "", "")


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    (row,) = tables(run(TURN, Turn(message={"role": "assistant", "content": ""})))["runs.csv"]
    assert (row["input_tokens"], row["cost_usd"], row["answers_with_unknown_tokens"]) == ("", "", "1")


def test_steps_and_calls_have_their_numbers_and_times() -> None:
    unanswered = Call(id="b", name="bash", arguments={})
    found = tables(run(TURN, Turn(message={"role": "assistant", "content": ""}, calls=(unanswered,))))
    first, second = found["steps.csv"]
    assert (first["step"], first["ended_at"], second["step"]) == ("1", "2025-06-01T12:00:00+00:00", "2")
    one, two = found["calls.csv"]
    assert (one["step"], one["call"], one["arguments"]) == ("1", "1", '{"command":"ls"}')
    assert (one["has_result"], one["exit_code"], one["failed"]) == ("true", "0", "false")
    assert (two["has_result"], two["exit_code"], two["failed"]) == ("false", "", "")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", '=HYPERLINK("http://x";"y")'])
def test_a_text_is_no_formula(text: str) -> None:
    call = Call(id=text, name="bash", arguments={}, raw_arguments=text)
    found = tables(run(Turn(message={"role": "assistant", "content": ""}, calls=(call,), model=text)))
    (row,) = found["calls.csv"]
    assert row["call_id"] == row["arguments"] == f"'{text}"
    assert found["steps.csv"][0]["model"] == f"'{text}"


def test_a_number_below_zero_stays_a_number() -> None:
    call = Call(id="a", name="bash", arguments={}, observation="", exit_code=-9)
    turn = Turn(message={"role": "assistant", "content": ""}, calls=(call,))
    assert tables(run(turn))["calls.csv"][0]["exit_code"] == "-9"


@given(trajectories())
@settings(max_examples=40, deadline=None)
def test_every_row_has_all_columns_whatever_the_texts_are(found: Trajectory) -> None:
    read = tables(exported(found))
    for table in TABLES:
        for row in read[f"{table.name}.csv"]:
            assert list(row) == list(table.columns)
            assert None not in row.values()
    assert len(read["steps.csv"]) == len(found.turns)


def test_hostile_texts_make_valid_csv() -> None:
    text = 'a,"b"\r\nc\x00\ud800\u202e<script>alert(1)</script>'
    call = Call(id=text, name="bash", arguments={})
    (row,) = tables(run(Turn(message={"role": "assistant", "content": ""}, calls=(call,))))["calls.csv"]
    assert row["call_id"] == text.replace("\x00", "\u2400").replace("\ud800", "\ufffd")


def test_parquet_holds_the_same_rows_with_types_and_nulls() -> None:
    arrow = pytest.importorskip("pyarrow.parquet")
    huge = Call(id="=1+1", name="bash", arguments={}, observation="", exit_code=10**30)
    items = (TURN, Turn(message={"role": "assistant", "content": ""}, calls=(huge,)))
    found = {
        member.name: arrow.read_table(io.BytesIO(b"".join(member.pieces)))
        for member in Parquet().members([run(*items), run()])
    }
    assert list(found) == ["runs.parquet", "steps.parquet", "calls.parquet", "tests.parquet"]
    for table in TABLES:
        assert found[f"{table.name}.parquet"].column_names == list(table.columns)
    steps = found["steps.parquet"].to_pylist()
    assert (steps[0]["input_tokens"], steps[0]["ended_at"], steps[0]["cost_usd"]) == (100, AT, 0.25)
    assert (steps[1]["input_tokens"], steps[1]["ended_at"], steps[1]["cost_usd"]) == (None, None, None)
    calls = found["calls.parquet"].to_pylist()
    # No spreadsheet computes it, and no number is cut.
    assert (calls[1]["call_id"], calls[1]["exit_code"]) == ("=1+1", None)
    assert len(found["runs.parquet"]) == 2
    assert len(found["tests.parquet"]) == 0
