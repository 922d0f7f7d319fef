"""What runs cost and how long they took, in all and step by step."""

from __future__ import annotations

import datetime as dt

import pytest
from pytest_django import DjangoAssertNumQueries

from lab.engine.events import Event
from lab.engine.llm.base import Cost, Usage
from lab.models import Run
from lab.services import compared_costs
from lab.services.compared_costs import Curve, Growth
from lab.services.outlines import outlines_of
from tests import builders

pytestmark = pytest.mark.django_db

NOW = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
NO_PRICE = Cost(amount=None, basis="unknown")


def did(*steps: list[Event], ended: bool = True) -> Run:
    run = builders.run()
    builders.start(run)
    builders.append(run, *(event for step in steps for event in step))
    if ended:
        builders.append(run, *builders.ending(steps=len(steps)))
    return Run.objects.get(pk=run.pk)


def unpriced(step: int) -> list[Event]:
    return [builders.asked(step), builders.answered(step, content="Done.", cost=NO_PRICE)]


def unseen(step: int) -> list[Event]:
    """A step of which the server counted nothing."""
    asked, answered = builders.final_step(step)
    reply = answered.reply.model_copy(update={"usage": Usage(source="absent")})  # type: ignore[union-attr]
    return [asked, answered.model_copy(update={"reply": reply, "context_tokens": None, "cost": NO_PRICE})]


def words(run: Run) -> dict[str, str]:
    return {row.name: row.cells[0].words for row in compared_costs.totals([run], now=NOW)}


def growth(key: str, *runs: Run) -> Growth:
    return next(one for one in compared_costs.growths(outlines_of(runs)) if one.key == key)


def values(curve: Curve) -> list[float | None]:
    return [None if point is None else round(point.value, 4) for point in curve.points]


def test_totals_stand_in_words_and_a_sum_with_an_unknown_part_is_at_least_that() -> None:
    run = did(builders.final_step(1), unpriced(2))
    found = words(run)
    assert found["Exit reason"] == "agent"
    assert found["Cost"] == "at least $0.0058"
    assert found["Tokens"] == f"{2100 + 2200 + 2 * 318:,}"
    assert found["of it reasoning"] == "240"
    assert found["Time"] == "2:40"
    cost = next(row for row in compared_costs.totals([run], now=NOW) if row.name == "Cost").cells[0]
    assert cost.note == "price table, 1 request without a price"


def test_what_nobody_counted_is_unknown_and_never_nothing() -> None:
    found = {row.name: row.cells[0] for row in compared_costs.totals([did(unseen(1))], now=NOW)}
    assert not found["Tokens"].known
    assert not found["Cost"].known
    assert not found["Context, last"].known
    bare = words(builders.run())
    assert (bare["Cost"], bare["Tokens"], bare["Exit reason"]) == ("nothing yet", "none", "goes on")


def test_scripted_runs_cost_nothing_and_say_why() -> None:
    assert words(builders.run(scripted=True))["Cost"] == "$0, scripted"


def test_context_stands_for_each_step_and_the_others_grow() -> None:
    run = did(builders.final_step(1), builders.final_step(2), builders.final_step(3))
    assert values(growth("context", run).curves[0]) == [2418, 2518, 2618]
    assert values(growth("tokens", run).curves[0]) == [2418, 4936, 7554]
    assert values(growth("cost", run).curves[0]) == [0.0058, 0.0116, 0.0174]
    assert not growth("cost", run).gaps


def test_where_a_part_is_unknown_there_is_a_gap_and_what_follows_is_at_least_that() -> None:
    run = did(builders.final_step(1), unpriced(2), builders.final_step(3))
    found = growth("cost", run)
    (curve,) = found.curves
    assert values(curve) == [0.0058, None, 0.0116]
    assert [point.at_least for point in curve.known] == [False, True]
    assert found.gaps == ["A: cost of 1 step unknown, the first of them 2"]
    assert values(growth("tokens", run).curves[0]) == [2418, 4936, 7554]


def test_nothing_is_drawn_of_what_is_unknown_in_all_steps() -> None:
    found = growth("cost", did(unpriced(1)), did(unpriced(1), unpriced(2)))
    assert not found.drawn
    assert found.gaps == ["A: cost unknown in all steps", "B: cost unknown in all steps"]


def test_a_step_that_goes_on_is_no_gap() -> None:
    run = did(builders.final_step(1), [builders.asked(2)], ended=False)
    curve = growth("context", run).curves[0]
    assert (values(curve), curve.unknown) == ([2418], 0)


def test_a_long_run_is_drawn_with_a_bounded_number_of_points() -> None:
    steps = [builders.final_step(number) for number in range(1, 1502)]
    (curve,) = growth("tokens", did(*steps)).curves
    assert len(curve.points) <= compared_costs.MOST_POINTS
    assert curve.known[0].step == 1
    assert curve.known[-1].step == 1501


def test_six_runs_are_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    from lab.services import comparisons

    made = [did(builders.final_step(1)) for _ in range(6)]
    runs = comparisons.find_runs([run.pk for run in made])
    with django_assert_num_queries(1):
        compared_costs.totals(runs, now=NOW)


def test_a_failed_request_makes_all_that_follows_uncertain() -> None:
    asked, _ = builders.final_step(1)
    retried = [asked, builders.failed_request(1), builders.asked(1, request=2)]
    again = builders.answered(1, content="Done.", request=2)
    curve = growth("cost", did([*retried, again], builders.final_step(2))).curves[0]
    assert values(curve) == [0.0058, 0.0116]
    assert [point.at_least for point in curve.known] == [True, True]
