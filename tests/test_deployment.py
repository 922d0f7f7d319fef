"""The lab behind a proxy with TLS, with the settings that deploy/env.example names for production."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.live.lab_server import free_port

PRODUCTION = {"LAB_ALLOWED_HOSTS": "lab.example.org", "LAB_TRUSTED_ORIGINS": "https://lab.example.org"}


def manage(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LAB_DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "lab.settings",
        **settings,
    }
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_documented_production_settings_pass_djangos_deployment_check(data_folder: Path) -> None:
    checked = manage(data_folder, "check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)
    assert checked.returncode == 0, checked.stderr
    assert "no issues (0 silenced)" in checked.stdout


def test_without_https_the_check_says_what_is_missing(data_folder: Path) -> None:
    checked = manage(
        data_folder, "check", "--deploy", "--fail-level", "WARNING", **PRODUCTION, LAB_HTTPS="false"
    )
    assert checked.returncode != 0
    assert "SESSION_COOKIE_SECURE" in checked.stderr


def test_env_example_names_these_settings() -> None:
    explained = (ROOT / "deploy" / "env.example").read_text()
    for name, value in PRODUCTION.items():
        assert f"{name}={value}" in explained


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The web process with production settings, as `manage.py up` starts it, over an empty database."""
    folder, number = tmp_path_factory.mktemp("production"), free_port()
    assert manage(folder, "migrate", "--verbosity", "0", **PRODUCTION).returncode == 0
    environment = {
        **os.environ, **PRODUCTION, "LAB_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "lab.settings"
    }  # fmt: skip
    command = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--port", str(number)]
    with subprocess.Popen([*command, "--log-level", "warning"], cwd=ROOT, env=environment) as process:
        try:
            while not answers(number):
                assert process.poll() is None
                time.sleep(0.1)
            yield number
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        return ask(port, "/healthz")[0] == 200
    except OSError:
        return False


def ask(port: int, path: str, *, host: str = "", **headers: str) -> tuple[int, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{port}")
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers
    finally:
        connection.close()


def test_the_proxys_pages_come_with_secure_cookies_and_the_promise_of_https(port: int) -> None:
    status, headers = ask(port, "/sign-in/", host="lab.example.org", X_Forwarded_Proto="https")
    assert status == 200
    assert headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains; preload"
    (cookie,) = headers.get_all("Set-Cookie") or []
    assert cookie.startswith("lab_csrf=")
    assert {"Secure", "HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_http_is_led_to_https_but_for_probes_on_this_machine(port: int) -> None:
    status, headers = ask(port, "/tasks/", host="lab.example.org")
    assert (status, headers["Location"]) == (301, "https://lab.example.org/tasks/")
    assert ask(port, "/healthz")[0] == 200
    assert ask(port, "/readyz")[0] == 503


def test_another_host_name_is_refused(port: int) -> None:
    for host in ("evil.example", f"evil.example:{port}", "lab.example.org.evil.example", "192.0.2.1"):
        assert ask(port, "/sign-in/", host=host, X_Forwarded_Proto="https")[0] == 400, host


def test_links_begin_with_the_address_that_people_use(data_folder: Path) -> None:
    assert manage(data_folder, "migrate", "--verbosity", "0", **PRODUCTION).returncode == 0
    link = manage(data_folder, "login_link", **PRODUCTION).stdout
    assert link.startswith("https://lab.example.org/sign-in/")
    local = manage(data_folder, "login_link", LAB_PORT="8123").stdout
    assert local.startswith("http://127.0.0.1:8123/sign-in/")
    nobody = manage(data_folder, "login_link", "--person", "eve")
    assert nobody.returncode != 0
    assert "person: 'eve' is nobody who may sign in; known are admin" in nobody.stderr
