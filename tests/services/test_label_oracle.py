"""Labels of real collections: read to the digit, on the runs they were written about."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from pathlib import Path

import pytest

from lab.analysis import agreement
from lab.engine.formats.to_events import SUBAGENT
from lab.models import Annotation, ErrorEvent, Event, Import, Run
from lab.services import import_reading, interchange, label_exports, label_imports

pytestmark = pytest.mark.django_db(transaction=True)


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


def imported(*paths: Path) -> Import:
    row = import_reading.import_now(paths=paths, worker="w/1/1")
    report = interchange.report_of(row)
    assert (row.state, row.error, report.problem_count) == (Import.State.ENDED, "", 0)
    return row


def test_58_logs_of_several_agents_have_a_step_for_each_entry() -> None:
    row = imported(real("labels/who-and-when"))
    runs = Run.objects.filter(experiment=row.experiment)
    assert (runs.count(), runs.filter(facts__verdict="unresolved").count()) == (58, 58)
    assert sum(runs.values_list("facts__steps", flat=True)) == 2993


def test_29_runs_of_tau_bench_have_a_step_for_each_message() -> None:
    row = imported(real("labels/agentrx/tau_dataset_failed.json"))
    runs = Run.objects.filter(experiment=row.experiment)
    assert (runs.count(), runs.filter(facts__verdict="unresolved").count()) == (29, 29)
    asked = Event.objects.filter(run__in=runs, kind="model_call_started")
    assert asked.count() == 284 + 284 + 248 + 219 + 29


def test_two_readings_of_the_same_44_logs_agree_as_published() -> None:
    imported(real("labels/who-and-when"))
    for file in sorted(real("labels/who-and-when").glob("*.json")):
        found = label_imports.import_labels(name=file.name, data=file.read_bytes())
        assert (found.new, found.missing, found.problems) == (1, [], [])
    ground = real("labels/agentrx/magentic_one_ground_truth.json")
    found = label_imports.import_labels(name=ground.name, data=ground.read_bytes())
    assert (found.format, found.new, found.missing, found.problems) == ("agentrx", 44, [], [])
    assert dict(found.words) == {}
    assert label_imports.import_labels(name=ground.name, data=ground.read_bytes()).known == 44

    ours, theirs = (roots(name) for name in ("AgentRx", "Who&When"))
    assert (len(ours), len(theirs)) == (44, 58)
    pairs = [(ours[run], theirs[run]) for run in ours]
    anew = [(one, other) for one, other in pairs if not adopted(one, other)]
    table(pairs, 44, (16, 21, 25, 28, 34), 27, 0.373009, 0.294300)
    table(anew, 28, (0, 5, 9, 12, 18), 11, 0.081081, 0.182960)
    blamed = [(agent(one), agent(other)) for one, other in anew]
    assert blamed.count(("orchestrator", "websurfer")) == 10


def roots(name: str) -> dict[int, ErrorEvent]:
    rows = Annotation.objects.filter(annotator__name=name).prefetch_related("events")
    assert {row.annotator.kind for row in rows.select_related("annotator")} == {"imported"}
    return {row.run_id: row.events.get(key=row.root_event or 0) for row in rows}


def agent(event: ErrorEvent) -> str:
    return event.agent.casefold()


def adopted(one: ErrorEvent, other: ErrorEvent) -> bool:
    return (one.step, agent(one)) == (other.step, agent(other))


def table(
    pairs: list[tuple[ErrorEvent, ErrorEvent]],
    n: int,
    within: tuple[int, ...],
    agents: int,
    kappa: float,
    alpha: float,
) -> None:
    assert len(pairs) == n
    distances = [abs(one.step - other.step) for one, other in pairs]
    assert tuple(sum(far <= most for far in distances) for most in (0, 1, 3, 5, 10)) == within
    assert sum(agent(one) == agent(other) for one, other in pairs) == agents
    found = agreement.cohen([agent(one) for one, _ in pairs], [agent(other) for _, other in pairs])
    assert isinstance(found, agreement.Kappa)
    assert found.kappa == pytest.approx(kappa, abs=5e-7)
    by_rater: dict[Hashable, dict[Hashable, float | str]] = {
        side: {place: pair[side].step for place, pair in enumerate(pairs)} for side in (0, 1)
    }
    steps = agreement.alpha(by_rater, "interval")
    assert isinstance(steps, agreement.Alpha)
    assert steps.alpha == pytest.approx(alpha, abs=5e-7)


def test_labels_of_29_runs_of_tau_bench_point_at_steps_of_their_agent_and_are_written_the_same() -> None:
    truth = real("labels/agentrx/tau_ground_truth.json")
    early = label_imports.import_labels(name=truth.name, data=truth.read_bytes())
    assert (early.new, len(early.missing)) == (0, 29)
    imported(real("labels/agentrx/tau_dataset_failed.json"))
    found = label_imports.import_labels(name=truth.name, data=truth.read_bytes())
    assert (found.new, found.missing, found.problems, dict(found.words)) == (29, [], [], {})
    events = ErrorEvent.objects.select_related("annotation")
    assert (events.count(), events.filter(seq=None).count(), events.filter(category="").count()) == (39, 0, 0)
    speakers = [speaker(event) == event.agent.casefold() for event in events]
    assert (speakers.count(True), speakers.count(False)) == (38, 1)
    written = label_exports.export_all(format_name="agentrx")
    assert json.loads(written.content) == json.loads(truth.read_bytes())


def speaker(event: ErrorEvent) -> str:
    finished = Event.objects.get(run=event.annotation.run, step=event.step, kind="model_call_finished")
    notes = finished.payload["notes"]
    return notes[0].removeprefix(SUBAGENT) if notes else "assistant"


def test_labels_of_58_logs_are_written_as_their_files_have_them() -> None:
    imported(real("labels/who-and-when"))
    files = sorted(real("labels/who-and-when").glob("*.json"))
    for file in files:
        label_imports.import_labels(name=file.name, data=file.read_bytes())
    lines = label_exports.export_all(format_name="who-and-when").content.decode().splitlines()
    originals = [json.loads(file.read_bytes()) for file in files]
    for original in originals:
        del original["history"]
    assert [json.loads(line) for line in lines] == originals


def test_533_judgements_wait_for_their_runs_and_none_is_lost() -> None:
    file = real("labels/swe-bench-pro/claude_sonnet_4.csv")
    found = label_imports.import_labels(name=file.name, data=file.read_bytes())
    assert (found.new, len(found.missing), found.problems) == (0, 533, [])
