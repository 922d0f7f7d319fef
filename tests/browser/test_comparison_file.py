"""Runs side by side as a file, from disk: it needs nobody, and nothing that agents wrote runs in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.watching import Tab

# Two runs of one task; whatever an agent can write would set the title of a page that runs it.
MAKE = r"""
from django.db import transaction
from tests import builders

hostile = (
    "<script>document.title = 'ran'</script><img src=x onerror=\"document.title='ran'\">"
    "<a href=\"javascript:document.title='ran'\">go</a><svg onload=\"document.title='ran'\"></svg>"
    "</pre></details><iframe src=\"javascript:parent.document.title='ran'\"></iframe>"
    "<img src='http://192.0.2.1/x.png'><style>@import 'http://192.0.2.1/x.css'; * {display: none}</style>"
)
with transaction.atomic():
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run in (first, second):
        builders.start(run)
        own = "cat a.py" if run.seed == 1 else "grep -rn utc src"
        commands = ("ls", "cat b.py", "cat c.py", "cat d.py", "cat e.py", "cat f.py", own, "pytest -q")
        for step, command in enumerate(commands, start=1):
            builders.append(run, *builders.bash_step(step, command, f"{hostile} {command}"))
        outcome = "resolved" if run.seed == 1 else "unresolved"
        ending = builders.ending(outcome=outcome, steps=9)
        if run.seed == 2:
            patch = builders.PATCH.replace("candidate + timedelta", "candidate - timedelta")
            ending[0] = ending[0].model_copy(update={"patch": patch})
        builders.append(run, *builders.final_step(9, hostile), *ending)
print(json.dumps([first.pk, second.pk]))
"""


@pytest.fixture
def saved(tab: Tab, tmp_path: Path) -> tuple[Path, int]:
    """The file as somebody saves it from the page, and the number of its first run."""
    first, second = tab.lab.program(MAKE)
    page = tab.open(f"/compare/?runs={first},{second}")
    page.get_by_role("link", name="Export HTML").click()
    expect(page.get_by_text("One HTML file of about")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the file").click()
    assert download.value.suggested_filename == f"runs-{first}-{second}.html"
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path, first


def opened(browser: Browser, path: Path, *, script: bool) -> tuple[Page, list[str]]:
    """The file without a network, and everything it asks for or complains about."""
    context = browser.new_context(
        java_script_enabled=script, offline=True, viewport={"width": 1440, "height": 900}
    )
    page = context.new_page()
    noticed: list[str] = []
    page.on("request", lambda request: noticed.append(request.url))
    page.on("console", lambda message: noticed.append(message.text))
    page.on("pageerror", lambda error: noticed.append(str(error)))
    page.on("dialog", lambda dialog: noticed.append(dialog.message))
    page.goto(path.as_uri())
    return page, noticed


@pytest.mark.parametrize("script", [False, True], ids=["without script", "with script"])
def test_a_file_is_read_without_a_network_and_nothing_in_it_runs(
    browser: Browser, saved: tuple[Path, int], script: bool
) -> None:
    path, first = saved
    page, noticed = opened(browser, path, script=script)
    row = page.locator(f"#row-{first}-8")
    expect(row.locator("summary .cell").first).to_be_visible()
    expect(row.locator(".row-body")).to_be_hidden()
    expect(page.locator(f"#row-{first}-7 .row-body")).to_be_visible()
    side, sign = (page.locator(place).bounding_box() for place in (".compare-side", ".signs dt >> nth=0"))
    assert side
    assert sign
    assert sign["x"] >= side["x"] + 8
    row.locator("summary.cells").click()
    expect(row.locator(".row-body")).to_contain_text("<script>document.title = 'ran'</script>")
    expect(page.get_by_text("First sustained divergence")).to_be_visible()
    expect(page.locator("#patches")).to_contain_text("tickwell/schedule.py")
    assert page.title() == f"Runs {first}, {first + 1} side by side · Trajectory Lab"
    assert noticed == [path.as_uri()]
    page.context.close()


def test_a_link_of_the_map_leads_to_its_row_also_where_rows_are_folded(
    browser: Browser, saved: tuple[Path, int]
) -> None:
    path, first = saved
    page, noticed = opened(browser, path, script=False)
    row = page.locator(f"#row-{first}-1 > details > summary")
    folded = page.locator("li.stretch > details")
    assert folded.get_attribute("open") is None
    page.locator("#map a").first.click()
    expect(folded).to_have_attribute("open", "")
    expect(row).to_be_in_viewport()
    assert all(address.partition("#")[0] == path.as_uri() for address in noticed)
    page.context.close()


def test_a_file_is_light_or_dark_as_its_reader_wishes(browser: Browser, saved: tuple[Path, int]) -> None:
    path, _ = saved
    page, _ = opened(browser, path, script=True)
    grounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(246, 246, 243)", "rgb(21, 23, 27)"]
    page.context.close()
