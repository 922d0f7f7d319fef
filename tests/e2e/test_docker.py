"""A whole lab on Docker: runs end as anywhere else, whatever dies, and nothing is left in the daemon."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import docker_host
from tests.e2e.docker_lab import DockerLab
from tests.e2e.faults import Fault
from tests.e2e.oracle import problems
from tests.e2e.person import somebody
from tests.e2e.stories import Story
from tests.servers import running
from tests.whole_lab import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.requires("docker", "debian image"),
]

SECRET = "sk-e2e-key-that-no-sandbox-may-hold-0123456789"
# From the death of a worker to the end of everything it had in the daemon.
GONE_SECONDS = 60.0


@pytest.fixture(scope="module")
def lab() -> Iterator[DockerLab]:
    with DockerLab(LAB_RUN_SLOTS="4", OPENAI_API_KEY=SECRET, LAB_TEST_SECRET=SECRET) as started:
        yield started


@pytest.fixture(autouse=True)
def _up_again(lab: DockerLab) -> Iterator[None]:
    """A test that failed while the lab was down shall not fail the next."""
    yield
    if lab.has_ended():
        lab.start()


@pytest.fixture(scope="module")
def unharmed(lab: DockerLab) -> Story:
    """What becomes of the run when nothing happens to it. The first one builds the practice image."""
    (story,) = lab.run([[]], seconds=400)
    assert (story.exit_reason, story.verdict, story.last_attempt) == ("agent", "resolved", 1)
    assert problems(story) == []
    return story


def launch_task(lab: DockerLab, folder: Path) -> int:
    """Launch one run of the only task of a task set with the scripted solver."""
    return int(
        lab.program(
            """
from pathlib import Path
from django.contrib.auth.models import User
from django.db import transaction
from lab.models import HarnessVersion
from lab.services import endpoints, harnesses, runs, tasks
harnesses.sync_presets()
with transaction.atomic():
    experiment = runs.launch(
        by=User.objects.order_by("pk")[0],
        tasks=list(tasks.sync_task_set(folder=Path(arguments[0])).tasks.all()),
        harness_versions=list(HarnessVersion.objects.filter(harness__name="leaf-compatible")),
        models=[model for model in endpoints.sync_scripted() if model.name.endswith("solver")],
        seeds=1,
    )
