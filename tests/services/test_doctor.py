from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lab.models import Endpoint
from lab.services import doctor
from tests.house.tree import ROOT


def doctor_command(
    data: Path, *before: str, expect: int = 0, **environment: str
) -> dict[str, dict[str, str]]:
    """What `manage.py doctor --json` says in a process of its own, by check; `before` wraps the command."""
    result = subprocess.run(
        [*before, sys.executable, str(ROOT / "manage.py"), "doctor", "--json"],
        env={**os.environ, "LAB_DATA_DIR": str(data), "LAB_PORT": str(free_port()), **environment},
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
    assert {"python", "database", "data folder", "disk space", "port", "git", "bubblewrap", "keys"} <= set(
        found
    )
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
