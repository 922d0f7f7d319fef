from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.harmed_lab import processes_of_lab
from tests.e2e.person import somebody
from tests.timing import SOON
from tests.whole_lab import WholeLab, wait_for

pytestmark = pytest.mark.e2e

SLOW = {"LAB_SCRIPTED_CHUNK_SECONDS": "0.4", "LAB_LEASE_SECONDS": "8"}
LAUNCH = """
from django.contrib.auth.models import User
from lab.models import HarnessVersion, Model, Task
from lab.services import messages, runs

def launch():
    return runs.launch(
        by=User.objects.get(),
        tasks=list(Task.objects.all()[:1]),
        harness_versions=list(HarnessVersion.objects.filter(harness__name="leaf-compatible")),
        models=list(Model.objects.filter(name="scripted/solver")),
    ).runs.get().pk
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[WholeLab]:
    """One lab for the tests that leave it up, as it was."""
    with WholeLab() as started:
        yield started


@pytest.fixture(scope="module")
def slow_lab() -> Iterator[WholeLab]:
    """A lab whose scripted models take their time, to be interrupted; up after each test."""
    with WholeLab(**SLOW) as started:
        yield started


def status(lab: WholeLab, run: int) -> str:
    return str(lab.value("SELECT status FROM lab_run WHERE id = ?", run))


def kinds(lab: WholeLab, run: int) -> list[str]:
    return [kind for (kind,) in lab.query("SELECT kind FROM lab_event WHERE run_id = ? ORDER BY seq", run)]


def wait_until_ended(lab: WholeLab, run: int, seconds: float = 180) -> str:
    wait_for(
        lambda: status(lab, run) == "ended", what=f"end of run {run}: {kinds(lab, run)}", seconds=seconds
    )
    return str(lab.value("SELECT exit_reason FROM lab_run WHERE id = ?", run))


def wait_for_call(lab: WholeLab, run: int) -> None:
    wait_for(lambda: "model_call_started" in kinds(lab, run), what=f"a model call of run {run}")


def worker_of(lab: WholeLab, run: int) -> int:
    worker = lab.value("SELECT worker FROM lab_attempt WHERE run_id = ? ORDER BY n DESC", run)
    return int(worker.split("/")[1])


def sandboxes(lab: WholeLab) -> list[str]:
    return [path.name for path in (lab.data_folder / "sandboxes").glob("*")]


def wait_until_continued(lab: WholeLab, run: int) -> None:
    wait_for(lambda: "attempt_continued" in kinds(lab, run), what=f"the next child of run {run}", seconds=180)


def check_log(lab: WholeLab, run: int) -> None:
    """What holds after every fault: no gap, one end, no sandbox, no run that says it is still going on."""
    seqs = [seq for (seq,) in lab.query("SELECT seq FROM lab_event WHERE run_id = ? ORDER BY seq", run)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert lab.value("SELECT last_seq FROM lab_run WHERE id = ?", run) == len(seqs)
    assert kinds(lab, run).count("run_ended") == 1
    assert kinds(lab, run)[-1] == "run_ended"
    wait_for(lambda: not sandboxes(lab), what="the end of every sandbox", seconds=180)


def test_a_launched_run_reaches_its_verdict(lab: WholeLab) -> None:
    run = somebody(lab).launch()
    assert wait_until_ended(lab, run) == "agent"
    assert lab.value("SELECT verdict FROM lab_run_facts WHERE run_id = ?", run) == "resolved"
    check_log(lab, run)


def test_ctrl_c_in_the_middle_of_a_run_leaves_nothing_and_the_next_start_takes_it_up(
    slow_lab: WholeLab,
) -> None:
    run = somebody(slow_lab).launch()
    wait_for_call(slow_lab, run)
    slow_lab.stop()
    assert processes_of_lab(slow_lab) == []
    assert sandboxes(slow_lab) == []
    assert status(slow_lab, run) != "ended"
    slow_lab.start()
    wait_until_continued(slow_lab, run)
    somebody(slow_lab).cancel(run)
    assert wait_until_ended(slow_lab, run) == "cancelled"
    assert kinds(slow_lab, run).count("attempt_started") == 1
    check_log(slow_lab, run)


def test_a_killed_worker_child_costs_no_attempt(slow_lab: WholeLab) -> None:
    run = somebody(slow_lab).launch()
    wait_for_call(slow_lab, run)
    os.kill(worker_of(slow_lab, run), signal.SIGKILL)
    wait_until_continued(slow_lab, run)
    assert "model_call_interrupted" in kinds(slow_lab, run)
    assert slow_lab.value("SELECT COUNT(*) FROM lab_attempt WHERE run_id = ?", run) == 1
    wait_for(lambda: len(sandboxes(slow_lab)) <= 1, what="the end of the first sandbox", seconds=90)
    somebody(slow_lab).cancel(run)
    assert wait_until_ended(slow_lab, run) == "cancelled"
    check_log(slow_lab, run)


def test_a_killed_worker_comes_back_and_its_run_goes_on(slow_lab: WholeLab) -> None:
    run = somebody(slow_lab).launch()
    wait_for_call(slow_lab, run)
    os.kill(slow_lab.child("celery", "--queues runs"), signal.SIGKILL)
    wait_until_continued(slow_lab, run)
    assert "worker runs ended (SIGKILL); it starts again" in slow_lab.output
    somebody(slow_lab).cancel(run)
    assert wait_until_ended(slow_lab, run) == "cancelled"
    check_log(slow_lab, run)


def test_a_frozen_worker_child_that_wakes_up_late_writes_nothing(slow_lab: WholeLab) -> None:
    run = somebody(slow_lab).launch()
    wait_for_call(slow_lab, run)
    frozen = worker_of(slow_lab, run)
    os.kill(frozen, signal.SIGSTOP)
    wait_until_continued(slow_lab, run)
    told = kinds(slow_lab, run)
    os.kill(frozen, signal.SIGCONT)
    somebody(slow_lab).cancel(run)
    assert wait_until_ended(slow_lab, run) == "cancelled"
    check_log(slow_lab, run)
    assert kinds(slow_lab, run)[: len(told)] == told
    assert kinds(slow_lab, run).count("attempt_continued") == 1


def test_a_cancel_while_the_lab_stops_holds_after_the_next_start(slow_lab: WholeLab) -> None:
    person = somebody(slow_lab)
    run = person.launch()
    wait_for_call(slow_lab, run)
    # The worker is frozen, so that the lab is down before it can act on the cancel.
    os.kill(worker_of(slow_lab, run), signal.SIGSTOP)
    person.cancel(run)
    slow_lab.stop()
    assert processes_of_lab(slow_lab) == []
    slow_lab.start()
    assert wait_until_ended(slow_lab, run) == "cancelled"
    assert kinds(slow_lab, run).count("attempt_started") == 1
    check_log(slow_lab, run)


def test_a_killed_lab_leaves_no_process_and_the_next_start_removes_its_sandboxes(slow_lab: WholeLab) -> None:
    person = somebody(slow_lab)
    run = person.launch()
    wait_for_call(slow_lab, run)
    os.kill(slow_lab.pid, signal.SIGKILL)
    # The killed process itself stays as a zombie until somebody asks for its end.
    slow_lab.stop()
    wait_for(lambda: not processes_of_lab(slow_lab), what="the end of every process", seconds=90)
    slow_lab.start()
    somebody(slow_lab).cancel(run)
    assert wait_until_ended(slow_lab, run) == "cancelled"
    check_log(slow_lab, run)


def test_a_cancel_in_the_middle_of_a_command_ends_the_run_soon(lab: WholeLab) -> None:
    task = lab.program(
        """
