"""Every action of a service that a person takes × everybody. One without a decision or a sample fails."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.utils import timezone

from lab import services
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.presets import load_preset
from lab.engine.harnesses.yaml_form import to_yaml
from lab.engine.labels.vocabularies import load_vocabulary
from lab.models import Import, JudgeRun, Preflight, PriceCard, Role, Run
from lab.services import comparison_asks, comparisons, experiment_plans, guidelines, interchange, tokens
from lab.services.access import cap_role, holds, require
from lab.services.errors import AccessDeniedError, FieldErrors
from tests import builders
from tests.access import labelling
from tests.access.labelling import ended
from tests.access.people import visitors

pytestmark = pytest.mark.django_db

Anybody = User | AnonymousUser
BASE = "http://lab.example"


def actions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What a person does: every public function of the services that is told by whom."""
    for found in pkgutil.walk_packages(services.__path__, f"{services.__name__}."):
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and "by" in inspect.signature(function).parameters:
                yield f"{found.name.removeprefix('lab.services.')}.{name}", function


ACTIONS = dict(actions())


def somebody() -> User:
    return builders.person(Role.VIEWER)


def own_token(by: Anybody) -> Any:
    """A token of whoever asks, where they may have one."""
    owner = by if holds(by, Role.VIEWER) and isinstance(by, User) else somebody()
    return tokens.make(by=owner, name="mine", role="viewer").token


def launch_of(run: Run) -> dict[str, Any]:
    return {"tasks": [run.task], "harness_versions": [run.arm.harness_version], "models": [run.arm.model]}


def another_harness() -> HarnessConfig:
    return load_preset("leaf-compatible").model_copy(update={"name": "another", "system_prompt": "Mend it."})


def card_of(run: Run) -> PriceCard:
    return PriceCard.objects.create(
        endpoint=run.arm.model.endpoint, model_id="m", basis="card", valid_from=timezone.now()
    )


def imported() -> Import:
    """An import that receives files, without an end."""
    row = Import.objects.create()
    interchange.given_folder(row).mkdir(parents=True, exist_ok=True)
    return row


def two_side_by_side(run: Run) -> dict[str, Any]:
    """The run and another of its arm, as a page asks for them."""
    numbers = [run.pk, builders.another_run(run, seed=2).pk]
    return {"runs": comparisons.find_runs(numbers), "asked": comparison_asks.asked(numbers, {})}


