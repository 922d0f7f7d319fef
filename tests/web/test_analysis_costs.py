"""What the panels on cost say of what they leave out, of bases that differ, and of how sure they are."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.http import QueryDict

from lab.models import Role, RunFacts
from lab.services import analysis
from lab.services.analysis import Selection
from lab.web import analysis_sections
from lab.web.analysis_parts import Panel
from tests import builders
from tests.web import analysed

pytestmark = pytest.mark.django_db


def panels(query: str = "") -> dict[str, Panel]:
    observed = analysis.observed(Selection.from_query(QueryDict(query)))
    sections = {
        section.key: section for section in analysis_sections.sections(observed, builders.person(Role.VIEWER))
    }
    return {panel.key: panel for panel in sections["cost"].panels}


def values(panel: Panel) -> dict[str, object]:
    """The first arm's row, as a file holds it."""
    assert panel.table is not None
    found: dict[str, object] = {}
    for column, cell in zip(panel.table.columns, panel.table.rows[0].cells, strict=True):
        found |= dict(zip(column.names, cell.values, strict=True))
    return found


def number(found: dict[str, object], name: str) -> float:
    value = found[name]
    assert isinstance(value, float)
    return value


def test_what_runs_that_do_not_count_cost_is_said_beside_the_ratio() -> None:
    analysed.make_mixed()
    panel = panels()["cost-per-resolved"]
    assert panel.subtitle.startswith("spend of the runs that count ÷ resolved")
    words = "4 invalid, 3 cancelled, 2 open and 2 left out cost $21.75 together, which is in no ratio here."
    assert sum(note.endswith(words) for note in panel.notes) == 2
    as_failures = panels("invalid=failures")["cost-per-resolved"]
    assert sum("3 cancelled, 2 open and 2 left out cost $1.75" in note for note in as_failures.notes) == 2


def test_a_lab_whose_runs_all_count_leaves_no_spend_aside() -> None:
    analysed.make()
    assert panels()["cost-per-resolved"].notes == ()


def test_bases_that_differ_are_named_wherever_costs_of_arms_stand_together() -> None:
    lab = analysed.make()
    RunFacts.objects.filter(run__arm=lab.arms["B"]).update(cost_basis="gpu_hours", cost=Decimal("0.01"))
    found = panels()
    for key in ("cost-rate", "spend", "within-budget", "dearest-failures"):
        assert any(note.startswith("Bases differ (") for note in found[key].notes), key


def test_costs_of_one_basis_bear_no_warning() -> None:
    analysed.make()
    assert not any(note.startswith("Bases differ") for one in panels().values() for note in one.notes)


def test_the_cost_of_a_solved_issue_and_the_share_of_failures_have_intervals() -> None:
    analysed.make()
    found = values(panels()["cost-per-resolved"])
    # Of 20 tasks at a dollar each 14 are resolved at least once.
    assert number(found, "cost_per_issue") == pytest.approx(20 / 14)
    assert number(found, "cost_per_issue_low") < 20 / 14 < number(found, "cost_per_issue_high")
    assert number(found, "failures_share") == pytest.approx(0.5)
    # All tasks cost the same, so that it is the interval of the rate, seen from the other side.
    assert number(found, "failures_share_low") == pytest.approx(0.302749, abs=1e-6)
    assert number(found, "failures_share_high") == pytest.approx(0.697251, abs=1e-6)


def test_a_budget_that_buys_nothing_has_an_interval_and_so_has_every_step() -> None:
    analysed.make()
    panel = panels()["within-budget"]
    found = values(panel)
    assert number(found, "share_at_quarter") == 0.0
    # Wilson's limits of 0 in 20.
    assert number(found, "share_at_quarter_high") == pytest.approx(0.161125, abs=1e-6)
    (steps,) = panel.more
    assert [name for column in steps.columns for name in column.names] == [
        "dollars",
        "share",
        "share_low",
        "share_high",
    ]
    assert steps.rows[0].cells[1].values == pytest.approx((0.5, 0.302749, 0.697251), abs=1e-6)


def test_failures_that_cost_nothing_are_told_from_those_whose_cost_is_unknown() -> None:
    analysed.make()
    failed = RunFacts.objects.filter(verdict="unresolved")
    failed.update(cost=Decimal(0))
    assert panels()["dearest-failures"].why == "no failed run cost anything"
    failed.update(cost=None, cost_unknown=10)
    assert panels()["dearest-failures"].why == "no failed run has a known cost"
    failed.update(verdict="resolved")
    assert panels()["dearest-failures"].why == "no run failed"
