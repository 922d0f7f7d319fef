from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from pytest_django.fixtures import Settings

from lab.engine.sandboxes.base import ExecResult, Output, SandboxFacts, SandboxProvider, SandboxSpec
from lab.models import Endpoint
from lab.services import doctor, doctor_sandboxes, isolation, sandbox_trials
from lab.services.doctor_docker import way_in
from tests import docker_host
from tests.house.tree import ROOT
from tests.servers import Postgresql, Redis


def doctor_command(
    data: Path, *before: str, expect: int = 0, **environment: str
) -> dict[str, dict[str, str]]:
    """What `manage.py doctor --json` says in a process of its own, by check; `before` wraps the command.

    Of the built-in database, whatever the suite runs on, unless `environment` names another.
    """
    lab = {"DATABASE_URL": "", "LAB_DATA_DIR": str(data), "LAB_PORT": str(free_port())}
    result = subprocess.run(
        [*before, sys.executable, str(ROOT / "manage.py"), "doctor", "--json"],
        env={**os.environ, **lab, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return {finding["check"]: finding for finding in json.loads(result.stdout)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def inside_bubblewrap(*arguments: str) -> list[str]:
    path = shutil.which("bwrap")
    assert path
    return [path, "--dev-bind", "/", "/", *arguments, "--"]


@pytest.mark.requires("git")
def test_a_sound_machine_has_no_problem(data_folder: Path) -> None:
    found = doctor_command(data_folder)
    assert list(found) == [
        *("python", "git", "data folder", "disk space", "database", "broker", "live pages", "clock", "port"),
        *("lab", "bubblewrap", "plain process", "docker", "kubernetes", "keys"),
    ]
    assert [finding for finding in found.values() if finding["state"] == "problem"] == []
    assert found["data folder"]["message"] == str(data_folder)
    assert not list(data_folder.glob(".doctor-*"))


def test_a_data_folder_that_is_not_there_yet_is_made(data_folder: Path) -> None:
    assert doctor_command(data_folder / "new" / "lab")["data folder"]["state"] == "ok"


@pytest.mark.requires("bubblewrap")
def test_a_read_only_mount_is_named_with_the_way_out(data_folder: Path) -> None:
    read_only = inside_bubblewrap("--ro-bind", str(data_folder), str(data_folder))
    finding = doctor_command(data_folder, *read_only, expect=1)["data folder"]
    assert finding["state"] == "problem"
    assert finding["message"] == f"LAB_DATA_DIR: {data_folder} cannot be written to: Read-only file system"
    assert "LAB_DATA_DIR=" in finding["remedy"]


@pytest.mark.requires("bubblewrap")
def test_a_disk_with_little_space_left_is_a_problem(data_folder: Path) -> None:
    small = inside_bubblewrap("--size", str(20 * 1024**2), "--tmpfs", str(data_folder))
    finding = doctor_command(data_folder, *small, expect=1)["disk space"]
    assert finding["state"] == "problem"
    assert finding["message"].startswith("0.0 GiB free")


def test_a_port_in_use_is_named_with_another_one(data_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        finding = doctor_command(data_folder, expect=1, LAB_PORT=str(port))["port"]
    assert finding["message"].startswith(f"LAB_PORT: {port} on 127.0.0.1 cannot be used")
    assert "choose another port: LAB_PORT=" in finding["remedy"]


def test_a_host_that_is_not_this_machines_is_a_problem(data_folder: Path) -> None:
    finding = doctor_command(data_folder, expect=1, LAB_HOST="203.0.113.7")["port"]
    assert "203.0.113.7" in finding["message"]


def test_missing_programs_are_named_with_the_line_that_installs_them(
    data_folder: Path, tmp_path: Path
) -> None:
    found = doctor_command(data_folder, expect=1, PATH=str(tmp_path))
    assert found["git"]["remedy"] == "apt-get install git"
    assert found["bubblewrap"]["state"] == "warning"
    assert "bubblewrap" in found["bubblewrap"]["message"]


@pytest.mark.requires("bubblewrap")
def test_going_without_isolation_by_setting_is_said(data_folder: Path) -> None:
    finding = doctor_command(data_folder, LAB_SANDBOX="process")["bubblewrap"]
    assert (finding["state"], finding["remedy"]) == ("warning", "unset LAB_SANDBOX")


def test_the_text_form_shows_each_remedy_under_its_finding(data_folder: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "doctor"],
        env={**os.environ, "LAB_DATA_DIR": str(data_folder), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PROBLEM  git: git is not installed\n         → apt-get install git\n" in result.stdout


@pytest.mark.django_db
def test_keys_are_looked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in (("good", "GOOD_KEY"), ("short", "SHORT_KEY"), ("unset", "UNSET_KEY")):
        Endpoint.objects.create(name=name, base_url="http://127.0.0.1:9/v1", key_variable=variable)
    monkeypatch.setenv("GOOD_KEY", "a-key-of-enough-characters")
    monkeypatch.setenv("SHORT_KEY", "short-key")
    monkeypatch.delenv("UNSET_KEY", raising=False)
    found = {finding.message.split(":")[0]: finding for finding in doctor.check_keys()}
    assert found["endpoint good"].state == "ok"
    assert "fewer than 12 characters" in found["endpoint short"].message
    assert found["endpoint unset"].remedy.startswith("export UNSET_KEY=")
    assert not any("short-key" in part for finding in found.values() for part in finding)


def test_a_setting_of_the_wrong_shape_is_named_instead_of_a_traceback(data_folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "doctor"],
        env={**os.environ, "LAB_DATA_DIR": str(data_folder), "LAB_PORT": "http"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "LAB_PORT" in result.stderr
    assert "deploy/env.example" in result.stderr
    assert "Traceback" not in result.stderr


class OpenSandbox:
    """No sandbox at all: what is run in it is run by the lab's own user, with all it can reach."""

    kind = "open"
    facts = SandboxFacts("open", "none", "open", ".", network=True)

    def available(self) -> None:
        return None

    def workspace(self, spec: SandboxSpec) -> str:
        return "."

    def start(self, spec: SandboxSpec) -> Any:
        return self

    def exec(self, argv: list[str], *, timeout: float, stdin: bytes = b"") -> ExecResult:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout + 30, check=False)
        nothing = Output(b"", b"", 0, "")
        out = Output(done.stdout, b"", len(done.stdout), "")
        return ExecResult(done.returncode, out, nothing, False, False, False, 0.0)

    def stop(self) -> None:
        return


@pytest.mark.django_db
def test_what_a_command_reaches_is_found_where_nothing_isolates(
    settings: Settings, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LAB_DATA_DIR = data_folder
    (data_folder / "secret_key").write_text("secret")
    home = data_folder / "home"
    home.mkdir()
    (home / "private").write_text("x")
    monkeypatch.setenv("HOME", str(home))
    found = sandbox_trials.try_sandbox(cast("SandboxProvider", OpenSandbox()))
    reaches = set(found.reaches)
    assert {f"reads {home}", "reads the lab's secret_key", "reads the lab's environment"} <= reaches
    assert "reaches this machine's network" in reaches
    assert ("is root" in reaches) == (os.geteuid() == 0)
    assert found.unlimited == ("memory", "the number of processes")
    monkeypatch.setattr(isolation, "provider", lambda kind: OpenSandbox())
    finding = doctor_sandboxes.check_bubblewrap()
    assert finding.state == "problem"
    assert "reads the lab's secret_key" in finding.message
    plain = doctor_sandboxes.check_plain_process()
    assert plain.state == "ok"
    assert "is not isolated: a command in it reads" in plain.message


@pytest.mark.requires("bubblewrap")
@pytest.mark.django_db
def test_bubblewrap_lets_a_command_reach_nothing(settings: Settings, data_folder: Path) -> None:
    settings.LAB_DATA_DIR = data_folder
    (data_folder / "secret_key").write_text("secret")
    found = sandbox_trials.try_sandbox(isolation.provider(isolation.ISOLATED))
    assert found.reaches == ()
    assert not (data_folder / "sandboxes").exists()


def test_the_first_start_makes_the_database_and_doctor_does_not(data_folder: Path) -> None:
    found = doctor_command(data_folder)
    assert "the first start of the lab makes the database" in found["database"]["message"]
    assert "tables" not in found
    assert not (data_folder / "lab.sqlite3").exists()


def test_a_database_without_tables_is_said_to_be_so(data_folder: Path) -> None:
    (data_folder / "lab.sqlite3").touch()
    found = doctor_command(data_folder)
    assert "journal wal" in found["database"]["message"]
    assert "a write" in found["database"]["message"]
    assert found["tables"]["state"] == "warning"
    assert "not applied yet" in found["tables"]["message"]
    assert found["keys"]["state"] == "ok"


def test_a_file_that_is_no_database_is_a_problem_of_its_own(data_folder: Path) -> None:
    (data_folder / "lab.sqlite3").write_bytes(b"this is no database" * 999)
    found = doctor_command(data_folder, expect=1)
    assert found["database"]["state"] == "problem"
    assert [name for name, finding in found.items() if finding["state"] == "problem"] == ["database"]


def test_tables_of_a_newer_release_are_a_problem(data_folder: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": "", "LAB_DATA_DIR": str(data_folder)}
    manage = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*manage, "migrate", "-v0"], env=environment, check=True)
    assert doctor_command(data_folder)["tables"]["message"] == "those of this release"
    with sqlite3.connect(data_folder / "lab.sqlite3") as database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('lab', '9999_later', '2030-01-01')"
        )
    finding = doctor_command(data_folder, expect=1)["tables"]
    assert finding["state"] == "problem"
    assert "9999_later" in finding["message"]


def test_a_broker_that_is_away_is_one_line_with_the_way_out(data_folder: Path) -> None:
    address = f"redis://:a-password-nobody-sees@127.0.0.1:{free_port()}/0"
    found = doctor_command(data_folder, expect=1, LAB_REDIS_URL=address)
    assert found["broker"]["state"] == "problem"
    assert "LAB_REDIS_URL" in found["broker"]["message"]
    assert "unset LAB_REDIS_URL" in found["broker"]["remedy"]
    assert found["live pages"]["state"] == "warning"
    assert found["database"]["state"] == "ok"
    assert "a-password-nobody-sees" not in json.dumps(found)


def test_a_database_that_is_away_is_one_line_with_the_way_out(data_folder: Path) -> None:
    pytest.importorskip("psycopg", reason="missing: psycopg is not installed (make test-environment)")
    address = f"postgresql://lab:a-password-nobody-sees@127.0.0.1:{free_port()}/lab"
    found = doctor_command(data_folder, expect=1, DATABASE_URL=address)
    assert found["database"]["state"] == "problem"
    assert "DATABASE_URL" in found["database"]["message"]
    assert "unset DATABASE_URL" in found["database"]["remedy"]
    assert found["broker"]["state"] == "ok"
    assert found["bubblewrap"]["state"] in ("ok", "warning")
    assert "a-password-nobody-sees" not in json.dumps(found)


def test_with_postgresql_and_redis_both_are_asked_and_rung(
    data_folder: Path, postgresql: Postgresql, redis_server: Redis
) -> None:
    addresses = {"DATABASE_URL": postgresql.make_database(), "LAB_REDIS_URL": redis_server.url}
    found = doctor_command(data_folder, **addresses)
    assert found["database"]["message"].startswith("PostgreSQL ")
    assert "a write" in found["database"]["message"]
    assert "not applied yet" in found["tables"]["message"]
    assert "LAB_REDIS_URL" in found["broker"]["message"]
    assert "LISTEN and NOTIFY in" in found["live pages"]["message"]
    assert "Redis in" in found["live pages"]["message"]
    assert found["clock"]["state"] == "ok"


def test_a_port_of_this_lab_is_no_problem(data_folder: Path) -> None:
    """`manage.py up` holds the data folder, and a process below it listens."""
    listener = (
        "import fcntl, os, socket, subprocess, sys, time\n"
        "lock = open(sys.argv[1], 'a+'); fcntl.flock(lock, fcntl.LOCK_EX); lock.truncate(0)\n"
        "lock.write(str(os.getpid())); lock.flush()\n"
        "web = 'import socket, time; s = socket.create_server((\"127.0.0.1\", 0));'\n"
        "web += 'print(s.getsockname()[1], flush=True); time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', web]); child.wait()\n"
    )
    command = [sys.executable, "-c", listener, str(data_folder / "up.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as lab:
        assert lab.stdout is not None
        port = lab.stdout.readline().strip()
        try:
            found = doctor_command(data_folder, LAB_PORT=port)
            assert found["port"] == {
                "check": "port",
                "state": "ok",
                "message": f"127.0.0.1:{port} is used by this lab",
                "remedy": "",
            }
            assert found["lab"]["state"] == "warning"
            assert "no worker has reported lately" in found["lab"]["message"]
        finally:
            os.killpg(lab.pid, signal.SIGKILL)


def test_a_port_that_this_very_process_listens_on_is_its_own(settings: Settings, data_folder: Path) -> None:
    settings.LAB_DATA_DIR = data_folder
    with socket.create_server(("127.0.0.1", 0)) as web:
        settings.LAB_PORT = web.getsockname()[1]
        assert doctor.check_port().message.endswith("is used by this lab")


def test_what_is_not_installed_and_not_needed_is_absent_with_the_way_to_get_it(
    data_folder: Path, tmp_path: Path
) -> None:
    nothing = f"unix://{tmp_path}/docker.sock"
    found = doctor_command(data_folder, expect=1, PATH=str(tmp_path), DOCKER_HOST=nothing)
    assert (found["docker"]["state"], found["docker"]["remedy"]) == ("absent", "apt-get install docker.io")
    assert found["kubernetes"]["state"] == "absent"


def test_a_clock_that_differs_is_named(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    monkeypatch.setattr(doctor.time, "time", lambda: 0.0)
    finding = doctor.check_clock()
    assert finding.state == "warning"
    assert "the data folder's disk" in finding.message
    assert "NTP" in finding.remedy


class TestDocker:
    @pytest.mark.requires("debian image")
    def test_is_tried_with_an_image_that_is_here(self, data_folder: Path) -> None:
        found = doctor_command(data_folder, LAB_PRACTICE_IMAGE=docker_host.debian_image())["docker"]
        assert found["state"] == "ok", found
        assert found["message"].startswith("Docker ")
        assert "cgroup v" in found["message"]
        assert "10 GB a sandbox, held by" in found["message"]
        assert "reached no network" in found["message"]
        assert "limits on memory and processes hold" in found["message"]
        assert docker_host.labelled("doctor-") == []

    @pytest.mark.requires("docker")
    def test_without_an_image_says_which_to_pull(self, data_folder: Path) -> None:
        lab = {"LAB_PRACTICE_IMAGE": "lab.invalid/none:1", "LAB_SANDBOX": "docker"}
        found = doctor_command(data_folder, **lab)["docker"]
        # A practice image that was built before is tried instead.
        tried = "isolated" in found["message"]
        told = ("ok", "") if tried else ("warning", "docker pull lab.invalid/none:1")
        assert (found["state"], found["remedy"]) == told

    @pytest.mark.requires("docker")
    def test_an_image_without_a_shell_is_a_problem_that_is_named(self, data_folder: Path) -> None:
        image = docker_host.busybox_image()
        found = doctor_command(data_folder, expect=1, LAB_PRACTICE_IMAGE=image)["docker"]
        assert found["state"] == "problem"
        assert f"no sandbox of {image} can be used" in found["message"]
        assert "takes bash" in found["message"]

    def test_that_is_away_is_a_problem_only_for_a_lab_that_is_told_to_use_it(
        self, data_folder: Path, tmp_path: Path
    ) -> None:
        address = f"unix://{tmp_path}/docker.sock"
        needed = doctor_command(data_folder, expect=1, LAB_SANDBOX="docker", LAB_DOCKER_HOST=address)[
            "docker"
        ]
        assert needed["state"] == "problem"
        assert doctor_command(data_folder, LAB_DOCKER_HOST=address)["docker"]["state"] == "absent"

    @pytest.mark.parametrize(
        ("address", "way"),
        [
            ("unix:///nowhere/docker.sock", "start the daemon that makes /nowhere/docker.sock, or set"),
            ("tcp://127.0.0.1:9", "see to it that a daemon can be reached at tcp://127.0.0.1:9"),
            ("docker.example.org", "write an address such as unix:///var/run/docker.sock or tcp://host:2376"),
        ],
    )
    def test_that_is_not_where_the_setting_says_names_the_setting(self, address: str, way: str) -> None:
        assert way in way_in(address)

    def test_whose_socket_nobody_answers_at_says_so_with_the_way_in(
        self, data_folder: Path, tmp_path: Path
    ) -> None:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.bind(f"{tmp_path}/docker.sock")
            found = doctor_command(data_folder, LAB_DOCKER_HOST=f"unix://{tmp_path}/docker.sock")["docker"]
        assert "no Docker daemon answers there" in found["message"]
        assert "systemctl restart docker" in found["remedy"]

    @pytest.mark.requires("root")
    def test_whose_socket_this_user_may_not_use_names_the_group(self) -> None:
        program = (
            "import os, sys; import django; django.setup(); from lab.services.doctor_docker import way_in\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534); print(way_in(sys.argv[1]))"
        )
        # Pytest's own folders are for one user.
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = Path(folder) / "docker.sock"
            path.parent.chmod(0o755)
            server.bind(str(path))
            path.chmod(0o660)
            done = subprocess.run(
                [sys.executable, "-c", program, f"unix://{path}"],
                cwd=ROOT,
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
                capture_output=True,
                text=True,
                check=False,
            )
        assert "usermod -aG root USER" in done.stdout, done.stderr
        assert "rootless" in done.stdout