from lab.models import Task
steps = [{"run": {"command": "sleep 300", "timeout": 400}}, {"finish": {"message": "done"}}]
task = Task.objects.last()
task.hidden.plans = {"scripted/solver": [{"steps": steps}]}
task.hidden.save()
print(json.dumps(task.slug))
"""
    )
    person = somebody(lab)
    run = person.launch(task=task)
    wait_for(lambda: "tool_call_started" in kinds(lab, run), what="the command")
    person.cancel(run)
    assert wait_until_ended(lab, run) == "cancelled"
    when = "SELECT at FROM lab_event WHERE run_id = ? AND kind = ?"
    asked, ended = (
        dt.datetime.fromisoformat(str(lab.value(when, run, kind)))
        for kind in ("control_asked", "tool_call_interrupted")
    )
    assert ended - asked < dt.timedelta(seconds=SOON)
    check_log(lab, run)


def test_a_message_that_is_lost_only_costs_time(lab: WholeLab) -> None:
    run = lab.program(LAUNCH + "messages._send = lambda count: None\nprint(launch())")
    assert wait_until_ended(lab, run) == "agent"
    check_log(lab, run)


@pytest.fixture
def slow_lab_with_files() -> Iterator[WholeLab]:
    """A slow lab whose queue is the built-in one, whatever else there is."""
    with WholeLab(**SLOW, LAB_REDIS_URL="") as started:
        yield started


def test_a_torn_message_while_a_run_goes_on_costs_nothing(slow_lab_with_files: WholeLab) -> None:
    slow_lab = slow_lab_with_files
    first = slow_lab.program(LAUNCH + "print(launch())")
    wait_for_call(slow_lab, first)
    worker = worker_of(slow_lab, first)
    (slow_lab.data_folder / "queue" / "messages" / "0_0.runs.msg").write_bytes(b"")
    second = slow_lab.program(LAUNCH + "print(launch())")
    wait_for_call(slow_lab, second)
    assert worker_of(slow_lab, first) == worker
    assert "CRITICAL" not in slow_lab.output
    assert slow_lab.output.count("a message of the queue cannot be read") == 1
    for run in (first, second):
        slow_lab.program(
            "from lab.models import Run; from django.contrib.auth.models import User\n"
            "from lab.services import controls\n"
            "controls.ask(run=Run.objects.get(pk=arguments[0]), by=User.objects.get(), control='cancel')",
            run,
        )
        assert wait_until_ended(slow_lab, run) == "cancelled"


def test_eight_launches_at_once_with_doubled_messages_run_once_each(lab: WholeLab) -> None:
    runs = lab.program(LAUNCH + "print([launch() for _ in range(8)]); messages._send(8)")
    for run in runs:
        assert wait_until_ended(lab, run, seconds=360) == "agent"
        assert lab.value("SELECT COUNT(*) FROM lab_attempt WHERE run_id = ?", run) == 1
