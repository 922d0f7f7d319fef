"""One Chromium and one lab for all tests of this folder; a tab of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.watching import PATIENCE, Tab, tab_of
from tests.whole_lab import WholeLab, wait_for

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


# Of the package and not of the session: while Playwright's loop lives in this thread, neither asynchronous
# tests nor Django's ORM work in it.
# What a page comes to show may take long on a machine that does other things as well.
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def lab() -> Iterator[WholeLab]:
    """The lab that most tests share; it has run nothing when the first of them begins."""
    with WholeLab() as started:
        yield started


class Built(NamedTuple):
    """Numbers of runs made of records: two with every sort of step, and two of 1,250 steps."""

    resolved: int
    unresolved: int
    long: int
    live: int


BUILD = """
import datetime as dt
from django.db import transaction
from django.utils import timezone
from lab.services.transitions import transition
from tests import builders

# At once: a worker of this lab would take a run that it sees queued, or held by nobody.
hour = timezone.now() + dt.timedelta(hours=1)
with transaction.atomic():
    resolved, unresolved, long = builders.run(), builders.run(), builders.run()
    builders.believable(resolved, outcome="resolved")
    builders.believable(unresolved)
    live = builders.another_run(long, seed=2)
    for run in (long, live):
        run.attempts.create(n=1, worker="elsewhere/1/1", lease_token=1, lease_until=hour)
        builders.start(run)
for run in (long, live):
    for first in range(1, 1251, 250):
        steps = [builders.bash_step(step, f"echo {step}", "ok " * 40) for step in range(first, first + 250)]
        builders.append(run, *[event for step in steps for event in step])
builders.append(long, *builders.ending(steps=1250))
print(json.dumps([resolved.pk, unresolved.pk, long.pk, live.pk]))
"""


@pytest.fixture(scope="package")
def built(lab: WholeLab) -> Built:
    """Runs that no worker made, in the shared lab."""
    return Built(*lab.program(BUILD))


def sign_in(browser: Browser, link: str) -> Any:
    """Cookies of the person a link signs in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="package")
def admin(browser: Browser, lab: WholeLab) -> Any:
    """Cookies of the first person of the shared lab."""
    return sign_in(browser, lab.link)


GOING_ON = """
SELECT lab_run.id FROM lab_run LEFT JOIN lab_attempt ON lab_attempt.run_id = lab_run.id
WHERE lab_run.status != 'ended' AND (worker IS NULL OR SUBSTR(worker, 1, 10) != 'elsewhere/')
"""
CANCEL = """
import contextlib
from django.contrib.auth.models import User
from lab.models import Run
from lab.services import controls
from lab.services.errors import FieldErrors
for run in Run.objects.filter(pk__in=arguments[0]):
    with contextlib.suppress(FieldErrors):
        controls.ask(run=run, by=User.objects.get(username="admin"), control="cancel")
"""


def cancel_what_goes_on(lab: WholeLab) -> None:
    """A run that a test left behind would hold a slot of the shared lab that the next test counts on."""
    if runs := [run for (run,) in lab.query(GOING_ON)]:
        lab.program(CANCEL, runs)
        wait_for(lambda: not lab.query(GOING_ON), what="the end of what a test left behind")


@pytest.fixture
def tab(browser: Browser, lab: WholeLab, admin: Any) -> Iterator[Tab]:
    """A tab of the shared lab's admin. What the test leaves running is cancelled."""
    try:
        with tab_of(browser, lab, admin) as opened:
            yield opened
    finally:
        cancel_what_goes_on(lab)
