"""Lists of runs follow the runs."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from tests.browser.acting import launch
from tests.browser.watching import Tab, tab_of


def test_an_experiment_and_the_first_page_follow_their_runs_to_the_end(
    tab: Tab, browser: Browser, admin: Any
) -> None:
    with tab_of(browser, tab.lab, admin) as other:
        home = other.open("/")
        other.mark()
        launch(tab, "scripted/solver", "scripted/struggler", tasks=["parse-duration", "path-glob"])
        page = tab.open(f"{urlsplit(tab.page.url).path}?as=list")
        tab.mark()
        rows = page.locator("#experiment-rows .run-row")
        expect(rows).to_have_count(4)
        expect(page.locator("#part-counts")).to_contain_text(" of 4 ended")
        numbers = [row.get_attribute("id") for row in rows.all()]
        expect(rows.locator(".badge", has_text="running").first).to_be_visible()
        running = home.locator("#running-rows .run-row")
        expect(running.first).to_be_visible()
        expect(running.locator(".clock").first).to_be_visible()
        expect(home.locator("#part-running")).to_contain_text("running")

        expect(page.locator("#part-counts")).to_have_text(
            "4 of 4 ended, 2 of 4 graded resolved", timeout=200_000
        )
        expect(rows.locator(".badge", has_text="unresolved")).to_have_count(2)
        assert [row.get_attribute("id") for row in rows.all()] == numbers
        for number in numbers:
            expect(home.locator(f"#finished-rows #{number}")).to_be_visible()
            expect(home.locator(f"#running-rows #{number}")).to_have_count(0)
        busy = tab.lab.value("SELECT count(*) FROM lab_run WHERE status NOT IN ('queued', 'ended')")
        expect(home.locator("#part-slots")).to_have_text(f"{busy} of 4 slots, 0 queued")
        expect(home.locator("#part-running")).to_have_text(f"{busy} running")
        assert tab.not_reloaded
        assert other.not_reloaded
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/*/")
