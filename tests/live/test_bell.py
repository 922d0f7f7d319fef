"""What wakes the watchers of a process: heard soon, and heard again after whatever broke."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import pytest

from tests.grown_up import GrownUp
from tests.servers import Postgresql, Redis

# Prints a line for each ring that a watcher's bell hears.
LISTEN = """
from lab.live.bell import Bells
bells = Bells(wanted=lambda: True)
bell = bells.new(gather_seconds=0.003)
bells.ensure()
until = time.monotonic() + 90
while not bells.heard():
    assert time.monotonic() < until
    time.sleep(0.01)
# The rings of the beginning.
while bell._rung.wait(1.0):
    bell._rung.clear()
print("listening", flush=True)
while True:
    bell._rung.wait()
    bell._rung.clear()
    print("rung", flush=True)
"""
RING = """
from django.db import transaction
from lab.services import doorbell
with transaction.atomic():
    doorbell.ring()
    doorbell.ring()
    if arguments[0] == "roll back":
        transaction.set_rollback(True)
# The one through Redis is sent by a thread.
time.sleep(0.5)
"""
AWAY_FROM_POSTGRESQL = """
from lab.live import bell
from lab.services import doorbell
bell.PostgresqlEar._listen = bell.Ear._listen
"""


class Listener:
    """A process that listens, and what it has said."""

    def __init__(self, lab: GrownUp, code: str = LISTEN) -> None:
        self._process = lab.start(code)
        assert self._line() == "listening"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hears(self, within: float) -> bool:
        """Whether it is rung within so many seconds."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], within)
        return bool(ready) and self._line() == "rung"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def listener() -> object:
    started: list[Listener] = []

    def start(lab: GrownUp, code: str = LISTEN) -> Listener:
        started.append(Listener(lab, code))
        return started[-1]

    yield start
    for each in started:
        each.stop()


Start = Callable[..., Listener]


@pytest.mark.requires("postgresql")
def test_a_committed_ring_is_heard_and_one_that_was_rolled_back_is_not(
    postgresql: Postgresql, listener: Start
) -> None:
    lab = GrownUp(database=postgresql.make_database())
    hearing = listener(lab)
    lab.program(RING, "roll back")
    assert not hearing.hears(within=0.5)
    lab.program(RING, "commit")
    assert hearing.hears(within=60)


@pytest.mark.requires("postgresql")
def test_a_listener_whose_connection_was_ended_connects_again(
    postgresql: Postgresql, listener: Start
) -> None:
    import psycopg

    database = postgresql.make_database()
    lab = GrownUp(database=database)
    hearing = listener(lab)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    # It rings when it hears again: what was rung meanwhile is looked for.
    assert hearing.hears(within=60)
    lab.program(RING, "commit")
    assert hearing.hears(within=60)


@pytest.mark.requires("postgresql", "redis")
def test_the_doorbell_through_redis_is_heard_after_a_long_silence_and_after_redis_was_away(
    postgresql: Postgresql, redis_server: Redis, listener: Start
) -> None:
    lab = GrownUp(database=postgresql.make_database(), redis=redis_server.url)
    hearing = listener(lab, AWAY_FROM_POSTGRESQL + LISTEN)
    # A blocking read with the time-out that redis-py 8 comes with dies after five seconds.
    assert not hearing.hears(within=7)
    lab.program(RING, "commit")
    assert hearing.hears(within=60)
    redis_server.kill()
    redis_server.start()
    assert hearing.hears(within=60)
    lab.program(RING, "commit")
    assert hearing.hears(within=60)


@pytest.mark.requires("postgresql")
def test_a_process_that_cannot_ring_through_redis_commits_all_the_same(postgresql: Postgresql) -> None:
    lab = GrownUp(database=postgresql.make_database(), redis="redis://127.0.0.1:1/0")
    began = time.monotonic()
    lab.program(RING, "commit", seconds=300)
    assert time.monotonic() - began < 100


@pytest.mark.requires("postgresql")
def test_a_process_ends_its_ears_when_nobody_watches_and_hears_again_for_the_next(
    postgresql: Postgresql,
) -> None:
    code = """
from lab.live.bell import Bells
wanted = True
bells = Bells(wanted=lambda: wanted)
bells.new(gather_seconds=0.003)
def until(true):
    end = time.monotonic() + 90
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
bells.ensure()
until(bells.heard)
wanted = False
until(lambda: not bells.heard())
wanted = True
bells.ensure()
until(bells.heard)
print(json.dumps("well"))
"""
    assert GrownUp(database=postgresql.make_database()).program(code) == "well"
