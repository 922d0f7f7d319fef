"""Why runs failed, as people labelled them, by arm on the analysis page."""

from __future__ import annotations

import re

import pytest
from django.http import QueryDict
from django.test import Client

from lab.analysis.failures import Labelled, breakdown, is_behind, place_of
from lab.analysis.rates import wilson_limits
from lab.models import Run
from lab.services import adjudications, analysis, failure_breakdown, guidelines, labels, labels_in_force
from lab.services.analysis import Selection
from tests import builders
from tests.web.labelling import annotator, do, failed_run, queue_of, submitted

pytestmark = pytest.mark.django_db


def runs(number: int) -> list[Run]:
    first = failed_run()
    return [first, *(failed_run(first, seed=seed) for seed in range(2, number + 1))]


def test_an_arms_shares_are_of_its_labelled_runs_with_wilson_intervals() -> None:
    made = [
        Labelled(1, "A", "t1", "agent", "wrong-location", None, "first quarter"),
        Labelled(2, "A", "t2", "agent", "other", None, "last quarter"),
        Labelled(3, "A", "t3", "grader", None, None, None),
        Labelled(4, "B", "t1", "agent", "other", None, None),
    ]
    one, other = breakdown(made, {"A": 5, "B": 1})
    assert (one.failed, one.labelled, other.labelled) == (5, 3, 1)
    share = one.fields["owner"][0]
    assert (share.key, share.part, share.of) == ("owner:agent", 2, 3)
    interval = share.estimate.interval  # type: ignore[union-attr]
    assert (interval.low, interval.high) == pytest.approx(wilson_limits(2, 3))  # type: ignore[union-attr]
    assert [share.key for share in one.fields["category"]] == [
        "category:other",
        "category:wrong-location",
        "category:not said",
    ]
    assert is_behind(made[2], "category:not said")
    assert not is_behind(made[2], "hat:agent")


@pytest.mark.parametrize(
    ("step", "steps", "place"),
    [
        (1, 8, "first quarter"),
        (3, 8, "second quarter"),
        (8, 8, "last quarter"),
        (9, 8, None),
        (None, 8, None),
    ],
)
def test_where_a_root_cause_is_counts_in_quarters_of_the_run(
    step: int | None, steps: int, place: str | None
) -> None:
    assert place_of(step, steps) == place


def test_what_labels_say_alike_counts_and_what_differs_waits_for_the_third_record() -> None:
    (run,) = runs(1)
    mara, noor = annotator("mara")[0], annotator("noor")[0]
    submitted(mara, run, step=1)
    submitted(noor, run, step=5, category="verification-skipped")
    viewer = builders.person()
    found = labels_in_force.of(viewer, [run.pk])[0][run.pk]
    assert (found.owner, found.category, found.step) == ("agent", "not settled", None)
    third = adjudications.open_draft(by=viewer, run_id=run.pk, guideline=guidelines.default())
    parent = third.parents.order_by("pk").last()
    assert parent is not None
    third = adjudications.take(
        by=viewer, annotation_id=third.pk, revision=0, parent_id=parent.pk, part="root"
    )
    third = do(viewer, third, {"do": "set_sure", "value": True})
    labels.submit(by=viewer, annotation_id=third.pk, revision=third.revision)
    found = labels_in_force.of(viewer, [run.pk])[0][run.pk]
    assert (found.category, found.step, found.adjudicated) == ("verification-skipped", 5, True)


def test_one_label_under_a_newer_guideline_does_not_undo_an_adjudication() -> None:
    (run,) = runs(1)
    first = guidelines.default()
    submitted(annotator("mara")[0], run, step=1)
    submitted(annotator("noor")[0], run, step=1)
    otto = builders.person()
    third = adjudications.open_draft(by=otto, run_id=run.pk, guideline=first)
    third = do(otto, third, {"do": "set_sure", "value": True})
    labels.submit(by=otto, annotation_id=third.pk, revision=third.revision)
    guidelines.save_version(
        by=otto,
        name=guidelines.DEFAULT_NAME,
        taxonomy_version=first.taxonomy_version,
        definition="inevitable",
        seen_n=1,
    )
    submitted(annotator("nils")[0], run, owner="grader")
    found = labels_in_force.of(otto, [run.pk])[0][run.pk]
    assert (found.owner, found.adjudicated) == ("agent", True)


def test_a_disputed_step_is_not_settled_instead_of_not_said() -> None:
    (run,) = runs(1)
    submitted(annotator("mara")[0], run, step=1)
    submitted(annotator("noor")[0], run, step=5)
    observed = analysis.observed(Selection.from_query(QueryDict(f"experiment={run.experiment_id}")))
    found = failure_breakdown.of(builders.person(), observed)
    assert (found.labelled[0].place, found.unsettled) == ("not settled", 1)


def test_the_page_shows_shares_by_arm_and_leads_to_the_runs(operator: Client) -> None:
    made = runs(4)
    mara = annotator("mara")[0]
    submitted(mara, made[0], step=1)
    submitted(mara, made[1], step=2, category="wrong-location")
    submitted(mara, made[2], owner="grader")
    address = f"/analysis/?experiment={made[0].experiment_id}"
    text = operator.get(address).content.decode()
    assert "3 of 4 failed runs labelled by people" in text
    assert "Whose fault" in text
    (link,) = set(
        re.findall(r'href="(/analysis/labelled/\?[^"]*label=category%3Awrong-location[^"]*)"', text)
    )
    behind = operator.get(link.replace("&amp;", "&")).content.decode()
    assert f"run {made[1].pk}" in behind
    assert f"run {made[0].pk}" not in behind
    file = operator.get(f"/analysis/labelled-owner.csv?experiment={made[0].experiment_id}")
    assert "owner_agent_count" in file.content.decode()


def test_what_somebody_may_still_label_is_hidden_and_counted() -> None:
    made = runs(2)
    queue_of(made[:1], overlap=100, labels_wanted=3)
    submitted(annotator("mara")[0], made[0])
    submitted(annotator("mara2")[0], made[1])
    found = failure_breakdown.of(
        annotator("noor")[0],
        analysis.observed(Selection.from_query(QueryDict(f"experiment={made[0].experiment_id}"))),
    )
    assert (len(found.labelled), found.hidden) == (1, 1)


def test_without_labels_the_section_says_how_to_begin(operator: Client) -> None:
    made = runs(1)
    text = operator.get(f"/analysis/?experiment={made[0].experiment_id}").content.decode()
    assert "no failed run of this selection is labelled" in text


def test_an_address_that_says_no_selection_is_told(operator: Client) -> None:
    answer = operator.get("/analysis/labelled/?experiment=none&label=owner:agent")
    assert answer.status_code == 400