# How each action is taken; whatever else may be wrong with it, who may take it is asked first.
SAMPLES: dict[str, Callable[[Run], dict[str, Any]]] = {
    "exports.of_run": lambda run: {"run": run, "format_name": "csv"},
    "exports.of_experiment": lambda run: {"experiment": run.experiment, "format_name": "csv"},
    "comparison_exports.of_runs": two_side_by_side,
    "experiment_asks.pause": lambda run: {"experiment": run.experiment},
    "experiment_asks.resume": lambda run: {"experiment": run.experiment},
    "experiment_asks.cancel": lambda run: {"experiment": run.experiment},
    "experiment_asks.add_seeds": lambda run: {"experiment": run.experiment, "seeds": 2},
    "experiment_asks.add_arm": lambda run: {
        **{"experiment": run.experiment, "model": run.arm.model},
        "harness_version": run.arm.harness_version,
    },
    "experiment_asks.rerun_infrastructure": lambda run: {"experiment": run.experiment},
    "experiment_asks.raise_budget": lambda run: {
        **{"experiment": run.experiment, "name": "max_tokens", "typed": "1000000"}
    },
    "experiment_asks.change_budgets": lambda run: {
        **{"experiment": run.experiment, "typed": {"max_hours": "2"}}
    },
    "experiment_asks.change_concurrency": lambda run: {"experiment": run.experiment, "typed": "2"},
    "controls.ask": lambda run: {"run": run, "control": "pause"},
    "controls.ask_limits": lambda run: {"run": run, "typed": {"max_steps": "20"}},
    "label_imports.import_file": lambda run: {"name": "labels.jsonl", "data": b"no labels"},
    "label_exports.export": lambda run: {"format_name": "lab-jsonl"},
    "label_exports.counts": lambda run: {},
    "labels.open_draft": lambda run: {"run_id": ended(run).pk, "guideline": guidelines.default()},
    **dict.fromkeys(labelling.OWN, lambda run: {}),
    "queues.make": lambda run: {"settings": labelling.queue_settings(), "rules": {"runs": [ended(run).pk]}},
    "queues.refill": lambda run: {"queue_id": labelling.queue(run).pk},
    "queues.close": lambda run: {"queue_id": labelling.queue(run).pk},
    "queues.reopen": lambda run: {"queue_id": labelling.queue(run).pk},
    "claims.claim_next": lambda run: {"queue_id": labelling.queue(run).pk},
    "taxonomies.save_version": lambda run: {"content": load_vocabulary("coding"), "seen_n": labelling.seen()},
    "guidelines.save_version": lambda run: {
        **{"name": "ours", "definition": "inevitable"},
        "taxonomy_version": guidelines.default().taxonomy_version,
    },
    "label_keys.change": lambda run: {"keys": {"event": "a"}},
    "agreements.compared": lambda run: {},
    "adjudications.cases": lambda run: {},
    "adjudications.open_draft": lambda run: labelling.labelled_twice(run),
    "judging.ask": lambda run: {"model": run.arm.model, "run_ids": [run.pk]},
    "judge_scores.records": lambda run: {},
    "judging.cancel": lambda run: {"reading": JudgeRun(pk=0)},
    "preflights.ask": lambda run: {"model": run.arm.model},
    "preflights.cancel": lambda run: {"preflight": Preflight.objects.create(model=run.arm.model)},
    "endpoints.connect": lambda run: {"base_url": "nowhere", "model_id": "", "key_variable": ""},
    "endpoint_settings.change": lambda run: {"endpoint": run.arm.model.endpoint, "typed": {}},
    "endpoint_settings.restore": lambda run: {"endpoint": run.arm.model.endpoint},
    "endpoint_settings.retire": lambda run: {"endpoint": run.arm.model.endpoint},
    "model_lists.add": lambda run: {"endpoint": run.arm.model.endpoint, "chosen": []},
    "model_lists.search": lambda run: {"endpoint": run.arm.model.endpoint},
    "model_settings.change": lambda run: {"model": run.arm.model, "typed": {}},
    "model_settings.restore": lambda run: {"model": run.arm.model},
    "model_settings.retire": lambda run: {"model": run.arm.model},
    "price_cards.add": lambda run: {
        **{"endpoint": run.arm.model.endpoint, "model_id": "m", "basis": "card", "typed": {}}
    },
    "price_cards.end": lambda run: {"card": card_of(run), "valid_until": ""},
    "price_cards.remove": lambda run: {"card": card_of(run)},
    "replays.make": lambda run: {"arm": run.arm},
    "harnesses.create_version": lambda run: {"config": another_harness()},
    "harnesses.import_yaml": lambda run: {"text": to_yaml(another_harness())},
    "interchange.start": lambda run: {"name": "old runs"},
    "interchange.add_file": lambda run: {"imported": imported(), "name": "a.json", "chunks": [b"{}"]},
    "interchange.submit": lambda run: {"imported": imported()},
    "interchange.again": lambda run: {"imported": imported()},
    "interchange.cancel": lambda run: {"imported": imported()},
    "isolation.consent_without_isolation": lambda run: {},
    "people.add": lambda run: {"name": "somebody-new", "role": "viewer", "base_url": BASE},
    "people.deactivate": lambda run: {"person": somebody()},
    "people.invite_again": lambda run: {"person": somebody(), "base_url": BASE},
    "people.reactivate": lambda run: {"person": somebody()},
    "people.set_role": lambda run: {"person": somebody(), "role": "operator"},
    "people.set_single_keys": lambda run: {"on": False},
    "people.set_theme": lambda run: {"theme": "dark"},
    "records.after": lambda run: {"run": run, "seq": 0, "limit": 5},
    "experiment_plans.launch": lambda run: {"plan": experiment_plans.of(run.experiment)},
    "runs.launch": launch_of,
    "sample.load": lambda run: {"seconds": 0.0},
    "sample.remove": lambda run: {},
    "runs.launch_again": lambda run: {"run": run},
    "runs.launch_replay": lambda run: {"runs": [run], "harness_version": run.arm.harness_version},
    "sign_in.set_password": lambda run: {"address": "192.0.2.1", "current": "", "new": "x", "again": "x"},
    "otlp.receive": lambda run: {"spans": []},
    "tokens.make": lambda run: {"name": "nightly", "role": "viewer"},
    "tokens.revoke": lambda run: {},
    "tokens.visible": lambda run: {},
}


