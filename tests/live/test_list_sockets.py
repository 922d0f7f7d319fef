"""Lists of runs over real sockets: a row is sent again when its run goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.sync.client import ClientConnection, connect

from lab.engine.events import RunEnded
from lab.models import Role
from tests import builders
from tests.live.lab_server import LabServer, running_lab, session_cookie

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


@contextmanager
def watching(lab: LabServer, path: str) -> Iterator[ClientConnection]:
    cookie = session_cookie(builders.person(Role.VIEWER))
    address = f"ws://{lab.host}{path}"
    headers = {"Cookie": cookie}
    with connect(
        address,
        origin=f"http://{lab.host}",  # type: ignore[arg-type]
        additional_headers=headers,
        open_timeout=60,
    ) as socket:
        yield socket


def rows_until(socket: ClientConnection, text: str) -> str:
    """The rows of messages up to the one that holds `text`."""
    seen = ""
    for _ in range(50):
        seen += json.loads(socket.recv(timeout=60)).get("rows", "")
        if text in seen:
            return seen
    raise AssertionError(f"{text!r} never came; rows were {seen[-2000:]!r}")


def test_the_home_page_hears_of_new_running_and_ended_runs(lab: LabServer) -> None:
    with watching(lab, "/ws/home/") as socket:
        run = builders.run()
        assert f'id="run-{run.pk}"' in rows_until(socket, "queued")
        builders.start(run)
        rows_until(socket, "running")
        builders.append(run, *builders.final_step(1), *builders.ending(outcome="resolved", steps=1))
        assert 'data-list="ended"' in rows_until(socket, "resolved")


def test_a_page_that_comes_later_hears_what_changed_since_it_was_made(lab: LabServer) -> None:
    run = builders.run()
    with watching(lab, f"/ws/experiments/{run.experiment_id}/") as first:
        rows_until(first, "queued")
        builders.start(run)
        rows_until(first, "running")
        # This page was made while the run was queued, and the others have been told already.
        with watching(lab, f"/ws/experiments/{run.experiment_id}/?rows={run.pk},x,-1") as second:
            assert f'id="run-{run.pk}"' in rows_until(second, "running")


def test_the_home_page_hears_of_runs_that_ended_while_it_was_away(lab: LabServer) -> None:
    run, other = builders.run(), builders.run()
    for one in (run, other):
        builders.start(one)
        builders.append(one, *builders.final_step(1), *builders.ending(outcome="resolved", steps=1))
    with watching(lab, f"/ws/home/?rows={run.pk}") as socket:
        rows = rows_until(socket, "resolved")
    assert rows.index(f'id="run-{run.pk}"') < rows.index(f'id="run-{other.pk}"')


def test_an_experiment_hears_of_its_own_runs_only(lab: LabServer) -> None:
    run, stranger = builders.run(), builders.run()
    with watching(lab, f"/ws/experiments/{run.experiment_id}/") as socket:
        rows_until(socket, "queued")
        builders.start(stranger)
        builders.start(run)
        rows = rows_until(socket, "running")
        assert f'id="run-{run.pk}"' in rows
        assert f'id="run-{stranger.pk}"' not in rows


def test_the_home_page_hears_what_to_do_next_and_how_the_lab_is(lab: LabServer) -> None:
    with watching(lab, "/ws/home/") as socket:
        first = json.loads(socket.recv(timeout=60))["parts"]
        assert 'id="part-lab"' in first
        assert "ended by infrastructure" not in first
        run = builders.run()
        builders.start(run)
        builders.append(run, RunEnded(exit_reason="tool_error"))
        assert f"Run {run.pk} ended by infrastructure" in parts_until(socket, "ended by infrastructure")


def parts_until(socket: ClientConnection, text: str) -> str:
    """The parts of messages up to the one that holds `text`; the lab goes on writing meanwhile."""
    seen = ""
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            seen += json.loads(socket.recv(timeout=2)).get("parts", "")
        if text in seen:
            return seen
        builders.run()
    raise AssertionError(f"{text!r} never came; parts were {seen[-2000:]!r}")
