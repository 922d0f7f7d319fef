"""What a run's page says of its labels, and to whom it offers to label."""

from __future__ import annotations

import pytest
from django.test import Client

from lab.models import Run
from tests import builders
from tests.web.labelling import annotator, failed_run, queue_of, submitted

pytestmark = pytest.mark.django_db


def test_readings_stand_on_the_runs_page_and_lead_to_the_labels(viewer: Client) -> None:
    run = failed_run()
    label = submitted(annotator("mara")[0], run, step=5)
    text = viewer.get(f"/runs/{run.pk}/").content.decode()
    part = text[text.index('id="part-labels"') :]
    assert f'/annotate/labels/{label.pk}/">mara' in part
    assert "agent, step 5" in part


def test_readings_are_hidden_from_whoever_may_still_label_the_run() -> None:
    run = failed_run()
    queue_of([run], overlap=100)
    submitted(annotator("mara")[0], run)
    _, client = annotator()
    text = client.get(f"/runs/{run.pk}/").content.decode()
    part = text[text.index('id="part-labels"') :]
    assert "mara" not in part
    assert "1 hidden until you submit yours" in part


def test_only_who_may_label_is_offered_it_and_only_when_the_run_has_ended(viewer: Client) -> None:
    run, going = failed_run(), builders.run(status=Run.Status.RUNNING)
    _, client = annotator()
    assert "data-label-run" in client.get(f"/runs/{run.pk}/").content.decode()
    assert "data-label-run" not in viewer.get(f"/runs/{run.pk}/").content.decode()
    assert "data-label-run" not in client.get(f"/runs/{going.pk}/").content.decode()
