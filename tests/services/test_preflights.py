"""Preflights from asking to their end: examined once at a time, cancelled, and ended when abandoned."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone

from lab.engine.errors import ExitReason
from lab.engine.stop import StopSignal
from lab.models import Endpoint, Model, Preflight, PriceCard, Role
from lab.services import (
    endpoints,
    harnesses,
    lab,
    model_settings,
    preflight_costs,
    preflight_shown,
    preflight_work,
    preflights,
)
from lab.services.errors import FieldErrors
from lab.services.processes import process_identity
from lab.services.upkeep import Upkeep
from tests.builders import person
from tests.fakes.model_server import MODEL, LeakingXML, ModelServer, RefusesKeys, SGLang
from tests.fakes.openai_server import Answer, JSONObject
from tests.timing import SOON

ME = process_identity()
DEAD = f"{ME.split('/')[0]}/1/1"


class Slow(ModelServer):
    """Answers the second request after a while that nobody waits for."""

    def refusal(self, body: JSONObject) -> Answer | None:
        return Answer(pieces=[b"{}"], delay=60) if len(self.calls) > 1 else None


def model_at(server: ModelServer, **fields: object) -> Model:
    endpoint = Endpoint.objects.create(name=f"at {server.base_url}", base_url=server.base_url)
    return Model.objects.create(endpoint=endpoint, name="coder", model_id=MODEL, **fields)


def examined(by: User, server: ModelServer, **options: bool) -> Preflight:
    with server:
        preflights.ask(by=by, model=model_at(server), **options)
        claimed = preflights.claim_next(worker=ME)
        assert claimed is not None
        return preflight_work.conduct(preflight=claimed)


@pytest.fixture
def hanging() -> Iterator[Slow]:
    with Slow() as server:
        yield server


@pytest.mark.django_db(transaction=True)
class TestExamining:
    def test_what_was_found_is_stored_with_probes_and_figures(self, alice: User) -> None:
        ended = examined(alice, SGLang())
        assert (ended.state, ended.outcome, ended.error) == ("ended", "healthy", "")
        assert [probe["state"] for probe in ended.probes].count("answered") == 8
        assert ended.measured["server"] == "sglang"
        assert ended.started_at is not None
        assert ended.ended_at is not None

    def test_what_it_spent_stands_with_its_basis_and_counts_in_what_was_spent_today(
        self, alice: User
    ) -> None:
        with SGLang() as server:
            model = model_at(server, price_basis="card")
            PriceCard.objects.create(
                endpoint=model.endpoint,
                model_id=MODEL,
                basis="card",
                rates={"input": "1000", "output": "1000"},
                valid_from=timezone.now() - dt.timedelta(days=1),
            )
            preflights.ask(by=alice, model=model)
            claimed = preflights.claim_next(worker=ME)
            assert claimed is not None
            ended = preflight_work.conduct(preflight=claimed)
        asked = [probe for probe in ended.probes if "seconds" in probe]
        tokens = sum((probe["input_tokens"] or 0) + (probe["output_tokens"] or 0) for probe in asked)
        spent = preflight_costs.spent_on([ended])
        assert spent.sums == {"card": Decimal(tokens) / 1000}
        assert "own card" in preflight_shown.shown(ended).spent
        assert f", of it preflights ${spent.sums['card']:.2f}" in lab.state().spent_today
        assert lab.state().spent_today.startswith(f"${spent.sums['card']:.2f}")

    def test_what_it_spent_is_unknown_without_a_price(self, alice: User) -> None:
        ended = examined(alice, SGLang())
        assert preflight_shown.shown(ended).spent == "cost unknown"
        requests = preflight_costs.spent_on([ended]).requests
        unknown = f"unknown: no price for {requests} calls, of it preflights unknown ({requests} calls)"
        assert lab.state().spent_today == unknown

    def test_a_failing_one_names_what_is_wrong_and_what_mends_it_on_this_server_first(
        self, alice: User
    ) -> None:
        shown = preflight_shown.shown(examined(alice, LeakingXML()))
        assert shown.outcome.word == "failing"
        leaks = next(found for found in shown.findings if found.code == "calls_as_text")
        assert leaks.mends[0].server == "SGLang"
        assert leaks.mends[0].detected
        assert leaks.mends[0].flags == "--tool-call-parser qwen3_coder"
        assert leaks.evidence[0].hit.startswith("<tool_call>")
        assert "says nothing about the model" in shown.sentence

    def test_the_window_that_harnesses_want_is_compared_with_the_servers(self, alice: User) -> None:
        harnesses.sync_presets()

        class Small(ModelServer):
            window = 4_096

        codes = {found["code"] for found in examined(alice, Small()).findings}
        assert codes & {"context_too_small", "context_for_some"} == {"context_too_small"}

    def test_an_answer_that_holds_the_key_is_stored_without_it(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = "0123456789-the-key-of-this-server"
        monkeypatch.setenv("CODER_KEY", key)

        class Echo(ModelServer):
            def refusal(self, body: JSONObject) -> Answer:
                return self.error(400, f"what is {key}?")

        with Echo() as server:
            model = model_at(server)
            Endpoint.objects.update(key_variable="CODER_KEY")
            preflights.ask(by=alice, model=Model.objects.get(pk=model.pk))
            claimed = preflights.claim_next(worker=ME)
            assert claimed is not None
            ended = preflight_work.conduct(preflight=claimed)
        assert "what is [" in str(ended.findings)
        assert key not in f"{ended.findings}{ended.probes}{ended.measured}"

    def test_a_server_that_refuses_everything_is_a_result_and_no_error(self, alice: User) -> None:
        ended = examined(alice, RefusesKeys())
        assert (ended.outcome, ended.error) == ("failing", "")
        rows = preflight_shown.shown(ended).probes
        assert [row.word for row in rows][-1] == "opt-in"
        assert {row.word for row in rows[2:-1]} == {"not asked"}

    def test_a_fast_server_is_examined_in_seconds(self, alice: User) -> None:
        ended = examined(alice, ModelServer(), over_limit=True)
        assert ended.started_at is not None
        assert ended.ended_at is not None
        spent = sum(probe.get("seconds", 0.0) for probe in ended.probes)
        assert (ended.ended_at - ended.started_at).total_seconds() - spent < SOON


@pytest.mark.django_db(transaction=True)
class TestOneAtATime:
    def test_asking_twice_is_one_preflight(self, alice: User) -> None:
        with ModelServer() as server:
            model = model_at(server)
            first, second = (preflights.ask(by=alice, model=model) for _ in range(2))
        assert first.pk == second.pk

    def test_two_workers_take_one_preflight_once(self, alice: User) -> None:
        with ModelServer() as server:
            preflights.ask(by=alice, model=model_at(server))
        assert preflights.claim_next(worker=ME) is not None
        assert preflights.claim_next(worker=ME) is None

    def test_over_limit_beside_one_that_goes_on_without_it_is_refused(self, alice: User) -> None:
        with ModelServer() as server:
            model = model_at(server)
            preflights.ask(by=alice, model=model)
            with pytest.raises(FieldErrors, match="goes on without it"):
                preflights.ask(by=alice, model=model, over_limit=True)

    def test_what_cannot_be_examined_is_refused_with_the_reason(self, alice: User) -> None:
        endpoints.sync_scripted()
        with pytest.raises(FieldErrors, match="nothing to examine"):
            preflights.ask(by=alice, model=Model.objects.get(name="scripted/solver"))
        with ModelServer() as server:
            model = model_at(server)
            Endpoint.objects.filter(pk=model.endpoint_id).update(key_variable="NOT_SET_KEY")
            with pytest.raises(FieldErrors, match="NOT_SET_KEY"):
                preflights.ask(by=alice, model=Model.objects.get(pk=model.pk))


@pytest.mark.django_db(transaction=True)
class TestStopping:
    def _conducting(self, stop: StopSignal) -> tuple[threading.Thread, int]:
        claimed = preflights.claim_next(worker=ME)
        assert claimed is not None

        def conduct() -> None:
            preflight_work.conduct(preflight=claimed, stop=stop)
            connections.close_all()

        thread = threading.Thread(target=conduct, daemon=True)
        thread.start()
        wait_until(lambda: len(Preflight.objects.get(pk=claimed.pk).probes) > 2)
        return thread, claimed.pk

    def test_a_cancel_breaks_off_the_request_that_is_being_answered(self, alice: User, hanging: Slow) -> None:
        asked = preflights.ask(by=alice, model=model_at(hanging))
        thread, number = self._conducting(StopSignal())
        preflights.cancel(by=alice, preflight=asked)
        preflights.cancel(by=person(Role.OPERATOR, name="late"), preflight=asked)
        thread.join(timeout=60)
        ended = Preflight.objects.get(pk=number)
        assert (ended.state, ended.outcome) == ("ended", "")
        assert (ended.error, ended.cancelled_by) == ("alice cancelled it before its end", alice)

    def test_one_that_waits_is_cancelled_at_once(self, alice: User) -> None:
        with ModelServer() as server:
            asked = preflights.ask(by=alice, model=model_at(server))
        preflights.cancel(by=alice, preflight=asked)
        asked.refresh_from_db()
        assert (asked.state, asked.error) == ("ended", "alice cancelled it before its end")
        assert preflights.claim_next(worker=ME) is None

    @pytest.mark.parametrize(
        ("reason", "said"),
        [
            (ExitReason.INFRASTRUCTURE_ERROR, preflight_work.STOPPED),
            (ExitReason.CANCELLED, preflight_work.INTERRUPTED),
        ],
    )
    def test_a_worker_that_is_stopped_says_so(
        self, alice: User, hanging: Slow, reason: ExitReason, said: str
    ) -> None:
        preflights.ask(by=alice, model=model_at(hanging))
        stop = StopSignal()
        thread, number = self._conducting(stop)
        stop.set(reason)
        thread.join(timeout=60)
        assert Preflight.objects.get(pk=number).error == said

    def test_what_was_taken_from_a_worker_is_written_no_more(self, alice: User, hanging: Slow) -> None:
        preflights.ask(by=alice, model=model_at(hanging))
        thread, number = self._conducting(StopSignal())
        Preflight.objects.filter(pk=number).update(lease_until=timezone.now() - dt.timedelta(hours=1))
        assert preflights.settle_abandoned(is_dead=lambda worker: False) == [number]
        thread.join(timeout=60)
        ended = Preflight.objects.get(pk=number)
        assert ended.error == "the worker that examined it does not answer; run it again"

    def test_the_tick_ends_what_a_killed_worker_began_and_rings_for_nothing(self, alice: User) -> None:
        with ModelServer() as server:
            preflights.ask(by=alice, model=model_at(server))
        claimed = preflights.claim_next(worker=DEAD)
        assert claimed is not None
        Upkeep(is_dead=lambda worker: worker == DEAD, is_frozen=lambda worker: False).tick()
        claimed.refresh_from_db()
        assert claimed.error == "the worker that examined it died; run it again"
        assert not preflights.anything_goes_on()


@pytest.mark.django_db(transaction=True)
class TestReading:
    def test_the_newest_with_a_result_counts_whatever_was_broken_off_since(self, alice: User) -> None:
        failed = examined(alice, LeakingXML())
        asked = preflights.ask(by=alice, model=failed.model)
        preflights.cancel(by=alice, preflight=asked)
        assert preflights.failing([failed.model]) == [failed]
        assert preflight_shown.outcomes([failed.model])[failed.model_id].word == "failing"

    def test_a_model_without_one_was_never_examined(self, alice: User) -> None:
        with ModelServer() as server:
            model = model_at(server)
        assert preflight_shown.outcomes([model])[model.pk].word == "never examined"
        assert preflights.failing([model]) == []

    def test_the_cost_of_one_token_too_many_is_said_or_unknown(self, alice: User) -> None:
        with ModelServer() as server:
            model = model_at(server)
        assert preflights.over_limit_cost(model).tokens is None
        model.context_window = 131_072
        cost = preflights.over_limit_cost(model)
        assert (cost.tokens, cost.dollars) == (131_073, None)
        model.model_id, model.price_provider = "gpt-4o", "openai"
        dear = preflights.over_limit_cost(model)
        assert dear.dollars is not None
        assert dear.dollars > 0
        assert "131,073 tokens, about $" in preflight_shown.over_limit_words(dear)


def wait_until(holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


class TestWhatHoldsForAnotherVersion:
    @pytest.fixture
    def examined_model(self, db: None) -> Model:
        endpoint = Endpoint.objects.create(name="rack", base_url="http://127.0.0.1:9/v1")
        settings = {"sampling": {"temperature": 0.7}, "context_window": 8192}
        model = Model.objects.create(endpoint=endpoint, name="coder", model_id=MODEL, **settings)
        Preflight.objects.create(model=model, state="ended", outcome="failing", findings=[])
        return model

    def test_a_version_with_another_price_keeps_the_preflight_of_the_one_before(
        self, alice: User, examined_model: Model
    ) -> None:
        number = Preflight.objects.get().pk
        newer = model_settings.change(by=alice, model=examined_model, typed={"price_basis": "card"})
        assert newer.version == 2
        assert preflights.newest_ended([newer])[newer.pk].pk == number
        assert preflight_shown.outcomes([newer])[newer.pk].word == "failing"
        assert [found.pk for found in preflights.failing([newer, examined_model])] == [number]
        assert preflights.newest_number(newer.pk) == number
        again = Preflight.objects.create(model=newer, state="ended", outcome="healthy")
        assert preflights.newest_number(newer.pk) == again.pk
        assert preflights.failing([newer]) == []

    @pytest.mark.parametrize(
        ("field", "typed"),
        [
            ("sampling", '{"temperature": 0.2}'),
            ("extra_body", '{"top_k": 4}'),
            ("max_tokens_per_turn", "100"),
            ("context_window", "4096"),
        ],
    )
    def test_a_version_that_sends_something_else_was_never_examined(
        self, alice: User, examined_model: Model, field: str, typed: str
    ) -> None:
        newer = model_settings.change(by=alice, model=examined_model, typed={field: typed})
        assert preflights.newest_ended([newer]) == {}
        assert preflight_shown.outcomes([newer])[newer.pk].word == "never examined"
        assert preflights.newest_number(newer.pk) is None
        back = {"sampling": '{"temperature": 0.7}', "extra_body": "", "max_tokens_per_turn": ""}
        same = model_settings.change(by=alice, model=newer, typed=back | {"context_window": "8192"})
        assert preflights.newest_number(same.pk) == Preflight.objects.get().pk

    def test_one_that_waits_for_the_version_before_is_not_asked_for_twice(
        self, alice: User, examined_model: Model
    ) -> None:
        waiting = preflights.ask(by=alice, model=examined_model)
        newer = model_settings.change(by=alice, model=examined_model, typed={"price_basis": "card"})
        assert preflights.ask(by=alice, model=newer) == waiting
        assert preflight_shown.outcomes([newer])[newer.pk].word == "waits for a worker"
