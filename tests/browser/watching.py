"""A tab of Chromium on the lab, and what one can see in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from tests.whole_lab import WholeLab, wait_for

SIZE = {"width": 1440, "height": 900}
# A loaded machine of two cores: what comes by itself is waited for this long, in milliseconds.
PATIENCE = 60_000
# What Chromium itself prints when the lab goes away, or answers with an error as it should.
AWAY = re.compile(r"net::ERR_|WebSocket connection to|Failed to load resource: the server responded")

_SHOWN = """() => [...document.querySelectorAll("#steps > li[data-seqs]")]
    .map((item) => item.dataset.seqs.split(",").map(Number))"""


class Tab:
    """A page of one person, with everything that went wrong in it."""

    def __init__(self, lab: WholeLab, context: BrowserContext) -> None:
        self.lab = lab
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.set_default_navigation_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)

    @property
    def strangers(self) -> list[str]:
        """Addresses of other hosts that the page asked for."""
        own = (self.lab.url, "data:", "blob:", "about:")
        return [url for url in self.asked if not url.startswith(own)]

    def forgive(self, pattern: re.Pattern[str] = AWAY) -> None:
        """Forget complaints that belong to what the test did."""
        self.complaints = [text for text in self.complaints if not pattern.search(text)]

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.lab.url + path)
        return self.page

    # ---- the page of a run ----

    @property
    def run_id(self) -> int:
        found = re.search(r"/runs/(\d+)/", self.page.url)
        assert found, self.page.url
        return int(found[1])

    @property
    def last_seq(self) -> int:
        """The run's last event in the database."""
        return int(self.lab.value("SELECT last_seq FROM lab_run WHERE id = ?", self.run_id))

    def wait_for_badge(self, word: str, *, seconds: float = 120) -> None:
        expect(self.page.locator("#part-badge")).to_have_text(word, timeout=seconds * 1000)

    def wait_for_step(self, number: int) -> None:
        self.page.locator(f'#steps > li.step[data-step="{number}"]').wait_for(state="attached")

    def shown(self) -> list[list[int]]:
        """The numbers of the events that each item shows, in the order of the page."""
        return list(self.page.evaluate(_SHOWN))

    def assert_every_event_once_and_in_order(self) -> None:
        """The page holds 1 … last_seq, once each, and its items stand in the order they began."""
        last = self.last_seq

        def complete() -> bool:
            return max((seq for item in self.shown() for seq in item), default=0) >= last

        wait_for(complete, what=f"event {last} on the page")
        items = self.shown()
        numbers = [seq for item in items for seq in item]
        assert sorted(numbers) == list(range(1, last + 1))
        assert [item[0] for item in items] == sorted(item[0] for item in items)
        assert all(item == sorted(item) for item in items)

    def mark(self) -> None:
        """Leave a mark that a reload would wipe out."""
        self.page.evaluate("window.notReloaded = true")

    @property
    def not_reloaded(self) -> bool:
        return bool(self.page.evaluate("window.notReloaded === true"))


@contextmanager
def tab_of(
    browser: Browser, lab: WholeLab, state: Any, *, theme: str = "light", size: dict[str, int] | None = None
) -> Iterator[Tab]:
    """A tab of a signed-in person; at the end nothing may have gone wrong in it or left the host."""
    context = browser.new_context(
        storage_state=state, viewport=size or SIZE, color_scheme=theme, reduced_motion="reduce"
    )
    try:
        tab = Tab(lab, context)
        yield tab
        assert tab.complaints == []
        assert tab.strangers == []
    finally:
        context.close()
