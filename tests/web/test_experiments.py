from __future__ import annotations

from django.test import Client

from lab.models import Experiment
from tests import builders


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
