from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from lab.models import Arm, Consent, Control, Endpoint, Experiment, Model, Run
from lab.services import controls, endpoints, harnesses, isolation, log, queue, runs, tasks
from lab.services.errors import AccessDeniedError, FieldErrors
from tests.services.builders import launched, small_task_set


def launch(by: User, **changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "by": by,
        "tasks": list(tasks.sync_practice().tasks.all()[:2]),
        "harness_versions": harnesses.sync_presets()[:1],
        "models": endpoints.sync_scripted(),
        "idempotency_key": None,
    }
    return runs.launch(**(values | changes))


def test_a_launch_makes_one_run_for_each_task_arm_and_seed(alice: User) -> None:
    experiment = launch(alice, seeds=3)
    assert experiment.runs.count() == 2 * 2 * 3
    assert {run.status for run in experiment.runs.all()} == {Run.Status.QUEUED}
    assert [arm.letter for arm in experiment.arms.all()] == ["A", "B"]
    assert all(hasattr(run, "facts") for run in experiment.runs.all())


def test_arms_take_turns_in_the_queue(alice: User) -> None:
    experiment = launch(alice, seeds=2)
    letters = [run.arm.letter for run in experiment.runs.order_by("position").select_related("arm")]
    assert letters == ["A", "B"] * 4


def test_the_same_key_launches_once(alice: User) -> None:
    first = launch(alice, idempotency_key="form-1")
    again = launch(alice, idempotency_key="form-1")
    assert first == again
    assert Run.objects.count() == 4
    assert launch(alice, idempotency_key="form-2") != first


@pytest.mark.parametrize("changes", [{"seeds": 5}, {"limits": {"max_steps": "7"}}, {"name": "another"}])
def test_the_same_key_with_other_content_is_another_launch(alice: User, changes: dict[str, Any]) -> None:
    first = launch(alice, idempotency_key="form-1")
    second = launch(alice, idempotency_key="form-1", **changes)
    assert first != second
    assert launch(alice, idempotency_key="form-1", **changes) == second


def test_an_empty_limit_is_the_harnesss_and_a_number_tightens_it(alice: User) -> None:
    own = harnesses.sync_presets()[0].config["limits"]
    limits = {"max_steps": "7", "max_total_time_sec": "", "max_cost_usd": "0.50"}
    arm = Arm.objects.filter(experiment=launch(alice, limits=limits)).first()
    assert arm is not None
    assert arm.limits["max_steps"] == 7
    assert arm.limits["max_total_time_sec"] == own["max_total_time_sec"]
    assert Decimal(arm.limits["max_cost_usd"]) == Decimal("0.5")


def test_no_limit_lifts_the_harnesss_own(alice: User) -> None:
    arm = Arm.objects.filter(experiment=launch(alice, limits={"max_steps": None})).first()

    assert arm is not None
    assert arm.limits["max_steps"] is None


def test_a_number_above_the_harnesss_is_refused_because_it_would_do_nothing(alice: User) -> None:
    own = harnesses.sync_presets()[0].config["limits"]["max_steps"]
    with pytest.raises(FieldErrors) as refused:
        launch(alice, limits={"max_steps": "99999"})

    assert f"write {own} or less" in refused.value.errors["max_steps"]


def test_numbers_in_a_refusal_stand_as_they_were_typed(alice: User) -> None:
    with pytest.raises(FieldErrors) as refused:
        launch(alice, limits={"max_steps": "1e9"})

    assert "'1e9' is more than" in refused.value.errors["max_steps"]


