"""The grid of an experiment: driven by keys, filtered without a request, and alive."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watching import Tab, tab_of

# Two arms, three tasks, two seeds: some ended, one that goes on elsewhere, and some that wait.
MAKE = """
import datetime as dt
from django.db import transaction
from django.utils import timezone
from lab.models import Experiment, Run, Task
from tests import builders
from tests.services.test_grids import graded, place, second_arm

hour = timezone.now() + dt.timedelta(hours=1)
with transaction.atomic():
    first = builders.run()
    arm = second_arm(first)
    more = [
        Task.objects.create(task_set=first.task.task_set, slug=slug, position=number, title=slug,
                            statement="", digest=slug, folder="")
        for number, slug in ((2, "path-glob"), (3, "topo-cycle"))
    ]
    runs = {}
    for task in (first.task, *more):
        for one in (first.arm, arm):
            for seed in (1, 2):
                same = task == first.task and one == first.arm and seed == 1
                made = first if same else place(first, arm=one, task=task, seed=seed)
                runs[task.slug, one.letter, seed] = made
    for seed in (1, 2):
        graded(runs["dst-schedule", "A", seed], "resolved")
        graded(runs["dst-schedule", "B", seed], "unresolved")
        graded(runs["path-glob", "A", seed], "resolved")
        graded(runs["path-glob", "B", seed], "resolved")
    live = runs["topo-cycle", "A", 1]
    live.attempts.create(n=1, worker="elsewhere/1/1", lease_token=1, lease_until=hour)
    builders.start(live)
    builders.append(live, *builders.bash_step(1, "make", "ok"), builders.asked(2))
    # Nothing that waits may be taken by a worker of this lab.
    Experiment.objects.filter(pk=first.experiment_id).update(
        state="paused", paused_because="to look at it", kind="launched", ended_at=None
    )
print(json.dumps([first.experiment_id, live.pk, {f"{task} {letter} {seed}": run.pk
                                                 for (task, letter, seed), run in runs.items()}]))
"""
GO_ON = """
from lab.models import Run
from tests import builders
run = Run.objects.get(pk=arguments[0])
builders.append(run, *builders.final_step(2)[1:], *builders.ending(outcome="resolved", steps=2))
"""

MORE_ARMS = """
from lab.models import Run
from tests.services.test_grids import place, second_arm
run = Run.objects.get(pk=arguments[0])
for letter in "CD":
    place(run, arm=second_arm(run, letter=letter), task=run.task)
"""

END = """
from lab.models import Run
from tests import builders
run = Run.objects.get(pk=arguments[0])
if run.status != "ended":
    builders.append(run, *builders.final_step(2)[1:], *builders.ending(outcome="resolved", steps=2))
