"""A page stays whole when its socket is cut and when the web process dies in the middle of a run."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.acting import connect, launch, writes_until
from tests.browser.watching import Tab
from tests.fakes.openai_server import FakeOpenAI, says
from tests.timing import SOON

pytestmark = pytest.mark.requires("bubblewrap")


def cut_sockets_of(page: Page) -> list[WebSocketRoute]:
    """Put something between page and lab that can cut the line; returns the lines opened so far."""
    lines: list[WebSocketRoute] = []

    def through(line: WebSocketRoute) -> None:
        line.connect_to_server()
        lines.append(line)

    page.route_web_socket("**/ws/**", through)
    return lines


def test_a_dropped_socket_is_opened_again_and_nothing_is_missed_or_doubled(tab: Tab) -> None:
    lines = cut_sockets_of(tab.page)
    launch(tab, tasks=["slug-unicode"])
    tab.wait_for_step(2)
    lines[-1].close(code=1011)
    expect(tab.page.locator("#live-state")).to_contain_text("Live")
    tab.wait_for_step(4)
    lines[-1].close(code=1012)
    tab.wait_for_badge("resolved")
    assert len(lines) >= 3
    tab.assert_every_event_once_and_in_order()
    assert tab.not_reloaded
    tab.forgive()


def test_a_web_process_that_falls_silent_and_dies_is_noticed_and_healed(tab: Tab) -> None:
    over = threading.Event()
    with FakeOpenAI(writes_until(over), says("Nothing to do.")) as fake:
        launch(tab, connect(tab, fake))
        tab.page.locator("[data-draft]", has_text="word3 ").first.wait_for()
        web = tab.lab.child("uvicorn")
        os.kill(web, signal.SIGSTOP)
        state = tab.page.locator("#live-state")
        # Five seconds are promised; a loaded machine gets more. Nothing but the silence tells the page.
        expect(state).to_contain_text("Reconnecting", timeout=SOON * 1000)
        os.kill(web, signal.SIGKILL)
        expect(state).to_contain_text("Live", timeout=150_000)
        tab.page.locator("[data-draft]", has_text="being written").first.wait_for()
        over.set()
        tab.wait_for_badge("unresolved")
    tab.assert_every_event_once_and_in_order()
    assert tab.not_reloaded
    tab.forgive()