def test_every_action_says_who_may_take_it_and_is_taken_here() -> None:
    undecided = [
        name for name, action in ACTIONS.items() if not isinstance(getattr(action, "access", None), Role)
    ]
    assert undecided == [], "put lab.services.access.for_role on them"
    assert set(ACTIONS) == set(SAMPLES), "say in SAMPLES how a new action is taken"


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_everybody_may_take_the_action_or_not_as_decided(name: str) -> None:
    action = ACTIONS[name]
    needed: Role = action.access  # type: ignore[attr-defined]
    run = builders.run(scripted=True)
    for visitor in visitors():
        with transaction.atomic():
            sample = SAMPLES[name](run)
            if name == "tokens.revoke":
                sample = {"token": own_token(visitor.asked)}
            elif name in labelling.OWN:
                sample = labelling.own(name, visitor.asked, run)
            refused = False
            try:
                action(by=visitor.asked, **sample)
            except AccessDeniedError:
                refused = True
            except FieldErrors:
                # A sample's values may be wrong; they were looked at after the role.
                pass
            assert refused == (not visitor.holds(needed)), (name, visitor.kind)
            transaction.set_rollback(True)


def test_the_role_is_asked_before_anything_is_looked_at() -> None:
    """A refusal tells nothing of the values, and costs nothing."""
    nothing = object()
    for name, action in ACTIONS.items():
        wanted = [p for p in inspect.signature(action).parameters.values() if p.name != "by"]
        values = {parameter.name: nothing for parameter in wanted if parameter.default is parameter.empty}
        with pytest.raises(AccessDeniedError, match="Sign in first"):
            action(by=AnonymousUser(), **values)
        assert name in SAMPLES


def test_only_what_is_a_persons_own_takes_no_operator() -> None:
    own = {name for name, action in ACTIONS.items() if not action.access.includes(Role.OPERATOR)}  # type: ignore[attr-defined]
    assert own == {
        "adjudications.cases",
        "agreements.compared",
        "claims.claim_next",
        "comparison_exports.of_runs",
        "exports.of_experiment",
        "exports.of_run",
        "judge_scores.records",
        "label_exports.counts",
        "label_exports.export",
        "label_keys.change",
        "people.set_single_keys",
        "people.set_theme",
        "records.after",
        "sign_in.set_password",
        "tokens.make",
        "tokens.revoke",
        "tokens.visible",
        "labels.open_draft",
        *labelling.OWN - {"adjudications.take"},
    }


def test_nobody_revokes_somebody_elses_token_but_an_admin() -> None:
    token = own_token(builders.person(Role.OPERATOR))
    with pytest.raises(AccessDeniedError, match="role admin; yours is operator"):
        tokens.revoke(by=builders.person(Role.OPERATOR), token=token)
    tokens.revoke(by=builders.person(Role.ADMIN), token=token)


def test_who_acts_by_a_token_may_do_no_more_than_the_token() -> None:
    admin = cap_role(builders.person(Role.ADMIN), Role.VIEWER)
    assert require(admin, Role.VIEWER) is Role.VIEWER
    with pytest.raises(AccessDeniedError, match="role operator; yours is viewer"):
        require(admin, Role.OPERATOR)
    viewer = cap_role(builders.person(Role.VIEWER), Role.ADMIN)
    assert not holds(viewer, Role.ANNOTATOR)
