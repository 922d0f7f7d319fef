"""Recorded runs are launched again as a model, by worker children that read the recording from the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from lab.engine.harnesses.base import HarnessConfig, Observation
from lab.models import Call, Experiment, HarnessVersion, Model, Run
from lab.services import harnesses, isolation, log, queue, replays, runs, sample
from lab.services.errors import AccessDeniedError, FieldErrors
from lab.worker.execution import Execution
from tests import builders
from tests.services.builders import launched, person


@pytest.fixture(autouse=True)
def _plain_processes(settings: Settings) -> None:
    settings.LAB_SANDBOX = "process"
    settings.LAB_SCRIPTED_CHUNK_SECONDS = 0.0
    isolation.look_again()


def work_off() -> None:
    while claim := queue.claim_next(worker="w"):
        Execution(claim).run()


@pytest.fixture
def recorded(alice: User) -> Run:
    launched(alice)
    work_off()
    return Run.objects.select_related("arm__harness_version", "arm__model__endpoint", "task").get()


def replay(by: User, run: Run, **values: Any) -> Run:
    fields = {"harness_version": run.arm.harness_version, **values}
    experiment = runs.launch_replay(by=by, runs=[run], **fields)
    work_off()
    return Run.objects.select_related("facts", "arm__model").get(experiment=experiment)


def other_harness(version: HarnessVersion) -> HarnessVersion:
    """The same harness, whose results a model sees in other words."""
    config = HarnessConfig.model_validate(version.config)
    told = Observation(template="It said: {{ text }}")
    tools = tuple(tool.model_copy(update={"observation": told}) for tool in config.tools)
    changed = config.model_copy(update={"tools": tools})
    return HarnessVersion.objects.create(
        harness=version.harness, version=99, digest=changed.digest, config=changed.model_dump(mode="json")
    )


def replies(run: Run) -> list[str]:
    events = [record.event for record in log.read_records(run_id=run.pk)]
    return [
        json.dumps([event.reply.content, [call.arguments for call in event.reply.tool_calls]])
        for event in events
        if event.kind == "model_call_finished"
    ]


def test_a_run_is_replayed_with_the_same_replies_and_verdict_at_no_cost(alice: User, recorded: Run) -> None:
    again = replay(alice, recorded)
    assert (again.exit_reason, again.facts.verdict) == ("agent", "resolved")
    assert replies(again) == replies(recorded)
    assert set(Call.objects.filter(run=again).values_list("cost_basis", "cost")) == {("replay", 0)}
    model = again.arm.model
    assert (model.name, model.endpoint.name) == (f"replay/{recorded.experiment_id}A", "replay")
    assert model.replays == recorded.arm
    assert not model.scripted


def test_the_first_difference_ends_the_run_and_is_told(alice: User, recorded: Run) -> None:
    again = replay(alice, recorded, harness_version=other_harness(recorded.arm.harness_version))
    assert (again.exit_reason, again.facts.verdict) == ("replay_diverged", "")
    assert again.attempts.count() == 1
    events = [record.event for record in log.read_records(run_id=again.pk)]
    (failed,) = [event for event in events if event.kind == "model_call_failed"]
    assert f"differs from run {recorded.pk}" in failed.message
    assert "It said:" in failed.message


def test_a_replay_that_follows_goes_on_after_the_difference_and_says_it(alice: User, recorded: Run) -> None:
    version = other_harness(recorded.arm.harness_version)
    again = replay(alice, recorded, harness_version=version, on_difference="follow")
    assert (again.exit_reason, again.facts.verdict) == ("agent", "resolved")
    assert replies(again) == replies(recorded)
    told = [record.to_line() for record in log.read_records(run_id=again.pk)]
    assert any("followed beyond its first difference" in line for line in told)


def test_a_replay_is_launched_from_the_form_like_any_other_model(alice: User, recorded: Run) -> None:
    model = replays.make(by=alice, arm=recorded.arm)
    assert model in Model.objects.in_use()
    assert replays.make(by=alice, arm=recorded.arm) == model
    assert replays.make(by=alice, arm=recorded.arm, on_difference="follow") != model
    preset = harnesses.sync_presets()[0]
    launch = {"by": alice, "tasks": [recorded.task], "harness_versions": [preset], "models": [model]}
    runs.launch(**launch)
    work_off()
    assert Run.objects.order_by("-pk").first().facts.verdict == "resolved"
    before = Experiment.objects.count()
    with pytest.raises(FieldErrors) as raised:
        runs.launch(**launch, seeds=2)
    text = raised.value.errors["models"]
    assert f"has no recorded run of {recorded.task.slug} with seed 2" in text
    assert f"there are {recorded.task.slug} with seed 1" in text
    other = recorded.task.task_set.tasks.exclude(pk=recorded.task_id).first()
    with pytest.raises(FieldErrors, match=f"no recorded run of {other.slug} with seed 1"):
        runs.launch(**launch | {"tasks": [other]})
    assert Experiment.objects.count() == before


def test_a_replay_is_run_again_and_replayed_itself(alice: User, recorded: Run) -> None:
    once = replay(alice, recorded)
    fresh, _ = runs.launch_again(run=once, by=alice)
    work_off()
    twice = replay(alice, Run.objects.select_related("arm__harness_version", "task").get(pk=once.pk))
    assert Run.objects.get(pk=fresh.pk).facts.verdict == twice.facts.verdict == "resolved"
    assert replies(twice) == replies(recorded)


def test_a_run_of_the_sample_is_replayed_and_the_sample_is_removed_all_the_same(alice: User) -> None:
    sample.play(launched_by=alice, seconds=0.0)
    recorded = Run.objects.select_related("arm__harness_version", "task").get()
    again = replay(alice, recorded)
    assert replies(again) == replies(recorded)
    sample.clear()
    model = Model.objects.get(pk=again.arm.model_id)
    assert (model.replays, model.retired, model.replay) == (None, True, True)
    with pytest.raises(FieldErrors, match="is retired"):
        runs.launch(
            by=alice,
            tasks=[recorded.task],
            harness_versions=[recorded.arm.harness_version],
            models=[model],
        )
    with pytest.raises(FieldErrors, match="has no recorded runs any more"):
        runs.launch_again(run=Run.objects.get(pk=again.pk), by=alice)


def test_a_recording_whose_text_is_gone_ends_the_run_with_its_reason(alice: User, recorded: Run) -> None:
    model = replays.make(by=alice, arm=recorded.arm)
    version = recorded.arm.harness_version
    runs.launch(by=alice, tasks=[recorded.task], harness_versions=[version], models=[model])
    Call.objects.filter(run=recorded).delete()
    work_off()
    run = Run.objects.order_by("-pk").first()
    assert (run.exit_reason, run.attempts.count()) == ("infrastructure_error", 1)
    error = log.read_records(run_id=run.pk)[0].event.error
    assert f"has no recorded run of {recorded.task.slug} with seed 1 any more" in error


def test_what_has_no_answer_yet_cannot_be_replayed(alice: User) -> None:
    waiting = builders.run()
    with pytest.raises(FieldErrors) as raised:
        runs.launch_replay(by=alice, runs=[waiting], harness_version=waiting.arm.harness_version)
    assert f"run {waiting.pk} goes on" in raised.value.errors["tasks"]
    assert not Model.objects.filter(replays=waiting.arm).exists()
    with pytest.raises(FieldErrors, match="no turn was recorded in any run"):
        runs.launch_replay(by=alice, runs=[], harness_version=waiting.arm.harness_version)


def test_a_setting_that_is_none_is_named_and_a_viewer_makes_no_replay(alice: User) -> None:
    run = builders.run()
    with pytest.raises(FieldErrors, match="choose one of stop, follow"):
        replays.make(by=alice, arm=run.arm, on_difference="guess")
    with pytest.raises(AccessDeniedError, match="operator"):
        replays.make(by=person(name="vera", role="viewer"), arm=run.arm)
