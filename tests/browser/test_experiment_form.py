"""An experiment is made on its page: the preview follows the form, and nothing typed is lost."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.watching import Tab


def test_the_preview_follows_the_form_and_a_mistake_is_mended_where_it_stands(tab: Tab) -> None:
    page = tab.open("/experiments/new/")
    launch = page.locator("[data-launch-label]")
    expect(launch).to_have_text("Launch")
    page.get_by_label("leaf-compatible v1 with scripted/solver").check()
    expect(launch).to_have_text("Launch 8 runs")
    page.get_by_text("those that I tick").click()
    page.get_by_label("Filter tasks").fill("parse-duration")
    page.get_by_role("button", name="Tick shown", exact=True).click()
    expect(launch).to_have_text("Launch 1 run")
    page.get_by_label("Seeds").press_sequentially("2")
    expect(launch).to_have_text("Launch 2 runs")
    expect(page.get_by_label("Seeds")).to_be_focused()
    column, box = (
        page.get_by_role("button", name="mini v1"),
        page.get_by_label("mini v1 with scripted/solver"),
    )
    column.click()
    expect(box).to_be_checked()
    column.click()
    expect(box).not_to_be_checked()
    box.check()
    expect(page.locator(".key-figure")).to_contain_text("1 task × 2 arms × 2 seeds")
    expect(page.locator("#experiment-preview")).to_contain_text("harness different")

    page.get_by_label("At once").fill("none")
    expect(page.locator("#experiment-preview")).to_contain_text("“none” is no whole number")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#error_concurrency")).to_contain_text("“none” is no whole number")
    expect(page.get_by_label("At once")).to_be_focused()
    expect(page.get_by_label("Seeds")).to_have_value("2")
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile(r"/experiments/\d+/$"))
    # The refusal above came with its status.
    tab.forgive(re.compile(r"status of 422"))
    made = int(page.url.rstrip("/").rpartition("/")[2])
    assert tab.lab.value("SELECT concurrency FROM lab_experiment WHERE id = ?", made) == 1
    assert tab.lab.value("SELECT count(*) FROM lab_run WHERE experiment_id = ?", made) == 4


def test_back_from_a_launch_brings_every_field_as_it_was_typed(tab: Tab) -> None:
    page = tab.open("/experiments/new/")
    typed = {
        "name": "with a budget",
        "sample_number": "1",
        "seeds": "2",
        "concurrency": "1",
        "max_attempts": "2",
        "budget_max_cost_usd": "5",
        "budget_max_tokens": "400000",
        "limit_max_steps": "20",
    }
    page.get_by_label("leaf-compatible v1 with scripted/solver").check()
    page.get_by_text("some by chance").click()
    for name, text in typed.items():
        page.locator(f'[name="{name}"]').fill(text)
    expect(page.locator("[data-launch-label]")).to_have_text("Launch 2 runs")
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile(r"/experiments/\d+/$"))
    page.go_back()
    page.wait_for_url(re.compile(r"/experiments/new/$"))
    expect(page.get_by_label("leaf-compatible v1 with scripted/solver")).to_be_checked()
    for name, text in typed.items():
        expect(page.locator(f'[name="{name}"]')).to_have_value(text)
    # What it would take is asked anew, of what came back.
    expect(page.locator("[data-launch-label]")).to_have_text("Launch 2 runs")
    expect(page.locator(".key-figure")).to_contain_text("1 task × 1 arm × 2 seeds")
