"""The harness editor as people use it: Leaf is cloned, changed, run and compared; nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.watching import AWAY, Tab


@pytest.fixture
def editor(tab: Tab) -> Iterator[Page]:
    """The editor of a clone of Leaf, reached from the list by its key."""
    page = tab.open("/harnesses/")
    expect(page.locator("select[name=from] option:checked")).to_have_text("leaf-compatible")
    page.keyboard.press("n")
    page.wait_for_url("**/clone/")
    expect(page.locator("#bar-word")).to_contain_text("same as leaf-compatible v1")
    yield page
    page.evaluate("localStorage.clear()")


def tool(page: Page, name: str) -> Locator:
    """The fold of the tool that has this name now, found by its key from then on."""
    found = page.locator("[data-tool]", has=page.locator(f".tool-name:text-is('{name}')"))
    key = found.locator("input[name=tool]").get_attribute("value")
    return page.locator("[data-tool]", has=page.locator(f"input[name=tool][value='{key}']"))


def opened(fold: Locator) -> Locator:
    fold.evaluate("(fold) => { fold.open = true; }")
    return fold


def run_with(tab: Tab, harness: str) -> int:
    """Launch the first practice task with the scripted solver under this harness; the run, resolved."""
    page = tab.open("/")
    page.get_by_role("radio", name=re.compile(rf"^{re.escape(harness)}\b")).check()
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/runs/*/", wait_until="commit")
    tab.wait_for_badge("resolved", seconds=120)
    return tab.run_id


def test_leaf_is_cloned_a_tool_renamed_another_left_out_and_a_run_with_it_compared(
    tab: Tab, editor: Page
) -> None:
    page = editor
    name = page.input_value("#name")
    opened(tool(page, "Bash")).locator("[id$='.name']").fill("Shell")
    tool(page, "Glob").locator("summary input").uncheck()
    expect(page.locator("#bar-word")).to_contain_text("new")
    differences = page.locator("#checked-differences")
    expect(differences).to_contain_text("2 fields differ")
    expect(differences.locator(".difference", has_text="tools.Bash").locator(".is")).to_contain_text("Shell")
    expect(page.locator("#checked-request")).to_contain_text(
        re.compile(r"about [\d,]+ tokens: .*; before [\d,]+")
    )
    expect(page.locator("[data-save]")).to_contain_text(f"Save as {name} v1")
    page.keyboard.press("Control+s")
    page.wait_for_url(re.compile(r"/harnesses/\d+/$"))
    expect(page.locator("h1").first).to_have_text(f"{name} v1")
    expect(page.locator("main")).to_contain_text("Shell")

    own, plain = run_with(tab, f"{name} v1"), run_with(tab, "leaf-compatible v1")
    page = tab.open(f"/compare/?runs={plain},{own}")
    expect(page.locator(".light[data-state=different]", has_text="harness")).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile(r"tools\.Bash\s+renamed\s+Bash\s+→\s+Shell"))
    expect(page.locator("main")).to_contain_text(re.compile(r"tools\.Glob\s+only in"))


def test_what_is_wrong_stands_beside_its_field_while_one_types_and_keeps_it_from_being_saved(
    tab: Tab, editor: Page
) -> None:
    page = editor
    page.fill("[id='limits.max_steps']", "$5")
    beside = page.locator("[id='limits.max_steps-problem']")
    expect(beside).to_have_text("“$5” is not a number of steps; write 5")
    expect(page.locator("#bar-word")).to_have_text(re.compile("1 error"))
    page.locator("#main").click(position={"x": 2, "y": 2})
    page.keyboard.press("]")
    page.keyboard.press("Enter")
    expect(page.locator("[id='limits.max_steps']")).to_be_focused()
    page.fill("[id='limits.max_steps']", "40")
    expect(beside).to_have_text("")

    fold = opened(tool(page, "Bash"))
    fold.locator("[id$='.parameters']").fill('{"type": ')
    fold.evaluate("(fold) => { fold.open = false; }")
    page.keyboard.press("Control+s")
    expect(fold.locator("[id$='.parameters']")).to_be_focused()
    expect(fold.locator(".field-problems .error")).to_contain_text("is no JSON in line 1")
    assert page.url.endswith("/clone/")
    tab.forgive(AWAY)


def test_what_was_typed_outlives_a_lost_session_and_a_closed_page(tab: Tab, editor: Page) -> None:
    page = editor
    page.fill("#system_prompt", "Typed with care.")
    page.select_option("#add", label="search")
    page.click("[data-add]")
    expect(page.locator("#tools [data-tool]")).to_have_count(6)
    page.locator("#tools [data-tool]").last.locator("[id$='.description']").fill("Looks for words.")
    expect(page.locator("#bar-word")).to_contain_text("new")

    cookies = tab.context.cookies()
    tab.context.clear_cookies(name=re.compile("session"))
    page.keyboard.press("Control+s")
    expect(page.locator("#editor-notice")).to_contain_text("You are signed out.")
    assert page.input_value("#system_prompt") == "Typed with care."
    tab.context.add_cookies(cookies)
    tab.forgive(AWAY)

    page.reload()
    expect(page.locator("#editor-notice")).to_contain_text("was not saved")
    assert page.input_value("#system_prompt") != "Typed with care."
    page.click("[data-restore]")
    expect(page.locator("#system_prompt")).to_have_value("Typed with care.")
    added = page.locator("#tools [data-tool]").last
    expect(added.locator("[id$='.description']")).to_have_value("Looks for words.")
    expect(page.locator("#bar-word")).to_contain_text("new")
    page.keyboard.press("Control+s")
    page.wait_for_url(re.compile(r"/harnesses/\d+/$"))
    expect(page.locator("main")).to_contain_text("Looks for words.")
    tab.open("/harnesses/")
    page.keyboard.press("n")
    page.wait_for_url("**/clone/")
    expect(page.locator("#editor-notice")).to_be_hidden()


def test_a_text_too_large_to_be_sent_gets_a_message_and_stays(tab: Tab, editor: Page) -> None:
    page = editor
    page.locator("#system_prompt").evaluate("(field) => { field.value = 'x'.repeat(5_000_000); }")
    page.locator("#system_prompt").dispatch_event("input")
    expect(page.locator("[id='system_prompt-problem']")).to_contain_text("5,000,000 characters")
    page.locator("#system_prompt").evaluate("(field) => { field.value = 'x'.repeat(9_000_000); }")
    page.keyboard.press("Control+s")
    expect(page.locator("#editor-notice")).to_contain_text("8 MB")
    assert page.evaluate("document.getElementById('system_prompt').value.length") == 9_000_000
    tab.forgive(AWAY)
