"""What happens to a lab beside the death of a process: stops, freezes, lost messages, storage that fails."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tests.e2e.faults import Fault
from tests.e2e.harmed_lab import TAKEN_AFTER_SECONDS, HarmedLab, processes_of_lab
from tests.e2e.oracle import problems
from tests.e2e.person import somebody
from tests.e2e.stories import Story
from tests.whole_lab import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lab() -> Iterator[HarmedLab]:
    with HarmedLab(LAB_RUN_SLOTS="8") as started:
        yield started


@pytest.fixture(autouse=True)
def _up_again(lab: HarmedLab) -> Iterator[None]:
    """A test that failed while the lab was down shall not fail the next."""
    yield
    if lab.has_ended():
        lab.start()


@pytest.fixture(scope="module")
def unharmed(lab: HarmedLab) -> Story:
    (story,) = lab.run([[]], seconds=180)
    assert problems(story) == []
    return story


def check(lab: HarmedLab, stories: Sequence[Story], unharmed: Story, *, attempts: int = 1) -> None:
    """All ended as an unharmed run does, in one attempt, and nothing is left."""
    wrong = [text for story in stories for text in problems(story, unharmed)]
    wrong += [
        f"run {one.run}: {one.last_attempt} attempts" for one in stories if one.last_attempt != attempts
    ]
    wrong += lab.leftovers()
    assert not wrong, "\n".join(wrong)


def test_a_child_frozen_past_its_lease_writes_nothing_when_it_wakes(lab: HarmedLab, unharmed: Story) -> None:
    points = [
        Fault("asking", step=7),
        Fault("running a command"),
        Fault("stored tool_call_finished", step=6),
        Fault("archived", nth=3),
        Fault("sandbox made"),
        Fault("stored verification_started"),
        Fault("stored attempt_ended"),
    ]
    told = [
        [Fault(point.point, action="stop", step=point.step, nth=point.nth, seconds=TAKEN_AFTER_SECONDS)]
        for point in points
    ]
    stories = lab.run(told, seconds=360)
    assert lab.not_happened([story.run for story in stories], told) == []
    check(lab, stories, unharmed)


def test_a_child_frozen_in_the_middle_of_a_commit_holds_the_others_up_and_nobody_loses_anything(
    lab: HarmedLab, unharmed: Story
) -> None:
    frozen = Fault("storing model_call_finished", action="stop", step=4, seconds=TAKEN_AFTER_SECONDS)
    stories = lab.run([[frozen], [], []], seconds=360)
    assert lab.faults.has_happened(Fault("renewing", name=f"{stories[0].run}-0"))
    check(lab, stories, unharmed)


def test_a_dropped_database_connection_costs_no_event_and_doubles_none(
    lab: HarmedLab, unharmed: Story
) -> None:
    told = [
        [Fault("storing tool_call_finished", action="database_error", step=6)],
        # The commit took effect, its answer was lost.
        [Fault("stored model_call_finished", action="database_error", step=9)],
        [Fault("storing attempt_started", action="database_error")],
        [Fault("storing attempt_ended", action="database_error")],
    ]
    stories = lab.run(told, seconds=300)
    assert lab.not_happened([story.run for story in stories], told) == []
    assert [story.continuations for story in stories] == [0, 0, 0, 0]
    check(lab, stories, unharmed)


def test_lost_messages_cost_time_and_doubled_ones_nothing(lab: HarmedLab, unharmed: Story) -> None:
    lost, doubled = lab.launch([[]] * 2, ring=0), lab.launch([[]] * 3, ring=12)
    lab.wait_until_ended([*lost, *doubled], seconds=360)
    check(lab, lab.stories([*lost, *doubled]), unharmed)


def test_a_stop_with_eight_runs_in_flight_hands_all_over_and_the_next_start_continues_them(
    lab: HarmedLab, unharmed: Story
) -> None:
    runs = lab.launch([[]] * 8)
    in_flight = "SELECT COUNT(*) FROM lab_event WHERE kind = 'model_call_finished' AND run_id >= ?"
    wait_for(lambda: lab.value(in_flight, min(runs)) >= 40, what="five steps a run", seconds=240)
    os.kill(lab.pid, signal.SIGTERM)
    wait_for(lab.has_ended, what="the end of the lab")
    assert processes_of_lab(lab) == []
    assert [one for one in lab.leftovers(within=0) if not one.startswith("a draft")] == []
    statuses = lab.query("SELECT DISTINCT status FROM lab_run WHERE id >= ?", min(runs))
    assert set(statuses) <= {("queued",), ("ended",)}
    lab.start()
    lab.wait_until_ended(runs, seconds=360)
    stories = lab.stories(runs)
    assert any(story.continuations for story in stories)
    assert all(one["orderly"] for story in stories for one in story.of("attempt_continued"))
    check(lab, stories, unharmed)


def test_a_worker_told_to_stop_hands_over_and_its_successor_goes_on_soon(
    lab: HarmedLab, unharmed: Story
) -> None:
    told = [[Fault("asking", victim="worker", action="terminate", step=7)], [], []]
    stories = lab.run(told, seconds=300)
    assert lab.not_happened([story.run for story in stories], told) == []
    assert all(one["orderly"] for story in stories for one in story.of("attempt_continued"))
    check(lab, stories, unharmed)


def test_a_worker_that_starts_takes_up_what_waits_without_being_told(lab: HarmedLab, unharmed: Story) -> None:
    tick = lab.child("django", "tick")
    os.kill(tick, signal.SIGSTOP)
    try:
        told = [[Fault("asking", victim="worker", action="terminate", step=7)]]
        stories = lab.run(told, seconds=240)
    finally:
        os.kill(tick, signal.SIGCONT)
    assert [story.continuations for story in stories] == [1]
    check(lab, stories, unharmed)


def test_a_cancel_while_the_lab_stops_holds_and_leaves_nothing(lab: HarmedLab) -> None:
    person = somebody(lab)
    # The worker is told to stop in the middle of a command, and the lab a moment later.
    (run,) = lab.launch([[Fault("running a command", victim="worker", action="terminate")]])
    wait_for(lambda: lab.faults.happened() & {f"{run}-0"}, what="the end of the worker", seconds=180)
    person.cancel(run)
    lab.stop()
    lab.start()
    lab.wait_until_ended([run], seconds=180)
    (story,) = lab.stories([run])
    assert story.exit_reason == "cancelled"
    assert problems(story) == []
    assert story.of("control_asked")[0]["control"] == "cancel"
    assert lab.leftovers() == []


def test_a_database_locked_for_ten_seconds_costs_ten_seconds(lab: HarmedLab, unharmed: Story) -> None:
    if lab.environment["DATABASE_URL"]:
        return  # what is locked there is a row, and nobody waits for another's
    runs = lab.launch([[], []])
    some = "SELECT COUNT(*) FROM lab_event WHERE run_id = ? AND kind = 'tool_call_finished'"
    wait_for(lambda: lab.value(some, runs[0]) >= 3, what="three steps", seconds=180)
    address = lab.data_folder / "lab.sqlite3"
    with closing(sqlite3.connect(address, timeout=90, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        time.sleep(10)
        writer.execute("ROLLBACK")
    lab.wait_until_ended(runs, seconds=300)
    check(lab, lab.stories(runs), unharmed)


def test_without_a_tick_the_lab_says_so_and_runs_go_on(lab: HarmedLab, unharmed: Story) -> None:
    tick = lab.child("django", "tick")
    os.kill(tick, signal.SIGSTOP)
    try:
        (run,) = lab.launch([[]])
        lab.wait_until_ended([run], seconds=180)
        wait_for(lambda: lab.get("/readyz") == 503, what="the word of it", seconds=300)
    finally:
        os.kill(tick, signal.SIGCONT)
    wait_for(lambda: lab.get("/readyz") == 200, what="a tick that is heard of again", seconds=180)
    check(lab, lab.stories([run]), unharmed)


def test_a_disk_that_is_full_for_a_moment_stops_nothing(lab: HarmedLab, unharmed: Story) -> None:
    told = [
        [Fault("storing tool_call_finished", action="disk_full", step=6)],
        [Fault("archiving", action="disk_full", nth=4)],
    ]
    stories = lab.run(told, seconds=300)
    assert lab.not_happened([story.run for story in stories], told) == []
    check(lab, stories, unharmed)


def test_a_web_process_killed_again_and_again_stops_no_run(lab: HarmedLab, unharmed: Story) -> None:
    stopped = threading.Event()

    def kill() -> None:
        while not stopped.wait(1.5):
            with contextlib.suppress(ProcessLookupError):
                os.kill(lab.faults.pid("web"), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        runs = lab.launch([[]] * 2)
        lab.wait_until_ended(runs, seconds=240)
    finally:
        stopped.set()
        killer.join()
    wait_for(lambda: lab.get("/readyz") == 200, what="the web process", seconds=180)
    check(lab, lab.stories(runs), unharmed)
