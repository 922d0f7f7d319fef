from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from lab import checks


def ids() -> list[str | None]:
    return [found.id for found in (*checks.check_numbers(), *checks.check_sandbox())]


def test_settings_as_they_come_are_sound() -> None:
    assert ids() == []
    assert checks.check_data_folder() == []


@pytest.mark.parametrize(
    ("name", "value", "identifier"),
    [
        ("LAB_RUN_SLOTS", 0, "lab.E002"),
        ("LAB_LEASE_SECONDS", 1.0, "lab.E003"),
        ("LAB_RETRY_SECONDS", -1.0, "lab.E004"),
        ("LAB_STOP_SECONDS", -1.0, "lab.E020"),
        ("LAB_SANDBOX", "vm", "lab.E005"),
        ("LAB_SANDBOX_UID", 0, "lab.E006"),
        ("LAB_DOCKER_HOST", "/var/run/docker.sock", "lab.E021"),
        ("LAB_DOCKER_HOST", "tcp://", "lab.E021"),
        ("LAB_DOCKER_DISK_GB", 0.0, "lab.E022"),
        ("LAB_SANDBOX_DISK_GB", float("nan"), "lab.E023"),
        ("LAB_PREPARED_CONTAINERS", -1, "lab.E025"),
        ("LAB_PRACTICE_IMAGE", "Python 3", "lab.E024"),
        ("LAB_PRACTICE_IMAGE", "", "lab.E024"),
    ],
)
def test_a_bad_setting_is_named_with_value_and_hint(
    settings: Settings, name: str, value: object, identifier: str
) -> None:
    setattr(settings, name, value)
    (found,) = (*checks.check_numbers(), *checks.check_sandbox())
    assert found.id == identifier
    assert found.msg.startswith(f"{name}: ")
    assert found.hint


@pytest.mark.parametrize(
    "host", ["", "unix:///run/user/1000/docker.sock", "tcp://sandboxes.example.org:2376"]
)
def test_addresses_that_docker_knows_are_accepted(settings: Settings, host: str) -> None:
    settings.LAB_DOCKER_HOST = host
    settings.LAB_SANDBOX = "docker"
    assert ids() == []


def test_a_provider_of_ones_own_is_accepted(settings: Settings) -> None:
    settings.LAB_SANDBOX = "our.sandboxes:Jail"
    assert ids() == []


def test_a_data_folder_that_cannot_be_made_is_an_error(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings.LAB_DATA_DIR = tmp_path / "file" / "data"
    (found,) = checks.check_data_folder()
    assert (found.id, str(tmp_path) in found.msg) == ("lab.E001", True)


@pytest.mark.parametrize(
    ("changed", "identifier", "said"),
    [
        ({"ALLOWED_HOSTS": ["*"]}, "lab.W002", "LAB_ALLOWED_HOSTS: '*'"),
        ({"CSRF_TRUSTED_ORIGINS": ["lab.example.org"]}, "lab.E009", "'lab.example.org' is no origin"),
        ({"CSRF_TRUSTED_ORIGINS": ["https://lab.example.org/x"]}, "lab.E009", "is no origin"),
        ({"CSRF_TRUSTED_ORIGINS": ["https://lab.example.org"]}, "lab.W003", "not among the hosts"),
        ({"LAB_HSTS_SECONDS": -1}, "lab.E010", "LAB_HSTS_SECONDS: -1 is negative"),
    ],
)
def test_names_under_which_the_lab_cannot_or_should_not_be_reached_are_said(
    settings: Settings, changed: dict[str, object], identifier: str, said: str
) -> None:
    assert checks.check_origins() == []
    for name, value in changed.items():
        setattr(settings, name, value)
    (found,) = checks.check_origins()
    assert found.id == identifier
    assert said in found.msg
    assert found.hint
    settings.ALLOWED_HOSTS = ["lab.example.org"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://lab.example.org", "https://*.example.org"]
    settings.LAB_HSTS_SECONDS = 0
    assert checks.check_origins() == []
