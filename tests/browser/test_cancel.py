"""Cancel works in the middle of whatever a run does, and leaves nothing running."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from playwright.sync_api import expect

from tests.browser.acting import asks_for, cancel, connect, launch, writes, writes_until
from tests.browser.watching import Tab
from tests.fakes.openai_server import FakeOpenAI, says
from tests.timing import SOON
from tests.whole_lab import commands

pytestmark = pytest.mark.requires("bubblewrap")
EDIT = asks_for("Write", {"file_path": "notes.md", "content": "What I have found so far.\n"})


def seconds_to_cancel(tab: Tab) -> float:
    """From the person's click to the end of the run, by the lab's own records."""
    asked, ended = tab.lab.query(
        "SELECT c.asked_at, r.ended_at FROM lab_control c JOIN lab_run r ON r.id = c.run_id WHERE r.id = ?",
        tab.run_id,
    )[0]
    return (dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(asked)).total_seconds()


def commands_of_its_sandboxes(tab: Tab) -> list[str]:
    """By the names of their folders: another lab of this machine may have a run of the same number."""
    places = (str(tab.lab.data_folder.resolve()), f"run-{tab.run_id}-attempt-")
    return [command for command in commands().values() if all(place in command for place in places)]


def assert_cancelled_and_gone(tab: Tab) -> None:
    tab.wait_for_badge("cancelled")
    # Two seconds are promised; a loaded machine gets more. Reply and command would take minutes.
    assert seconds_to_cancel(tab) < SOON
    assert tab.lab.value("SELECT exit_reason FROM lab_run WHERE id = ?", tab.run_id) == "cancelled"
    assert commands_of_its_sandboxes(tab) == []
    expect(tab.page.locator("#part-changed")).to_contain_text("notes.md")
    tab.page.keyboard.press("d")
    expect(tab.page.locator("#patch .diff")).to_contain_text("What I have found so far.")
    expect(tab.page.locator("#part-verdict")).to_contain_text("Not graded")
    tab.assert_every_event_once_and_in_order()
    assert tab.not_reloaded


def test_cancel_in_the_middle_of_a_streaming_reply(tab: Tab) -> None:
    with FakeOpenAI(EDIT, writes(6000)) as fake:
        launch(tab, connect(tab, fake))
        tab.page.locator("[data-draft]", has_text="word3 ").first.wait_for()
        cancel(tab)
        assert_cancelled_and_gone(tab)
        assert len(fake.calls) == 2


def test_cancel_in_the_middle_of_a_running_command(tab: Tab) -> None:
    command = f"sleep 300.{tab.lab.port}"
    with FakeOpenAI(EDIT, asks_for("Bash", {"command": command}), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        expect(tab.page.locator("#part-pending")).to_contain_text("Bash is running")
        assert any(command in line for line in commands().values())
        assert commands_of_its_sandboxes(tab)
        cancel(tab)
        assert_cancelled_and_gone(tab)
        assert not any(command in line for line in commands().values())
        assert len(fake.calls) == 2


def test_escape_keeps_a_run_running(tab: Tab) -> None:
    over = threading.Event()
    with FakeOpenAI(writes_until(over), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        tab.page.keyboard.press("x")
        expect(tab.page.locator("#cancel-dialog")).to_be_visible()
        tab.page.keyboard.press("Escape")
        expect(tab.page.locator("#cancel-dialog")).to_be_hidden()
        over.set()
        tab.wait_for_badge("unresolved")
        assert tab.lab.value("SELECT count(*) FROM lab_control WHERE run_id = ?", tab.run_id) == 0
