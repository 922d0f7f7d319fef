from __future__ import annotations

import time

import pytest

from tests.e2e.kill_loop import planned, run, table

pytestmark = pytest.mark.e2e


def check(seed: int, count: int) -> None:
    started = time.monotonic()
    rows = run(seed, count)
    told = table(rows, seconds=time.monotonic() - started)
    # Shown by pytest for a failure, and with -s.
    print(told)
    assert len(rows) == count
    assert all(row.same_verdict for row in rows), told


def test_the_same_seed_plans_the_same_kills_and_another_one_others() -> None:
    assert planned("1.1") == planned("1.1")
    assert len({planned(f"{seed}.1") for seed in range(20)}) == 20


@pytest.mark.timeout(1500)
def test_a_few_runs_with_random_kills_end_as_if_nothing_had_happened() -> None:
    check(4, 6)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fifty_runs_with_random_kills_end_as_if_nothing_had_happened(seed: int) -> None:
    check(seed, 50)
