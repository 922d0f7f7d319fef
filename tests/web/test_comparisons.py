"""The pages that put runs side by side."""

from __future__ import annotations

import re

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from lab.engine.events import LimitChanged
from lab.models import Arm, HarnessVersion, Run
from tests import builders


def pair() -> tuple[Run, Run]:
    """Two finished runs of one task by two harnesses."""
    first = builders.run()
    builders.believable(first, outcome="resolved")
    arm, version = first.arm, first.arm.harness_version
    other = HarnessVersion.objects.create(
        harness=version.harness,
        version=5,
        digest="f" * 64,
        config={**version.config, "system_prompt": "You mend <b>programs</b>."},
    )
    second_arm = Arm.objects.create(
        experiment=first.experiment,
        harness_version=other,
        model=arm.model,
        limits=arm.limits,
        limits_digest=arm.limits_digest,
        letter="B",
    )
    second = Run.objects.create(experiment=first.experiment, arm=second_arm, task=first.task, seed=1)
    builders.believable(second)
    return first, second


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_two_runs_stand_side_by_side_with_lights_and_everything_that_differs(viewer: Client) -> None:
    first, second = pair()
    html = viewer.get(f"/compare/?runs={first.pk},{second.pk}&view=setup").content.decode()
    words = text_of(html)
    setup = f"?runs={first.pk},{second.pk}&amp;view=setup"
    assert f'class="light" data-state="different" href="{setup}#harness"' in html
    assert f'class="light" data-state="same" href="{setup}#limits"' in html
    assert f'class="light" data-state="same" href="{setup}#task-set"' in html
    assert f'class="light" data-state="same" href="{setup}#sandbox"' in html
    for anchor in ("harness", "limits", "task-set", "sandbox", "other"):
        assert f'id="{anchor}"' in html
    assert "harness different" in words
    assert "limits same" in words
    assert "1 field differs" in words
    assert "system_prompt" in words
    for fact in ("resolved", "unresolved", "Exit reason agent agent", "Peak memory unknown unknown"):
        assert fact in words
    assert "Table price, openai/cedar-large" in words
    assert "at least $0.0406" in words


def test_what_a_prompt_holds_is_shown_as_text(viewer: Client) -> None:
    first, second = pair()
    html = viewer.get(f"/compare/?runs={first.pk},{second.pk}&view=setup").content.decode()
    assert "<b>programs" not in html
    assert "&lt;" in html


def test_a_limit_changed_while_running_leads_to_the_event_that_says_so(viewer: Client) -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    builders.start(second)
    seq = builders.append(second, LimitChanged(limit="max_steps", before=150, after=300, person="ann"))
    html = viewer.get(f"/compare/?runs={first.pk},{second.pk}&view=setup").content.decode()
    assert f'href="/runs/{second.pk}/?at={seq}"' in html
    assert f"limits different : changed while run {second.pk} went on" in text_of(html)
    assert "is as of" in text_of(html)


def test_runs_of_which_little_is_known_are_shown_all_the_same(viewer: Client) -> None:
    first, bare = builders.run(), builders.run()
    Arm.objects.filter(pk=bare.arm_id).update(limits={}, limits_digest="")
    HarnessVersion.objects.filter(pk=bare.arm.harness_version_id).update(digest=None, config={})
    words = text_of(viewer.get(f"/compare/?runs={first.pk},{bare.pk}&view=setup").content.decode())
    assert "harness unknown" in words
    assert "limits unknown" in words
    assert "task set different" in words
    assert "nothing was recorded" in words


def test_a_single_run_is_offered_the_others_of_its_task(viewer: Client) -> None:
    first, second = pair()
    stranger = builders.run()
    html = viewer.get(f"/compare/?runs={first.pk}").content.decode()
    assert f'name="runs" value="{second.pk}"' in html
    assert f"/compare/?runs={first.pk},{second.pk}" in html
    assert f'name="runs" value="{stranger.pk}"' not in html


def test_what_the_form_sends_becomes_one_address_that_can_be_passed_on(viewer: Client) -> None:
    first, second = pair()
    answer = viewer.get("/compare/", {"runs": [str(first.pk), str(second.pk), ""]})
    assert (answer.status_code, answer.headers["Location"]) == (
        302,
        f"/compare/?runs={first.pk},{second.pk}",
    )


def test_a_mistake_is_named_and_what_was_typed_stays(viewer: Client) -> None:
    answer = viewer.get("/compare/?runs=12,x<y")
    html = answer.content.decode()
    assert answer.status_code == 400
    assert 'value="12,x&lt;y"' in html
    assert "write numbers as in 12,15" in html
    missing = viewer.get("/compare/?runs=424242")
    assert missing.status_code == 400
    assert "424242" in missing.content.decode()


def test_without_a_run_the_page_asks_for_numbers(viewer: Client) -> None:
    assert "Runs, by number" in viewer.get("/compare/").content.decode()


def test_the_run_page_leads_to_the_comparison(viewer: Client) -> None:
    run = builders.run()
    html = viewer.get(f"/runs/{run.pk}/").content.decode()
    assert f'href="/compare/?runs={run.pk}" data-compare' in html


def test_an_experiment_says_what_its_arms_share_and_lets_one_compare_their_runs(viewer: Client) -> None:
    first, second = pair()
    words = text_of(viewer.get(f"/experiments/{first.experiment_id}/").content.decode())
    assert "harness different : A against B" in words
    answer = viewer.get(f"/experiments/{first.experiment_id}/compare/?arm=A&arm=B")
    assert answer.headers["Location"] == f"/compare/?runs={first.pk},{second.pk}"


def test_an_experiment_with_one_arm_has_nothing_to_compare(viewer: Client) -> None:
    run = builders.run()
    assert "what the arms share" not in viewer.get(f"/experiments/{run.experiment_id}/").content.decode()


def test_arms_with_several_tasks_or_seeds_let_one_choose_which(viewer: Client) -> None:
    first, second = pair()
    third, fourth = builders.another_run(first, seed=2), builders.another_run(second, seed=2)
    url = f"/experiments/{first.experiment_id}/compare/"
    html = viewer.get(f"{url}?arm=A&arm=B").content.decode()
    assert f"/compare/?runs={first.pk},{second.pk}" in html
    assert f"/compare/?runs={third.pk},{fourth.pk}" in html
    alone = viewer.get(f"{url}?arm=A").content.decode()
    assert "choose two or more arms that have runs" in alone


def test_six_runs_cost_a_few_queries_each(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    first, _ = pair()
    for seed in range(2, 6):
        builders.believable(builders.another_run(first, seed=seed))
    numbers = ",".join(str(pk) for pk in Run.objects.values_list("pk", flat=True))
    with django_assert_max_num_queries(100):
        answer = viewer.get(f"/compare/?runs={numbers}")
    assert answer.status_code == 200
