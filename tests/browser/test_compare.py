"""Runs side by side, driven by keys: where they part, what opens, and how far one can scroll."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watching import Tab
from tests.whole_lab import WholeLab

BUILD = """
from django.db import transaction
from tests.parted_runs import parted

with transaction.atomic():
    short, long = parted(), parted(before=5, after=150)
print(json.dumps([[run.pk for run in pair] for pair in (short, long)]))
"""


@pytest.fixture(scope="module")
def pairs(lab: WholeLab) -> Any:
    """Two runs of ten steps that part after the sixth, and two of 155 that part after the fifth."""
    return lab.program(BUILD)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.closest('[id]').id"))


def test_keys_lead_to_the_divergence_through_rows_and_columns_and_the_link_leads_back(
    tab: Tab, pairs: Any
) -> None:
    (first, second), _ = pairs
    page = tab.open(f"/compare/?runs={first},{second}")
    page.keyboard.press("v")
    expect(page.locator(f"#divergence-{second}")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("l")
    row = page.locator(f"#row-{first}-6")
    expect(row.locator(".cell.current")).to_have_id(f"cell-{second}-6")
    page.keyboard.press("o")
    expect(row.locator(".body-cell")).to_have_count(2)
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.keyboard.press("y")
    expect(page.locator("#said")).to_have_text("Link copied")
    link = page.evaluate("window.copied")
    assert link == f"{tab.lab.url}/compare/?runs={first},{second}&at={second}.6&open={second}.6"
    page.goto(link)
    expect(row.locator("summary").first).to_be_focused()
    expect(row.locator(".body-cell")).to_have_count(2)
    page.keyboard.press("z")
    expect(page).to_have_url(re.compile(r"fold=none.*at="))
    expect(page.locator(".stretch")).to_have_count(0)
    page.keyboard.press("d")
    expect(page).to_have_url(re.compile(r"view=patches"))
    assert (tab.complaints, tab.strangers) == ([], [])


def test_a_long_comparison_is_scrolled_jumped_through_and_taken_apart(tab: Tab, pairs: Any) -> None:
    _, (first, second) = pairs
    page = tab.open(f"/compare/?runs={first},{second}&fold=none")
    shown = page.locator("#rows > .unit")
    expect(shown).to_have_count(60)
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    expect(shown).not_to_have_count(60)
    # The map leads to the end of both, wherever the page is.
    page.locator("#map li").last.locator("a").click()
    expect(page.locator(f"#cell-{second}-155")).to_be_in_viewport()
    expect(page.locator("#map li.in-view").last).to_be_visible()
    page.locator("#edge-before a").click()
    expect(page.locator(f"#cell-{second}-155")).to_be_attached()
    page.keyboard.press("s")
    expect(page.locator(".pane")).to_have_count(2)
    page.locator(".pane").first.locator("summary").first.focus()
    expect(page.locator(".unit.partner")).to_have_count(1)
    page.keyboard.press("s")
    expect(page.locator("#rows")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    assert (tab.complaints, tab.strangers) == ([], [])


def test_the_signs_are_explained_in_a_narrow_window(tab: Tab, pairs: Any) -> None:
    (first, second), _ = pairs
    page = tab.open(f"/compare/?runs={first},{second}")
    menu = page.locator(".signs-menu")
    expect(menu).to_be_hidden()
    page.set_viewport_size({"width": 800, "height": 900})
    expect(page.locator(".compare-side")).to_be_hidden()
    menu.locator("summary").click()
    words = menu.get_by_text("same action, something differs")
    expect(words).to_be_in_viewport(ratio=1)
    # Nothing of it is cut off at the window's edge.
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert (tab.complaints, tab.strangers) == ([], [])
