"""What the lab's processes print holds no secret, whoever logs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import terminal
from lab.own_secrets import own_secrets, passwords_in

REPOSITORY = Path(__file__).parents[1]
KEY = "an-endpoint-key-0123456789"
PASSWORD = "p4ss/w0rd-of-the-database"
TOKEN = "tlab_" + "aB1_" * 10
LINK = "aB1_" * 11


def printed_by(program: str, folder: Path) -> str:
    """What a process of the lab writes to its terminal."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAB_")},
        "DJANGO_SETTINGS_MODULE": "lab.settings",
        "DATABASE_URL": "",
        "LAB_DATA_DIR": str(folder),
        "LAB_SECRET_KEY": "the-lab's-own-secret-key",
        "LAB_BROKER_URL": "redis://:p4ss%2Fw0rd-of-the-database@127.0.0.1:9/0",
        "ACME_API_KEY": KEY,
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    return done.stdout + done.stderr


SETUP = "import django; django.setup(); import logging, threading; log = logging.getLogger('lab.any')\n"
CELERY = "from lab.celery import app; app.log.setup(loglevel='WARNING')\nimport logging, threading\n"
SAID = repr(f"{KEY} {PASSWORD} p4ss%2Fw0rd-of-the-database the-lab's-own-secret-key {TOKEN} /sign-in/{LINK}/")
RAISE = f"raise ValueError({SAID})"


@pytest.mark.parametrize(
    "program",
    [
        f"{SETUP}log.error({SAID})",
        f"{SETUP}log.error('%s', {SAID})",
        f"{SETUP}\ntry:\n    {RAISE}\nexcept ValueError:\n    log.exception('broke')",
        f"import uvicorn; config = uvicorn.Config('lab.asgi:application'); config.load()\n"
        f"import logging; logging.getLogger('uvicorn.error').error({SAID})",
        f"import lab.asgi\n{RAISE}",
        f"import lab.asgi, threading\ndef f():\n    {RAISE}\nthreading.Thread(target=f).start()",
        f"{CELERY}logging.getLogger('celery.app.trace').error({SAID})",
        f"{CELERY}logging.getLogger('celery.task').error({SAID})",
        f"{CELERY}from celery.utils.log import get_task_logger; get_task_logger('x').error({SAID})",
        f"{CELERY}{RAISE}",
        f"{SETUP}logging.getLogger('django.request').error('Not Found: %s', {SAID})",
    ],
    ids=["text", "argument", "traceback", "uvicorn", "uncaught", "thread", "celery", "task", "task logger",
         "uncaught in celery", "request"],
)  # fmt: skip
def test_no_line_of_any_process_holds_a_secret(tmp_path: Path, program: str) -> None:
    printed = printed_by(program, tmp_path)
    assert "[redacted: ACME_API_KEY]" in printed, printed
    assert "[redacted: LAB_SECRET_KEY]" in printed
    for secret in (KEY, PASSWORD, "p4ss%2Fw0rd", "own-secret", TOKEN[:20], LINK[:20]):
        assert secret not in printed


def test_a_secret_that_somebody_remembers_is_printed_no_more() -> None:
    value = "a-header-of-an-endpoint-123"
    assert value in terminal.printable(value)
    terminal.remember({"header X-Key of acme": value})
    assert terminal.printable(f"sent {value}") == "sent [redacted: header X-Key of acme]"


@pytest.mark.parametrize(
    ("address", "passwords"),
    [
        ("redis://:abc%2Fdef@host:1/0", ["abc/def", "abc%2Fdef"]),
        ("postgresql://me:simple@host/lab", ["simple"]),
        ("postgresql://host/lab?user=me&password=in-the-query", ["in-the-query"]),
        ("postgresql://me@host/lab", []),
        ("", []),
        ("http://[broken", ["http://[broken"]),
    ],
)
def test_passwords_are_found_in_addresses_as_they_are_and_as_they_stand(
    address: str, passwords: list[str]
) -> None:
    assert list(passwords_in("X", address).values()) == passwords


def test_secrets_of_the_environment_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_MAIL_PASSWORD", "mail-password-123")
    monkeypatch.setenv("LAB_KEY_VARIABLES", "*_KEY,*_TOKEN")
    monkeypatch.setenv("https_proxy", "http://me:proxy-password-1@proxy:3128")
    found = own_secrets()
    assert found["LAB_MAIL_PASSWORD"] == "mail-password-123"
    assert found["the https proxy"] == "proxy-password-1"
    assert "LAB_KEY_VARIABLES" not in found
    assert found["LAB_SECRET_KEY"]


def test_the_web_process_writes_no_line_for_each_request(tmp_path: Path) -> None:
    program = """
import logging, uvicorn
uvicorn.Config("lab.asgi:application", log_level="warning", access_log=False).load()
logging.getLogger("uvicorn.access").info('127.0.0.1:9 - "GET / HTTP/1.1" 200')
logging.getLogger("uvicorn.error").info("connection open")
logging.getLogger("uvicorn.error").warning("something is wrong")
"""
    printed = printed_by(program, tmp_path)
    assert "something is wrong" in printed
    assert "GET /" not in printed
    assert "connection open" not in printed
