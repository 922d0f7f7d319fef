"""Runs side by side in a real browser: chosen from a list, and a column that grows while one watches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.watching import Tab

# Two runs of one task: one has ended, the other goes on elsewhere and has come to its third step.
MAKE = """
import datetime as dt
from django.db import transaction
from django.utils import timezone
from tests import builders

hour = timezone.now() + dt.timedelta(hours=1)
with transaction.atomic():
    first = builders.run()
    live = builders.another_run(first, seed=2)
    live.attempts.create(n=1, worker="elsewhere/1/1", lease_token=1, lease_until=hour)
    for run, steps in ((first, 40), (live, 3)):
        builders.start(run)
        for step in range(1, steps + 1):
            # The first two do the same, the others part.
            command = f"cat a{step}.py" if step < 3 else f"grep {run.seed}-{step} -r src"
            builders.append(run, *builders.bash_step(step, command, f"line {step}"))
    builders.append(first, *builders.final_step(41), *builders.ending(outcome="unresolved", steps=41))
print(json.dumps([first.experiment_id, first.pk, live.pk]))
"""
GO_ON = """
from lab.models import Run
from tests import builders
run, begin, end = Run.objects.get(pk=arguments[0]), arguments[1], arguments[2]
for step in range(begin, end + 1):
    builders.append(run, *builders.bash_step(step, f"grep 2-{step} -r src", f"line {step}"))
"""
END = """
from lab.models import Run
from tests import builders
run = Run.objects.get(pk=arguments[0])
if run.status != "ended":
    step = arguments[1]
    builders.append(run, *builders.final_step(step), *builders.ending(outcome="resolved", steps=step))
"""

PURGED = """
from lab.engine.events import SecretPurged
from lab.services import log
event = SecretPurged(purge=1, person="alice", reason="leaked", events=[])
log.append(run_id=arguments[0], attempt=1, lease_token=None, events=[event])
"""


@pytest.fixture
def runs(tab: Tab) -> Iterator[tuple[int, int, int]]:
    """The experiment, the run that has ended and the one that goes on."""
    experiment, ended, live = tab.lab.program(MAKE)
    yield experiment, ended, live
    # It would hold a place of the shared lab that later tests count on.
    tab.lab.program(END, live, 9)


def test_a_column_grows_while_what_is_read_stays_where_it_is(tab: Tab, runs: tuple[int, int, int]) -> None:
    _, ended, live = runs
    page = tab.open(f"/compare/?runs={ended},{live}&fold=none")
    expect(page.locator("#live-state")).to_contain_text("Live")
    tab.mark()
    expect(page.locator(f"#cell-{live}-3")).to_be_visible()
    expect(page.locator(f"#row-{ended}-41 .gap.later")).to_have_text("not there yet")
    # A reader has opened a row, stands in one further down and has it in the middle of the window.
    opened, stands = page.locator(f"#row-{ended}-20"), page.locator(f"#row-{ended}-24")
    opened.locator("summary").first.click()
    expect(opened.locator(".opened")).to_contain_text("line 20")
    stands.evaluate("row => row.scrollIntoView({ block: 'center' })")
    stands.locator("summary").first.focus()
    before = stands.bounding_box()
    tab.lab.program(GO_ON, live, 4, 6)
    expect(page.locator(f"#cell-{live}-6")).to_be_attached()
    after = stands.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 2
    expect(stands.locator("summary").first).to_be_focused()
    expect(opened.locator(".opened")).to_contain_text("line 20")
    expect(page.locator(f"#head-{live}")).to_contain_text("6 steps")
    tab.lab.program(END, live, 7)
    expect(page.locator("#live-state")).to_contain_text("Complete")
    expect(page.locator("#said")).to_have_text("All runs have ended.")
    expect(page.locator(f"#head-{live} .badge")).to_have_text("resolved")
    expect(page.locator(".gap.later")).to_have_count(0)
    expect(stands.locator("summary").first).to_be_focused()
    assert tab.not_reloaded


def test_a_page_that_is_open_loads_itself_when_a_secret_was_purged(
    tab: Tab, runs: tuple[int, int, int]
) -> None:
    _, ended, live = runs
    page = tab.open(f"/compare/?runs={ended},{live}&fold=none")
    expect(page.locator("#live-state")).to_contain_text("Live")
    tab.mark()
    tab.lab.program(PURGED, ended)
    expect(page.locator(f'#head-{ended}[data-purges="1"]')).to_be_attached()
    assert not tab.not_reloaded


def test_runs_of_a_list_are_ticked_and_put_side_by_side(tab: Tab, runs: tuple[int, int, int]) -> None:
    experiment, ended, live = runs
    page = tab.open(f"/experiments/{experiment}/?as=list")
    button = page.locator("[data-compare-runs]")
    expect(button).to_contain_text("Compare…")
    page.locator(f"#run-{live}").focus()
    page.keyboard.press(" ")
    expect(page.get_by_label(f"compare run {live}")).to_be_checked()
    # The row is swapped for a newer one while it is chosen.
    tab.lab.program(GO_ON, live, 4, 4)
    expect(page.locator(f"#run-{live}")).to_contain_text("step 4")
    expect(page.get_by_label(f"compare run {live}")).to_be_checked()
    page.get_by_label(f"compare run {ended}").check()
    expect(button).to_contain_text("Compare 2 runs")
    page.keyboard.press("c")
    page.wait_for_url(f"**/compare/?runs={live},{ended}")
    page = tab.open(f"/experiments/{experiment}/?as=list")
    page.locator(f"#run-{ended}").focus()
    page.keyboard.press("c")
    page.wait_for_url(f"**/compare/?runs={ended}")
    expect(page.locator("h2").first).to_contain_text("Same task and arm, another seed")
