from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.whole_lab import PROJECT, WholeLab, free_port, wait_for

pytestmark = pytest.mark.e2e


def up(data: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`manage.py up` that is expected to refuse."""
    return subprocess.run(
        [*before, sys.executable, str(PROJECT / "manage.py"), "up"],
        env={**os.environ, "LAB_DATA_DIR": str(data), "LAB_PORT": str(free_port()), **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_a_port_that_is_taken_is_named_with_the_way_out(data_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = up(data_folder, LAB_PORT=port)
    assert refused.returncode == 1
    assert f"LAB_PORT: {port}" in refused.stderr
    assert "choose another port: LAB_PORT=" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.requires("bubblewrap")
def test_a_data_folder_on_a_read_only_mount_is_named_with_the_way_out(data_folder: Path) -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap
    mounted = [bwrap, "--dev-bind", "/", "/", "--ro-bind", str(data_folder), str(data_folder), "--"]
    refused = up(data_folder, *mounted)
    assert refused.returncode == 1
    assert f"LAB_DATA_DIR: {data_folder} cannot be written to: Read-only file system" in refused.stderr
    assert "LAB_DATA_DIR=/path/to/folder" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("LAB_RUN_SLOTS", "0", "use 1 or more"),
        ("LAB_LEASE_SECONDS", "0.1", "use 3 or more"),
        ("LAB_SANDBOX", "docker-ish", "use bubblewrap, docker or process"),
        ("LAB_SANDBOX_UID", "0", "name an unprivileged uid"),
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(
    data_folder: Path, name: str, value: str, way_out: str
) -> None:
    refused = up(data_folder, **{name: value})
    assert refused.returncode == 1
    assert name in refused.stderr
    assert way_out in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_data_folder_that_another_lab_uses_is_named_with_the_way_out() -> None:
    with WholeLab() as lab:
        refused = up(lab.data_folder)
        assert refused.returncode == 1
        assert (
            f"LAB_DATA_DIR: {lab.data_folder} is in use by another lab (process {lab.pid})" in refused.stderr
        )
        assert "choose another folder: LAB_DATA_DIR=" in refused.stderr
        assert lab.get("/readyz") == 200


def test_websockets_of_the_lab_are_not_compressed() -> None:
    with WholeLab() as lab:
        jar = CookieJar()
        urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open(lab.link).close()
        cookie = "; ".join(f"{part.name}={part.value}" for part in jar)
        address = lab.url.replace("http", "ws") + "/ws/home/"
        with connect(
            address,
            origin=Origin(lab.url),
            additional_headers={"Cookie": cookie},
            compression="deflate",
            open_timeout=60,
        ) as opened:
            assert opened.response is not None
            assert "Sec-WebSocket-Extensions" not in opened.response.headers
            assert "now" in json.loads(opened.recv(timeout=60))


def test_each_start_prints_one_link_and_a_killed_web_process_comes_back() -> None:
    with WholeLab() as lab:
        first = lab.link
        assert lab.output.count("/sign-in/") == 1
        before = lab.child("uvicorn")
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: "web ended (SIGKILL); it starts again" in lab.output, what="the word of it")
        wait_for(lambda: lab.get("/healthz") == 200, what="the web process", seconds=150)
        assert lab.child("uvicorn") != before
        lab.stop()
        lab.start()
        assert lab.link != first
        assert lab.get(first.removeprefix(lab.url)) == 403
