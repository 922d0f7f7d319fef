"""The sample lab in a browser: one press loads it with its progress, one more question removes it."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conftest import sign_in
from tests.browser.watching import tab_of
from tests.whole_lab import WholeLab


def test_one_press_loads_it_with_its_progress_and_it_is_removed_again(browser: Browser) -> None:
    with WholeLab() as lab, tab_of(browser, lab, sign_in(browser, lab.link)) as tab:
        page = tab.open("/")
        page.get_by_role("button", name="Load the sample lab").click()
        # Between two pieces of the load the page says how far it is; it goes on without being touched.
        expect(page.locator("#sample-progress")).to_contain_text("of 96 runs loaded")
        page.wait_for_url("**/experiments/*/", timeout=200_000)
        expect(page.locator("#grid td[data-group]")).to_have_count(96)
        expect(page.locator("#part-progress")).to_contain_text("96 of 96 ended")
        expect(page.locator(".page-head .chip.demo")).to_be_visible()
        expect(page.locator("#part-grid-arms")).to_contain_text("11 of 12 valid runs resolved")
        page = tab.open("/")
        expect(page.locator("#part-finished")).to_have_text("96 demo")
        page.get_by_role("button", name="Remove the sample lab…").click()
        page.get_by_role("button", name="Remove 96 runs").click()
        expect(page.locator("main")).to_contain_text("The sample lab is removed: 96 runs")
        expect(page.get_by_role("button", name="Load the sample lab")).to_be_visible()
        assert lab.value("SELECT count(*) FROM lab_event") == 0
