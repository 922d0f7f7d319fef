"""The page of runs side by side: their steps in rows, and the parts of it that are fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from lab.models import Event, Experiment, Run
from tests import builders
from tests.parted_runs import COMMON, parted, run_of


def page(client: Client, *runs: Run, path: str = "/compare/", status: int = 200, **query: str) -> str:
    numbers = ",".join(str(run.pk) for run in runs)
    answer = client.get(path, {"runs": numbers, **query})
    assert answer.status_code == status
    return answer.content.decode()


def rows_in(html: str) -> list[str]:
    return re.findall(r'<li class="unit" id="(row-\d+-\d+)"', html)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def elements_in(html: str) -> int:
    class Counter(HTMLParser):
        found = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += 1

    counter = Counter()
    counter.feed(html)
    return counter.found


def test_the_page_begins_with_lights_and_verdicts_and_opens_where_the_runs_part(viewer: Client) -> None:
    first, second = parted()
    html = page(viewer, first, second)
    assert html.index('class="light"') < html.index('id="heads"') < html.index('id="divergence-')
    words = text_of(html)
    assert "First sustained divergence after step 6. A runs make left_0" in words
    assert "5 steps alike" in words
    opened = re.findall(r'id="row-[\d-]+"[^>]*><details open>', html)
    assert opened
    assert "what make left_0 printed" in words
    for fact in ("exit reason agent", "10 steps", f"run {second.pk}"):
        assert fact in words
    assert 'aria-current="page">Compare</a>' in html


def test_runs_that_end_alike_with_other_verdicts_lead_to_tests_and_sandbox(viewer: Client) -> None:
    first = run_of(COMMON)
    second = run_of(COMMON, like=first, outcome="resolved")
    html = page(viewer, first, second)
    assert "they end with the same patch, and the verdicts differ all the same" in text_of(html)
    assert f'href="?runs={first.pk},{second.pk}&amp;view=tests"' in html
    assert f'href="?runs={first.pk},{second.pk}&amp;view=setup#sandbox"' in html


def test_each_tab_has_an_address_and_every_link_keeps_how_rows_are_laid(viewer: Client) -> None:
    first, second = parted()
    html = page(viewer, first, second, by="number", fold="none")
    kept = f"?runs={first.pk},{second.pk}&amp;by=number&amp;fold=none"
    assert f'href="{kept}&amp;at={first.pk}.3#row-{first.pk}-3"' in html
    for view in ("patches", "tests", "files", "cost", "setup"):
        assert f"view={view}&amp;by=number&amp;fold=none" in html
        page(viewer, first, second, view=view)


def test_rows_before_and_after_those_of_the_page_are_fetched_and_lead_on(viewer: Client) -> None:
    first, second = parted(before=5, after=90)
    html = page(viewer, first, second, fold="none")
    address = re.search(r'id="edge-after"[^>]*><a href="[^"]*" data-url="([^"]*)"', html)
    assert address is not None
    more = viewer.get(address[1].replace("&amp;", "&")).content.decode()
    assert not set(rows_in(more)) & set(rows_in(html))
    assert "edge-before" not in more
    last = page(viewer, first, second, at=f"{second.pk}.95", fold="none")
    assert "edge-after" not in last
    before = re.search(r'id="edge-before"[^>]*><a href="[^"]*" data-url="([^"]*)"', last)
    assert before is not None
    above = viewer.get(before[1].replace("&amp;", "&")).content.decode()
    assert not set(rows_in(above)) & set(rows_in(last))


def test_a_folded_stretch_and_a_row_open_with_what_is_fetched(viewer: Client) -> None:
    first, second = parted()
    within = page(viewer, first, second, path="/compare/rows", within=f"{first.pk}.1")
    assert rows_in(within) == [f"row-{first.pk}-{number}" for number in range(1, 6)]
    body = page(viewer, first, second, path="/compare/row", row=f"{second.pk}.3")
    assert "cat src/part_2.py" in text_of(body)
    assert body.count('class="body-cell') == 2


def test_without_script_the_address_opens_a_row_and_leads_to_it(viewer: Client) -> None:
    first, second = parted()
    html = page(viewer, first, second, open=f"{first.pk}.2")
    assert re.search(rf'id="row-{first.pk}-2"[^>]*><details open>', html)
    assert "What each run did here" in html


def test_each_run_can_be_scrolled_by_itself(viewer: Client) -> None:
    first, second = parted(before=5, after=90)
    html = page(viewer, first, second, scroll="apart")
    assert html.count('class="pane"') == 2
    assert 'class="gap"' not in html
    assert f'id="row-{second.pk}-3" data-name="{second.pk}.3"' in html
    assert html.count(f'data-partner="{first.pk}.3"') == 2
    more = page(
        viewer,
        first,
        second,
        path="/compare/rows",
        scroll="apart",
        column=str(second.pk),
        after=f"{second.pk}.60",
    )
    assert rows_in(more)[0] == f"row-{second.pk}-61"
    earlier = page(
        viewer,
        first,
        second,
        path="/compare/rows",
        scroll="apart",
        column=str(second.pk),
        before=f"{second.pk}.70",
    )
    assert rows_in(earlier) == [f"row-{second.pk}-{number}" for number in range(10, 70)]
    body = page(
        viewer,
        first,
        second,
        path="/compare/row",
        scroll="apart",
        column=str(second.pk),
        row=f"{second.pk}.90",
    )
    assert body.count('class="body-cell') == 1


def test_runs_of_different_tasks_are_shown_with_a_warning(viewer: Client) -> None:
    html = page(viewer, run_of(COMMON), run_of(COMMON))
    assert "These runs had different tasks" in text_of(html)


def test_a_recorded_run_without_steps_is_a_column_that_says_so(viewer: Client) -> None:
    first = run_of(COMMON)
    bare = builders.another_run(first, seed=5)
    experiment = Experiment.objects.create(kind=Experiment.Kind.IMPORTED)
    Run.objects.filter(pk=bare.pk).update(experiment=experiment, status="ended")
    html = page(viewer, first, bare)
    assert "B : steps not recorded. Another program told the verdict of run" in text_of(html)
    assert "Only one of these runs has steps" in text_of(html)
    assert 'class="gap unrecorded"' in html


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"at": "1.999"}, "has steps 1 to 10"),
        ({"at": "zero"}, "write run and step with a dot"),
        ({"open": "777777.1"}, "is of a run that is not shown"),
        ({"by": "moon"}, "write action or number"),
        ({"first": "1,1"}, "choose two of"),
        ({"fold": "<b>x"}, "write equal or none"),
    ],
)
def test_a_mistake_in_the_address_is_named_and_the_page_opens_where_the_runs_part(
    viewer: Client, query: dict[str, str], says: str
) -> None:
    first, second = parted()
    asked = {name: value.replace("1.999", f"{first.pk}.999") for name, value in query.items()}
    html = page(viewer, first, second, **asked)
    assert says in text_of(html)
    assert "the page opens where the runs part" in text_of(html)
    assert "<b>x" not in html
    assert 'id="divergence-' in html


@pytest.mark.parametrize("path", ["/compare/rows", "/compare/row"])
def test_a_part_says_in_its_place_what_is_not_there_any_more(viewer: Client, path: str) -> None:
    first, second = parted()
    gone = page(viewer, first, second, path=path, status=400, row="x", after="x")
    assert 'class="gone"' in gone
    assert "write run and step with a dot" in gone
    for number in (f"{first.pk}.999", f"{second.pk}.11"):
        assert "has steps 1 to 10" in page(
            viewer, first, second, path=path, status=400, row=number, after=number
        )
    Event.objects.filter(run=second).delete()
    Run.objects.filter(pk=second.pk).delete()
    told = page(viewer, first, second, path=path, status=400, row=f"{first.pk}.1")
    assert f"{second.pk}&#x27; is no run of this lab" in told
    assert "names fewer" in page(viewer, first, path=path, status=400, row=f"{first.pk}.1")


def test_six_runs_of_150_steps_are_a_small_page_of_few_queries(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    runs: list[Run] = []
    for seed in range(6):
        commands = [
            f"grep -rn name_{number if number % 3 else f'{number}_of_{seed}'} src" for number in range(150)
        ]
        runs.append(run_of(commands, like=runs[0] if runs else None, seed=seed + 2))
    page(viewer, *runs)
    with django_assert_max_num_queries(60):
        html = page(viewer, *runs, fold="none")
    assert elements_in(html) <= 10_000
    assert elements_in(page(viewer, *runs, scroll="apart")) <= 10_000
    assert html.count('class="unit"') <= 60
