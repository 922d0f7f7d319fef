"""A run of 5,000 events is opened where one wants to be, read both ways, and stays small in the browser."""

from __future__ import annotations

import re
from collections import Counter

from playwright.sync_api import Page, expect

from tests.browser.conftest import Built
from tests.browser.watching import Tab
from tests.whole_lab import wait_for

ONE_MORE = """
from lab.models import Run
from tests import builders
builders.append(Run.objects.get(pk=arguments[0]), *builders.bash_step(arguments[1], "echo new", "new"))
"""
AT_THE_END = "window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 4"
END = """
from lab.models import Run
from tests import builders
builders.append(Run.objects.get(pk=arguments[0]), *builders.ending(steps=arguments[1]))
"""


def steps_shown(page: Page) -> list[int]:
    found = page.evaluate(
        "[...document.querySelectorAll('#steps > li.step')].map((one) => Number(one.dataset.step))"
    )
    return list(found)


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def assert_no_window_fetched_twice(tab: Tab) -> None:
    windows = Counter(url for url in tab.asked if re.search(r"/steps\?", url))
    assert windows
    assert max(windows.values()) == 1, windows


def scroll_to_step(page: Page, number: int, *, down: bool) -> None:
    """Turn the wheel until the page holds the step."""

    def there() -> bool:
        page.mouse.move(700, 500)
        page.mouse.wheel(0, 20_000 if down else -20_000)
        shown = steps_shown(page)
        return shown[-1] >= number if down else shown[0] <= number

    wait_for(there, what=f"step {number}")


def stays_at_the_end(page: Page) -> bool:
    def there_now() -> bool:
        page.wait_for_timeout(50)
        return bool(page.evaluate(AT_THE_END))

    return all(there_now() for _ in range(6))


def place_at_rest(page: Page) -> float:
    """Where the window stands, in pixels, once six looks see it there and away from both edges; else 0."""

    def look() -> float:
        page.wait_for_timeout(50)
        return float(page.evaluate("window.scrollY"))

    seen = {look() for _ in range(6)}
    return seen.pop() if len(seen) == 1 and min(seen) > 600 else 0.0


def test_a_finished_run_opens_at_its_start_and_is_read_downwards(tab: Tab, built: Built) -> None:
    page = tab.open(f"/runs/{built.long}/")
    assert steps_shown(page)[0] == 1
    assert page.evaluate("window.scrollY") == 0
    for reached in (100, 300, 500):
        scroll_to_step(page, reached, down=True)
        shown = steps_shown(page)
        assert shown == list(range(shown[0], shown[-1] + 1))
        assert nodes(page) <= 10_000
    assert steps_shown(page)[0] > 1
    assert_no_window_fetched_twice(tab)


def test_a_run_that_goes_on_opens_at_its_end_and_is_read_upwards_and_followed(tab: Tab, built: Built) -> None:
    page = tab.open(f"/runs/{built.live}/")
    assert steps_shown(page)[-1] == 1250
    # The heights of steps settle as they are laid out; the page stays at its end meanwhile.
    wait_for(lambda: stays_at_the_end(page), what="the end of the page")
    expect(page.locator("#live-state")).to_contain_text("Live")
    for reached in (1150, 1000):
        scroll_to_step(page, reached, down=False)
        shown = steps_shown(page)
        assert shown == list(range(shown[0], shown[-1] + 1))
        assert nodes(page) <= 10_000
    assert_no_window_fetched_twice(tab)
    top = wait_for(lambda: place_at_rest(page), what="a place at rest, away from both edges")
    tab.lab.program(ONE_MORE, built.live, 1251)
    expect(page.locator("#new-steps")).to_be_visible()
    assert abs(page.evaluate("window.scrollY") - top) <= 2
    page.keyboard.press("e")
    tab.wait_for_step(1251)
    expect(page.locator('#steps > li.step[data-step="1251"]')).to_be_in_viewport()
    expect(page.locator("#new-steps")).to_be_hidden()
    tab.lab.program(ONE_MORE, built.live, 1252)
    expect(page.locator('#steps > li.step[data-step="1252"]')).to_be_in_viewport()
    page.keyboard.press("b")
    expect(page.locator('#steps > li.step[data-step="1"]')).to_be_in_viewport()
    assert nodes(page) <= 10_000
    tab.lab.program(END, built.live, 1252)
    tab.wait_for_badge("unresolved")


def test_a_link_opens_the_window_around_its_event(tab: Tab, built: Built) -> None:
    seq = 2 + 4 * 700
    page = tab.open(f"/runs/{built.long}/?at={seq}")
    shown = steps_shown(page)
    assert 700 in shown
    assert len(shown) <= 120
    expect(page.locator('#steps > li.step[data-step="700"]')).to_be_in_viewport()
