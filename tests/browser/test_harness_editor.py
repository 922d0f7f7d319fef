"""The harness editor as people use it: Leaf is cloned, changed, run and compared; nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.watching import AWAY, Tab
from tests.whole_lab import wait_for


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
    page = tab.open(f"/compare/?runs={plain},{own}&view=setup")
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
    expect(page.locator("#editor-offer")).to_contain_text("was not saved")
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
    expect(page.locator("#editor-offer")).to_be_hidden()


OF_ONES_OWN = """
from django.contrib.auth.models import User
from lab.engine.harnesses.presets import load_preset
from lab.services import harnesses
name, prompt, steps = arguments
leaf = load_preset("leaf-compatible")
limits = leaf.limits.model_copy(update={"max_steps": steps})
config = leaf.model_copy(update={"name": name, "system_prompt": prompt, "limits": limits})
print(harnesses.create_version(by=User.objects.get(username="admin"), config=config).pk)
"""


def version_of_ones_own(tab: Tab, name: str, prompt: str, *, steps: int = 150) -> int:
    """The number of a version that somebody stores, the first or the next one of the harness `name`."""
    return int(tab.lab.program(OF_ONES_OWN, name, prompt, steps))


def kept_text(page: Page) -> str:
    """All drafts that the browser keeps for the editor, as it keeps them."""
    return str(page.evaluate("JSON.stringify(Object.entries(localStorage))"))


def test_who_saves_over_a_version_that_somebody_else_made_meanwhile_is_told_once(tab: Tab) -> None:
    opened = version_of_ones_own(tab, "of-two", "Together.")
    page = tab.open(f"/harnesses/{opened}/edit/")
    expect(page.locator("#checked-newer")).to_have_count(0)
    theirs = version_of_ones_own(tab, "of-two", "Theirs.")
    page.fill("#system_prompt", "Ours.")
    expect(page.locator("#bar-word")).to_contain_text("of-two v2 is newer")
    expect(page.locator("#checked-newer a")).to_have_attribute(
        "href", f"/harnesses/diff/?left={opened}&right={theirs}"
    )
    page.keyboard.press("Control+s")
    expect(page.locator("#checked-problems")).to_contain_text("of-two v2 was made by admin since you looked")
    assert page.input_value("#system_prompt") == "Ours."
    expect(page.locator("[data-save]")).to_contain_text("Save as of-two v3")
    page.keyboard.press("Control+s")
    page.wait_for_url(re.compile(r"/harnesses/\d+/$"))
    expect(page.locator("h1").first).to_have_text("of-two v3")
    tab.forgive(AWAY)


def test_a_draft_that_is_restored_does_not_count_as_having_seen_a_newer_version(tab: Tab) -> None:
    opened = version_of_ones_own(tab, "of-three", "Of three.")
    page = tab.open(f"/harnesses/{opened}/edit/")
    page.fill("#system_prompt", "Ours of three.")
    expect(page.locator("#bar-word")).to_contain_text("new")
    wait_for(lambda: "Ours of three." in kept_text(page), what="the draft in the browser")
    assert "seen_newest" not in kept_text(page)
    page.reload()
    page.click("[data-restore]")
    expect(page.locator("#system_prompt")).to_have_value("Ours of three.")
    version_of_ones_own(tab, "of-three", "Theirs of three.")
    page.keyboard.press("Control+s")
    expect(page.locator("#checked-problems")).to_contain_text("of-three v2 was made by admin")
    page.evaluate("localStorage.clear()")
    tab.forgive(AWAY)


def test_an_older_version_is_launched_from_its_page_under_its_own_limits(tab: Tab) -> None:
    older = version_of_ones_own(tab, "of-before", "Mend it. Work in {{ workspace }}.", steps=77)
    version_of_ones_own(tab, "of-before", "Mend it.", steps=88)
    page = tab.open(f"/harnesses/{older}/")
    page.locator(".page-head").get_by_role("link", name="Launch a run").click()
    page.wait_for_url(f"**/?harness={older}#launch")
    expect(page.get_by_role("radio", name=re.compile("^of-before v1"))).to_be_checked()
    page.click("details.launch-more > summary")
    steps = page.locator("#id_limit_max_steps")
    expect(steps).to_have_attribute("placeholder", "77")
    page.get_by_role("radio", name=re.compile("^leaf-compatible v1")).check()
    expect(steps).to_have_attribute("placeholder", "150")
    page.get_by_role("radio", name=re.compile("^of-before v1")).check()
    steps.fill("78")
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-errors]")).to_contain_text("write 77 or less")
    expect(page.get_by_role("radio", name=re.compile("^of-before v1"))).to_be_checked()
    steps = page.locator("#id_limit_max_steps")
    expect(steps).to_have_attribute("placeholder", "77")
    steps.fill("")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/runs/*/", wait_until="commit")
    tab.wait_for_badge("resolved")
    expect(page.locator("main")).to_contain_text("of-before v1")
    tab.forgive(AWAY)


def typed_and_kept(page: Page, text: str) -> None:
    page.fill("#system_prompt", text)
    wait_for(lambda: text in kept_text(page), what=f"the draft “{text}” in the browser")


def test_typing_beside_an_older_draft_that_is_still_offered_overwrites_neither(
    tab: Tab, editor: Page
) -> None:
    page, prompt, offer = editor, editor.locator("#system_prompt"), editor.locator("#editor-offer")
    typed_and_kept(page, "The first draft.")
    page.reload()
    expect(offer).to_contain_text("was not saved")
    typed_and_kept(page, "The second draft.")
    expect(offer).to_be_visible()
    assert "The first draft." in kept_text(page)

    # Each takes the other's place, and neither is lost.
    for text in ("The first draft.", "The second draft.", "The first draft."):
        page.click("[data-restore]")
        expect(prompt).to_have_value(text)
        expect(offer).to_be_visible()
    page.reload()
    expect(offer).to_contain_text("Of 2 drafts it is the newest.")
    page.click("[data-restore]")
    expect(prompt).to_have_value("The second draft.")
    page.click("[data-discard]")
    expect(offer).to_be_hidden()
    assert "The first draft." not in kept_text(page)
    assert "The second draft." in kept_text(page)


def test_saving_forgets_what_was_typed_here_and_not_what_is_still_offered(tab: Tab, editor: Page) -> None:
    page, path = editor, editor.url
    typed_and_kept(page, "Of another day.")
    page.reload()
    expect(page.locator("#editor-offer")).to_be_visible()
    typed_and_kept(page, "Of today.")
    page.keyboard.press("Control+s")
    page.wait_for_url(re.compile(r"/harnesses/\d+/$"))
    assert "Of today." not in kept_text(page)
    page.goto(path)
    expect(page.locator("#editor-offer")).to_contain_text("was not saved")
    page.click("[data-restore]")
    expect(page.locator("#system_prompt")).to_have_value("Of another day.")


def test_two_tabs_at_one_editor_keep_a_draft_each(tab: Tab, editor: Page) -> None:
    other = tab.context.new_page()
    other.goto(editor.url)
    typed_and_kept(editor, "In one tab.")
    typed_and_kept(other, "In the other tab.")
    assert "In one tab." in kept_text(editor)
    other.close()


def test_a_draft_too_large_for_the_browser_is_said_and_what_was_kept_before_stays(
    tab: Tab, editor: Page
) -> None:
    page, room = editor, editor.locator("#editor-room")
    typed_and_kept(page, "Small enough.")
    prompt = page.locator("#system_prompt")
    prompt.evaluate("(field) => { field.value = 'x'.repeat(7_000_000); }")
    prompt.dispatch_event("input")
    expect(room).to_contain_text("This draft is larger than the room that the browser has left for it")
    expect(room).to_contain_text("what you typed since")
    assert "Small enough." in kept_text(page)
    # It stays said while the server answers the checks.
    expect(page.locator("[id='system_prompt-problem']")).to_contain_text("7,000,000 characters")
    expect(room).to_be_visible()
    typed_and_kept(page, "Small again.")
    expect(room).to_be_hidden()


def test_what_was_typed_at_the_last_moment_is_kept_when_the_page_is_left(tab: Tab, editor: Page) -> None:
    page = editor
    page.fill("#system_prompt", "At the last moment.")
    page.reload()
    page.click("[data-restore]")
    expect(page.locator("#system_prompt")).to_have_value("At the last moment.")


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
