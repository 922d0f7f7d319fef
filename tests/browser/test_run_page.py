"""What the page of a run says and shows while the run goes on, and when it was tried more than once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.acting import asks_for, connect, launch
from tests.browser.watching import Tab, tab_of
from tests.fakes.openai_server import FakeOpenAI, says
from tests.whole_lab import WholeLab

TRIED_AGAIN = """
import datetime as dt
from django.utils import timezone
from tests import builders

run = builders.run()
hour = timezone.now() + dt.timedelta(hours=1)
run.attempts.create(n=1, worker="elsewhere/1/1", lease_token=1, lease_until=hour)
builders.start(run)
builders.append(run, *builders.bash_step(1, "ls", "a"), *builders.bash_step(2, "ls", "a"))
print(json.dumps(run.pk))
"""
AGAIN = """
import datetime as dt
from django.utils import timezone
from lab.models import Run
from tests import builders

run = Run.objects.get(pk=arguments[0])
broken = builders.AttemptEnded(exit_reason="tool_error", steps=2, wall_seconds=3.0, retryable=True)
builders.append(run, broken)
hour = timezone.now() + dt.timedelta(hours=1)
run.attempts.create(n=2, worker="elsewhere/1/1", lease_token=2, lease_until=hour)
builders.append(run, *builders.opening(), *builders.bash_step(1, "ls -a", "a"), attempt=2)
"""
END = """
from lab.models import Run
from tests import builders
builders.append(Run.objects.get(pk=arguments[0]), *builders.ending(steps=1), attempt=2)
"""


@pytest.fixture
def narrow(browser: Browser, lab: WholeLab, admin: Any) -> Iterator[Tab]:
    """A tab in a window of 800 pixels."""
    with tab_of(browser, lab, admin, size={"width": 800, "height": 900}) as opened:
        yield opened


@pytest.mark.requires("bubblewrap")
def test_the_tab_and_the_status_line_follow_the_run_to_its_verdict(tab: Tab) -> None:
    with FakeOpenAI(asks_for("Bash", {"command": "sleep 25"}), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        page = tab.page
        expect(page).to_have_title(re.compile(r"^parse-duration · running · run \d+$"))
        expect(page.locator("#said")).to_have_text("Step 1: Bash sleep 25: running", timeout=24_000)
        expect(page.locator("#step-count")).to_have_text("1 step")
        tab.wait_for_badge("unresolved")
        expect(page).to_have_title(f"parse-duration · unresolved · run {tab.run_id}")
        expect(page.locator("#said")).to_have_text("The run has ended: unresolved")
        expect(page.locator("#live-state")).to_contain_text("Complete")
        expect(page.locator("#said")).to_have_text("The run has ended: unresolved")


def test_no_page_of_harnesses_is_wider_than_the_smallest_window(tab: Tab) -> None:
    page = tab.open("/harnesses/")
    page.set_viewport_size({"width": 390, "height": 844})
    wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.evaluate(wide)
    page.locator("table.list a").first.click()
    expect(page.get_by_role("heading", name="System message")).to_be_visible()
    assert not page.evaluate(wide)


@pytest.mark.requires("bubblewrap")
def test_in_a_narrow_window_what_is_pending_stands_whole_below_the_head(narrow: Tab) -> None:
    with FakeOpenAI(asks_for("Bash", {"command": "sleep 30"})) as fake:
        launch(narrow, connect(narrow, fake), limits={"max_total_time_sec": "15"})
        page = narrow.page
        expect(page.locator("#part-pending")).to_contain_text("Bash is running")
        head = page.locator("#run-head").bounding_box()
        pending = page.locator("#part-pending").bounding_box()
        assert head is not None
        assert pending is not None
        assert pending["y"] >= head["y"] + head["height"] - 0.5
        assert page.evaluate("window.scrollY") == 0
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        narrow.wait_for_badge("unresolved")


def test_an_attempt_that_is_made_again_folds_the_one_before_it(tab: Tab) -> None:
    run = tab.lab.program(TRIED_AGAIN)
    page = tab.open(f"/runs/{run}/")
    expect(page.locator("#live-state")).to_contain_text("Live")
    expect(page.locator("#step-count")).to_have_text("2 steps")
    tab.lab.program(AGAIN, run)
    earlier = page.locator("#part-earlier")
    expect(earlier).to_have_text(re.compile(r"Attempt 1 ended: tool_error show it"))
    expect(page.locator("#step-count")).to_have_text("1 step in attempt 2")
    expect(page.locator("#steps > li:visible").first).to_contain_text("Attempt 2")
    expect(page.locator("#steps > li.step:visible")).to_have_count(1)
    expect(page.locator("#minimap li:visible")).to_have_count(1)
    tab.lab.program(END, run)
    tab.wait_for_badge("unresolved")
    tab.assert_every_event_once_and_in_order()

    page = tab.open(f"/runs/{run}/")
    expect(page.locator("#step-count")).to_have_text("1 step in attempt 2")
    expect(page.locator("#steps > li.step:visible")).to_have_count(1)
    earlier.get_by_role("link", name="show it").click()
    expect(page.locator("#steps > li:visible").first).to_contain_text("Attempt 1")
    expect(page.locator("#steps > li.step:visible")).to_have_count(3)
    tab.assert_every_event_once_and_in_order()
