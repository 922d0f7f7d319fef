"""Recorded verdicts find the runs that they are of, and never hide what was known before."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.models import Run, RunFacts, Verification
from tests.services.import_lines import imported, lines, report, runs_of
from tests.services.leaf_files import trajectory, write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def test_a_verdict_elsewhere_in_the_import_is_put_beside_its_run(given: Path) -> None:
    lines(given / "1-report.jsonl", {"mind": "x", "outcome": "resolved", "tests": True})
    lines(given / "2-runs.jsonl", {"mind": "x"}, {"mind": "y"})
    lines(
        given / "3-summary.jsonl",
        {"mind": "x", "outcome": "resolved"},
        {"mind": "w", "outcome": "unresolved"},
    )
    row = imported(given)
    graded, ungraded, alone = runs_of(row)
    assert (graded.facts.verdict, graded.facts.fail_to_pass_passed) == ("resolved", 2)
    assert graded.status == Run.Status.ENDED
    assert ungraded.facts.verdict == ""
    assert (alone.task.slug, alone.facts.verdict, alone.facts.calls) == ("w", "unresolved", 0)
    told = report(row).gradings
    assert (told.attached, told.verdict_only, told.known, told.contradicting_count) == (2, 1, 0, 0)
    assert row.found["verdict_only"] == 1
    assert [(one.imported, one.verdict_only) for one in report(row).formats] == [(2, 1)]
    again = report(imported(given))
    assert (again.gradings.attached, again.gradings.verdict_only, again.gradings.known) == (0, 0, 3)
    assert (Run.objects.count(), Verification.objects.count()) == (3, 3)


def test_a_verdict_finds_the_run_of_an_earlier_import_where_one_alone_can_be_meant(given: Path) -> None:
    lines(given / "runs.jsonl", {"mind": "x"}, {"mind": "y", "says": "1"}, {"mind": "y", "says": "2"})
    first = imported(given)
    lines(given / "runs.jsonl", {"mind": "x", "outcome": "resolved"}, {"mind": "y", "outcome": "resolved"})
    second = imported(given)
    assert RunFacts.objects.get(run=runs_of(first)[0]).verdict == "resolved"
    told = report(second).gradings
    assert (told.attached, told.verdict_only) == (1, 1)
    assert "2 runs of earlier imports could be meant" in told.unattached[0].message


def test_verdicts_that_contradict_each_other_are_both_kept_and_named(given: Path) -> None:
    lines(given / "1.jsonl", {"mind": "x"}, {"mind": "x", "outcome": "resolved"})
    lines(given / "2.jsonl", {"mind": "x", "outcome": "unresolved"})
    row = imported(given)
    (run,) = runs_of(row)
    (found,) = report(row).gradings.contradicting
    assert (found.run, found.before, found.now) == (run.pk, "resolved", "unresolved")
    assert (run.verifications.count(), run.facts.verdict) == (2, "unresolved")


def test_a_verdict_alone_does_not_take_the_place_of_the_same_one_with_its_tests(given: Path) -> None:
    lines(given / "runs.jsonl", {"mind": "x"}, {"mind": "x", "outcome": "resolved", "tests": True})
    (run,) = runs_of(imported(given))
    lines(given / "runs.jsonl", {"mind": "x", "outcome": "resolved", "model": "openai/gpt-4o"})
    told = report(imported(given)).gradings
    assert (told.attached, told.known, told.verdict_only) == (0, 1, 0)
    facts = RunFacts.objects.get(run=run)
    assert (run.verifications.count(), facts.verdict, facts.fail_to_pass_passed) == (1, "resolved", 2)
    lines(given / "runs.jsonl", {"mind": "x", "outcome": "unresolved"})
    assert report(imported(given)).gradings.attached == 1
    assert RunFacts.objects.get(run=run).verdict == "unresolved"


def test_leaf_rows_of_results_find_their_trajectories_by_seed(given: Path) -> None:
    write(given / "trajectories/x/trajectory_seed-1.json", trajectory("x", seed=1, reward=None))
    write(given / "trajectories/x/trajectory_seed-2.json", trajectory("x", seed=2, reward=None))
    rows = [
        {"instance_id": "x", "seed": seed, "status": "completed", "reward": reward, "exit_reason": "agent"}
        | {"trajectory": f"/home/somebody/out/trajectories/x/trajectory_seed-{seed}.json"}
        for seed, reward in ((1, 1.0), (2, 0.0))
    ]
    lines(given / "results.jsonl", *rows)
    row = imported(given)
    assert [run.facts.verdict for run in runs_of(row)] == ["resolved", "unresolved"]
