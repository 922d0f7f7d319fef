"""From the fresh first page to a verdict by keyboard alone, and a page that waits for a full lab."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.acting import launch
from tests.browser.conftest import sign_in
from tests.browser.watching import Tab, tab_of
from tests.timing import SOON
from tests.whole_lab import WholeLab, wait_for


@pytest.fixture(scope="module")
def small_lab() -> Iterator[WholeLab]:
    """A lab that has run nothing yet and runs one thing at a time, its models slow enough to watch."""
    with WholeLab(LAB_RUN_SLOTS="1", LAB_SCRIPTED_CHUNK_SECONDS="0.05") as started:
        yield started


@pytest.fixture(scope="module")
def small_admin(browser: Browser, small_lab: WholeLab) -> object:
    return sign_in(browser, small_lab.link)


@pytest.fixture
def small_tab(browser: Browser, small_lab: WholeLab, small_admin: object) -> Iterator[Tab]:
    with tab_of(browser, small_lab, small_admin) as opened:
        yield opened


def sees_a_draft_before_its_event(tab: Tab) -> bool:
    """Whether the page shows text of a step whose answer is not in the log yet."""
    draft = tab.page.locator("#steps > li [data-draft]", has_text="being written")
    if not draft.count():
        return False
    step = int(draft.first.get_attribute("data-draft") or 0)
    return not tab.lab.value(
        "SELECT count(*) FROM lab_event WHERE run_id = ? AND kind = 'model_call_finished' AND step = ?",
        tab.run_id,
        step,
    )


def test_the_first_run_is_launched_and_watched_to_its_verdict_without_a_mouse_or_a_reload(
    small_tab: Tab,
) -> None:
    page = small_tab.open("/")
    expect(page.locator("[data-launch-label]")).to_have_text("Launch 1 run")
    expect(page.locator("#running")).to_have_count(0)
    asked = time.monotonic()
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/runs/*/", wait_until="commit")
    assert time.monotonic() - asked < SOON
    small_tab.mark()

    wait_for(lambda: sees_a_draft_before_its_event(small_tab), what="a draft before its event")
    clock = page.locator('[data-for="pending"]')
    earlier = clock.text_content()
    expect(clock).not_to_have_text(earlier or "")
    small_tab.wait_for_step(2)
    assert page.locator("#part-badge").get_attribute("data-ended") == "no"
    small_tab.wait_for_badge("resolved")
    assert small_tab.not_reloaded
    small_tab.assert_every_event_once_and_in_order()
    expect(page.locator("#live-state")).to_contain_text("Complete")
    expect(page.locator("#part-verdict .badge")).to_have_text("resolved")
    expect(page.locator("[data-cancel]")).to_have_count(0)
    expect(page.locator("#patch .diff").first).to_be_visible()


def test_a_page_opened_before_the_first_event_goes_from_queued_to_its_end_by_itself(
    small_tab: Tab, browser: Browser, small_lab: WholeLab, small_admin: object
) -> None:
    launch(small_tab)
    with tab_of(browser, small_lab, small_admin) as waiting:
        launch(waiting, "scripted/struggler")
        page = waiting.page
        expect(page.locator("#part-badge")).to_have_text("queued")
        expect(page.locator("#no-steps")).to_be_visible()
        assert waiting.last_seq == 0
        expect(page.locator("#part-badge")).to_have_text("running", timeout=150_000)
        waiting.wait_for_step(1)
        expect(page.locator("#no-steps")).to_be_hidden()
        waiting.wait_for_badge("unresolved")
        waiting.assert_every_event_once_and_in_order()
        assert waiting.not_reloaded
        expect(waiting.open("/").locator("#running")).to_contain_text("Nothing runs at the moment")
        expect(page.locator("#part-running")).to_be_hidden()
    small_tab.assert_every_event_once_and_in_order()


def test_what_is_chosen_on_a_page_gone_back_to_is_launched(small_tab: Tab) -> None:
    page = small_tab.open("/")
    page.click("[data-launch]")
    page.wait_for_url("**/runs/*/", wait_until="commit")
    first = page.url
    page.go_back()
    button = page.locator("[data-launch]")
    expect(button).not_to_have_attribute("aria-disabled", "true")
    page.locator("#id_tasks label.choice", has_text="parse-duration").locator("input").uncheck()
    page.locator("#id_tasks label.choice", has_text="topo-cycle").locator("input").check()
    page.click("[data-launch]")
    page.wait_for_url("**/runs/*/", wait_until="commit")
    assert page.url != first
    expect(page.locator("h1").first).to_have_text("topo-cycle")