"""


class Made:
    """An experiment made of records, and the numbers of its runs by "task arm seed"."""

    def __init__(self, tab: Tab) -> None:
        self.pk, self.live, self.runs = tab.lab.program(MAKE)
        self.page: Page = tab.open(f"/experiments/{self.pk}/")
        expect(self.page.locator("#live-state")).to_contain_text("Live")

    def cell(self, name: str) -> str:
        return f"#cell-{self.runs[name]}"


@pytest.fixture
def made(tab: Tab) -> Iterator[Made]:
    found = Made(tab)
    yield found
    # It would hold a place of the shared lab that later tests count on.
    tab.lab.program(END, found.live)


def focused(page: Page) -> str:
    return str(
        page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.outerHTML")
    )


def test_the_grid_is_one_tab_stop_and_arrows_move_the_cell(tab: Tab, made: Made) -> None:
    page = made.page
    assert page.locator('#grid a[tabindex="0"]').count() == 1
    page.locator(made.cell("dst-schedule A 1") + " a").focus()
    page.keyboard.press("ArrowRight")
    assert focused(page).startswith("dst-schedule, arm A, seed 2: resolved")
    page.keyboard.press("ArrowDown")
    assert focused(page).startswith("path-glob, arm A, seed 2")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    # Over the sum, which leads nowhere.
    assert focused(page).startswith("dst-schedule, arm B, seed 1: unresolved")
    page.keyboard.press("Home")
    assert focused(page).startswith("dst-schedule, arm A, seed 1")
    assert page.locator('#grid a[tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("!document.getElementById('grid').contains(document.activeElement)")
    page.keyboard.press("Shift+Tab")
    assert focused(page).startswith("dst-schedule, arm A, seed 1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{made.runs['dst-schedule A 1']}/")


def test_digits_filter_without_a_request_and_the_address_keeps_it(tab: Tab, made: Made) -> None:
    page = made.page
    tab.mark()
    page.keyboard.press("3")
    rows = page.locator("#grid tbody tr:visible")
    expect(rows).to_have_count(1)
    assert page.url.endswith("?show=unresolved")
    page.keyboard.press("1")
    expect(rows).to_have_count(3)
    page.locator('a[data-filter="infrastructure"]').click()
    expect(page.locator("#grid-nothing")).to_be_visible()
    page.get_by_role("link", name="Clear the filter").click()
    expect(rows).to_have_count(3)
    page.locator('a[data-rows="compact"]').click()
    box = page.locator("#grid tbody tr").first.bounding_box()
    assert box is not None
    assert box["height"] == 24
    assert tab.not_reloaded
    page.reload()
    expect(page.locator("#grid")).to_have_attribute("data-rows", "compact")


def test_c_compares_the_row_and_space_chooses_other_runs(tab: Tab, made: Made) -> None:
    page = made.page
    page.locator(made.cell("dst-schedule A 2") + " a").focus()
    page.keyboard.press("c")
    runs = [made.runs[f"dst-schedule {name}"] for name in ("A 1", "A 2", "B 1", "B 2")]
    page.wait_for_url(f"**/compare/?runs={','.join(map(str, runs))}")
    page = tab.open(f"/experiments/{made.pk}/")
    for name in ("dst-schedule A 2", "path-glob B 1"):
        page.locator(made.cell(name) + " a").focus()
        page.keyboard.press(" ")
    page.keyboard.press("c")
    page.wait_for_url(f"**/compare/?runs={made.runs['dst-schedule A 2']},{made.runs['path-glob B 1']}")


def test_a_cell_changes_in_its_place_while_the_reader_stands_in_it(tab: Tab, made: Made) -> None:
    page = made.page
    tab.mark()
    cell = page.locator(f"#cell-{made.live}")
    expect(cell).to_have_class("running")
    expect(cell.locator(".clock")).to_be_visible()
    cell.locator("a").focus()
    before = page.locator("#grid tbody tr").last.bounding_box()
    tab.lab.program(GO_ON, made.live)
    expect(cell).to_have_class("resolved")
    expect(page.locator("[data-count=running]")).to_have_text("0")
    expect(page.locator("#part-progress")).to_contain_text("9 of 12 graded")
    assert focused(page).startswith("topo-cycle, arm A, seed 1: resolved")
    assert page.locator("#grid tbody tr").last.bounding_box() == before
    assert page.locator('#grid a[tabindex="0"]').count() == 1
    page.keyboard.press("ArrowUp")
    assert focused(page).startswith("path-glob, arm A, seed 1")
    assert tab.not_reloaded


def test_what_is_folded_of_many_arms_stays_open_while_their_rows_change(tab: Tab, made: Made) -> None:
    tab.lab.program(MORE_ARMS, made.live)
    page = tab.open(f"/experiments/{made.pk}/")
    expect(page.locator("#live-state")).to_contain_text("Live")
    rows = page.locator("#part-grid-arms .arm-row")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("4 of 4 valid")
    page.locator("#arm-more > summary").click()
    tab.mark()
    tab.lab.program(GO_ON, made.live)
    expect(rows.first).to_contain_text("5 of 5 valid")
    expect(page.locator("#arm-more dl")).to_be_visible()
    for row in rows.all():
        box = row.bounding_box()
        assert box is not None
        assert box["height"] <= 33
    assert tab.not_reloaded


def test_the_menu_closes_at_escape_and_its_keys_work_while_it_is_closed(tab: Tab, made: Made) -> None:
    page = made.page
    budget = page.get_by_role("link", name="Budget…")
    page.locator(".page-head .menu > summary").click()
    expect(budget).to_be_visible()
    page.keyboard.press("Escape")
    expect(budget).not_to_be_visible()
    page.keyboard.press("+")
    page.wait_for_url(f"**/experiments/{made.pk}/ask/budget/")


def test_without_script_cells_filters_and_switches_are_links(tab: Tab, made: Made) -> None:
    state = tab.context.storage_state()
    assert tab.context.browser is not None
    context = tab.context.browser.new_context(storage_state=state, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{tab.lab.url}/experiments/{made.pk}/")
        page.locator('a[data-filter="unresolved"]').click()
        expect(page.locator("#grid tbody tr:visible")).to_have_count(1)
        page.locator('a[data-cell="tokens"]').click()
        assert re.search(r"show=unresolved&cell=tokens$", page.url)
        page.locator(made.cell("dst-schedule B 1") + " a").click()
        page.wait_for_url(f"**/runs/{made.runs['dst-schedule B 1']}/")
    finally:
        context.close()


def test_a_viewer_drives_the_grid_on_a_narrow_window(tab: Tab, made: Made) -> None:
    context = tab.context
    assert context.browser is not None
    with tab_of(
        context.browser, tab.lab, context.storage_state(), size={"width": 800, "height": 1000}
    ) as narrow:
        page = narrow.open(f"/experiments/{made.pk}/")
        expect(page.locator("#live-state")).to_contain_text("Live")
        assert not page.locator("#part-progress").is_visible()
        page.locator(".side-fold > summary").click()
        expect(page.locator("#part-progress")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
