"""What a watched run's panel says, when the run goes on between two reads."""

from __future__ import annotations

import json

import pytest

from lab.live.run_feed import PARTS_SECONDS, PanelFeed, RunState
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
