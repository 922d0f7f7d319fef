"""The keys do what the key sheet says, and are dead in fields."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import Built
from tests.browser.watching import Tab


def step_in_focus(page: Page) -> str | None:
    found = page.evaluate("document.activeElement.closest('#steps > li')?.dataset.step ?? null")
    return None if found is None else str(found)


def is_open(page: Page, number: int) -> bool:
    fold = page.locator(f'#steps > li.step[data-step="{number}"] > article > details')
    return fold.get_attribute("open") is not None


def test_keys_move_between_steps_open_them_and_go_to_patch_and_tests(tab: Tab, built: Built) -> None:
    page = tab.open(f"/runs/{built.resolved}/")
    keys = page.keyboard
    keys.press("b")
    assert step_in_focus(page) == "1"
    keys.press("j")
    keys.press("j")
    assert step_in_focus(page) == "3"
    keys.press("k")
    assert step_in_focus(page) == "2"
    before = is_open(page, 2)
    keys.press("o")
    assert is_open(page, 2) is not before
    keys.press("o")
    assert is_open(page, 2) is before
    keys.press("O")
    assert all(is_open(page, number) for number in range(1, 8))
    keys.press("O")
    assert not any(is_open(page, number) for number in range(1, 8))
    keys.press("]")
    assert step_in_focus(page) == "3"
    keys.press(".")
    assert step_in_focus(page) == "4"
    keys.press("[")
    assert step_in_focus(page) == "3"
    keys.press("e")
    assert page.evaluate("window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 4")
    keys.press("d")
    assert page.evaluate("document.activeElement.closest('details')?.id") == "patch"
    keys.press("t")
    assert page.evaluate("document.activeElement.closest('details')?.id") == "tests"
    expect(page.locator("#all-tests .test").first).to_be_visible()
    assert page.evaluate("document.getElementById('tests').open")


def test_y_gives_the_link_to_the_step_one_is_at(tab: Tab, built: Built) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=tab.lab.url)
    page = tab.open(f"/runs/{built.resolved}/")
    page.keyboard.press("b")
    page.keyboard.press("j")
    page.keyboard.press("y")
    expect(page.locator("#said")).to_have_text("Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{tab.lab.url}/runs/{built.resolved}/?at=")
    page.goto(link)
    assert step_in_focus(page) == "2"


def test_the_key_sheet_opens_and_closes_and_g_goes_places(tab: Tab) -> None:
    page = tab.open("/experiments/")
    page.keyboard.press("?")
    expect(page.locator("#key-sheet")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.keyboard.press("Escape")
    expect(page.locator("#key-sheet")).to_be_hidden()
    for letter, path in (
        ("t", "/tasks/"),
        ("n", "/harnesses/"),
        ("p", "/endpoints/"),
        ("h", "/"),
        ("e", "/experiments/"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.wait_for_url(tab.lab.url + path)


def test_keys_are_dead_in_fields_with_modifiers_and_when_switched_off(tab: Tab) -> None:
    page = tab.open("/")
    page.click("details.launch-more > summary")
    page.click("#id_seeds")
    page.keyboard.type("?ge")
    expect(page.locator("#key-sheet")).to_be_hidden()
    assert page.input_value("#id_seeds") == "?ge"
    page.locator("#main").click(position={"x": 2, "y": 2})
    page.keyboard.press("Alt+?")
    expect(page.locator("#key-sheet")).to_be_hidden()
    page.keyboard.press("l")
    expect(page.locator("[data-launch]")).to_be_focused()

    tab.open("/settings/")
    page.uncheck("[name=single_keys]")
    page.keyboard.press("Control+Enter")
    expect(page.locator("body")).to_have_attribute("data-single-keys", "off")
    page.keyboard.press("?")
    expect(page.locator("#key-sheet")).to_be_hidden()
    page.check("[name=single_keys]")
    page.keyboard.press("Control+Enter")
    expect(page.locator("body")).to_have_attribute("data-single-keys", "on")
