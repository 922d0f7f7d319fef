"""The list of a server with thousands of models: searched as one types, chosen by hand, by keyboard alone.

Nothing here counts on how fast an answer comes: one that must come late is held back until it may.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.watching import PATIENCE, Tab
from tests.fakes.openai_server import FakeOpenAI, models, plain
from tests.whole_lab import WholeLab

_MAKERS = ("qwen", "deepseek", "mistralai")
_IDS = [f"{_MAKERS[number % 3]}/coder-{number}b" for number in range(6_000)]
_ENDPOINT = """
from lab.models import Endpoint
print(Endpoint.objects.create(name=arguments[0], base_url=arguments[1]).pk)
"""
_SEARCHES = re.compile(r"/models/\?q=")


@pytest.fixture
def router() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(listed=models(*_IDS)) as server:
        yield server


def open_list(tab: Tab, lab: WholeLab, server: FakeOpenAI) -> Page:
    """The list of an endpoint of its own."""
    number = lab.program(_ENDPOINT, f"router {server.port}", server.base_url)
    return tab.open(f"/endpoints/{number}/models/")


def write(page: Page, words: str) -> None:
    page.locator("[data-search]").fill("")
    page.locator("[data-search]").press_sequentially(words)


def fitting(words: str) -> list[str]:
    return [name for name in _IDS if all(word in name for word in words.split())]


def expect_found(page: Page, words: str) -> None:
    """Exactly the models stand there that fit the words."""
    expect(page.locator("#found .mono")).to_have_text(fitting(words))


def tick(page: Page, model: str) -> None:
    page.locator(f'#found input[value="{model}"]').check()


def expect_chosen(page: Page, *names: str) -> None:
    expect(page.locator("[data-chosen] li")).to_have_text(list(names))


def expect_added(page: Page, *names: str) -> None:
    """The endpoint has these models now; a name that is taken in the lab stands behind the endpoint's."""
    page.wait_for_url(re.compile(r"/endpoints/\d+/$"))
    expect(page.locator("tr[data-row] td:first-child a")).to_contain_text(list(names))


