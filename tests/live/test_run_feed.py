"""What a watched run's panel says, when the run goes on between two reads."""

from __future__ import annotations

import json

import pytest

from lab.engine.events import ImageRequested
from lab.live.run_feed import PARTS_SECONDS, PanelFeed, RunState, StepFeed
from lab.models import Draft, Run
from lab.services.run_pages import BEFORE_STEPS
from tests import builders

pytestmark = pytest.mark.django_db


def test_a_run_that_ends_while_its_panel_is_read_is_not_called_running_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = builders.run()
    builders.start(run)
    before = RunState(run.last_seq, "running", False, 0, 0)
    builders.append(run, *builders.bash_step(1, "ls", "a\n"), *builders.ending(outcome="resolved", steps=1))
    run.refresh_from_db()
    clock = 100.0
    monkeypatch.setattr("lab.live.run_feed.time.monotonic", lambda: clock)
    feed = PanelFeed(run_id=run.pk)

    said = list(feed.changed(before))
    clock += 2 * PARTS_SECONDS
    said += feed.changed(RunState(run.last_seq, "ended", False, 0, 0))

    assert json.loads(said[-1].text)["status"] == "ended"
    assert json.loads(said[-1].text)["last"] == run.last_seq


def test_how_far_an_image_is_comes_with_the_panel_and_not_as_text_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = builders.run(status=Run.Status.PREPARING)
    run.attempts.create(n=1)
    builders.append(run, builders.opening()[0], ImageRequested(reference="python:3.13", action="pull"))
    run.refresh_from_db()
    clock = 100.0
    monkeypatch.setattr("lab.live.run_feed.time.monotonic", lambda: clock)
    panel, steps = PanelFeed(run_id=run.pk), StepFeed(run_id=run.pk, position=run.last_seq)
    list(panel.changed(RunState(run.last_seq, "preparing", False, 0, 0)))
    draft = Draft(run=run, after_seq=run.last_seq, step=BEFORE_STEPS)
    for version, words in enumerate(("pulling, 1.0 of 9.0 MB", "pulling, 2.0 of 9.0 MB"), start=1):
        clock += 2 * PARTS_SECONDS
        draft.version, draft.content = version, words
        draft.save()
        state = RunState(run.last_seq, "preparing", False, 0, version)
        assert list(steps.changed(state)) == []
        (said,) = panel.changed(state)
        assert words in json.loads(said.text)["parts"]
    clock += 2 * PARTS_SECONDS
    assert list(panel.changed(RunState(run.last_seq, "running", False, 0, 7))) == []
