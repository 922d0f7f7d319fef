from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from lab.models import Endpoint, Model
from lab.services import model_lists
from lab.services.errors import FieldErrors
from tests.fakes.openai_server import Answer, FakeOpenAI, models, plain


def at(server: FakeOpenAI, name: str = "router") -> Endpoint:
    return Endpoint.objects.create(name=name, base_url=server.base_url)


def router(count: int) -> Answer:
    makers = ("acme", "borealis", "cedar")
    return models(
        *(
            {"id": f"{makers[n % 3]}/model-{n}", "owned_by": makers[n % 3], "context_length": 4096 + n}
            for n in range(count)
        )
    )


def test_twenty_thousand_models_are_searched_by_words_after_one_request(alice: User) -> None:
    with FakeOpenAI(listed=router(20_000)) as server:
        endpoint = at(server)
        everything = model_lists.search(by=alice, endpoint=endpoint)
        found = model_lists.search(by=alice, endpoint=endpoint, words="Cedar 1999")
        assert len(server.requests) == 1
        model_lists.search(by=alice, endpoint=endpoint, again=True)
        assert len(server.requests) == 2
    assert (everything.total, everything.matching, len(everything.models)) == (20_000, 20_000, 200)
    assert {model.id for model in found.models} >= {"cedar/model-11999", "cedar/model-19991"}
    assert all("1999" in model.id and model.owned_by == "cedar" for model in found.models)
    assert found.problem == ""


def test_chosen_models_come_with_their_context_window_and_once(alice: User) -> None:
    with FakeOpenAI(listed=router(10)) as server:
        endpoint = at(server)
        chosen = ["acme/model-0", "borealis/model-1", "acme/model-0"]
        first = model_lists.add(by=alice, endpoint=endpoint, chosen=chosen)
        again = model_lists.add(by=alice, endpoint=endpoint, chosen=chosen[:1])
    assert [(m.name, m.context_window) for m in first] == [("acme/model-0", 4096), ("borealis/model-1", 4097)]
    assert again == first[:1]
    assert model_lists.connected_ids(endpoint=endpoint) == {"acme/model-0", "borealis/model-1"}
    assert Model.objects.count() == 2


def test_the_same_id_at_another_endpoint_gets_a_name_of_its_own(alice: User) -> None:
    with FakeOpenAI(listed=models("m", "scripted/x")) as one, FakeOpenAI(listed=models("m")) as two:
        (first,) = model_lists.add(by=alice, endpoint=at(one, "one"), chosen=["m"])
        (second,) = model_lists.add(by=alice, endpoint=at(two, "two"), chosen=["m"])
        (like_ours,) = model_lists.add(by=alice, endpoint=first.endpoint, chosen=["scripted/x"])
    assert (first.name, second.name, second.version) == ("m", "two/m", 1)
    assert like_ours.name == "one/scripted/x"


def test_a_retired_model_that_is_chosen_again_is_its_next_version(alice: User) -> None:
    with FakeOpenAI(listed=models("m")) as server:
        endpoint = at(server)
        (first,) = model_lists.add(by=alice, endpoint=endpoint, chosen=["m"])
        Model.objects.update(retired=True)
        (second,) = model_lists.add(by=alice, endpoint=endpoint, chosen=["m"])
    assert (first.name, second.name, second.version) == ("m", "m", 2)


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "has no /models (status 404)"), (403, "keeps its list of models back (status 403): Not for you")],
)
def test_without_a_list_ids_are_typed_and_each_is_asked(alice: User, status: int, said: str) -> None:
    with FakeOpenAI(listed=plain({"error": {"message": "Not for you"}}, status=status)) as server:
        endpoint = at(server)
        found = model_lists.search(by=alice, endpoint=endpoint)
        assert found.models == []
        assert said in found.problem
        assert found.problem.endswith("Write the ids of its models below: each is asked for one token.")
        (model,) = model_lists.add(by=alice, endpoint=endpoint, chosen=[], typed=" my-model \n")
        assert [call.body["model"] for call in server.calls] == ["my-model"]
    assert (model.name, model.context_window) == ("my-model", None)


def test_a_list_too_long_to_read_says_so_and_ids_can_be_typed(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.engine.llm.endpoint._MAX_LIST_BYTES", 100_000)
    with FakeOpenAI(listed=router(5_000)) as server:
        endpoint = at(server)
        problem = model_lists.search(by=alice, endpoint=endpoint).problem
        assert "lists too many models" in problem
        assert "cannot be reached" not in problem
        assert model_lists.add(by=alice, endpoint=endpoint, chosen=[], typed="acme/model-3")


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"chosen": []}, "chosen", "tick at least one"),
        ({"chosen": ["gone"]}, "chosen", "'gone' is not in the server's list any more"),
        ({"chosen": [str(n) for n in range(501)]}, "chosen", "at most 500"),
        ({"chosen": [], "typed": "\n".join("abcdefghijklmnopqrstuvwxyz")}, "typed", "at most 20"),
        ({"chosen": [], "typed": "unknown"}, "typed", "is not among the models there"),
        ({"chosen": [], "typed": "a\u200bb"}, "typed", "U+200B"),
        ({"chosen": [], "typed": "x" * 300}, "typed", "write at most 200"),
    ],
)
def test_what_cannot_be_added_is_named_and_nothing_is(
    alice: User, values: dict[str, object], field: str, said: str
) -> None:
    with FakeOpenAI(listed=models("m")) as server, pytest.raises(FieldErrors) as raised:
        model_lists.add(by=alice, endpoint=at(server), **values)
    assert said in raised.value.errors[field]
    assert not Model.objects.exists()


def test_a_key_that_is_not_set_is_why_there_is_no_list(alice: User) -> None:
    endpoint = Endpoint.objects.create(name="e", base_url="http://127.0.0.1:1/v1", key_variable="GONE_KEY")
    assert "GONE_KEY" in model_lists.search(by=alice, endpoint=endpoint).problem
