"""The analysis as a reader drives it: plots in both themes, pictures to download, keys, nothing forbidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watching import PATIENCE, Tab
from tests.whole_lab import WholeLab

# A plot is drawn when it comes near the window.
_ALL_DRAWN = (
    """() => [...document.querySelectorAll("[data-plot]")].every((box) => box.querySelector(".main-svg"))"""
)
_COMMAND = """
import io
from django.core.management import call_command
call_command("sample_lab", arguments[0], stdout=io.StringIO())
"""
_RENAME = """
from lab.models import Model
Model.objects.filter(pk=arguments[0]).update(name=arguments[1])
"""
_INK_OF_AXIS = """() => getComputedStyle(document.querySelector("#plot-resolve-rate .xtick text")).fill"""


@pytest.fixture(scope="module")
def sample(lab: WholeLab) -> Iterator[WholeLab]:
    """The lab with the recorded runs that every release brings."""
    lab.program(_COMMAND, "load")
    yield lab
    lab.program(_COMMAND, "remove")


_CUT_TABLES = """() => [...document.querySelectorAll(".wide")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.querySelector("table").id)"""
# How far its first column lies from the left edge of a table that is scrolled to the right.
_FIRST_COLUMN_WHEN_SCROLLED = """() => {
  const box = document.querySelector("#table-resolve-rate").closest(".wide");
  box.scrollLeft = 100;
  return box.querySelector("tbody th").getBoundingClientRect().left - box.getBoundingClientRect().left;
}"""


def opened(tab: Tab) -> Page:
    number = tab.lab.value("SELECT id FROM lab_experiment WHERE kind = 'demo'")
    return tab.open(f"/analysis/?experiment={number}")


def draw_all(page: Page) -> None:
    for section in page.locator("[data-section]").all():
        section.scroll_into_view_if_needed()
        for plot in section.locator("[data-plot]").all():
            plot.scroll_into_view_if_needed()
            expect(plot.locator(".main-svg").first).to_be_attached(timeout=PATIENCE)
    page.wait_for_function(_ALL_DRAWN)


def test_every_plot_is_drawn_under_the_policy_and_in_the_colours_of_the_theme(sample: Any, tab: Tab) -> None:
    page = opened(tab)
    draw_all(page)
    assert page.locator("[data-plot][data-failed]").count() == 0
    inks = []
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        page.wait_for_function(
            f"() => document.querySelector('#plot-resolve-rate').dataset.drawn === '{theme}'"
        )
        inks.append(page.evaluate(_INK_OF_AXIS))
    assert inks[0] != inks[1]
    assert tab.complaints == []
    assert tab.strangers == []


@pytest.mark.parametrize(("format_name", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_a_plot_comes_as_a_picture_that_stands_alone(
    sample: Any, tab: Tab, tmp_path: Path, format_name: str, begins: bytes
) -> None:
    page = opened(tab)
    expect(page.locator("#plot-resolve-rate .main-svg").first).to_be_attached(timeout=PATIENCE)
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.locator(f"[data-image={format_name}][data-of=plot-resolve-rate]").click()
    assert waiting.value.suggested_filename == f"resolve-rate.{format_name}"
    target = tmp_path / "picture"
    waiting.value.save_as(target)
    picture = target.read_bytes()
    assert picture.startswith(begins)
    assert len(picture) > 3_000
    if format_name == "svg":
        assert "Resolve rate" in picture.decode()
        assert "scripted/solver" in picture.decode()
    assert tab.complaints == []


def test_keys_walk_sections_turn_switches_and_open_the_runs_behind(sample: Any, tab: Tab) -> None:
    page = opened(tab)
    page.keyboard.press("]")
    expect(page.locator("#paired")).to_be_focused()
    page.keyboard.press("]")
    expect(page.locator("#cost")).to_be_focused()
    page.keyboard.press("[")
    expect(page.locator("#paired")).to_be_focused()
    page.keyboard.press("b")
    expect(page.locator("#plot-resolve-rate")).to_be_hidden()
    expect(page.locator("#table-steps")).to_be_visible()
    page.keyboard.press("b")
    expect(page.locator("#plot-resolve-rate")).to_be_visible()
    page.keyboard.press("i")
    page.wait_for_url(re.compile("invalid=failures"))
    page.keyboard.press("w")
    page.wait_for_url(re.compile("invalid=failures&flagged=out|flagged=out&invalid=failures"))
    page.keyboard.press("i")
    page.wait_for_url(re.compile(r"\?(?!.*invalid)"))
    page.locator("#table-resolve-rate tr[data-row]").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/analysis/runs/**")
    expect(page.locator(".run-row")).to_have_count(12)
    page.go_back()
    page.keyboard.press("f")
    page.wait_for_url("**/analysis/choose/**")
    assert page.locator("input[name=arm]").count() == 8
    page.locator("input[name=arm]").nth(0).check()
    page.locator("input[name=arm]").nth(2).check()
    page.get_by_role("button", name="Show the analysis").click()
    page.wait_for_url("**/analysis/?**")
    expect(page.locator("#table-resolve-rate tr[data-row]")).to_have_count(2)
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url(f"{tab.lab.url}/")
    page.keyboard.press("g")
    page.keyboard.press("y")
    page.wait_for_url("**/analysis/")


@pytest.fixture
def named_with_markup(sample: WholeLab) -> Iterator[str]:
    """The name of a model that Plotly would read as a link, and the page's script as a colour."""
    name = """<a href="//elsewhere.example">leaf</a> &lt;b&gt; %{x}"""
    query = "SELECT model_id FROM lab_arm JOIN lab_experiment e ON e.id = experiment_id WHERE kind = 'demo'"
    model = sample.value(query)
    before = sample.value("SELECT name FROM lab_model WHERE id = ?", model)
    sample.program(_RENAME, model, name)
    yield name
    sample.program(_RENAME, model, before)


def test_names_in_plots_are_words_and_never_links(named_with_markup: str, tab: Tab) -> None:
    page = opened(tab)
    draw_all(page)
    assert page.locator("[data-plot] a").count() == 0
    texts = page.locator("[data-plot] text").all_text_contents()
    assert any("<a href=" in text for text in texts)
    assert tab.complaints == []


def test_no_table_is_cut_in_a_wide_window_and_in_a_narrow_one_its_first_column_stays(
    sample: Any, tab: Tab
) -> None:
    page = opened(tab)
    page.set_viewport_size({"width": 1440, "height": 1000})
    assert page.evaluate(_CUT_TABLES) == []
    page.set_viewport_size({"width": 800, "height": 1000})
    assert "table-resolve-rate" in page.evaluate(_CUT_TABLES)
    box = page.locator(".wide:has(#table-resolve-rate)")
    box.focus()
    expect(box).to_be_focused()
    assert abs(page.evaluate(_FIRST_COLUMN_WHEN_SCROLLED)) < 3


def test_the_page_fits_a_narrow_window(sample: Any, tab: Tab) -> None:
    page = opened(tab)
    page.set_viewport_size({"width": 800, "height": 1000})
    page.reload()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator("[data-jump]")).to_be_visible()
    page.locator("[data-jump]").select_option("per-task")
    expect(page.locator("#per-task")).to_be_focused()
    expect(page.locator(".contents")).to_be_hidden()