def test_a_cost_limit_is_refused_for_models_whose_price_is_unknown(alice: User, settings: Settings) -> None:
    settings.LAB_SANDBOX = "process"
    own = Endpoint.objects.create(name="own", base_url="http://127.0.0.1:1/v1")
    hosted = Endpoint.objects.create(name="hosted", base_url="https://api.openai.com/v1")
    priced = Model.objects.create(endpoint=hosted, name="priced", model_id="gpt-4o")
    unpriced = [Model.objects.create(endpoint=own, name=name, model_id="m") for name in ("b", "a")]
    with pytest.raises(FieldErrors) as refused:
        launch(alice, models=[priced, *unpriced], limits={"max_cost_usd": "5"})
    text = refused.value.errors["max_cost_usd"]
    assert "'5' cannot hold for a, b, whose price is unknown" in text
    assert "leave it empty, or limit tokens or steps" in text
    assert launch(alice, models=[priced, *endpoints.sync_scripted()], limits={"max_cost_usd": "5"})
    assert launch(alice, models=unpriced, limits={"max_cost_usd": ""})
    version = harnesses.sync_presets()[0]
    version.config["limits"]["max_cost_usd"] = "2"
    with pytest.raises(FieldErrors, match="'the limit of the harness' cannot hold for a, b, .*“no limit”"):
        launch(alice, models=unpriced, harness_versions=[version])
    assert launch(
        alice, models=unpriced, harness_versions=[version], limits={"max_cost_usd": None, "max_steps": "5"}
    )


def test_a_turn_always_has_a_cap(alice: User) -> None:
    with pytest.raises(FieldErrors) as refused:
        launch(alice, limits={"max_tokens_per_turn": None})

    assert "max_tokens_per_turn" in refused.value.errors


def test_the_models_context_window_and_cap_tighten_the_limits(alice: User) -> None:
    endpoint = Endpoint.objects.create(name="small", base_url="http://127.0.0.1:1/v1", scripted=True)
    model = Model.objects.create(
        endpoint=endpoint, name="m", model_id="m", context_window=4096, max_tokens_per_turn=512
    )
    arm = Arm.objects.get(experiment=launch(alice, models=[model]))
    assert (arm.limits["max_context_tokens"], arm.limits["max_tokens_per_turn"]) == (4096, 512)


def test_every_wrong_field_is_named_with_its_value_and_the_way_out(alice: User) -> None:
    with pytest.raises(FieldErrors) as raised:
        launch(
            alice,
            tasks=[],
            models=[],
            seeds="many",
            limits={"max_cost_usd": "$5", "max_steps": "-1", "max_tokens_total": "1.5"},
        )
    errors = raised.value.errors
    assert errors["max_cost_usd"] == "max_cost_usd: '$5' is not a number of dollars; write 5"
    assert errors["max_steps"].startswith(
        "max_steps: '-1' is not a positive number of steps; write 1 or more"
    )
    assert "'1.5'" in errors["max_tokens_total"]
    assert "'many'" in errors["seeds"]
    assert "choose at least one task" in errors["tasks"]
    assert "choose at least one model" in errors["models"]
    assert not Experiment.objects.exists()


@pytest.mark.parametrize("seeds", ["0", "-3", "1.5", "²", "101", "", "9" * 5000])
def test_a_number_of_seeds_that_is_none_is_refused(alice: User, seeds: str) -> None:
    with pytest.raises(FieldErrors, match="seeds"):
        launch(alice, seeds=seeds)


def test_a_viewer_may_neither_launch_nor_cancel(alice: User, bob: User) -> None:
    with pytest.raises(AccessDeniedError, match="operator"):
        launch(bob)
    run = launched(alice).runs.get()
    with pytest.raises(AccessDeniedError, match="operator"):
        controls.ask(run=run, by=bob, control="cancel")


def test_tasks_of_two_sets_do_not_make_one_experiment(alice: User, tmp_path: Path) -> None:
    mixed = [*small_task_set(tmp_path / "set").tasks.all(), *tasks.sync_practice().tasks.all()]
    with pytest.raises(FieldErrors, match="different task sets"):
        launch(alice, tasks=mixed)


