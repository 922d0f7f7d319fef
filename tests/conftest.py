"""What every test may use: a folder for data, `requires(…)`, and the rules of skipping and of long tests.

A skip says why in one of two ways. `missing: …` is something this machine lacks and could have; with
LAB_TEST_REQUIRE_ALL=1, as in CI, it is a failure. `absent data: …` is data that only some people own. Any
other skip is a failure in CI too. Nothing here needs Django, so that the engine's tests run without it.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.servers import Postgresql, Redis

# How long an example takes is how busy the machine is; tests of time say so themselves.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

REQUIRE_ALL = os.environ.get("LAB_TEST_REQUIRE_ALL") == "1"
MISSING = "missing: "
ABSENT_DATA = "absent data: "


def _bubblewrap() -> str | None:
    from lab.engine.sandboxes.bubblewrap import BubblewrapProvider

    return BubblewrapProvider().available()


def _chromium() -> str | None:
    return None if find_chromium() else "chromium is not installed (apt-get install chromium)"


def _command(name: str) -> Callable[[], str | None]:
    def look() -> str | None:
        return None if shutil.which(name) else f"{name} is not installed (apt-get install {name})"

    return look


def _docker(question: str) -> Callable[[], str | None]:
    def look() -> str | None:
        from tests import docker_host

        answer: str | None = getattr(docker_host, f"{question}_missing")()
        return answer

    return look


def _postgresql() -> str | None:
    from tests.servers import postgresql_missing

    return postgresql_missing()


def _redis() -> str | None:
    from tests.servers import redis_missing

    return redis_missing()


def _package_index() -> str | None:
    import httpx2

    index = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    try:
        httpx2.get(f"{index}/parse/", timeout=20.0).raise_for_status()
    except httpx2.HTTPError as error:
        return f"{index} cannot be reached: {error}"
    return None


def _root() -> str | None:
    return None if os.geteuid() == 0 else "only root can do this (mount, change user)"


# What a test may ask for by `@pytest.mark.requires("…")`: each look-up gives None, or what is missing.
NEEDS: dict[str, Callable[[], str | None]] = {
    "bubblewrap": _bubblewrap,
    "chromium": _chromium,
    "debian image": _docker("debian"),
    "docker": _docker("docker"),
    "docker registry": _docker("registry"),
    "dockerd": _docker("dockerd"),
    "git": _command("git"),
    "make": _command("make"),
    "package index": _package_index,
    "postgresql": _postgresql,
    "redis": _redis,
    "root": _root,
}
_found: dict[str, str | None] = {}


def find_chromium() -> str | None:
    """The path of Debian's Chromium or of a Chrome, None where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def whats_missing(need: str) -> str | None:
    """None when this machine has what `need` names, else a sentence. Looked up once a process.

    Raises:
        KeyError: `need` is not in NEEDS.
    """
    if need not in _found:
        _found[need] = NEEDS[need]()
    return _found[need]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long as well")
    if pluginmanager.is_blocked("django"):
        # Under `-p no:django` nobody else declares the option that pyproject.toml gives.
        parser.addoption("--ds", help="unused without pytest-django")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requires(name, …): skipped as missing where this machine lacks it")
    config.addinivalue_line("markers", "promises(name, …): runs with the sandboxes that promise it")
    if REQUIRE_ALL and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files that share a lab stay together; None, xdist's own way, without `--dist loadfile`."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.lanes import Lanes

    return Lanes(config, log)


class _FailuresAtOnce:
    """Tells of each failure when it happens, with all it printed.

    Pytest tells at the end, which a suite that is ended from outside does not come to.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or not report.failed:
            return
        terminal.ensure_newline()
        terminal.write_line(f"FAILED ({report.when}) {report.nodeid}")
        terminal.write_line(report.longreprtext)
        for name, content in report.sections:
            terminal.write_line(f"-- {name}")
            terminal.write_line(content)
        terminal.flush()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("requires"):
        for need in marker.args:
            if reason := whats_missing(need):
                pytest.skip(f"{MISSING}{reason}")


def _reason_not_allowed(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why a skip must count as a failure here, None when it may stand."""
    if not REQUIRE_ALL or not report.skipped or hasattr(report, "wasxfail"):
        return None
    longrepr = report.longrepr
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    reason = reason.removeprefix("Skipped: ")
    if reason.startswith(ABSENT_DATA):
        return None
    return f"{reason}\nLAB_TEST_REQUIRE_ALL=1 allows no skip but '{ABSENT_DATA}…'"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if reason := _reason_not_allowed(report):
        report.outcome, report.longrepr = "failed", reason
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if reason := _reason_not_allowed(report):
        report.outcome, report.longrepr = "failed", reason
    return report


@pytest.fixture
def data_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for everything one lab writes, removed afterwards even where a test changed modes."""
    folder = tmp_path / "data"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """A PostgreSQL of this session's own, for databases of tests' own; skips as missing without one."""
    if reason := whats_missing("postgresql"):
        pytest.skip(f"{MISSING}{reason}")
    from tests.servers import Postgresql, running

    with running(Postgresql()) as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[Redis]:
    """A Valkey, or Redis, of this test's own; skips as missing without one."""
    if reason := whats_missing("redis"):
        pytest.skip(f"{MISSING}{reason}")
    from tests.servers import Redis, running

    with running(Redis()) as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; skips as missing without one."""
    path = find_chromium()
    if path is None:
        pytest.skip(f"{MISSING}{_chromium()}")
    return path


@pytest.fixture(autouse=True)
def no_fragments_of_another_test() -> None:
    """A test's runs have the numbers of those of a test before it, which no lab's runs ever have."""
    if trajectories := sys.modules.get("lab.services.trajectories"):
        trajectories.forget_rendered()
