"""Runs that go wrong in the ways runs go wrong: what the page says of them while and after they do."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.acting import asks_for, connect, launch, writes
from tests.browser.watching import Tab
from tests.fakes.openai_server import FakeOpenAI, says

pytestmark = pytest.mark.requires("bubblewrap")

HOSTILE = (
    b"<script>window.hacked = 1</script><img src=http://192.0.2.1/x.png onerror='window.hacked = 2'>\n"
    b"\x1b[31mred words\x1b[0m \x1b]8;;http://192.0.2.1/\x07a link\x1b]8;;\x07 \x1b]52;c;aGFja2Vk\x07\n"
)


def open_step(tab: Tab, number: int) -> None:
    item = tab.page.locator(f'#steps > li.step[data-step="{number}"]')
    fold = item.locator("> article > details")
    if fold.get_attribute("open") is None:
        fold.locator("> summary").click()


def test_a_command_that_runs_into_the_time_limit_is_pending_until_then_and_the_run_is_graded(
    tab: Tab,
) -> None:
    with FakeOpenAI(asks_for("Bash", {"command": "sleep 60"})) as fake:
        launch(tab, connect(tab, fake), limits={"max_total_time_sec": "15"})
        page = tab.page
        step = page.locator('#steps > li.step[data-step="1"]')
        expect(step).to_have_attribute("data-state", "running")
        expect(step.locator(".pending-line")).to_contain_text("Running")
        clock = step.locator(".pending-line .clock")
        earlier = clock.text_content()
        expect(clock).not_to_have_text(earlier or "")
        expect(page.locator("#part-pending")).to_contain_text("sleep 60")
        tab.wait_for_badge("unresolved")
        expect(page.locator("#part-facts")).to_contain_text("exit reason max_time")
        expect(page.locator("#part-limits")).to_contain_text("reached")
        assert len(fake.calls) == 1
    tab.assert_every_event_once_and_in_order()


def test_replies_that_are_not_understood_are_kept_and_shown_with_the_reason(tab: Tab) -> None:
    raw = ['{"command": "ls', "[1, 2]", "<tool>bash</tool>"]
    with FakeOpenAI(*[asks_for("Bash", text) for text in raw], says("I give up.")) as fake:
        launch(tab, connect(tab, fake))
        tab.wait_for_badge("unresolved")
        for number, text in enumerate(raw, start=1):
            open_step(tab, number)
            step = tab.page.locator(f'#steps > li.step[data-step="{number}"]')
            expect(step.locator(".note-row", has_text="not understood, told the model")).to_be_visible()
            expect(step.locator(".output", has_text="Raw arguments").locator("pre")).to_have_text(text)
        assert len(fake.calls) == 4
        for call in fake.calls[-1].body["messages"]:
            for asked in call.get("tool_calls", []):
                json.loads(asked["function"]["arguments"])
    tab.assert_every_event_once_and_in_order()


def test_what_a_command_prints_is_shown_as_text_and_its_bytes_can_be_had(tab: Tab, tmp_path: Path) -> None:
    packed = base64.b64encode(HOSTILE).decode()
    command = f"echo {packed} | base64 -d"
    with FakeOpenAI(
        asks_for("Bash", {"command": command}), says("<b>Done</b><script>hacked=3</script>")
    ) as fake:
        launch(tab, connect(tab, fake))
        tab.wait_for_badge("unresolved")
        open_step(tab, 1)
        page = tab.page
        output = page.locator('#steps > li.step[data-step="1"] .output', has_text="Output").first
        expect(output.locator("pre")).to_contain_text(
            "<script>window.hacked = 1</script><img src=http://192.0.2.1"
        )
        expect(output.locator(".fg-1")).to_have_text("red words")
        expect(output.locator("pre")).to_contain_text("a link")
        assert output.locator("pre a").count() == 0
        assert page.evaluate("typeof window.hacked") == "undefined"
        assert page.locator("#steps script, #steps img").count() == 0
        ended = tab.lab.value(
            "SELECT seq FROM lab_event WHERE run_id = ? AND kind = 'tool_call_finished'", tab.run_id
        )
        address = f"{tab.lab.url}/runs/{tab.run_id}/events/{ended}/raw?part=stdout"
        answer = page.request.get(address)
        assert answer.body() == HOSTILE
        assert "attachment" in answer.headers["content-disposition"]


def test_a_turn_that_does_not_end_is_seen_growing_under_its_cap(tab: Tab) -> None:
    with FakeOpenAI(writes(80, finish="length")) as fake:
        launch(tab, connect(tab, fake), limits={"max_tokens_per_turn": "64"})
        page = tab.page
        draft = page.locator('#steps > li[data-step="1"] [data-draft]')
        written = draft.locator(".being-written")
        expect(written).to_contain_text("characters so far")
        earlier = written.text_content()
        expect(written).not_to_have_text(earlier or "")
        expect(page.locator('#steps > li[data-step="1"]')).to_contain_text("at most 64 tokens a turn")
        tab.wait_for_badge("unresolved")
        expect(page.locator("#part-facts")).to_contain_text("exit reason max_tokens_per_turn")
        expect(page.locator('#steps > li[data-step="1"]')).to_contain_text("cut by its length")
        assert fake.calls[0].body["max_completion_tokens"] == 64
    tab.assert_every_event_once_and_in_order()
