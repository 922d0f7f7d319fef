"""What a page of runs side by side fetches while they go on."""

from __future__ import annotations

import re

from django.test import Client

from lab.models import Run
from tests import builders


def alike(*steps: int) -> list[Run]:
    """Runs of one task that do the same in so many steps each; all but the last have ended."""
    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, len(steps) + 1))]
    for run, count in zip(runs, steps, strict=True):
        builders.start(run)
        for step in range(1, count + 1):
            builders.append(run, *builders.bash_step(step, f"cat a{step}.py", f"line {step}"))
    for run, count in zip(runs[:-1], steps[:-1], strict=True):
        builders.append(
            run, *builders.final_step(count + 1), *builders.ending(outcome="unresolved", steps=count + 1)
        )
    return runs


def query(runs: list[Run]) -> str:
    return f"/compare/live?runs={','.join(str(run.pk) for run in runs)}"


def news(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def names(html: str) -> list[str]:
    """The ids of the items of the list of rows, in order."""
    return re.findall(r'<li class="(?:unit|edge|band)[^"]*" id="([^"]+)"', html)


def test_heads_map_and_every_row_come_from_the_first_that_the_page_holds(viewer: Client) -> None:
    first, live = runs = alike(4, 2)
    html = news(viewer, query(runs))
    assert names(html) == [f"row-{first.pk}-{step}" for step in range(1, 6)]
    for part in (f'id="head-{live.pk}"', '<ol id="map">', '<ol id="rows">'):
        assert part in html
    assert "compare-summary" not in html
    assert 'id="compare-summary"' in news(viewer, f"{query(runs)}&summary=1")
    part = news(viewer, f"{query(runs)}&from={first.pk}.2&to={first.pk}.3")
    assert names(part) == ["edge-before", f"row-{first.pk}-2", f"row-{first.pk}-3", "edge-after"]


def test_only_what_the_page_has_folded_is_folded(viewer: Client) -> None:
    first, _ = runs = alike(5, 5)
    folded = news(viewer, f"{query(runs)}&folded={first.pk}.2:3")
    rows = [f"row-{first.pk}-{step}" for step in (1, 5, 6)]
    assert names(folded) == [rows[0], f"stretch-{first.pk}-2", *rows[1:]]
    assert names(news(viewer, query(runs))) == [f"row-{first.pk}-{step}" for step in range(1, 7)]
    # What is not alike is never in a stretch.
    wide = news(viewer, f"{query(runs)}&folded={first.pk}.1:900")
    assert names(wide) == [f"stretch-{first.pk}-1", rows[-1]]


def test_where_a_run_that_goes_on_has_not_come_is_no_gap(viewer: Client) -> None:
    first, live = runs = alike(4, 2)
    html = news(viewer, query(runs))
    assert html.count('class="gap later"') == 3
    assert "not there yet" in html
    assert "only A did this" not in html
    builders.append(live, *builders.final_step(3), *builders.ending(outcome="resolved", steps=3))
    html = news(viewer, query(runs))
    assert "not there yet" not in html
    assert "only A did this" in html
    assert f'id="row-{first.pk}-5"' in html


def test_a_pane_comes_from_its_first_step_to_its_last_or_on_to_the_end(viewer: Client) -> None:
    first, live = runs = alike(4, 2)
    html = news(viewer, f"{query(runs)}&scroll=apart&pane={first.pk}:2:3&pane={live.pk}:2:")
    panes = re.findall(r'<ol id="pane-(\d+)">(.*?)</ol>', html, re.S)
    assert [run for run, _ in panes] == [str(first.pk), str(live.pk)]
    assert [name for name in names(panes[0][1]) if name.startswith("row")] == [
        f"row-{first.pk}-2",
        f"row-{first.pk}-3",
    ]
    assert names(panes[1][1])[-1] == f"row-{live.pk}-2"


def test_nonsense_is_passed_over_and_an_address_without_two_runs_is_refused(viewer: Client) -> None:
    first, _ = runs = alike(3, 1)
    rows = [f"row-{first.pk}-{step}" for step in range(1, 5)]
    for nonsense in ("from=x&to=-1", "from=7.7", "folded=,x:y,1.1:z,:,9", f"folded={first.pk}.99:3", "at=x"):
        assert names(news(viewer, f"{query(runs)}&{nonsense}")) == rows, nonsense
    for pane in ("x", "1:2:3", f"{first.pk}:x:y", f"{first.pk}:900:"):
        news(viewer, f"{query(runs)}&scroll=apart&pane={pane}")
    beyond = query(runs).replace("/live", "/rows") + f"&scroll=apart&column={first.pk}&after={first.pk}.900"
    assert viewer.get(beyond).content == b""
    for address in ("/compare/live", f"{query(runs)},987654321", f"/compare/live?runs={first.pk}"):
        assert viewer.get(address).status_code == 400


def test_runs_without_a_step_have_no_rows_yet(viewer: Client) -> None:
    first = builders.run()
    html = news(viewer, query([first, builders.another_run(first, seed=2)]))
    assert names(html) == []
    assert 'id="no-divergence"' not in html