class TestWithoutIsolation:
    """On a machine where bubblewrap does not work."""

    @pytest.fixture(autouse=True)
    def _no_bubblewrap(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        monkeypatch.setenv("PATH", str(tmp_path))
        isolation.look_again()
        yield
        isolation.look_again()

    @pytest.fixture
    def real_model(self, db: None) -> Model:
        endpoint = Endpoint.objects.create(name="server", base_url="http://127.0.0.1:1/v1")
        return Model.objects.create(endpoint=endpoint, name="real", model_id="real")

    def test_scripted_models_run_practice_tasks_all_the_same(self, alice: User) -> None:
        assert launch(alice).runs.exists()
        assert isolation.sandbox_kind(lab_commands_only=True) == "process"

    def test_another_model_is_refused_with_the_line_that_installs_bubblewrap(
        self, alice: User, real_model: Model
    ) -> None:
        with pytest.raises(FieldErrors) as raised:
            launch(alice, models=[real_model])
        assert "apt-get install bubblewrap" in raised.value.errors["isolation"]
        assert "Run without isolation" in raised.value.errors["isolation"]

    def test_scripted_models_on_somebody_elses_tasks_are_refused(self, alice: User, tmp_path: Path) -> None:
        with pytest.raises(FieldErrors, match="no isolation"):
            launch(alice, tasks=list(small_task_set(tmp_path / "set").tasks.all()))

    def test_an_admins_consent_is_stored_once_and_lets_everything_run(
        self, alice: User, bob: User, real_model: Model
    ) -> None:
        with pytest.raises(AccessDeniedError):
            runs.consent_without_isolation(by=bob)
        runs.consent_without_isolation(by=alice)
        runs.consent_without_isolation(by=alice)
        assert Consent.objects.count() == 1
        assert launch(alice, models=[real_model]).runs.exists()
        assert isolation.isolation().consented

    def test_a_setting_that_asks_for_processes_is_consent_by_whoever_runs_the_lab(
        self, alice: User, real_model: Model, settings: Settings
    ) -> None:
        settings.LAB_SANDBOX = "process"
        assert launch(alice, models=[real_model]).runs.exists()


def kinds(run: Run) -> list[str]:
    return [record.event.kind for record in log.read_records(run_id=run.pk)]


def test_a_queued_run_is_cancelled_at_once_and_says_who_asked(alice: User) -> None:
    run = launched(alice).runs.get()
    controls.ask(run=run, by=alice, control="cancel")
    run.refresh_from_db()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
    asked = log.read_records(run_id=run.pk)[0].event
    assert (asked.control, asked.person) == ("cancel", "alice")
    assert kinds(run) == ["control_asked", "run_ended"]
    assert Experiment.objects.get().state == Experiment.State.ENDED


@pytest.mark.parametrize("status", [s for s in Run.Status if s not in (Run.Status.QUEUED, Run.Status.ENDED)])
def test_cancelling_a_run_that_a_worker_holds_asks_that_worker(alice: User, status: str) -> None:
    run = launched(alice).runs.get()
    claim = queue.claim_next(worker="w")
    assert claim is not None
    Run.objects.filter(pk=run.pk).update(status=status)
    controls.ask(run=run, by=alice, control="cancel")
    controls.ask(run=run, by=alice, control="cancel")
    run.refresh_from_db()
    assert (run.status, run.cancel_asked) == (status, True)
    assert Control.objects.count() == 1
    assert [control.kind for control in queue.look(claim=claim).controls] == ["cancel"]


def test_cancelling_twice_and_after_the_end_changes_nothing(alice: User) -> None:
    run = launched(alice).runs.get()
    for _ in range(3):
        controls.ask(run=run, by=alice, control="cancel")
    assert kinds(run) == ["control_asked", "run_ended"]


def test_a_cancelled_run_is_never_claimed(alice: User) -> None:
    run = launched(alice).runs.get()
    controls.ask(run=run, by=alice, control="cancel")
    assert queue.claim_next(worker="w") is None
