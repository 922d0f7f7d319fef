from __future__ import annotations

import re

import pytest
from django.test import Client

from lab.models import Experiment, Run, Task
from tests import builders
from tests.services.test_grids import graded, place, second_arm


def test_an_experiment_lists_its_runs_with_counts_that_have_a_denominator(viewer: Client) -> None:
    first = builders.run()
    builders.believable(first, outcome="resolved")
    second = builders.another_run(first, seed=2)
    html = viewer.get(f"/experiments/{first.experiment_id}/?as=list").content.decode()
    assert "1 of 2 ended, 1 of 1 graded resolved" in html
    assert "preliminary" in html
    assert f'id="run-{first.pk}"' in html
    assert f'id="run-{second.pk}"' in html
    assert "150 steps, context 131,072, $2" in html


def test_the_list_has_the_newest_first_and_says_when_nothing_is_graded(viewer: Client) -> None:
    runs = [builders.run() for _ in range(3)]
    html = viewer.get("/experiments/").content.decode()
    places = [html.index(f"/experiments/{run.experiment_id}/") for run in runs]
    assert places == sorted(places, reverse=True)
    assert html.count("none graded") == 3


def test_an_empty_list_names_the_next_action(viewer: Client, operator: Client) -> None:
    assert "Launch a run" in operator.get("/experiments/").content.decode()
    assert "an operator launches them" in viewer.get("/experiments/").content.decode()


def test_long_lists_have_pages(viewer: Client) -> None:
    Experiment.objects.bulk_create(Experiment(name=f"e{number}") for number in range(1, 106))
    first, second = (viewer.get(f"/experiments/?page={page}").content.decode() for page in (1, 2))
    assert ">e105<" in first
    assert ">e5<" not in first
    assert ">e5<" in second


def test_an_unknown_experiment_is_not_found(viewer: Client) -> None:
    assert viewer.get("/experiments/999/").status_code == 404


def test_runs_that_look_like_a_parser_problem_are_named_with_their_steps(viewer: Client) -> None:
    run = builders.run(status="preparing")
    builders.start(run)
    leak = '<tool_call>{"name": "Bash", "arguments": {}}</tool_call>'
    seq = builders.append(run, builders.asked(1), builders.answered(1, content=leak))
    link = f'href="/runs/{run.pk}/?at={seq}"'
    for address in (f"/experiments/{run.experiment_id}/?as=list", f"/runs/{run.pk}/"):
        page = viewer.get(address).content.decode()
        assert "Looks like a parser problem, not the model." in page
        assert link in page
        assert "parser problem?" in page
    assert "parser problem?" in viewer.get("/").content.decode()


def page_of(client: Client, run: Run, query: str = "") -> str:
    return client.get(f"/experiments/{run.experiment_id}/{query}").content.decode()


def test_the_grid_shows_three_seeds_of_one_task_as_three_cells_and_their_variance(viewer: Client) -> None:
    first = builders.run()
    for seed, outcome in enumerate(("resolved", "unresolved", "resolved"), start=1):
        graded(first if seed == 1 else builders.another_run(first, seed=seed), outcome)
    html = page_of(viewer, first)
    labels = re.findall(r'aria-label="dst-schedule, arm A, seed (\d): (\w+)', html)
    assert labels == [("1", "resolved"), ("2", "unresolved"), ("3", "resolved")]
    assert ">2 of 3</td>" in html
    assert "variance within a task 0.333" in html
    assert html.count("1 arm × 1 task × 3 seeds = 3 runs") == 1
    # And as a list there are three rows.
    assert page_of(viewer, first, "?as=list").count('class="row run-row"') == 3


def test_the_head_has_state_lights_and_what_can_be_downloaded(operator: Client) -> None:
    first = builders.run()
    place(first, arm=second_arm(first))
    Experiment.objects.filter(pk=first.experiment_id).update(
        state=Experiment.State.PAUSED, paused_because="the <b>budget</b> is used up"
    )
    html = page_of(operator, first)
    assert 'data-state="paused"' in html
    assert "the &lt;b&gt;budget&lt;/b&gt; is used up" in html
    assert "2 arms × 1 task × 1 seed = 2 runs" in html
    assert 'class="lights"' in html
    assert f"/experiments/{first.experiment_id}/export?format=" in html
    assert f"/experiments/{first.experiment_id}/ask/resume/" in html


def test_from_four_arms_on_each_is_one_row_and_the_rest_is_folded(viewer: Client) -> None:
    first = builders.run()
    graded(first, "resolved")
    arms = [second_arm(first, letter=letter) for letter in "BCD"]
    for arm in arms[:2]:
        graded(place(first, arm=arm), "unresolved")
    assert page_of(viewer, first).count('class="arm-head"') == 0
    arms[2].delete()
    assert page_of(viewer, first).count('class="arm-head"') == 3
    place(first, arm=second_arm(first, letter="E"))
    html = page_of(viewer, first)
    assert html.count('class="arm-row"') == 4
    rows, folded = html.split('class="arm-rows"')[1].split('<details class="arm-more" id="arm-more">')
    words = " ".join(re.sub(r"<[^>]+>", " ", rows).split())
    assert "100.0 %" in words
    assert "1 of 1 valid preliminary" in words
    assert "none graded yet" in words
    assert 'width="144"' in rows
    assert "150 steps, context 131,072, $2" not in rows
    assert folded.count("150 steps, context 131,072, $2") == 4


