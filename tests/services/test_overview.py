from __future__ import annotations

import pytest

from lab.models import RunFacts
from lab.services import overview
from tests import builders


def ran_without_a_price() -> str:
    run = builders.run()
    RunFacts.objects.update_or_create(run=run, defaults={"cost_unknown": 1, "cost": None})
    return run.arm.model.name


def suggested() -> list[overview.Suggestion]:
    return [card for card in overview.suggestions(task_set=None) if "known price" in card.title]


@pytest.mark.django_db
def test_a_model_without_a_price_is_named() -> None:
    assert suggested() == []
    name = ran_without_a_price()
    assert [card.title for card in suggested()] == [f"{name} has no known price"]


@pytest.mark.django_db
def test_several_models_without_a_price_are_one_card() -> None:
    names = sorted(ran_without_a_price() for _ in range(5))
    (card,) = suggested()
    assert card.title == "5 models have no known price"
    assert card.detail.startswith(f"{', '.join(names[:3])} and 2 more: ")
