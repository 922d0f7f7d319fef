from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from lab.engine.llm.base import Cost, Price
from lab.engine.llm.usage import read_usage
from lab.engine.pricing import price_call
from lab.models import Model, Run
from lab.services import lab, overview
from lab.services.facts import facts_of
from lab.services.run_costs import Bill, bill_of
from lab.services.run_pages import find_run, panel, row_of
from tests import builders


@pytest.fixture
def run(db: None) -> Run:
    run = builders.run()
    builders.start(run)
    return run


def cost(amount: str | None, basis: str = "table", **values: Any) -> Cost:
    known = None if amount is None else Decimal(amount)
    fields = {"matched": f"by {basis}"} if known is not None else {}
    return Cost(amount=known, basis=basis if known is not None else "unknown", **fields | values)


def bill(run: Run, *costs: Cost, model: str = "cedar-large") -> Bill:
    for step, one in enumerate(costs, start=1):
        answered = builders.answered(step, cost=one)
        reply = answered.reply.model_copy(update={"model": model})
        builders.append(run, builders.asked(step), answered.model_copy(update={"reply": reply}))
    found = find_run(run.pk)
    assert found is not None
    return bill_of(found, facts_of(found))


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ("table", "Table price, by table."),
        ("card", "Own card, by card."),
        ("gpu_hours", "GPU hours, by gpu_hours."),
        ("reference", "Reference price, by reference."),
    ],
)
def test_the_basis_stands_beside_the_figure(run: Run, basis: str, words: str) -> None:
    found = bill(run, cost("0.25", basis), cost("0.5", basis))
    assert found.total.cost == "$0.7500"
    assert words in found.basis


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([cost("2.29")], "$2.29 price table"),
        ([cost("0", "card")], "$0.00 own card"),
        ([cost("0.00023", "gpu_hours"), cost(None)], "≥ $0.00023 GPU hours"),
        ([cost("1", "reference")], "$1.00 reference price"),
    ],
)
def test_a_row_of_a_list_has_the_basis_beside_its_cost(run: Run, costs: list[Cost], words: str) -> None:
    bill(run, *costs)
    assert row_of(find_run(run.pk)).cost == words


def test_figures_of_two_bases_stand_beside_each_other_and_are_not_added(run: Run) -> None:
    found = bill(run, cost("0.25", "card"), cost("0.5", "gpu_hours"))
    assert found.total.cost == "$0.2500 own card + $0.5000 GPU hours"
    assert "Own card, by card; GPU hours, by gpu_hours" in found.basis
    assert row_of(find_run(run.pk)).cost == "$0.25 own card + $0.50 GPU hours"
    meter = next(meter for meter in panel(find_run(run.pk)).limits if meter.label == "Cost")
    assert meter.used == "$0.25 own card + $0.50 GPU hours"
    assert lab.state().spent_today == "$0.25 own card + $0.50 GPU hours"


def test_what_is_unknown_is_neither_zero_nor_counted_twice(run: Run) -> None:
    found = bill(run, cost(None, note="no price is set for this model"))
    assert "unknown" in found.total.cost
    assert found.basis.startswith("No price: no price is set for this model.")
    assert lab.state().spent_today == "unknown: no price for 1 call"


def test_a_replay_costs_nothing_and_says_why(run: Run) -> None:
    Model.objects.filter(pk=run.arm.model_id).update(price_basis="replay")
    found = bill(run, cost("0", "replay"))
    assert found.total.cost == "$0, replay"
    assert "recorded turns are served again" in found.basis
    assert row_of(find_run(run.pk)).cost == "$0, replay"
    assert lab.state().spent_today == "$0.00"


@pytest.mark.parametrize("answers", [0, 1])
def test_a_replay_that_diverged_costs_nothing_wherever_it_is_said(run: Run, answers: int) -> None:
    Model.objects.filter(pk=run.arm.model_id).update(price_basis="replay")
    for step in range(1, answers + 1):
        builders.append(run, builders.asked(step), builders.answered(step, cost=cost("0", "replay")))
    step = answers + 1
    builders.append(run, builders.asked(step), builders.failed_request(step, retry_in=None))
    found = bill(run)
    assert found.total.cost == "$0, replay"
    assert found.total.label == "Total"
    assert {row.label: row.cost for row in found.rows}["1 failed request"] == "$0"
    assert {row.cost for row in found.rows} <= {"$0", "included"}
    assert "recorded turns are served again" in found.basis


