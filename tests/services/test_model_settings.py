from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from lab.models import Model, Preflight
from lab.services import endpoints, model_settings, runs
from lab.services.errors import FieldErrors
from tests import builders
from tests.fakes.openai_server import FakeOpenAI, models


@pytest.fixture
def used(db: None) -> Model:
    return builders.run().arm.model


@pytest.fixture
def unused(used: Model) -> Model:
    return Model.objects.create(endpoint=used.endpoint, name="unused", model_id="unused")


def test_a_model_that_no_run_used_is_changed_in_place(alice: User, unused: Model) -> None:
    typed = {"sampling": '{"temperature": 0.2}', "max_tokens_per_turn": "4,096", "context_window": ""}
    changed = model_settings.change(by=alice, model=unused, typed=typed)
    unused.refresh_from_db()
    assert (changed.pk, unused.version) == (unused.pk, 1)
    assert (unused.sampling, unused.max_tokens_per_turn) == ({"temperature": 0.2}, 4096)


def test_a_change_after_a_run_is_a_new_version_and_the_runs_stays_as_it_was(alice: User, used: Model) -> None:
    typed = {"extra_body": '{"top_k": 20}', "price_basis": "card"}
    newer = model_settings.change(by=alice, model=used, typed=typed)
    used.refresh_from_db()
    assert (used.version, used.extra_body, used.price_basis) == (1, {}, "table")
    assert (newer.version, newer.extra_body, newer.price_basis) == (2, {"top_k": 20}, "card")
    assert newer.model_id == used.model_id
    assert [model.pk for model in Model.objects.in_use().filter(name=used.name)] == [newer.pk]
    assert endpoints.model_config(newer).extra_body == {"top_k": 20}


def test_a_preflight_holds_a_version_to_what_it_examined(alice: User, unused: Model) -> None:
    Preflight.objects.create(model=unused, state="ended", outcome="healthy")
    assert model_settings.change(by=alice, model=unused, typed={"context_window": "8192"}).version == 2


def test_the_same_settings_make_no_version(alice: User, used: Model) -> None:
    typed = {"sampling": "{}", "price_basis": "table", "max_tokens_per_turn": ""}
    assert model_settings.change(by=alice, model=used, typed=typed) == used
    assert Model.objects.filter(name=used.name).count() == 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("sampling", "{", "line 1, column 2"),
        ("sampling", "[1]", "is no JSON object"),
        ("sampling", '{"temperature": NaN}', "NaN is no number of JSON"),
        ("extra_body", '{"messages": []}', "sets messages, which the lab writes itself"),
        ("extra_body", "[" * 5000, "is no JSON"),
        ("extra_body", '{"a": 1e999}', "the number 1e999 is too large"),
        ("sampling", '{"a": -1e999}', "the number -1e999 is too large"),
        ("extra_body", '{"a": ' + "[" * 900 + "]" * 900 + "}", "nested too deep"),
        ("extra_body", '{"a": {"b": 1, "b": 2}}', "the name “b” twice; keep one"),
        ("sampling", '{"temperature": "hot"}', 'temperature is "hot"'),
        ("sampling", '{"seed": true}', "seed is true"),
        ("extra_body", '{"top_p": [1]}', "top_p is [1]"),
        ("max_tokens_per_turn", "0", "1 to 100,000,000"),
        ("context_window", "lots", "'lots'"),
        ("price_basis", "scripted", "choose one of table, card"),
        ("price_model", "x" * 300, "write at most 200"),
    ],
)
def test_what_cannot_be_is_named_and_nothing_is_changed(
    alice: User, used: Model, field: str, value: str, said: str
) -> None:
    with pytest.raises(FieldErrors) as raised:
        model_settings.change(by=alice, model=used, typed={field: value})
    assert said in raised.value.errors[field]
    assert Model.objects.filter(name=used.name).count() == 1


def test_a_server_gets_what_only_it_knows_as_it_was_typed(alice: User, used: Model) -> None:
    sampling = '{"temperature": 0.7, "top_k": 20, "seed": null, "stop": ["x"], "logit_bias": {"1": 2}}'
    newer = model_settings.change(by=alice, model=used, typed={"sampling": sampling})
    assert newer.sampling["stop"] == ["x"]
    assert newer.sampling["seed"] is None


def test_an_older_version_and_the_labs_own_are_not_changed(alice: User, used: Model) -> None:
    model_settings.change(by=alice, model=used, typed={"context_window": "8192"})
    scripted = endpoints.sync_scripted()[0]
    for model, said in ((used, "change version 2"), (scripted, "the lab's own")):
        with pytest.raises(FieldErrors, match=said):
            model_settings.change(by=alice, model=model, typed={"context_window": "1"})


def test_a_retired_model_is_launched_no_more_until_it_comes_back(alice: User, used: Model) -> None:
    run = used.arms.get().runs.get()
    model_settings.retire(by=alice, model=used)
    used.refresh_from_db()
    assert not Model.objects.in_use().filter(pk=used.pk).exists()
    with pytest.raises(FieldErrors) as raised:
        runs.launch(by=alice, tasks=[run.task], harness_versions=[run.arm.harness_version], models=[used])
    assert "is retired" in raised.value.errors["models"]
    model_settings.restore(by=alice, model=used)
    assert Model.objects.in_use().filter(pk=used.pk).exists()


def test_a_retired_model_with_other_settings_stays_retired(alice: User, used: Model) -> None:
    model_settings.retire(by=alice, model=used)
    used.refresh_from_db()
    newer = model_settings.change(by=alice, model=used, typed={"context_window": "8192"})
    assert (newer.version, newer.retired) == (2, True)
    assert not Model.objects.in_use().filter(name=used.name).exists()


def test_connecting_the_model_again_keeps_its_settings(alice: User) -> None:
    with FakeOpenAI(listed=models({"id": "m", "max_model_len": 8192})) as server:
        first = endpoints.connect(by=alice, base_url=server.base_url, model_id="m")
        model_settings.change(by=alice, model=first, typed={"sampling": '{"top_p": 0.9}'})
        again = endpoints.connect(by=alice, base_url=server.base_url, model_id="m", context_window="4096")
    assert (again.version, again.sampling, again.context_window) == (2, {"top_p": 0.9}, 4096)