class HeldSearches:
    """Searches of a page that get no answer before `release`; after `let_pass` newer ones do at once."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: list[Route] = []
        self._holding = True
        page.route(_SEARCHES, self._take)

    def _take(self, route: Route) -> None:
        if self._holding:
            self._held.append(route)
        else:
            route.continue_()

    def wait(self) -> None:
        """Until the page has sent one."""
        until = time.monotonic() + PATIENCE / 1000
        while not self._held:
            assert time.monotonic() < until, "no search was sent"
            self._page.wait_for_timeout(20)

    def let_pass(self) -> None:
        self._holding = False

    def release(self) -> None:
        self._holding = False
        for route in self._held:
            route.continue_()


def test_thousands_are_searched_as_one_types_and_the_server_is_asked_once(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    expect(page.locator("#found li")).to_have_count(200)
    expect(page.locator("#found")).to_contain_text("6,000 of 6,000 fit, the first 200 are shown")
    tab.mark()
    write(page, "qwen 599")
    expect_found(page, "qwen 599")
    expect(page.locator("[data-said]")).to_have_text("5 of 6,000 fit")
    expect(page).to_have_url(re.compile(r"\?q=qwen\+599$"))
    assert tab.not_reloaded
    assert [request.path for request in router.requests] == ["/v1/models"]


def test_what_was_chosen_stays_through_other_searches_and_is_added(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    write(page, "qwen 599")
    expect_found(page, "qwen 599")
    tick(page, "qwen/coder-5991b")
    tick(page, "qwen/coder-5994b")
    write(page, "mistral 500")
    expect_found(page, "mistral 500")
    tick(page, "mistralai/coder-5003b")
    expect_chosen(page, "qwen/coder-5991b", "qwen/coder-5994b", "mistralai/coder-5003b")
    expect(page.locator("[data-add]")).to_contain_text("Add 3 chosen models")

    write(page, "qwen 599")
    expect_found(page, "qwen 599")
    expect(page.locator("#found input:checked")).to_have_count(2)
    # Left above, it is left below as well.
    page.locator('[data-chosen] input[value="qwen/coder-5991b"]').click()
    expect(page.locator('#found input[value="qwen/coder-5991b"]')).not_to_be_checked()
    expect_chosen(page, "qwen/coder-5994b", "mistralai/coder-5003b")

    page.locator("[data-add]").click()
    expect(page.locator("main")).to_contain_text("2 can be chosen under Launch")
    expect_added(page, "mistralai/coder-5003b", "qwen/coder-5994b")


def test_a_model_is_found_chosen_and_added_by_keyboard_alone(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    # Out of the search, where the page begins, and back into it by its key.
    page.keyboard.press("ArrowDown")
    expect(page.locator("#found input").first).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("deepseek 199")
    expect_found(page, "deepseek 199")
    first, second = fitting("deepseek 199")[:2]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect_chosen(page, first, second)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator("[data-search]")).to_be_focused()
    # Tab leads through what is chosen; a row that is left hands the focus to the one beside it.
    page.locator("[data-chosen] input").first.focus()
    page.keyboard.press("Space")
    expect_chosen(page, second)
    expect(page.locator("[data-chosen] input")).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect_added(page, second)


def test_a_search_that_fits_nothing_says_so_and_is_cleared_by_its_button(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    write(page, "<b>nobody</b>")
    expect(page.locator("#found")).to_contain_text("None of 6,000 fits “<b>nobody</b>”")
    page.get_by_role("link", name="Clear the search").click()
    expect(page.locator("#found li")).to_have_count(200)
    expect(page.locator("[data-search]")).to_have_value("")
    expect(page.locator("[data-search]")).to_be_focused()


def test_an_answer_that_comes_late_replaces_no_newer_one(tab: Tab, lab: WholeLab, router: FakeOpenAI) -> None:
    page = open_list(tab, lab, router)
    held = HeldSearches(page)
    write(page, "qwen 599")
    page.keyboard.press("Enter")
    held.wait()
    held.let_pass()
    write(page, "mistral 500")
    expect_found(page, "mistral 500")
    with page.expect_response(_SEARCHES) as late:
        held.release()
    late.value.finished()
    expect_found(page, "mistral 500")
    expect(page).to_have_url(re.compile(r"\?q=mistral\+500$"))


def test_whoever_walks_in_the_list_when_it_is_replaced_stays_in_it(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    expect(page.locator("#found li")).to_have_count(200)
    held = HeldSearches(page)
    page.locator("[data-search]").fill("coder-3b")
    page.keyboard.press("Enter")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(page.locator('#found input[value="qwen/coder-3b"]')).to_be_focused()
    held.wait()
    held.release()
    expect_found(page, "coder-3b")
    expect(page.locator('#found input[value="qwen/coder-3b"]')).to_be_focused()


def test_a_search_that_the_lab_does_not_answer_is_said_and_loses_nothing(
    tab: Tab, lab: WholeLab, router: FakeOpenAI
) -> None:
    page = open_list(tab, lab, router)
    write(page, "qwen 599")
    expect_found(page, "qwen 599")
    tick(page, "qwen/coder-5991b")
    page.route(_SEARCHES, lambda route: route.abort())
    write(page, "mistral 500")
    expect(page.get_by_role("alert")).to_contain_text("did not answer this search")
    expect_found(page, "qwen 599")
    expect_chosen(page, "qwen/coder-5991b")
    page.unroute(_SEARCHES)
    page.keyboard.press("Enter")
    expect_found(page, "mistral 500")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect_chosen(page, "qwen/coder-5991b")
    tab.forgive()


def test_where_the_server_gives_no_list_ids_are_typed(tab: Tab, lab: WholeLab) -> None:
    with FakeOpenAI(listed=plain({"detail": "Not Found"}, status=404)) as server:
        page = open_list(tab, lab, server)
        expect(page.locator("#found")).to_contain_text("has no /models (status 404)")
        expect(page.get_by_role("link", name="Edit the endpoint…")).to_be_visible()
        # Nothing chosen and nothing typed: the way out is said.
        page.locator("[data-add]").click()
        expect(page.get_by_role("alert")).to_contain_text("write its id")
        page.locator("#typed").fill("typed/coder-7b")
        page.keyboard.press("Control+Enter")
        expect_added(page, "typed/coder-7b")
        assert [call.body["model"] for call in server.calls] == ["typed/coder-7b"]
    tab.forgive()