print(json.dumps(experiment.runs.get().pk))
""",
            str(folder),
        )
    )


@pytest.fixture
def task_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lab-docker-tasks-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def write_task(folder: Path, *commands: str, environment: str = 'name = "practice"') -> Path:
    """A task set of one task whose solver runs these commands one after another."""
    task = folder / "probe"
    (task / "repository").mkdir(parents=True)
    (task / "tests").mkdir()
    (folder / "set.toml").write_text('name = "probes"\nversion = "1"\ntitle = "Probes"\ntasks = ["probe"]\n')
    (task / "issue.md").write_text("Look around.\n")
    (task / "repository" / "thing.py").write_text("x = 1\n")
    (task / "tests" / "test_thing.py").write_text("def test_thing():\n    assert True\n")
    (task / "gold.patch").write_text(
        "diff --git a/thing.py b/thing.py\n--- a/thing.py\n+++ b/thing.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    )
    (task / "task.toml").write_text(
        'id = "probe"\ntitle = "A probe"\ndifficulty = "easy"\ntrait = "looks"\n\n'
        f"[environment]\n{environment}\n"
        "network = false\nagent_timeout_sec = 900\nverifier_timeout_sec = 120\n\n[verification]\n"
        'rule = "swe-bench"\ncommand = ["python3", "-m", "pytest", "test_thing.py"]\n'
        'fail_to_pass = ["test_thing.py::test_thing"]\n'
    )
    steps = "".join(f"      - run: {{command: {_quoted(command)}}}\n" for command in commands)
    (task / "plans.yaml").write_text(
        f"scripted/solver:\n  - expected: unresolved\n    steps:\n{steps}      - finish: {{message: Seen.}}\n"
    )
    return folder


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "''") + "'"


def outputs(lab: DockerLab, run: int) -> list[str]:
    """What the tool calls of a run gave back, in order."""
    (story,) = lab.stories([run])
    return [str(event) for event in story.of("tool_call_finished")]


def test_a_run_ends_as_anywhere_else_and_its_log_names_the_image(lab: DockerLab, unharmed: Story) -> None:
    starts = unharmed.of("sandbox_started")
    assert [one["purpose"] for one in starts] == ["agent", "verification"]
    for one in starts:
        assert one["sandbox"] == "docker"
        assert one["image"]["identifier"].startswith("sha256:")
        assert one["limits"] is not None
        assert one["network"] is False
    assert lab.leftovers() == []


STAGES = (
    Fault("making a sandbox"),
    Fault("creating a container"),
    Fault("created a container"),
    Fault("starting a container"),
    Fault("started a container"),
    Fault("sandbox made"),
    Fault("running a command"),
    Fault("removing a container"),
    Fault("removed a container"),
    Fault("created a container", nth=2),
    Fault("sandbox made", nth=2),
    Fault("removing a container", nth=2),
)


def test_a_worker_killed_at_any_stage_of_a_containers_life_costs_time_and_leaves_nothing(
    lab: DockerLab, unharmed: Story
) -> None:
    bystanders = [
        docker_host.bystander(),
        docker_host.bystander(**{"trajectory-lab.label": "run-1-attempt-1-lease-1"}),
    ]
    try:
        told = [[fault] for fault in STAGES]
        stories = lab.run(told, seconds=120 + 30 * len(told))
        wrong = lab.not_happened([story.run for story in stories], told)
        wrong += [text for story in stories for text in problems(story, unharmed)]
        assert not wrong, "\n".join(wrong)
        assert lab.leftovers(within=GONE_SECONDS) == []
        assert [one for one in bystanders if not docker_host.is_running(one)] == []
    finally:
        for one in bystanders:
            docker_host.remove(one)


def test_a_container_of_another_lab_or_of_a_run_that_goes_on_is_left_alone(
    lab: DockerLab, task_folder: Path
) -> None:
    run = launch_task(lab, write_task(task_folder, "echo begun; sleep 20; echo ended"))
    started = wait_for(lambda: _containers_now(lab), what="its container", seconds=180)
    labels = lab.labels_of_a_sandbox()
    others = docker_host.bystander(**{**labels, "trajectory-lab.lab": "another-lab"})
    orphan = docker_host.bystander(
        **{
            **labels,
            "trajectory-lab.label": "run-999999-attempt-1-lease-1",
            "trajectory-lab.starter": "1-1-x",
        }
    )
    try:
        wait_for(
            lambda: not docker_host.exists(orphan), what="the end of the orphan", seconds=GONE_SECONDS + 60
        )
        assert docker_host.is_running(others)
        assert docker_host.is_running(started[0])
        lab.wait_until_ended([run], seconds=240)
        assert "ended" in outputs(lab, run)[0]
    finally:
        docker_host.remove(others)
        docker_host.remove(orphan)
    assert lab.leftovers() == []


def _containers_now(lab: DockerLab) -> list[str]:
    return [one for one in lab.faults.containers() if docker_host.is_running(one)]


def cancelled_at(lab: DockerLab, run: int, *, twice: bool = False) -> float:
    """Cancel a run, and again at the same moment if asked; returns how long its end took, in seconds."""
    person = somebody(lab)
    asked = time.monotonic()
    threads = [threading.Thread(target=person.cancel, args=(run,)) for _ in range(2 if twice else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.wait_until_ended([run], seconds=180)
    return time.monotonic() - asked


def check_cancelled(lab: DockerLab, run: int) -> None:
    (story,) = lab.stories([run])
    assert story.exit_reason == "cancelled"
    assert problems(story) == []
    assert lab.leftovers() == []


def test_a_cancel_in_the_middle_of_a_command_twice_at_once_ends_it_soon(
    lab: DockerLab, unharmed: Story, task_folder: Path
) -> None:
    run = launch_task(lab, write_task(task_folder, "(setsid sleep 600 &); sleep 600"))
    command = "SELECT COUNT(*) FROM lab_event WHERE run_id = ? AND kind = 'tool_call_started'"
    wait_for(lambda: lab.value(command, run), what="its command", seconds=180)
    assert cancelled_at(lab, run, twice=True) < 60
    check_cancelled(lab, run)


@pytest.mark.parametrize("point", ["creating a container", "created a container", "started a container"])
def test_a_cancel_while_the_container_starts_leaves_no_container(
    lab: DockerLab, unharmed: Story, point: str
) -> None:
    (run,) = lab.launch([[Fault(point, action="delay", seconds=4)]])
    wait_for(lambda: lab.faults.happened() & {f"{run}-0"}, what=point, seconds=180)
    cancelled_at(lab, run, twice=True)
    check_cancelled(lab, run)


@pytest.mark.requires("docker registry")
def test_a_cancel_while_the_image_is_pulled_ends_the_run_soon(lab: DockerLab, task_folder: Path) -> None:
    with running(docker_host.Registry()) as registry:
        image = registry.push(docker_host.busybox_image(), "team/slow:1")
        os.kill(registry.pid, signal.SIGSTOP)
        try:
            write_task(task_folder, "true", environment=f'image = "{image}"')
            run = launch_task(lab, task_folder)
            asked = "SELECT COUNT(*) FROM lab_event WHERE run_id = ? AND kind = 'image_requested'"
            wait_for(lambda: lab.value(asked, run), what="the pull", seconds=180)
            assert cancelled_at(lab, run) < 60
        finally:
            os.kill(registry.pid, signal.SIGCONT)
    check_cancelled(lab, run)


# Tries each place and says which of them let it in.
REACHING = """
import os, socket, sys
for place in sys.argv[1:]:
    if place.startswith("/"):
        family, address = socket.AF_UNIX, place
    else:
        host, _, port = place.rpartition(":")
        family, address = socket.AF_INET, (host, int(port))
    try:
        with socket.socket(family) as one:
            one.settimeout(3)
            one.connect(address)
            print("reached", place)
    except OSError as error:
        print("blocked", place, error)
