"""What leaves the lab in a file of runs side by side, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from lab.engine.errors import InvalidValueError
from lab.models import Role, Run
from lab.services import comparison_asks, comparison_exports, comparisons
from tests import builders
from tests.services.test_purges import LEAKED, leaky, purge

pytestmark = pytest.mark.django_db(transaction=True)


def found(*runs: Run) -> comparison_exports.FileComparison:
    numbers = [run.pk for run in runs]
    return comparison_exports.of_runs(
        by=builders.person(Role.VIEWER),
        runs=comparisons.find_runs(numbers),
        asked=comparison_asks.asked(numbers, {}),
    )


def text_of(*runs: Run) -> str:
    """The file as somebody saves it."""
    client = Client()
    client.force_login(builders.person(Role.VIEWER))
    answer = client.get(f"/compare/export?runs={','.join(str(run.pk) for run in runs)}&save=1")
    return bytes(answer.getvalue()).decode()


def test_every_row_comes_once_in_order_with_what_opens_below_it() -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run in (first, second):
        builders.start(run)
        steps = [builders.bash_step(step, f"echo {step}", f"line {step}") for step in range(1, 46)]
        builders.append(run, *(event for step in steps for event in step), *builders.ending(steps=45))
    made = found(first, second)
    bodies = dict(made.bodies(made.rows))
    assert list(bodies) == list(made.rows)
    assert len(bodies) == 45
    for number, body in enumerate(bodies.values(), start=1):
        assert f"line {number}" in body
        assert "<a " not in body


def test_one_run_is_too_few() -> None:
    run = builders.run()
    with pytest.raises(InvalidValueError, match="is too few to compare"):
        found(run)


def test_about_how_large_a_file_will_be_is_known_from_a_few_rows() -> None:
    first = builders.run()
    second = builders.another_run(first, seed=2)
    for run in (first, second):
        builders.start(run)
        steps = [builders.bash_step(step, f"echo {step}", "line\n" * 300) for step in range(1, 61)]
        builders.append(run, *(event for step in steps for event in step))
    made = found(first, second)
    actual = sum(len(body.encode()) for _, body in made.bodies(made.rows))
    assert 0.8 * actual < comparison_exports.expected_bytes(made, beside=0) < 1.25 * actual
    assert comparison_exports.expected_bytes(made, beside=10**9) == comparison_exports.MOST_BYTES


def test_the_text_of_a_purge_stays_out(tmp_path: Path) -> None:
    runs = [leaky(), leaky()]
    assert LEAKED[:7] in text_of(*runs)
    secret_file = tmp_path / "leaked"
    secret_file.write_text(f"{LEAKED}\n")
    purge(secret_file)
    text = text_of(*runs)
    for part in (LEAKED, LEAKED[:12], LEAKED[-12:]):
        assert part not in text
    assert "purged" in text
