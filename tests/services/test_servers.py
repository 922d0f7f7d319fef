"""Whether database and broker answer, asked by processes of their own."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.grown_up import GrownUp
from tests.servers import Postgresql, Redis
from tests.timing import SOON

ASK = """
from lab.engine.errors import LabError
from lab.services import servers
began = time.monotonic()
try:
    found = getattr(servers, arguments[0])()
except LabError as error:
    found = str(error)
print(json.dumps([found, time.monotonic() - began]))
"""
NOBODY = "127.0.0.1:1"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as server:
        host, port = server.getsockname()
        kept = []

        def take() -> None:
            while True:
                try:
                    kept.append(server.accept())
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"{host}:{port}"


@pytest.mark.requires("redis")
def test_a_message_goes_to_redis_and_back_and_leaves_nothing_there(redis_server: Redis) -> None:
    lab = GrownUp(redis=redis_server.url)
    taken, _ = lab.program(ASK, "broker_round_trip")
    assert 0 < taken < 30
    left = (
        "import redis\nprint(json.dumps([key.decode() for key in redis.Redis.from_url(arguments[0]).keys()]))"
    )
    assert [key for key in lab.program(left, redis_server.url) if "round-trip" in key] == []


def test_a_message_goes_through_the_built_in_queue_and_back() -> None:
    taken, _ = GrownUp().program(ASK, "broker_round_trip")
    assert 0 < taken < 30


@pytest.mark.requires("postgresql")
def test_a_postgresql_that_answers_is_timed(postgresql: Postgresql) -> None:
    taken, _ = GrownUp(database=postgresql.url).program(ASK, "check_database")
    assert 0 < taken < 30


@pytest.mark.parametrize(
    ("question", "setting"), [("check_database", "DATABASE_URL"), ("broker_round_trip", "LAB_REDIS_URL")]
)
def test_a_server_that_is_not_there_is_named_without_its_password(question: str, setting: str) -> None:
    lab = GrownUp(
        database=f"postgresql://lab:hidden-word@{NOBODY}/lab", redis=f"redis://:hidden-word@{NOBODY}/0"
    )
    said, _ = lab.program(ASK, question)
    assert said.startswith(f"{setting}: ")
    assert NOBODY in said
    assert "refused" in said
    assert f"unset {setting}" in said
    assert "hidden-word" not in said


@pytest.mark.parametrize("question", ["check_database", "broker_round_trip"])
def test_a_server_that_says_nothing_is_given_up_within_seconds(question: str, silent: str) -> None:
    lab = GrownUp(database=f"postgresql://lab@{silent}/lab", redis=f"redis://{silent}/0")
    said, seconds = lab.program(ASK, question)
    assert "cannot be used" in said
    assert seconds < 60


def test_up_names_a_broker_that_is_not_there_and_starts_nothing() -> None:
    lab = GrownUp(redis=f"redis://:hidden-word@{NOBODY}/0", LAB_PORT="1")
    refused = lab.manage("up", "--port", str(_free_port()))
    assert refused.returncode == 1
    assert f"LAB_REDIS_URL: redis://:***@{NOBODY}/0 cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr


PREPARE = """
from django.core.management import call_command
from lab.services.locks import one_lab_prepares
with one_lab_prepares():
    call_command("migrate", verbosity=0)
    from lab.services import endpoints, harnesses, tasks
    harnesses.sync_presets(); endpoints.sync_scripted(); tasks.sync_practice()
"""


@pytest.mark.requires("postgresql")
def test_several_labs_that_start_at_once_change_the_tables_one_after_another(postgresql: Postgresql) -> None:
    lab = GrownUp(database=postgresql.make_database())
    started = [lab.start(PREPARE) for _ in range(3)]
    assert [process.communicate(timeout=300)[1] for process in started] == [""] * 3
    assert [process.returncode for process in started] == [0] * 3


RING = """
from lab.services import messages
began = time.monotonic()
for _ in range(50):
    messages.ring_workers(runs=3)
print(json.dumps(time.monotonic() - began))
"""


@pytest.mark.requires("redis")
def test_ringing_waits_for_no_broker_and_what_waits_does_not_pile_up(silent: str) -> None:
    lab = GrownUp(redis=f"redis://{silent}/0", LAB_RUN_SLOTS="4")
    began = time.monotonic()
    # Waiting for the broker with each would take minutes.
    assert lab.program(RING) < SOON
    # The process ends as soon as its sender has given up; 150 messages would take it half an hour.
    assert time.monotonic() - began < 150


HOLD = """
from django.db import connection, transaction
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE thing (id int)")
with transaction.atomic(), connection.cursor() as cursor:
    cursor.execute("LOCK TABLE thing")
    print("held", flush=True)
    time.sleep(600)
"""
WAIT = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("INSERT INTO thing VALUES (1)")
print(json.dumps("done"))
"""


@pytest.mark.requires("postgresql")
def test_a_process_that_is_frozen_in_the_middle_of_a_transaction_holds_the_others_up_for_seconds(
    postgresql: Postgresql,
) -> None:
    lab = GrownUp(database=postgresql.make_database())
    with lab.start(HOLD) as frozen:
        try:
            assert frozen.stdout is not None
            assert frozen.stdout.readline() == "held\n"
            frozen.send_signal(signal.SIGSTOP)
            assert lab.program(WAIT, seconds=150) == "done"
        finally:
            frozen.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