"""


def addresses_of_this_machine() -> list[str]:
    listed = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=False)
    found = [line.split()[3].partition("/")[0] for line in listed.stdout.splitlines()]
    return sorted({"127.0.0.1", "172.17.0.1", *found})


def test_the_sandbox_reaches_neither_network_nor_machine_nor_lab_nor_daemon_and_its_tries_are_in_the_log(
    lab: DockerLab, unharmed: Story, task_folder: Path
) -> None:
    with socket.create_server(("", 0)) as listening:
        ports = [lab.port, listening.getsockname()[1]]
        places = [f"{address}:{port}" for address in addresses_of_this_machine() for port in ports]
        places += ["169.254.169.254:80", "192.0.2.1:443", "1.1.1.1:53"]
        places += ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"]
        program = base64.b64encode(REACHING.encode()).decode()
        command = f"echo {program} | base64 -d > /tmp/reach.py; python3 /tmp/reach.py {' '.join(places)}"
        run = launch_task(lab, write_task(task_folder, command))
        lab.wait_until_ended([run], seconds=300)
    (said,) = outputs(lab, run)[:1]
    assert "reached" not in said
    assert said.count("blocked") >= len(places)


def test_no_key_and_no_setting_of_the_lab_is_in_the_sandboxs_environment_files_or_proc(
    lab: DockerLab, unharmed: Story, task_folder: Path
) -> None:
    # In another writing: what the lab knows as secret it would replace before anybody saw it.
    look = (
        "(env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo 2>/dev/null; "
        "find / -xdev -newer /etc/passwd -type f -size -64k -not -path '/proc/*' -not -path '/sys/*' "
        "-exec cat {} + 2>/dev/null | head -c 4000000) | gzip -9 | base64 -w 0 > /tmp/seen; "
    )
    command = look + "wc -c < /tmp/seen; strings() { tr -c '[:print:]' '\\n'; }; "
    command += "base64 -d /tmp/seen | gunzip | strings | grep -c PATH=; "
    command += f"base64 -d /tmp/seen | gunzip | strings | grep -c '[s]{SECRET[1:10]}.*{SECRET[20:30]}'; "
    command += "base64 -d /tmp/seen | gunzip | strings | grep -c '^LAB_[A-RT-Z]'; true"
    run = launch_task(lab, write_task(task_folder, command))
    lab.wait_until_ended([run], seconds=300)
    (story,) = lab.stories([run])
    said = story.of("tool_call_finished")[0]["message"]["content"]
    seen, paths, keys, settings = [int(word) for word in said.split() if word.isdecimal()][-4:]
    assert min(seen, paths) > 0
    assert (keys, settings) == (0, 0)


def test_a_container_removed_behind_the_labs_back_costs_an_attempt_and_no_model_call(
    lab: DockerLab, unharmed: Story, task_folder: Path
) -> None:
    run = launch_task(lab, write_task(task_folder, "sleep 20; echo slept", "echo second"))
    (container,) = wait_for(lambda: _containers_now(lab), what="its container", seconds=180)
    wait_for(
        lambda: lab.value(
            "SELECT COUNT(*) FROM lab_event WHERE run_id = ? AND kind = 'tool_call_started'", run
        ),
        what="its command",
        seconds=120,
    )
    docker_host.remove(container)
    lab.wait_until_ended([run], seconds=300)
    (story,) = lab.stories([run])
    assert len(story.of("sandbox_lost")) == 1
    assert len(story.of("model_call_started", attempt=1)) == 1
    assert [one["exit_reason"] for one in story.of("attempt_ended")] == ["infrastructure_error", "agent"]
    assert problems(story) == []
    assert lab.leftovers() == []
