"""The grid of an experiment over real sockets: only cells that changed, and what stands beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from websockets.sync.client import ClientConnection

from lab.models import Experiment
from lab.services import grids
from tests import builders
from tests.live.lab_server import LabServer, running_lab
from tests.live.test_list_sockets import watching
from tests.services.test_grids import place, second_arm

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def lab(django_db_setup: None) -> Iterator[LabServer]:
    with running_lab() as server:
        yield server


def heard_until(socket: ClientConnection, text: str, *, key: str = "cells") -> list[dict[str, object]]:
    """The messages up to the one whose `key` holds `text`."""
    seen: list[dict[str, object]] = []
    for _ in range(60):
        message = json.loads(socket.recv(timeout=60))
        seen.append(message)
        if text in str(message.get(key, "")):
            return seen
    raise AssertionError(f"{text!r} never came in {key}; the last message was {str(seen[-1])[:2000]}")


def cells(messages: list[dict[str, object]]) -> list[int]:
    """The runs whose cells came, in order."""
    return [
        int(found) for one in messages for found in re.findall(r'id="cell-(\d+)"', str(one.get("cells", "")))
    ]


def test_a_cell_is_sent_when_its_run_goes_on_and_no_other_is(lab: LabServer) -> None:
    run, stranger = builders.run(), builders.run()
    waits = builders.another_run(run, seed=2)
    mark = grids.newest_mark()
    with watching(lab, f"/ws/experiments/{run.experiment_id}/grid/?mark={mark}") as socket:
        first = json.loads(socket.recv(timeout=60))
        assert first["counts"]["queued"] == 2
        assert 'id="part-progress"' in first["parts"]
        builders.start(stranger)
        builders.start(run)
        heard = heard_until(socket, 'class="running"')
        builders.append(run, *builders.final_step(1), *builders.ending(outcome="resolved", steps=1))
        heard += heard_until(socket, 'class="resolved"')
        assert set(cells(heard)) == {run.pk}
        assert waits.pk not in cells(heard)
        assert f'id="sum-{run.task_id}-{run.arm_id}">1 of 1' in str(heard[-1]["cells"])
        told = heard_until(socket, "1 of 1 valid runs resolved", key="parts")
        assert told[-1]["counts"] == {**first["counts"], "resolved": 1, "queued": 1}


def test_a_page_that_comes_back_hears_what_changed_after_its_mark_alone(lab: LabServer) -> None:
    old = builders.run()
    builders.believable(old, outcome="resolved")
    padding = builders.run()
    builders.start(padding)
    for step in range(1, 60):
        builders.append(padding, *builders.bash_step(step, "true", ""))
    run = builders.another_run(old, seed=2)
    mark = grids.newest_mark()
    builders.believable(run, outcome="unresolved")
    with watching(lab, f"/ws/experiments/{old.experiment_id}/grid/?mark={mark}") as socket:
        message = json.loads(socket.recv(timeout=60))
        assert cells([message]) == [run.pk]
        assert message["mark"] >= mark


def test_a_nonsense_mark_gives_everything_and_no_error(lab: LabServer) -> None:
    run = builders.run()
    builders.start(run)
    with watching(lab, f"/ws/experiments/{run.experiment_id}/grid/?mark=-x") as socket:
        assert cells([json.loads(socket.recv(timeout=60))]) == [run.pk]


def test_runs_that_are_added_are_told_by_the_count_of_all_and_go_on_from_there(lab: LabServer) -> None:
    run = builders.run()
    with watching(lab, f"/ws/experiments/{run.experiment_id}/grid/?mark={grids.newest_mark()}") as socket:
        assert json.loads(socket.recv(timeout=60))["counts"]["all"] == 1
        builders.start(run)
        heard_until(socket, 'class="running"')
        more = builders.another_run(run, seed=2)
        builders.start(more)
        heard_until(socket, f'id="cell-{more.pk}"')
        assert heard_until(socket, "'all': 2", key="counts")


def test_the_rows_of_many_arms_are_sent_as_the_page_has_them(lab: LabServer) -> None:
    run = builders.run()
    for letter in "BCD":
        place(run, arm=second_arm(run, letter=letter))
    with watching(lab, f"/ws/experiments/{run.experiment_id}/grid/?mark={grids.newest_mark()}") as socket:
        assert json.loads(socket.recv(timeout=60))["parts"].count('class="arm-row"') == 4
        builders.believable(run, outcome="resolved")
        assert 'class="arm-row"' in str(heard_until(socket, "1 of 1 valid", key="parts")[-1]["parts"])


def test_a_paused_experiment_says_so_with_its_reason(lab: LabServer) -> None:
    run = builders.run()
    with watching(lab, f"/ws/experiments/{run.experiment_id}/grid/?mark={grids.newest_mark()}") as socket:
        json.loads(socket.recv(timeout=60))
        Experiment.objects.filter(pk=run.experiment_id).update(
            state=Experiment.State.PAUSED, paused_because="the budget of $2 is reached"
        )
        builders.start(run)
        heard_until(socket, "the budget of $2 is reached", key="parts")
