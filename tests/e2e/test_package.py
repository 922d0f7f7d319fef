"""The wheel and the source distribution: what is in them, and that a lab installed from the wheel works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import lab
from tests.house import licences
from tests.house.tree import ROOT, project_files
from tests.whole_lab import free_port, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# What launches one scripted run, or says how it stands, with the installed lab's own services.
LAUNCH = """
import django
django.setup()
from lab.models import HarnessVersion, Model, Task
from lab.services import people, runs
admin = people.use_login_link(token=people.make_login_link(base_url="http://127.0.0.1:1").split("/")[-2])
experiment = runs.launch(
    by=admin,
    tasks=[Task.objects.get(slug="parse-duration")],
    harness_versions=[HarnessVersion.objects.first()],
    models=[Model.objects.get(name="scripted/solver")],
)
print(experiment.runs.get().pk)
"""
LOOK = """
import django
django.setup()
from lab.models import Run
run = Run.objects.select_related("facts").get()
print(run.status, run.facts.verdict)
"""


def inherited() -> dict[str, str]:
    """The environment without what makes this tree's packages and settings known."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("LAB_", "PYTHON"))}


def run(*argv: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**inherited(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_everything_the_lab_needs_and_no_tests(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[0]).namelist())
    own = {name for name in project_files() if name.startswith("lab/")}
    shown = {f"lab/{name}" for name in project_files() if name.startswith(("templates/", "static/"))}
    assert own | shown <= names
    assert not [name for name in names if name.startswith("tests/")]
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert [name for name in names if name.endswith(f"licenses/{licences.LIST.name}")]


def test_the_source_distribution_makes_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "manage.py").is_file()
    assert (source / "tests" / "requirements.lock").is_file()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=source)
    (again,) = (tmp_path / "dist").glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_version_is_a_semantic_one_and_the_changelog_begins_with_what_is_not_released() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", lab.__version__)
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert all(re.match(r"\d+\.\d+\.\d+\b", head) for head in heads[1:])


def test_the_list_of_licences_is_that_of_the_locks_and_of_what_is_vendored() -> None:
    listed = licences.listed()
    packages = set().union(*map(licences.required, licences.LOCKS))
    assert set(listed) == packages | {name for name, _, _ in licences.vendored()}, (
        "run `python -m tests.house.licences`"
    )
    assert all(listed.values())
    # What asks more than notices of whoever passes the lab on; LGPL clients are extras, and unchanged.
    assert not [
        name for name, licence in listed.items() if re.search(r"\bA?GPL\b", licence.replace("LGPL", ""))
    ]


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel and what the lock lists, and nothing of this tree."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    # The machine's certificates, as pip trusts them: the index may stand behind a proxy of one's own.
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--system-certs", "--python", python]
    run(*install, "--require-hashes", "--no-deps", "-r", ROOT / "requirements.lock", cwd=folder)
    run(*install, "--no-deps", built[0], cwd=folder)
    return folder


def test_an_installed_lab_runs_a_scripted_run_to_its_verdict(installed: Path) -> None:
    home = installed / "home"
    home.mkdir()
    binaries = installed / "venv" / "bin"
    environment = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "LAB_PORT": str(free_port()),
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "lab.settings",
        # Pages are not looked at here, and the folder of a test is closed to other users.
        "LAB_SANDBOX": "process",
    }
    log = (installed / "up.log").open("wb")
    process = subprocess.Popen(
        [str(binaries / "trajectory-lab"), "up"],
        cwd=home,
        env={**inherited(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(
            lambda: "This link signs you in" in (installed / "up.log").read_text(), what="link", seconds=240
        )
        run(binaries / "python", "-c", LAUNCH, cwd=home, **environment)
        wait_for(
            lambda: (
                run(binaries / "python", "-c", LOOK, cwd=home, **environment).split() == ["ended", "resolved"]
            ),
            what="a resolved run",
            seconds=240,
        )
        assert (home / "data" / "trajectory-lab" / "lab.sqlite3").is_file()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0, (installed / "up.log").read_text()
        log.close()


def test_the_console_script_is_the_commands_of_a_checkout() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert declared == {"trajectory-lab": "lab.command_line:main"}
    assert "lab.command_line" in (ROOT / "manage.py").read_text("utf-8")