def test_a_servers_own_figure_stands_beside_ours_with_both_sources(run: Run) -> None:
    told = {"reported": Decimal("0.03")}
    found = bill(run, cost("0.01", "card", **told), cost("0.01", "card", **told), cost("0.01", "card"))
    assert found.differs
    assert found.reported == (
        "The server says $0.0600 for 2 of 3 requests; the own card gives $0.0200 for the same."
    )


def test_a_servers_figure_that_agrees_is_said_without_a_warning(run: Run) -> None:
    found = bill(run, cost("0.0300", reported=Decimal("0.0301")))
    assert (found.differs, found.reported) == (
        False,
        "The server says $0.0301 for 1 of 1 request, as the price table does.",
    )


def test_a_servers_figure_without_one_of_ours_stands_alone(run: Run) -> None:
    found = bill(run, cost(None, reported=Decimal("0.5")))
    assert found.reported == "The server says $0.5000 for 1 of 1 request."
    assert "unknown" in found.total.cost


def test_another_model_than_was_asked_for_is_named(run: Run) -> None:
    found = bill(run, cost("0.1"), cost("0.1"), model="cedar-large-2026-10")
    assert found.answered == "Asked for cedar-large, answered by cedar-large-2026-10 (2 replies)."
    other = builders.run()
    builders.start(other)
    assert bill(other, cost("0.1")).answered == ""


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"prompt_tokens": -5, "completion_tokens": 3}, "prompt_tokens is -5, which is no count of tokens"),
        ({"prompt_tokens": 10, "completion_tokens": 10**18}, "completion_tokens is 1000000000000000000"),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}},
            "99 cached tokens are more than the 10 of the whole input",
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "cost": -2},
            "the server's cost is -2, which is no price of a call",
        ),
    ],
)
def test_counts_that_cannot_be_are_flagged_and_not_bent(run: Run, raw: dict[str, Any], said: str) -> None:
    from lab.services.endpoints import model_config

    price = model_config(run.arm.model).price.model_copy(update={"provider": "openai", "model": "gpt-4o"})
    usage = read_usage(raw)
    at = run.created_at
    found = bill(run, price_call(price, usage, model="cedar-large", at=at, base_url=""))
    assert any(said in note for note in found.notes), found.notes


def test_cached_input_without_a_rate_of_its_own_is_charged_as_other_input_is(run: Run) -> None:
    found = bill(run, cost("0.1", "card", unit_prices={"input": Decimal(2), "output": Decimal(0)}))
    rows = {row.label: row.cost for row in found.rows}
    assert rows["Input, cached"] == "$0.0036"


ANTHROPIC = {"input_tokens": 3, "cache_creation_input_tokens": 12_304, "cache_read_input_tokens": 900_000}


@pytest.mark.parametrize(
    ("provider", "model", "raw"),
    [
        ("anthropic", "claude-2", {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 400}}),
        (
            "openai",
            "gpt-4o",
            {
                "prompt_tokens": 9_000,
                "prompt_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 70},
            },
        ),
        ("anthropic", "claude-sonnet-4-5", ANTHROPIC),
        (
            "anthropic",
            "claude-sonnet-4-5",
            ANTHROPIC | {"cache_creation": {"ephemeral_1h_input_tokens": 12_304}},
        ),
        (
            "anthropic",
            "claude-sonnet-4-5",
            ANTHROPIC | {"cache_creation": {"ephemeral_1h_input_tokens": 304}},
        ),
    ],
)
def test_the_parts_of_a_table_price_add_up_to_the_whole(
    run: Run, provider: str, model: str, raw: dict[str, Any]
) -> None:
    usage = read_usage(raw | {"completion_tokens": 5_500})
    price = Price(provider=provider, model=model)
    at = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    priced = price_call(price, usage, model=model, at=at, base_url="")
    for step in (1, 2):
        answered = builders.answered(step, cost=priced)
        reply = answered.reply.model_copy(update={"usage": usage})
        builders.append(run, builders.asked(step), answered.model_copy(update={"reply": reply}))
    found = bill(run)
    parts = [row.cost for row in found.rows if not row.within]
    assert sum(Decimal(part.removeprefix("$")) for part in parts) == pytest.approx(
        Decimal(found.total.cost.removeprefix("$")), abs=Decimal("0.0003")
    )


def test_a_mean_of_several_bases_is_none(run: Run) -> None:
    builders.append(run, *builders.ending(steps=1))
    other = builders.another_run(run, seed=2)
    builders.start(other)
    for one, basis in ((run, "card"), (other, "table")):
        bill(one, cost("0.2", basis))
    builders.append(other, *builders.ending(steps=1))
    (forecast,) = overview.forecasts().values()
    assert (forecast.runs, forecast.dollars) == (2, None)
