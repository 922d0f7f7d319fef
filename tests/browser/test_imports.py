"""History in a browser: files are dropped, a run is read, exported, and known when it comes back."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.watching import Tab, tab_of
from tests.whole_lab import WholeLab

SAMPLES = Path(__file__).parents[1] / "engine" / "formats" / "samples" / "mini_swe_agent"
NATIVE = SAMPLES / "native.traj.json"


@pytest.fixture(scope="module")
def own_lab() -> Iterator[WholeLab]:
    with WholeLab() as started:
        yield started


@pytest.fixture(scope="module")
def operator(browser: Browser, own_lab: WholeLab) -> Any:
    return sign_in(browser, own_lab.link)


@pytest.fixture
def tab(browser: Browser, own_lab: WholeLab, operator: Any) -> Iterator[Tab]:
    with tab_of(browser, own_lab, operator) as opened:
        yield opened


def give(page: Page, *paths: Path) -> None:
    """Choose files as a person does in the browser's own dialog, and send them."""
    page.locator("input[name=files]").set_input_files(list(paths))
    expect(page.locator("#chosen-files li")).to_have_count(len(paths))
    page.locator("[data-send]").click()
    page.wait_for_url("**/imports/*/")
    expect(page.locator(".page-head")).to_contain_text("read")
    expect(page.locator("#import progress")).to_have_count(0)


def test_a_run_is_imported_opened_exported_and_known_when_it_comes_back(tab: Tab, tmp_path: Path) -> None:
    packed = tmp_path / "night.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(SAMPLES / "text.traj.json", "runs/one/text.traj.json")
        archive.add(SAMPLES / "limited.traj.json", "runs/two/limited.traj.json")
    (tmp_path / "notes.txt").write_text("no trajectory\n")
    page = tab.open("/imports/")
    give(page, NATIVE, packed, tmp_path / "notes.txt")
    expect(page.locator(".import-facts")).to_contain_text("3 new runs")
    expect(page.locator("#import")).to_contain_text("notes.txt")

    page.get_by_role("link", name="Open its runs").click()
    expect(page.locator("#grid td[data-group]")).to_have_count(3)
    # What a page lacks when it begins to watch takes the place of cells, also of one that is pressed.
    expect(page.locator("#live-state")).to_contain_text("Live")
    page.locator("#grid td[data-group] a").first.click()
    expect(page.locator("li.step").first).to_be_visible()
    expect(page.locator("#part-facts")).to_contain_text("imported from")

    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.locator("details.menu a[href*='format=trajectory-lab']").click()
    exported = tmp_path / "exported.jsonl"
    download.value.save_as(exported)
    assert exported.stat().st_size > 1000

    page = tab.open("/imports/")
    give(page, exported, NATIVE)
    expect(page.locator(".import-facts")).to_contain_text("0 new runs")
    expect(page.locator(".import-facts")).to_contain_text("2 known already")
    assert tab.strangers == []


def test_a_file_dropped_on_the_page_is_taken(tab: Tab) -> None:
    page = tab.open("/imports/")
    transfer = page.evaluate_handle(
        """(text) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([text], "dropped.traj.json"));
          return transfer;
        }""",
        (SAMPLES / "responses.traj.json").read_text(encoding="utf-8"),
    )
    page.dispatch_event("#import-form", "drop", {"dataTransfer": transfer})
    expect(page.locator("#chosen-files")).to_contain_text("dropped.traj.json")
    page.locator("[data-send]").click()
    page.wait_for_url("**/imports/*/")
    expect(page.locator(".import-facts")).to_contain_text("1 new run")


def test_the_page_of_imports_fits_a_narrow_screen(tab: Tab) -> None:
    page = tab.open("/imports/")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
