"""A whole lab on PostgreSQL and Redis, while one or the other dies and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.e2e.person import somebody
from tests.e2e.test_runs import check_log, kinds, status, wait_for_call, wait_until_ended, worker_of
from tests.servers import Postgresql, Redis, running
from tests.timing import SOON
from tests.whole_lab import WholeLab, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.requires("postgresql", "redis")]

UNHURRIED = {"LAB_SCRIPTED_CHUNK_SECONDS": "0.15", "LAB_LEASE_SECONDS": "15", "LAB_RUN_SLOTS": "2"}


@pytest.fixture(scope="module")
def database() -> Iterator[Postgresql]:
    """A PostgreSQL that may be killed."""
    with running(Postgresql()) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[Redis]:
    """A Redis that may be killed; it comes back empty."""
    with running(Redis()) as server:
        yield server


@pytest.fixture(scope="module")
def lab(database: Postgresql, broker: Redis) -> Iterator[WholeLab]:
    settings = {**UNHURRIED, "DATABASE_URL": database.make_database(), "LAB_REDIS_URL": broker.url}
    with WholeLab(**settings) as started:
        yield started


def stored(lab: WholeLab, run: int) -> list[tuple[int, str]]:
    return lab.query("SELECT seq, kind FROM lab_event WHERE run_id = ? ORDER BY seq", run)


def check_one_attempt(lab: WholeLab, run: int) -> None:
    """It was resolved in its first attempt, and no other worker child had to go on with it."""
    assert lab.query("SELECT n, lease_token FROM lab_attempt WHERE run_id = ?", run) == [(1, 1)]
    assert lab.value("SELECT verdict FROM lab_run_facts WHERE run_id = ?", run) == "resolved"
    check_log(lab, run)


def test_a_run_reaches_its_verdict_and_is_picked_up_at_once(lab: WholeLab) -> None:
    run = somebody(lab).launch()
    # Long before the tick would ring for a lost message.
    wait_for(lambda: status(lab, run) != "queued", what="a worker")
    assert wait_until_ended(lab, run) == "agent"
    check_one_attempt(lab, run)


def test_while_redis_is_away_runs_go_on_and_are_launched_and_when_it_is_back_empty_they_start(
    lab: WholeLab, broker: Redis
) -> None:
    person = somebody(lab)
    going_on = person.launch()
    wait_for_call(lab, going_on)
    worker = lab.child("celery", "worker")
    broker.kill()
    began = time.monotonic()
    launched = person.launch()
    assert time.monotonic() - began < SOON
    assert wait_until_ended(lab, going_on) == "agent"
    check_one_attempt(lab, going_on)
    assert status(lab, launched) == "queued"
    broker.start()
    wait_for(lambda: status(lab, launched) != "queued", what="a worker after Redis is back", seconds=150)
    assert wait_until_ended(lab, launched) == "agent"
    check_one_attempt(lab, launched)
    assert lab.child("celery", "worker") == worker


def test_after_a_kill_of_postgresql_every_step_is_there_and_the_runs_go_on(
    lab: WholeLab, database: Postgresql
) -> None:
    person = somebody(lab)
    runs = [person.launch(), person.launch(task="slug-unicode")]
    for run in runs:
        wait_for(lambda run=run: "tool_call_finished" in kinds(lab, run), what=f"a step of run {run}")
    workers = [worker_of(lab, run) for run in runs]
    before = [stored(lab, run) for run in runs]
    database.kill()
    time.sleep(3)
    database.start()
    for run, known, worker in zip(runs, before, workers, strict=True):
        assert stored(lab, run)[: len(known)] == known
        assert wait_until_ended(lab, run, seconds=300) == "agent"
        assert worker_of(lab, run) == worker
        check_one_attempt(lab, run)


def test_connections_that_are_dropped_all_the_time_cost_no_step_and_double_none(
    lab: WholeLab, database: Postgresql
) -> None:
    run = somebody(lab).launch()
    wait_for_call(lab, run)
    with psycopg.connect(database.url, autocommit=True) as admin:
        for _ in range(40):
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'trajectory-lab' AND pid <> pg_backend_pid()"
            )
            time.sleep(0.1)
    assert wait_until_ended(lab, run, seconds=300) == "agent"
    check_one_attempt(lab, run)
