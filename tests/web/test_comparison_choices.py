"""Choosing the runs to put side by side: what is offered beside a run, and what becomes of a mistake."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from lab.models import Arm, Experiment, Harness, HarnessVersion, Run, RunFacts, Task
from lab.services import comparison_choices
from lab.services.comparisons import find_runs
from tests import builders
from tests.services.test_grids import another_task, graded, place, second_arm
from tests.web.test_comparison_unknowns import verdict_alone
from tests.web.test_comparisons import pair, text_of


def page(client: Client, runs: str, *, status: int = 200) -> str:
    answer = client.get(f"/compare/?runs={runs}")
    assert answer.status_code == status
    return answer.content.decode()


def groups_of(run: Run) -> dict[str, list[int]]:
    """What is offered beside a run: number of each, by the title of their group."""
    (found,) = find_runs([run.pk])
    return {
        group.title: [choice.run.pk for choice in group.choices] for group in comparison_choices.near(found)
    }


def offered(text: str) -> list[int]:
    """The runs that a page offers to tick and that are not chosen yet, in order."""
    boxes = re.findall(r'<input type="checkbox" name="runs" value="(\d+)"([^>]*)>', text)
    return [int(number) for number, rest in boxes if "checked" not in rest]


def ticked(text: str) -> list[int]:
    boxes = re.findall(r'<input type="checkbox" name="runs" value="(\d+)"([^>]*)>', text)
    return [int(number) for number, rest in boxes if "checked" in rest]


def typed(text: str) -> str:
    found = re.search(r'id="numbers" name="runs" value="([^"]*)"', text)
    assert found is not None
    return html.unescape(found[1])


def elsewhere(run: Run, *, kind: str = Experiment.Kind.LAUNCHED, task: Task | None = None) -> Run:
    """The same arm and task in another experiment."""
    experiment = Experiment.objects.create(name="later", task_set=run.experiment.task_set, kind=kind)
    arm = Arm.objects.create(
        experiment=experiment,
        harness_version=run.arm.harness_version,
        model=run.arm.model,
        limits=run.arm.limits,
        limits_digest=run.arm.limits_digest,
        letter="A",
    )
    return Run.objects.create(experiment=experiment, arm=arm, task=task or run.task, seed=1)


def test_beside_a_run_stand_its_task_in_other_arms_then_its_other_seeds_then_what_is_nearest(
    viewer: Client,
) -> None:
    run = graded(builders.run(), "resolved")
    arm = second_arm(run)
    other_seed = graded(place(run, arm=arm, seed=2), "unresolved")
    same_seed = graded(place(run, arm=arm), "resolved")
    sibling = graded(place(run, seed=3), "unresolved")
    alike = graded(place(run, seed=2), "resolved")
    other_task = graded(place(run, task=another_task(run, "path-glob", 2)), "unresolved")
    assert groups_of(run) == {
        "Same task, another arm": [same_seed.pk, other_seed.pk],
        "Same task and arm, another seed": [sibling.pk, alike.pk],
        "Nearest": [other_task.pk],
    }
    text = page(viewer, str(run.pk))
    assert offered(text) == [same_seed.pk, other_seed.pk, sibling.pk, alike.pk, other_task.pk]
    assert f'href="/compare/?runs={run.pk},{sibling.pk}"' in text
    words = text_of(text)
    assert f"run {sibling.pk} other verdict, same experiment" in words
    assert "Of other tasks: their steps may have little in common." in words
    assert "path-glob" in words
    for said in ("unresolved", "1 step", "$0.0058", f"B {arm.harness_version} × {arm.model.name}"):
        assert said in words


def test_the_same_arm_in_another_experiment_is_no_other_arm(db: None) -> None:
    run = graded(builders.run(), "resolved")
    again, within = elsewhere(run), place(run, seed=2)
    assert groups_of(run) == {"Same task and arm, another seed": [within.pk, again.pk]}


def test_beside_a_recorded_run_stands_the_same_instance_of_another_task_set(db: None) -> None:
    run, stranger = builders.run(), builders.run()
    assert run.task.slug == stranger.task.slug
    assert groups_of(run) == {}
    Experiment.objects.filter(pk=stranger.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    assert groups_of(run) == {"Nearest": [stranger.pk]}
    assert groups_of(Run.objects.get(pk=stranger.pk)) == {"Nearest": [run.pk]}


def test_where_nothing_else_is_near_runs_of_the_same_repository_are_and_the_page_warns(
    viewer: Client,
) -> None:
    run, other, stranger = builders.run(), builders.run(), builders.run()
    Task.objects.filter(pk__in=[run.task_id, other.task_id]).update(repository="marshmallow-code/marshmallow")
    for one, slug in ((run, "marshmallow-1"), (other, "marshmallow-2"), (stranger, "webargs-1")):
        Task.objects.filter(pk=one.task_id).update(slug=slug)
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    text = page(viewer, str(run.pk))
    assert offered(text) == [other.pk]
    assert "same repository, marshmallow-code/marshmallow" in text
    assert "their steps may have little in common" in text


def test_at_most_fifty_are_offered_in_few_queries_and_always_the_same(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    run = graded(builders.run(), "resolved")
    arm, task = second_arm(run), another_task(run, "path-glob", 2)
    for one, of in ((arm, run.task), (run.arm, run.task), (run.arm, task)):
        runs = [
            Run(experiment=run.experiment, arm=one, task=of, seed=seed, status="ended")
            for seed in range(2, 42)
        ]
        Run.objects.bulk_create(runs)
    telling = Run.objects.get(arm=arm, seed=2)
    RunFacts.objects.create(run=telling, verdict="unresolved")
    with django_assert_max_num_queries(25):
        first = page(viewer, str(run.pk))
    assert len(offered(first)) == 50
    assert offered(first)[0] == telling.pk
    assert offered(page(viewer, str(run.pk))) == offered(first)
    assert "the first 25, any other by number" in text_of(first)


def test_a_run_alone_in_the_lab_says_what_could_be_near_and_takes_a_number(viewer: Client) -> None:
    run = builders.run()
    text = page(viewer, str(run.pk))
    assert "No other run is near this one yet" in text
    assert 'id="numbers"' in text


def test_without_runs_the_page_leads_to_pairs_that_came_out_differently(viewer: Client) -> None:
    assert "Here would be pairs of runs" in page(viewer, "")
    first, second = pair()
    agreed = graded(builders.another_run(first, seed=2), "resolved")
    graded(builders.another_run(second, seed=2), "resolved")
    later = graded(builders.run(), "resolved")
    last = graded(place(later, arm=second_arm(later)), "unresolved")
    text = page(viewer, "")
    assert re.findall(r'href="/compare/\?runs=(\d+,\d+)"', text) == [
        f"{later.pk},{last.pk}",
        f"{first.pk},{second.pk}",
    ]
    assert str(agreed.pk) not in re.findall(r"run (\d+)", text)


def test_a_pair_within_one_experiment_goes_before_a_newer_run_of_another(db: None) -> None:
    first, second = pair()
    graded(elsewhere(second), "unresolved")
    (found,) = comparison_choices.worth_comparing()
    assert (found.resolved.pk, found.unresolved.pk) == (first.pk, second.pk)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("twelve", "'twelve' is no number of a run; write numbers as in 12,15"),
        ("-5", "'-5' is no number of a run; write numbers as in 12,15"),
        ("9" * 40, "is no number of a run; write numbers as in 12,15"),
        ("٣", "is no number of a run"),
        ("0", "'0' is no run of this lab: mistyped, or removed since"),
        ("424242", "'424242' is no run of this lab: mistyped, or removed since"),
        ("99999999999999", "'99999999999999' is no run of this lab"),
        ("1.5 x", "'1.5,x' are no numbers of runs"),
    ],
)
def test_a_mistake_names_the_value_and_the_way_out_and_the_good_run_stays_chosen(
    viewer: Client, written: str, says: str
) -> None:
    first, second = pair()
    text = page(viewer, f"{first.pk} {written}", status=400)
    assert says in html.unescape(text)
    assert "runs: " in html.unescape(text)
    assert ticked(text) == [first.pk]
    assert typed(text) == written.replace(" ", ",")
    assert offered(text) == [second.pk]
    both = page(viewer, f"{first.pk},{second.pk},{written}", status=400)
    assert ticked(both) == [first.pk, second.pk]
    # Once the mistake is taken out of the field the form leads to the comparison.
    answer = viewer.get("/compare/", {"runs": [str(run) for run in ticked(both)] + [""]})
    assert answer.headers["Location"] == f"/compare/?runs={first.pk},{second.pk}"


def test_one_run_that_a_form_sends_alone_or_twice_is_told_and_stays_chosen(viewer: Client) -> None:
    first, second = pair()
    for sent in ([str(first.pk), ""], [f"{first.pk},#{first.pk}"]):
        answer = viewer.get("/compare/", {"runs": sent})
        text = html.unescape(answer.content.decode())
        assert answer.status_code == 400
        assert f"runs: {first.pk} is one run" in text
        assert "tick another one or write its number" in text
        assert ticked(text) == [first.pk]
        assert offered(text) == [second.pk]
    twice = viewer.get(f"/compare/?runs={first.pk},{second.pk},{first.pk}")
    assert twice.status_code == 200
    assert 'id="numbers"' not in twice.content.decode()


def test_more_runs_than_fit_are_listed_with_the_six_that_tell_most_ticked(viewer: Client) -> None:
    first = graded(builders.run(), "resolved")
    arm = second_arm(first)
    alike = [graded(place(first, seed=seed), "resolved") for seed in range(2, 8)]
    telling = graded(place(first, arm=arm), "unresolved")
    asked = [first, *alike, telling]
    numbers = ",".join(str(run.pk) for run in asked)
    text = page(viewer, numbers)
    assert [int(one) for one in re.findall(r'type="checkbox" name="runs" value="(\d+)"', text)] == [
        run.pk for run in asked
    ]
    assert ticked(text) == [first.pk, *(run.pk for run in alike[:4]), telling.pk]
    assert "8 runs were asked for and 6 fit side by side" in text
    sent = viewer.get("/compare/", {"runs": [*map(str, (run.pk for run in asked)), ""]})
    assert sent.status_code == 400
    assert "are 8 runs; 6 fit side by side, so leave 2 out" in html.unescape(sent.content.decode())
    chosen = viewer.get("/compare/", {"runs": [str(number) for number in ticked(text)]})
    assert chosen.headers["Location"] == f"/compare/?runs={','.join(map(str, ticked(text)))}"


def test_a_mistake_among_too_many_is_told_as_well(viewer: Client) -> None:
    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, 9))]
    text = page(viewer, ",".join([*(str(run.pk) for run in runs), "x"]), status=400)
    assert typed(text) == "x"
    assert len(ticked(text)) == 6


def test_a_chosen_run_can_be_left_out_and_six_leave_no_room(viewer: Client) -> None:
    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, 8))]
    six = ",".join(str(run.pk) for run in runs[:6])
    text = viewer.get(f"/compare/?runs={six}&choose=1").content.decode()
    assert "no more fit side by side" in text
    assert offered(text) == []
    mistaken = page(viewer, f"{six},x", status=400)
    assert typed(mistaken) == "x"
    assert ticked(mistaken) == [run.pk for run in runs[:6]]
    rest = ",".join(str(run.pk) for run in runs[1:6])
    assert f'href="/compare/?runs={rest}&amp;choose=1"' in text
    assert offered(viewer.get(f"/compare/?runs={rest}&choose=1").content.decode()) == [
        runs[6].pk,
        first.pk,
    ]


def test_a_run_that_was_removed_is_told_and_the_other_one_stays(viewer: Client) -> None:
    first, second = pair()
    gone = second.pk
    second.delete()
    text = page(viewer, f"{first.pk},{gone}", status=400)
    assert f"'{gone}' is no run of this lab: mistyped, or removed since" in html.unescape(text)
    assert ticked(text) == [first.pk]
    assert typed(text) == str(gone)


def test_runs_of_different_tasks_may_stand_side_by_side(viewer: Client) -> None:
    assert viewer.get(f"/compare/?runs={builders.run().pk},{builders.run().pk}").status_code == 200


def test_names_that_runs_bring_are_shown_as_text(viewer: Client) -> None:
    run = builders.run()
    builders.another_run(run, seed=2)
    Task.objects.filter(pk=run.task_id).update(slug="<b>bold")
    assert "<b>bold" not in page(viewer, str(run.pk))


def test_another_model_of_the_same_harness_goes_before_another_harness(db: None) -> None:
    run = graded(builders.run(), "resolved")
    version = run.arm.harness_version
    model = graded(place(run, arm=second_arm(run)), "unresolved")
    harness = Harness.objects.create(name="another", family=version.harness.family)
    other = HarnessVersion.objects.create(harness=harness, version=1, digest="f" * 64, config=version.config)
    arm = second_arm(run, letter="C")
    Arm.objects.filter(pk=arm.pk).update(harness_version=other)
    stranger = graded(place(run, arm=arm), "unresolved")
    assert groups_of(run) == {"Same task, another arm": [model.pk, stranger.pk]}


def named(run: Run, slug: str, *, kind: str = Experiment.Kind.IMPORTED) -> Run:
    Task.objects.filter(pk=run.task_id).update(slug=slug)
    Experiment.objects.filter(pk=run.experiment_id).update(kind=kind)
    return Run.objects.get(pk=run.pk)


@pytest.mark.parametrize("kind", [Experiment.Kind.IMPORTED, Experiment.Kind.LAUNCHED])
def test_tasks_whose_names_share_a_problem_are_nearest_and_the_page_warns(viewer: Client, kind: str) -> None:
    run = named(builders.run(), "marshmallow-1867-default-thought-action", kind=kind)
    same = named(builders.run(), "marshmallow-code__marshmallow-1867")
    repository = named(builders.run(), "marshmallow-code__marshmallow-18")
    named(builders.run(), "webargs-1867")
    for one, other in ((run, same), (same, run)):
        text = page(viewer, str(one.pk))
        assert offered(text) == [other.pk]
        assert "marshmallow-1867, which the names of their tasks share" in text_of(text)
        assert "of which nobody knows whether they are the same" in text_of(text)
    same.delete()
    assert offered(page(viewer, str(run.pk))) == [repository.pk]
    assert "other tasks whose names begin with marshmallow" in text_of(page(viewer, str(run.pk)))


def test_runs_of_an_imported_experiment_are_near_each_other_where_nothing_else_is(db: None) -> None:
    run = named(builders.run(), "first")
    other = place(run, task=another_task(run, "second", 2))
    assert groups_of(run) == {"Nearest": [other.pk]}


def test_pairs_with_steps_stand_first_then_those_of_one_experiment(viewer: Client) -> None:
    apart = graded(builders.run(), "resolved")
    strange = graded(elsewhere(apart), "unresolved")
    first, second = pair()
    newer = graded(builders.run(), "resolved")
    newest = graded(elsewhere(newer), "unresolved")
    bare = verdict_alone(builders.run())
    resolved = graded(place(bare, arm=second_arm(bare)), "resolved")
    RunFacts.objects.filter(run__in=[bare, resolved]).update(steps=0)
    text = page(viewer, "")
    assert re.findall(r'href="/compare/\?runs=(\d+,\d+)"', text) == [
        f"{first.pk},{second.pk}",
        f"{newer.pk},{newest.pk}",
        f"{apart.pk},{strange.pk}",
        f"{resolved.pk},{bare.pk}",
    ]
    assert ", </span>" not in text


def test_arms_without_a_shared_task_lead_to_their_runs_of_different_tasks(viewer: Client) -> None:
    first = named(builders.run(), "marshmallow-1867-default-thought-action")
    arm = second_arm(first)
    extra = place(first, arm=arm, task=another_task(first, "attrs-12", 2))
    alike = place(first, arm=arm, task=another_task(first, "marshmallow-code__marshmallow-1867", 3))
    answer = viewer.get(f"/experiments/{first.experiment_id}/compare/?arm=A&arm=B")
    assert answer.status_code == 200
    text = answer.content.decode()
    assert ticked(text) == [first.pk, alike.pk]
    assert offered(text) == [extra.pk]
    assert "Arms A, B have no run of the same task and seed." in text_of(text)
    chosen = viewer.get("/compare/", {"runs": ["", *map(str, ticked(text))]})
    assert chosen.headers["Location"] == f"/compare/?runs={first.pk},{alike.pk}"
    Run.objects.filter(arm=arm).delete()
    alone = viewer.get(f"/experiments/{first.experiment_id}/compare/?arm=A&arm=B").content.decode()
    assert "choose two or more arms that have runs" in alone
