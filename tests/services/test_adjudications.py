"""Labels that differ and the records that settle them, also when labels come later or are corrected."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from lab.analysis.label_agreement import fields
from lab.engine.errors import InvalidValueError
from lab.models import Annotation
from lab.services import adjudications, agreements, guidelines, label_rows, labels
from tests import builders
from tests.web.labelling import annotator, do, draft_of, failed_run, queue_of, submitted

pytestmark = pytest.mark.django_db


def settled(run_id: int) -> Annotation:
    """The run's labels settled by taking the first one whole."""
    otto = builders.person()
    draft = adjudications.open_draft(by=otto, run_id=run_id, guideline=guidelines.default())
    parent = draft.parents.order_by("pk").first()
    assert parent is not None
    draft = adjudications.take(by=otto, annotation_id=draft.pk, revision=0, parent_id=parent.pk, part="all")
    return labels.submit(by=otto, annotation_id=draft.pk, revision=draft.revision)


def test_a_label_that_comes_later_makes_a_settled_run_wait_again() -> None:
    run = failed_run()
    for step, name in ((1, "mara"), (5, "noor")):
        submitted(annotator(name)[0], run, step=step)
    settled(run.pk)
    (case,), _ = adjudications.cases(by=builders.person())
    assert (case.waits, case.newer) == (False, False)
    third = submitted(annotator("otto")[0], run, step=3)
    (case,), _ = adjudications.cases(by=builders.person())
    assert (case.waits, case.newer) == (True, True)
    otto = builders.person()
    draft = adjudications.open_draft(by=otto, run_id=run.pk, guideline=guidelines.default())
    again = adjudications.take(by=otto, annotation_id=draft.pk, revision=0, parent_id=third.pk, part="root")
    root = label_rows.read(again).root
    assert root is not None
    assert root.step == 3


def test_a_draft_that_was_begun_before_a_correction_settles_the_corrected_label() -> None:
    run = failed_run()
    mara = annotator("mara")[0]
    first = submitted(mara, run, step=1)
    submitted(annotator("noor")[0], run, step=5)
    otto = builders.person()
    adjudications.open_draft(by=otto, run_id=run.pk, guideline=guidelines.default())
    draft = labels.correct(by=mara, annotation_id=first.pk)
    draft = do(mara, draft, {"do": "move_event", "key": 1, "step": {"step": 2}})
    second = labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
    opened = adjudications.open_draft(by=otto, run_id=run.pk, guideline=guidelines.default())
    assert second.pk in set(opened.parents.values_list("pk", flat=True))
    with pytest.raises(InvalidValueError, match="none of those that are settled"):
        adjudications.take(
            by=otto, annotation_id=opened.pk, revision=opened.revision, parent_id=first.pk, part="all"
        )


def test_many_cases_cost_as_many_queries_as_few() -> None:
    mara, noor = annotator("mara")[0], annotator("noor")[0]
    first = failed_run()
    counts = []
    for seeds in (range(2, 4), range(4, 9)):
        for seed in seeds:
            run = failed_run(first, seed=seed)
            submitted(mara, run, step=1)
            submitted(noor, run, step=2)
        with CaptureQueriesContext(connection) as queries:
            adjudications.cases(by=builders.person())
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_severity_is_compared_at_steps_that_both_see_and_categories_all_together() -> None:
    run = failed_run()
    queue_of([run], overlap=100)
    for name, severity in (("mara", "high"), ("noor", "low")):
        person, _ = annotator(name)
        draft = do(
            person,
            draft_of(person, run),
            {"do": "set_owner", "value": "agent"},
            {"do": "point_root", "step": {"step": 4}},
            {"do": "change_event", "key": 1, "field": "category", "value": "other"},
            {"do": "change_event", "key": 1, "field": "severity", "value": severity},
            {"do": "set_sure", "value": True},
        )
        labels.submit(by=person, annotation_id=draft.pk, revision=draft.revision)
    found = fields(agreements.compared(by=builders.person()).readings)
    assert (found["severity"].n, found["severity"].raw) == (1, 0.0)
    assert (found["categories"].n, found["categories"].raw) == (1, 1.0)
    assert found["categories"].confusion is None
