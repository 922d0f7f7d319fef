"""People pause, resume, message, limit, cancel and repeat runs from the page, by button and by key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.acting import asks_for, cancel, connect, launch
from tests.browser.test_access import cookies_of
from tests.browser.watching import Tab, tab_of
from tests.fakes.openai_server import FakeOpenAI, plain, says
from tests.whole_lab import WholeLab, wait_for

pytestmark = pytest.mark.requires("bubblewrap")
EDIT = asks_for("Write", {"file_path": "notes.md", "content": "What I have found so far.\n"})
REFUSED = plain({"error": {"message": "no such key"}}, status=401)


# A command that goes on until `let_go` makes the file it waits for, however slow the machine is.
def waits() -> Any:
    return asks_for("Bash", {"command": "until [ -e go-on ]; do sleep 0.1; done; rm -f go-on"})


def let_go(tab: Tab) -> None:
    """Let the command of `waits` end, once the run has heard all that was asked of it."""
    unheard = "SELECT count(*) FROM lab_control WHERE run_id = ? AND seen_at IS NULL"
    wait_for(lambda: tab.lab.value(unheard, tab.run_id) == 0, what="what was asked to be heard")
    sandboxes = tab.lab.data_folder / "sandboxes"
    workspaces = wait_for(
        lambda: list(sandboxes.glob(f"*-run-{tab.run_id}-*/workspace")), what="the workspace"
    )
    for workspace in workspaces:
        (workspace / "go-on").touch()


@pytest.fixture(scope="module")
def other(lab: WholeLab) -> Any:
    """Cookies of a second person who may control runs."""
    return cookies_of(lab, "operator")


@contextmanager
def second_tab(browser: Browser, tab: Tab, cookies: Any, **options: Any) -> Iterator[Tab]:
    with tab_of(browser, tab.lab, cookies, **options) as opened:
        opened.open(f"/runs/{tab.run_id}/")
        yield opened


def kinds(tab: Tab) -> list[str]:
    rows = tab.lab.query("SELECT kind FROM lab_event WHERE run_id = ? ORDER BY seq", tab.run_id)
    return [kind for (kind,) in rows]


def controls(tab: Tab) -> list[str]:
    rows = tab.lab.query("SELECT kind FROM lab_control WHERE run_id = ? ORDER BY id", tab.run_id)
    return [kind for (kind,) in rows]


def dialog(tab: Tab) -> Locator:
    return tab.page.locator("#ask-dialog")


def opened(tab: Tab, key: str) -> Locator:
    tab.page.keyboard.press(key)
    expect(dialog(tab)).to_be_visible()
    return dialog(tab)


def wait_for_command(tab: Tab) -> None:
    expect(tab.page.locator("#part-pending")).to_contain_text("Bash is running")


def used_time(tab: Tab) -> str:
    return tab.page.locator("#part-limits .limit", has_text="Time").locator(".number").inner_text()


def test_a_run_is_paused_by_key_stands_still_and_goes_on_to_its_verdict(tab: Tab) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        tab.page.keyboard.press("p")
        expect(tab.page.locator("#part-asked")).to_contain_text("admin asked to pause")
        let_go(tab)
        tab.wait_for_badge("paused")
        expect(tab.page.locator("#part-pending")).to_contain_text("Paused by admin")
        asked, before = len(fake.calls), used_time(tab)
        tab.page.wait_for_timeout(2500)
        assert (len(fake.calls), used_time(tab)) == (asked, before)
        tab.page.keyboard.press("p")
        tab.wait_for_badge("unresolved")
        assert len(fake.calls) == 3
    assert controls(tab) == ["pause", "resume"]
    assert [kind for kind in kinds(tab) if kind in ("paused", "resumed")] == ["paused", "resumed"]
    expect(tab.page.locator("#steps")).to_contain_text("Paused by admin")
    tab.assert_every_event_once_and_in_order()
    assert tab.not_reloaded


def test_of_two_people_who_pause_at_once_one_is_told_of_the_other(
    browser: Browser, tab: Tab, other: Any
) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        with second_tab(browser, tab, other) as second:
            # The second page is told of the pause too late: it asks all the same.
            late = second.page.evaluate("document.querySelector('[data-key-of=p]').closest('form').action")
            tab.page.keyboard.press("p")
            wait_for(lambda: controls(tab) == ["pause"], what="the first pause")
            answer = second.page.evaluate(
                """async (url) => {
                    const token = document.body.dataset.token;
                    const headers = {"X-Requested-With": "fetch", "X-CSRFToken": token};
                    return (await fetch(url, {method: "POST", headers})).text();
                }""",
                late,
            )
            assert answer == f"admin asked to pause run {tab.run_id} already."
            let_go(tab)
            tab.wait_for_badge("paused")
            second.wait_for_badge("paused")
            expect(second.page.locator("#part-pending")).to_contain_text("Paused by admin")
            second.page.keyboard.press("p")
            tab.wait_for_badge("unresolved")
            second.wait_for_badge("unresolved")
    assert controls(tab) == ["pause", "resume"]
    assert kinds(tab).count("paused") == kinds(tab).count("resumed") == 1
    expect(tab.page.locator("#steps")).to_contain_text("Resumed by a-operator")


def test_a_message_reaches_the_model_and_marks_the_run(tab: Tab) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        opened(tab, "m").locator("textarea").press_sequentially("Look at the tests first.")
        tab.page.keyboard.press("Control+Enter")
        expect(dialog(tab)).to_be_hidden()
        expect(tab.page.locator("#toast")).to_contain_text("before the next model call")
        let_go(tab)
        tab.wait_for_badge("unresolved")
        messages = [message["content"] for message in fake.calls[2].body["messages"]]
        assert "Look at the tests first." in messages[-1]
    expect(tab.page.locator("#part-marks")).to_have_text("got a message")
    expect(tab.page.locator("#steps")).to_contain_text("admin wrote to the agent: Look at the tests first.")
    tab.open("/")
    expect(tab.page.locator("#finished-rows .run-row").first).to_contain_text("got a message")


def test_a_message_that_is_too_long_stays_in_its_field_with_what_is_wrong(tab: Tab) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        field = opened(tab, "m").locator("textarea")
        tab.page.keyboard.press("Control+Enter")
        expect(tab.page.locator("#error_message")).to_contain_text("is empty")
        tab.page.evaluate("document.querySelector('#id_message').value = 'x'.repeat(1000000)")
        tab.page.keyboard.press("Control+Enter")
        expect(tab.page.locator("#error_message")).to_contain_text("has 1,000,000 characters")
        expect(field).to_be_focused()
        assert len(field.input_value()) == 1_000_000
        assert controls(tab) == []
        # What was typed is still there after Esc, and sent once however often the button is clicked.
        field.fill("Stop here.")
        tab.page.keyboard.press("Escape")
        expect(dialog(tab)).to_be_hidden()
        expect(opened(tab, "m").locator("textarea")).to_have_value("Stop here.")
        dialog(tab).locator("button.primary").dblclick()
        expect(dialog(tab)).to_be_hidden()
        expect(tab.page.locator("#part-asked")).to_contain_text("A message of admin waits")
        assert controls(tab) == ["message"]
        cancel(tab)
        tab.wait_for_badge("cancelled")
    tab.forgive()


def test_a_limit_is_raised_above_the_arms_while_the_run_goes_on(tab: Tab) -> None:
    with FakeOpenAI(EDIT, waits(), EDIT, says("Done.")) as fake:
        launch(tab, connect(tab, fake), limits={"max_steps": "2"})
        wait_for_command(tab)
        form = opened(tab, "+")
        form.locator("#id_max_steps").fill("1")
        form.locator("#id_max_total_time_sec").fill("60")
        tab.page.keyboard.press("Control+Enter")
        expect(form.locator("#error_max_steps")).to_have_text(
            "“1” is less than the 2 steps used already; write 2 or more"
        )
        expect(form.locator("#id_max_steps")).to_be_focused()
        expect(form.locator("#id_max_total_time_sec")).to_have_value("60")
        assert controls(tab) == []
        form.locator("#id_max_steps").fill("1,000")
        form.locator("#id_max_total_time_sec").fill("")
        tab.page.keyboard.press("Control+Enter")
        expect(tab.page.locator("#toast")).to_contain_text("1,000 steps from the agent's next event on.")
        let_go(tab)
        expect(tab.page.locator("#part-limits")).to_contain_text("of 1,000")
        tab.wait_for_badge("unresolved")
        assert len(fake.calls) == 4
    expect(tab.page.locator("#part-marks")).to_have_text("limits changed")
    expect(tab.page.locator("#part-facts")).to_contain_text("exit reason agent")
    expect(tab.page.locator("#steps")).to_contain_text("Limit of steps changed by admin: 2 → 1,000")
    tab.forgive()


def test_another_attempt_makes_an_ended_page_live_again(browser: Browser, tab: Tab, other: Any) -> None:
    with FakeOpenAI(REFUSED, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        tab.wait_for_badge("infrastructure")
        with second_tab(browser, tab, other) as second:
            expect(second.page.locator("#live-state")).to_contain_text("Complete")
            second.mark()
            tab.page.get_by_role("button", name="Another attempt").dblclick()
            wait_for_command(second)
            expect(second.page.locator("#live-state")).to_contain_text("Live")
            let_go(tab)
            second.wait_for_badge("unresolved")
            tab.wait_for_badge("unresolved")
            expect(second.page.locator("#part-facts")).to_contain_text("attempt 2")
            expect(second.page.locator("#live-state")).to_contain_text("Complete")
            second.assert_every_event_once_and_in_order()
            assert second.not_reloaded
            expect(second.page.get_by_role("button", name="Another attempt")).to_have_count(0)
    assert controls(tab) == ["attempt"]


def test_a_run_is_run_again_once_however_often_the_button_is_clicked(tab: Tab) -> None:
    with FakeOpenAI(says("Done.")) as fake:
        launch(tab, connect(tab, fake), limits={"max_steps": "7"})
        tab.wait_for_badge("unresolved")
        first = tab.run_id
        tab.page.get_by_role("button", name="Run again").dblclick()
        tab.page.wait_for_url(re.compile(rf"/runs/(?!{first}/)\d+/$"))
        tab.wait_for_badge("unresolved")
        expect(tab.page.locator("#part-limits")).to_contain_text("of 7")
        again = tab.run_id
    sql = "SELECT count(*) FROM lab_run WHERE arm_id IN (SELECT id FROM lab_arm WHERE model_id = ?)"
    model = tab.lab.value(
        "SELECT model_id FROM lab_arm a JOIN lab_run r ON r.arm_id = a.id WHERE r.id = ?", first
    )
    assert tab.lab.value(sql, model) == 2
    tab.open(f"/runs/{first}/")
    expect(tab.page.locator("#steps")).to_contain_text(f"admin ran it again as run {again}")


def test_a_paused_and_a_queued_run_are_cancelled_at_once(browser: Browser, tab: Tab) -> None:
    with FakeOpenAI(waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        tab.page.keyboard.press("p")
        expect(tab.page.locator("#part-asked")).to_contain_text("asked to pause")
        let_go(tab)
        tab.wait_for_badge("paused")
        cancel(tab)
        tab.wait_for_badge("cancelled")
    assert kinds(tab)[-1] == "run_ended"
    # More runs than slots: the last of them waits.
    with FakeOpenAI(waits()) as fake:
        model = connect(tab, fake)
        launch(
            tab,
            model,
            tasks=["parse-duration", "ledger-rounding", "slug-unicode", "path-glob", "money-split"],
        )
        tab.page.goto(f"{tab.page.url}?as=list")
        waiting = tab.page.locator('.run-row[data-status="queued"]')
        running = tab.page.locator('.run-row[data-status="running"]')
        # A run that was built without a worker may hold one of the four slots.
        wait_for(lambda: running.count() >= 3 and running.count() + waiting.count() == 5, what="full slots")
        waiting.last.locator("a").click()
        tab.page.wait_for_url("**/runs/*/")
        tab.page.keyboard.press("p")
        tab.wait_for_badge("paused")
        tab.page.keyboard.press("p")
        tab.wait_for_badge("queued")
        cancel(tab)
        tab.wait_for_badge("cancelled")
        experiment = tab.lab.value("SELECT experiment_id FROM lab_run WHERE id = ?", tab.run_id)
        for (run,) in tab.lab.query("SELECT id FROM lab_run WHERE experiment_id = ?", experiment):
            tab.open(f"/runs/{run}/")
            if tab.page.locator("#part-badge").inner_text() != "cancelled":
                cancel(tab)
                tab.wait_for_badge("cancelled")


def test_everything_works_without_script_as_well(
    browser: Browser, lab: WholeLab, admin: Any, tab: Tab
) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        context = browser.new_context(storage_state=admin, java_script_enabled=False)
        page = context.new_page()
        page.goto(f"{lab.url}/runs/{tab.run_id}/")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator(".notice:visible")).to_contain_text("pauses after the current event")
        page.get_by_role("button", name="Message…").click()
        page.locator("textarea").fill("x" * 32_001)
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#error_message")).to_contain_text("has 32,001 characters")
        page.locator("textarea").fill("Stop.")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".notice:visible")).to_contain_text("joins the conversation")
        page.get_by_role("button", name="Raise limit…").click()
        page.locator("#id_max_steps").fill("500")
        page.get_by_role("button", name="Change limits").click()
        expect(page.locator(".notice:visible")).to_contain_text("500 steps")
        page.get_by_role("button", name="Cancel run").click()
        expect(page.locator(".notice:visible")).to_contain_text("is being cancelled")
        context.close()
        tab.wait_for_badge("cancelled")
    assert controls(tab) == ["pause", "message", "limit", "cancel"]


@pytest.mark.parametrize("width", [390, 800, 1200, 1440])
def test_the_buttons_fit_their_window_and_do_what_they_say(
    browser: Browser, tab: Tab, admin: Any, width: int
) -> None:
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        with second_tab(browser, tab, admin, size={"width": width, "height": 800}) as small:
            page = small.page
            small.page.keyboard.press("b")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
            if width < 1200:
                page.locator("details.menu.in-narrow summary").click()
            page.get_by_role("button", name="Message…").locator("visible=true").click()
            expect(page.locator("#ask-dialog textarea")).to_be_focused()
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Pause").click()
            expect(page.locator("#part-asked")).to_contain_text("asked to pause")
            expect(page.get_by_role("button", name="Resume")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        cancel(tab)
        tab.wait_for_badge("cancelled")


def test_a_viewer_has_no_buttons_and_no_keys(browser: Browser, tab: Tab, lab: WholeLab) -> None:
    viewer = cookies_of(lab, "viewer")
    with FakeOpenAI(EDIT, waits(), says("Done.")) as fake:
        launch(tab, connect(tab, fake))
        wait_for_command(tab)
        with second_tab(browser, tab, viewer) as watching:
            for key in ("p", "m", "+", "x"):
                watching.page.keyboard.press(key)
            tab.page.keyboard.press("p")
            expect(tab.page.locator("#part-asked")).to_contain_text("asked to pause")
            let_go(tab)
            watching.wait_for_badge("paused")
            expect(watching.page.locator(".actions")).to_have_count(0)
            expect(watching.page.locator("dialog[open]")).to_have_count(0)
            tab.page.keyboard.press("p")
            watching.wait_for_badge("unresolved")
    assert controls(tab) == ["pause", "resume"]
