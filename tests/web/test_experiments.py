from __future__ import annotations

from django.test import Client

from lab.models import Experiment
from tests import builders


def test_an_experiment_lists_its_runs_with_counts_that_have_a_denominator(viewer: Client) -> None:
    first = builders.run()
    builders.believable(first, outcome="resolved")
    second = builders.another_run(first, seed=2)
    html = viewer.get(f"/experiments/{first.experiment_id}/").content.decode()
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
