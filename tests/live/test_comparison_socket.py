"""Runs side by side over real sockets: how far each is, soon and seldom, in whatever order they are named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from lab.live.comparison_feed import COMPARISON, COMPARISON_SECONDS, ComparisonFeed
from lab.live.hub import Topic
from lab.live.run_feed import RunState
from lab.models import Run
from tests import builders
from tests.live.lab_server import LabServer, running_lab
from tests.live.test_list_sockets import watching

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


def next_of(socket: ClientConnection) -> dict[str, Any]:
    """The next message that says something of the runs; others only say that the socket works."""
    for _ in range(60):
        message: dict[str, Any] = json.loads(socket.recv(timeout=60))
        if "runs" in message:
            return dict(message["runs"])
    raise AssertionError("nothing was said of the runs")


def heard_until(socket: ClientConnection, run: Run, seq: int) -> list[dict[str, Any]]:
    """What was said up to the message by which a run is as far as that."""
    seen = [next_of(socket)]
    while seen[-1][str(run.pk)]["seq"] < seq:
        seen.append(next_of(socket))
    return seen


def last_seq(run: Run) -> int:
    return Run.objects.values_list("last_seq", flat=True).get(pk=run.pk)


def test_who_begins_to_watch_is_told_where_each_run_is_and_then_when_one_goes_on(lab: LabServer) -> None:
    first = builders.run()
    second, stranger = builders.another_run(first, seed=2), builders.another_run(first, seed=3)
    builders.start(first)
    with watching(lab, f"/ws/compare/?runs={second.pk},{first.pk}") as socket:
        told = next_of(socket)
        assert told == {
            str(first.pk): {"seq": last_seq(first), "status": "running"},
            str(second.pk): {"seq": 0, "status": "queued"},
        }
        builders.start(stranger)
        builders.start(second)
        seq = builders.append(second, *builders.bash_step(1, "true", ""))
        told = heard_until(socket, second, seq)[-1]
        assert set(told) == {str(first.pk), str(second.pk)}
        ended = builders.append(second, *builders.final_step(2), *builders.ending(outcome="resolved"))
        told = heard_until(socket, second, ended)[-1]
        assert told[str(second.pk)]["status"] == "ended"
        assert told[str(first.pk)]["status"] != "ended"


def test_many_steps_make_few_messages(lab: LabServer) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    builders.start(first)
    with watching(lab, f"/ws/compare/?runs={first.pk},{second.pk}") as socket:
        next_of(socket)
        began, seq = time.monotonic(), 0
        for step in range(1, 31):
            seq = builders.append(first, *builders.bash_step(step, "true", ""))
        heard = heard_until(socket, first, seq)
        assert len(heard) <= (time.monotonic() - began) / COMPARISON_SECONDS + 2


def test_two_pages_with_other_letters_for_the_same_runs_hear_the_same(lab: LabServer) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(watching(lab, f"/ws/compare/?runs={one},{other}"))
            for one, other in ((first.pk, second.pk), (second.pk, first.pk))
        ]
        for socket in sockets:
            next_of(socket)
        seq = builders.start(first)
        assert [heard_until(socket, first, seq)[-1] for socket in sockets] == [
            {
                str(first.pk): {"seq": seq, "status": "running"},
                str(second.pk): {"seq": 0, "status": "queued"},
            }
        ] * 2


def test_a_page_that_comes_back_is_told_how_far_the_runs_have_come_meanwhile(lab: LabServer) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    builders.start(first)
    path = f"/ws/compare/?runs={first.pk},{second.pk}"
    with watching(lab, path) as socket:
        next_of(socket)
        socket.socket.close()
    seq = 0
    for step in range(1, 5):
        seq = builders.append(first, *builders.bash_step(step, "true", ""))
    lab.kill()
    lab.start()
    with watching(lab, path) as socket:
        assert next_of(socket)[str(first.pk)]["seq"] == seq


def test_a_run_that_is_removed_is_no_longer_among_them(lab: LabServer) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    with watching(lab, f"/ws/compare/?runs={first.pk},{second.pk}") as socket:
        assert set(next_of(socket)) == {str(first.pk), str(second.pk)}
        gone = str(second.pk)
        second.delete()
        while gone in (told := next_of(socket)):
            pass
        assert set(told) == {str(first.pk)}


def test_a_look_that_comes_too_soon_is_made_up_for() -> None:
    feed = ComparisonFeed(Topic(COMPARISON, 0, (1, 2)))

    def at(seq: int) -> dict[int, RunState]:
        return {1: RunState(seq, "running", False, 0, 0), 2: RunState(9, "ended", False, 0, 0)}

    assert [json.loads(message.text)["runs"]["1"]["seq"] for message in feed.changed(at(4))] == [4]
    assert feed.changed(at(4)) == []
    assert not feed.waits
    assert feed.changed(at(5)) == []
    assert feed.waits
    time.sleep(COMPARISON_SECONDS)
    (message,) = feed.changed(at(6))
    assert json.loads(message.text)["runs"] == {
        "1": {"seq": 6, "status": "running"},
        "2": {"seq": 9, "status": "ended"},
    }
    assert not feed.waits
