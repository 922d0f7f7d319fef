"""What is wrong is said beside its field, the reader stands in it, and nothing typed is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watching import Tab
from tests.fakes.openai_server import FakeOpenAI, html, models
from tests.whole_lab import free_port


@pytest.fixture
def refused(tab: Tab) -> Iterator[Tab]:
    """A tab in which forms are refused, which Chromium notes in its console."""
    yield tab
    tab.forgive()


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def error_of(page: Page, field: str) -> str:
    expect(page.locator(f"#{field}")).to_have_attribute("aria-invalid", "true")
    return page.locator(f".field:has(#{field}) .error").inner_text()


def test_limits_that_are_no_limits(refused: Tab) -> None:
    page = refused.open("/")
    page.click("details.launch-more > summary")
    page.fill("#id_limit_max_steps", "-1")
    page.fill("#id_limit_max_cost_usd", "$5")
    page.locator("#id_tasks label.choice", has_text="topo-cycle").locator("input").check()
    page.keyboard.press("Control+Enter")
    assert "“-1” is not a positive number of steps; write 1 or more" in error_of(page, "id_limit_max_steps")
    assert "“$5” is not a number of dollars; write 5" in error_of(page, "id_limit_max_cost_usd")
    assert focused(page) == "id_limit_max_steps"
    assert page.input_value("#id_limit_max_steps") == "-1"
    assert page.input_value("#id_limit_max_cost_usd") == "$5"
    chosen = page.locator("#id_tasks input:checked")
    expect(chosen).to_have_count(2)
    page.locator(".launch-errors a", has_text="Cost of a run").click()
    assert focused(page) == "id_limit_max_cost_usd"


def test_nothing_chosen(refused: Tab) -> None:
    page = refused.open("/")
    for box in page.locator("#id_tasks input:checked").all():
        box.uncheck()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".launch-errors")).to_contain_text("choose at least one task")
    expect(page.locator(".launch-errors")).to_be_focused()


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"base_url": "http://127.0.0.1:{free}/v1", "model_id": "fake"}, "base_url", "{free}"),
        ({"base_url": "{page}", "model_id": "fake"}, "base_url", "HTML"),
        ({"base_url": "{fake}", "model_id": "gpt-0"}, "model_id", "gpt-0"),
        (
            {"base_url": "{fake}", "model_id": "fake", "key_variable": "LAB_SECRET_KEY"},
            "key_variable",
            "“LAB_SECRET_KEY” may not be named by an endpoint",
        ),
        ({"base_url": "{fake}", "model_id": "fake", "context_window": "many"}, "context_window", "“many”"),
    ],
)
def test_an_endpoint_that_cannot_be_connected(
    refused: Tab, typed: dict[str, str], field: str, said: str
) -> None:
    with FakeOpenAI(listed=models("fake", "other")) as fake, FakeOpenAI(html(), listed=html()) as site:
        values = {"fake": fake.base_url, "page": site.base_url, "free": str(free_port())}
        filled = {name: text.format(**values) for name, text in typed.items()}
        page = refused.open("/endpoints/new/")
        for name, text in filled.items():
            page.fill(f"#id_{name}", text)
        page.keyboard.press("Control+Enter")
        assert said.format(**values) in error_of(page, f"id_{field}")
        assert focused(page) == f"id_{field}"
        for name, text in filled.items():
            assert page.input_value(f"#id_{name}") == text
    assert refused.lab.value("SELECT count(*) FROM lab_model WHERE model_id = 'gpt-0'") == 0


def test_a_name_in_use_is_replaced_by_the_tick_that_appears(refused: Tab) -> None:
    with FakeOpenAI(listed=models("one", "two")) as fake:
        for model_id in ("one", "two"):
            page = refused.open("/endpoints/new/")
            page.fill("#id_base_url", fake.base_url)
            page.fill("#id_model_id", model_id)
            page.fill("#id_name", "taken")
            page.keyboard.press("Control+Enter")
            expect(page.locator("h1, .error", has_text="taken").first).to_be_visible()
        assert "“taken” is one at" in error_of(page, "id_name")
        page.get_by_label("replace taken").check()
        page.keyboard.press("Control+Enter")
        page.wait_for_url("**/endpoints/models/*/")
        expect(page.locator("main")).to_contain_text("two")