def test_a_long_list_of_limits_that_differ_opens_from_a_few_words(viewer: Client) -> None:
    first = builders.run()
    arm = second_arm(first)
    arm.limits = {**arm.limits, "max_steps": 10, "max_format_errors": 3}
    arm.limits_digest = "other"
    arm.save()
    place(first, arm=arm)
    light = page_of(viewer, first).split('class="lights"')[1].split("</ul>")[0]
    assert "<b>limits different</b>: steps, malformed replies</span></summary>" in light
    assert light.count("steps 150 and 10; malformed replies in a row no limit and 3") == 2


def test_what_is_seldom_asked_stands_in_a_menu_with_the_files(operator: Client, viewer: Client) -> None:
    first = builders.run()
    graded(first, "resolved")
    Experiment.objects.filter(pk=first.experiment_id).update(kind="launched", plan={})
    asks = f"/experiments/{first.experiment_id}/ask"
    shown, menu = page_of(operator, first).split('id="experiment-more-asks"')
    assert f"{asks}/add_seeds/" in shown
    assert f"{asks}/add_arm/" not in shown
    assert f"{asks}/add_arm/" in menu
    assert f"/experiments/{first.experiment_id}/clone" in menu
    # Also of an experiment that keeps no plan of its own.
    assert (address := re.search(r'href="([^"]+)">YAML</a>', menu))
    assert operator.get(address[1]).status_code == 200
    seen = page_of(viewer, first).split('id="experiment-more-asks"')[1]
    assert ">YAML</a>" in seen
    assert ">Clone</a>" not in seen


def test_a_viewer_gets_no_button_that_asks_for_anything(viewer: Client) -> None:
    assert "/ask/" not in page_of(viewer, builders.run())


def test_a_filter_hides_rows_without_such_a_run_and_is_a_link(viewer: Client) -> None:
    first = builders.run()
    other = Task.objects.create(
        task_set=first.task.task_set, slug="other", position=2, title="", statement="", digest="o", folder=""
    )
    graded(first, "resolved")
    graded(place(first, task=other), "unresolved")
    html = page_of(viewer, first, "?show=unresolved&cell=time")
    assert f'id="task-{first.task_id}" hidden' in html
    assert f'id="task-{other.pk}">' in html
    assert 'data-cell="time"' in html
    # The other choices are kept.
    assert 'href="?show=resolved&amp;cell=time"' in html
    assert re.search(r'data-filter="unresolved" data-digit="3" aria-current="true"', html)
    nothing = page_of(viewer, first, "?show=queued")
    assert 'id="grid-nothing"><span>No run is' in nothing
    assert 'id="grid-nothing" hidden' in html


@pytest.mark.parametrize("query", ["?show=nonsense", "?sort=%00", "?cell=<script>", "?rows=&show="])
def test_a_way_to_show_it_that_there_is_not_is_the_usual_one(viewer: Client, query: str) -> None:
    run = builders.run()
    html = page_of(viewer, run, query)
    assert 'data-show="all" data-cell="cost" data-rows="full"' in html
    assert "<script>" not in html


def test_more_than_forty_tasks_are_compact_unless_one_switches(viewer: Client) -> None:
    first = builders.run()
    tasks = Task.objects.bulk_create(
        Task(
            task_set=first.task.task_set,
            slug=f"t{number}",
            position=number,
            title="",
            statement="",
            digest="t",
            folder="",
        )
        for number in range(2, 43)
    )
    Run.objects.bulk_create(
        Run(experiment=first.experiment, arm=first.arm, task=task, seed=1) for task in tasks
    )
    assert 'data-rows="compact"' in page_of(viewer, first).split("<thead")[0].rsplit("<table", 1)[1]
    assert (
        'data-rows="full"' in page_of(viewer, first, "?rows=full").split("<thead")[0].rsplit("<table", 1)[1]
    )


def test_an_experiment_without_a_run_says_what_would_be_there(viewer: Client) -> None:
    experiment = Experiment.objects.create(name="empty")
    html = viewer.get(f"/experiments/{experiment.pk}/").content.decode()
    assert "Here would be a row for each task" in html


def test_the_list_says_state_rate_and_spend(viewer: Client) -> None:
    run = builders.run()
    graded(run, "resolved")
    words = " ".join(re.sub(r"<[^>]+>", " ", viewer.get("/experiments/").content.decode()).split())
    assert "ended experiment" in words
    assert "100.0 % 1 of 1" in words
    assert "$0.0058 price table" in words
