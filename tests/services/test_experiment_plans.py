"""Plans of experiments: read with every mistake named, launched, written and read again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import Limits
from lab.models import (
    Attempt,
    Call,
    Endpoint,
    Experiment,
    HarnessVersion,
    Model,
    Preflight,
    Run,
    RunFacts,
    Task,
    TaskSet,
)
from lab.services import endpoints, experiment_plans, harnesses, runs, tasks
from lab.services.errors import FieldErrors
from lab.services.experiment_plans import read
from tests import builders
from tests.services.builders import launched

PLAN = """
name: practice
tasks: {set: practice}
harnesses: [leaf-compatible]
models: [scripted/solver]
"""
MANY_PAIRS = f"""
tasks: {{set: practice}}
harnesses: {[f"h{number}" for number in range(11)]}
models: {[f"m{number}" for number in range(10)]}
"""


@pytest.fixture
def lab(alice: User) -> User:
    """Somebody in a lab with the practice set, the presets and the scripted models."""
    tasks.sync_practice()
    harnesses.sync_presets()
    endpoints.sync_scripted()
    return alice


def launch(by: User, text: str = PLAN, **changes: Any) -> Experiment:
    return experiment_plans.launch(by=by, plan=read(text), **changes)


def refused(by: User, text: str) -> dict[str, str]:
    with pytest.raises(FieldErrors) as error:
        launch(by, text)
    assert not Run.objects.exists()
    return error.value.errors


def mistakes(text: str) -> dict[str, str]:
    with pytest.raises(FieldErrors) as error:
        read(text)
    return error.value.errors


def server(name: str = "coder", **fields: Any) -> Model:
    endpoint, _ = Endpoint.objects.get_or_create(name="there", base_url="http://127.0.0.1:9/v1")
    return Model.objects.create(endpoint=endpoint, name=name, model_id=name, **fields)


def test_small_dollars_are_written_as_plain_decimals() -> None:
    plan = read(PLAN + "budgets: {max_cost_usd: 0.000001}\nlimits: {max_cost_usd: 0.25}\n")
    written = experiment_plans.dump(plan)
    assert "max_cost_usd: 0.000001}" in written
    assert "max_cost_usd: 0.25}" in written
    assert read(written) == plan


LONG = "x" * 5_000
BEYOND = "9" * 30


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        (f"name: {LONG}", "name", "is too long: 5,000 characters, and at most 200 are kept"),
        ("seeds: -1", "seeds", "'-1' is out of range; write how often each task is run, 1 to 100"),
        (f"seeds: '{BEYOND}'", "seeds", f"'{BEYOND}' is out of range; write how often"),
        ("concurrency: '-1'", "concurrency", "'-1' is out of range; write how many runs"),
        (f"max_attempts: '{BEYOND}'", "max_attempts", "is out of range; write how many attempts"),
        ("seeds: 1000", "seeds", "'1000' is not from 1 to 100; write how often each task is run, 1 to 100"),
        ("seeds: 1.5", "seeds", "'1.5' is no whole number; write how often"),
        (
            "limits: {max_cost_usd: 0}",
            "max_cost_usd",
            "is not a positive number of dollars; write an amount such as 0.50, leave it empty",
        ),
    ],
)
def test_a_number_or_text_beyond_its_range_is_told_as_such(line: str, field: str, said: str) -> None:
    text = PLAN.replace("name: practice\n", "") + line + "\n"
    assert said in mistakes(text)[field]


def test_a_plan_makes_every_arm_task_and_seed_and_is_kept_with_its_versions(lab: User) -> None:
    made = launch(lab, PLAN.replace("[leaf-compatible]", "[leaf-compatible, mini]") + "seeds: 2\n")
    assert made.runs.count() == 2 * 2 * made.task_set.tasks.count()
    assert made.plan["harnesses"] == ["leaf-compatible@1", "mini@1"]
    assert made.plan["models"] == ["scripted/solver@1"]
    assert made.plan["tasks"]["digest"] == made.task_set.digest
    assert made.name == "practice"


def test_arms_take_turns_whatever_made_the_plan(lab: User) -> None:
    pairs = "[{harness: mini, model: scripted/solver}, {harness: r2e, model: scripted/quitter}]"
    if not Model.objects.filter(name="scripted/quitter").exists():
        pairs = pairs.replace("scripted/quitter", "scripted/solver")
    made = launch(lab, f"tasks: {{set: practice}}\narms: {pairs}\n")
    letters = list(made.runs.order_by("position").values_list("arm__letter", flat=True))
    assert letters == ["A", "B"] * (len(letters) // 2)
    assert [str(arm.harness_version) for arm in made.arms.all()] == ["mini v1", "r2e v1"]


def test_the_whole_of_an_experiment_is_kept(lab: User) -> None:
    more = (
        "budgets: {max_cost_usd: 2.5, max_tokens: '1,000', max_hours: 3}\nconcurrency: 2\nmax_attempts: 5\n"
    )
    made = launch(lab, PLAN + more)
    assert made.budgets == {"max_cost_usd": "2.5", "max_tokens": 1000, "max_hours": 3.0}
    assert (made.concurrency, made.max_attempts) == (2, 5)


def test_a_sample_is_the_same_for_the_same_seed_and_grows_with_its_number(lab: User) -> None:
    def chosen(number: int, seed: int) -> set[str]:
        sample = f"{{number: {number}, seed: {seed}}}"
        made = launch(lab, PLAN.replace("{set: practice}", f"{{set: practice, sample: {sample}}}"))
        return set(made.runs.values_list("task__slug", flat=True))

    assert chosen(2, 7) == chosen(2, 7)
    assert chosen(2, 7) < chosen(4, 7)
    assert len({frozenset(chosen(3, seed)) for seed in range(6)}) > 1
    assert len(chosen(3, 1)) == 3


def test_only_the_named_tasks_run_in_the_order_of_their_set(lab: User) -> None:
    slugs = list(Task.objects.order_by("position").values_list("slug", flat=True)[:3])
    made = launch(lab, PLAN.replace("{set: practice}", f"{{set: practice, only: [{slugs[2]}, {slugs[0]}]}}"))
    assert list(made.runs.order_by("position").values_list("task__slug", flat=True)) == [slugs[0], slugs[2]]


def test_seeds_may_be_named_one_by_one(lab: User) -> None:
    made = launch(lab, PLAN + "seeds: [4, 2]\n")
    assert set(made.runs.values_list("seed", flat=True)) == {2, 4}


def test_the_same_key_launches_a_plan_once(lab: User) -> None:
    first = launch(lab, key="k")
    assert launch(lab, key="k") == first
    assert launch(lab, PLAN + "concurrency: 1\n", key="k") != first
    assert Experiment.objects.count() == 2


def test_limits_of_an_arm_stand_in_the_place_of_the_plans(lab: User) -> None:
    arm = "{harness: leaf-compatible, model: scripted/solver"
    made = launch(
        lab,
        f"tasks: {{set: practice}}\nlimits: {{max_steps: 20}}\n"
        f"arms: [{arm}}}, {arm}, limits: {{max_steps: 9, max_total_time_sec: null}}}}]\n",
    )
    assert [arm.limits["max_steps"] for arm in made.arms.all()] == [20, 9]
    assert [arm.limits["max_total_time_sec"] for arm in made.arms.all()] == [10_800.0, None]
    assert read(experiment_plans.write(made)) == experiment_plans.of(made)


def test_two_arms_that_are_the_same_are_refused(lab: User) -> None:
    arm = "{harness: leaf-compatible, model: scripted/solver}"
    errors = refused(lab, f"tasks: {{set: practice}}\narms: [{arm}, {arm.replace('solver', 'solver@1')}]\n")
    same = "leaf-compatible v1 with scripted/solver is there twice with the same limits"
    assert errors == {"arms": f"arms: {same}; leave one out"}


WRITTEN = [
    PLAN,
    PLAN + "seeds: [2, 5]\nlimits: {max_steps: 7, max_cost_usd: 0.123, max_total_time_sec: null}\n",
    PLAN + "budgets: {max_cost_usd: '0.1234567890123456789', max_hours: 0.5}\nmax_attempts: 1\n",
    PLAN.replace("{set: practice}", "{set: practice, sample: {number: 2, seed: 9}}"),
    PLAN.replace("name: practice", 'name: "ünï: #1 \\u2028"'),
]


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_reads_back_equal_and_launches_the_same_arms(lab: User, text: str) -> None:
    made = launch(lab, text)
    again = read(experiment_plans.write(made))
    assert again == experiment_plans.of(made)
    second = experiment_plans.launch(by=lab, plan=again)
    assert second.plan == made.plan
    assert list(second.arms.values_list("limits_digest", flat=True)) == list(
        made.arms.values_list("limits_digest", flat=True)
    )
    assert list(second.runs.order_by("position").values_list("task", "seed")) == list(
        made.runs.order_by("position").values_list("task", "seed")
    )


def test_an_experiment_without_a_plan_gets_one_from_its_arms(lab: User) -> None:
    version = HarnessVersion.objects.get(harness__name="leaf-compatible")
    older = runs.launch(
        by=lab,
        tasks=list(Task.objects.order_by("position")[:2]),
        harness_versions=[version],
        models=endpoints.sync_scripted(),
        seeds=2,
        limits={"max_steps": "7", "max_total_time_sec": None},
        name="from the first page",
    )
    assert older.plan == {}
    plan = experiment_plans.of(older)
    assert plan.limits == {"max_steps": 7, "max_total_time_sec": None}
    assert len(plan.tasks.only or ()) == 2
    assert read(experiment_plans.write(older)) == plan
    second = experiment_plans.launch(by=lab, plan=plan)
    assert sorted(second.arms.values_list("limits_digest")) == sorted(older.arms.values_list("limits_digest"))
    assert second.runs.count() == older.runs.count()


def test_a_run_that_was_launched_again_has_a_plan_of_its_one_seed(lab: User) -> None:
    first = launched(lab, seeds=3)
    run, _ = runs.launch_again(run=first.runs.get(seed=3), by=lab)
    assert experiment_plans.of(run.experiment).seeds == (3,)


def test_what_people_added_later_is_in_the_plan(lab: User) -> None:
    made = launch(lab, PLAN + "limits: {max_steps: 20}\n")
    version = HarnessVersion.objects.get(harness__name="mini")
    own = HarnessConfig.model_validate(version.config).limits
    added = runs.ArmPlan(version, Model.objects.get(name="scripted/solver"), own)
    (arm,) = runs.create_arms(experiment=made, plans=[added], after=1)
    runs.queue_runs(experiment=made, arms=[arm], cells=[(4, Task.objects.first())], after=100)  # type: ignore[list-item]
    made.budgets = {"max_tokens": 5}
    made.save()
    plan = read(experiment_plans.write(made))
    assert plan.seeds == (1, 4)
    assert plan.budgets.max_tokens == 5
    arms = experiment_plans.launch(by=lab, plan=plan).arms.all()
    assert [one.limits_digest for one in arms] == [one.limits_digest for one in made.arms.all()]


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("", "yaml", "it is empty; write at least"),
        ("a: [", "yaml", "is no YAML"),
        ("name: a\nname: b", "yaml", "stands in line 1 already"),
        ("x" * 1_000_001, "yaml", "1,000,001 characters"),
        ("name: 2026-01-01", "yaml", "'2026-01-01' is a timestamp"),
        (PLAN + "colour: red", "colour", "'colour' is no field here; known are name, tasks"),
        (PLAN + "seeds: 0", "seeds", "'0' is not from 1 to 100; write how often"),
        (PLAN + "seeds: [1, 1]", "seeds", "names one twice"),
        (PLAN + "seeds: true", "seeds", "'True' is no whole number"),
        (PLAN + "max_attempts: 11", "max_attempts", "'11' is too large"),
        (PLAN + "concurrency: 0", "concurrency", "'0' is too small"),
        (PLAN + "concurrency: 5000000000", "concurrency", "'5000000000' is too large; write how many"),
        (PLAN + "budgets: {max_cost_usd: .nan}", "budget_max_cost_usd", "'nan' is no positive number"),
        (PLAN + "budgets: {max_tokens: 1.5}", "budget_max_tokens", "'1.5' is no whole number"),
        (PLAN + "budgets: {max_hours: -1}", "budget_max_hours", "'-1' is no positive number"),
        (PLAN + "budgets: {max_hours: 1e-400}", "budget_max_hours", "'1e-400' is less than 0.000001"),
        (PLAN + "budgets: {max_cost_usd: '1e-999999999'}", "budget_max_cost_usd", "is less than 0.000001"),
        (PLAN + "budgets: {dollars: 1}", "budgets", "known are max_cost_usd, max_tokens, max_hours"),
        (PLAN + "limits: {max_steps: many}", "max_steps", "'many' is not a number of steps"),
        (PLAN + "limits: {steps: 1}", "steps", "'steps' is no limit; known are max_steps"),
        (PLAN + "limits: {max_tokens_per_turn: null}", "max_tokens_per_turn", "paid for ever"),
        (PLAN.replace("[leaf-compatible]", "[a, b, a]"), "harnesses", "'a' is named twice; write each once"),
        (PLAN.replace("[scripted/solver]", "[a, a]"), "models", "'a' is named twice; write each once"),
        (MANY_PAIRS, "arms", "110 are too many; choose at most 100 pairs"),
        (PLAN + "arms: []", "arms", "harnesses and models are given too"),
        ("tasks: {set: practice}\nmodels: [a]", "arms", "harnesses are missing"),
        ("harnesses: [a]\nmodels: [a]", "tasks", "it is missing; write the task set"),
        ("tasks: {set: a}\nharnesses: []\nmodels: [a]", "harnesses", "it is empty"),
        ("tasks: {set: a}\nharnesses: a\nmodels: [a]", "harnesses", "'a' is no list"),
        ("tasks: {set: a}\narms: [{harness: a}]", "arms", "arms[1].model: it is missing"),
        (PLAN.replace("practice}", "a, only: [b], sample: {number: 1}}"), "tasks", "both given"),
        (PLAN.replace("practice}", "a, sample: {number: x}}"), "sample_number", "'x' is no whole number"),
    ],
)
def test_a_mistake_in_a_plan_names_field_value_and_way_out(text: str, field: str, said: str) -> None:
    errors = mistakes(text)
    assert said in errors[field]


def test_all_mistakes_of_a_plan_are_said_at_once() -> None:
    errors = mistakes(PLAN + "seeds: x\nmax_attempts: x\nlimits: {max_steps: x}\n")
    assert set(errors) == {"seeds", "max_attempts", "max_steps"}


@pytest.mark.parametrize(
    ("before", "after", "field", "said"),
    [
        ("set: practice", "set: nowhere", "tasks", "'nowhere' is not in this lab; choose one of practice"),
        ("set: practice", "set: practice, only: [nothing]", "tasks", "'nothing': not in practice"),
        ("set: practice", "set: practice, digest: abc", "tasks", "leave the digest out"),
        ("set: practice", "set: practice, sample: {number: 99}", "sample_number", "is more than the"),
        ("leaf-compatible", "nobody", "arms", "harness 'nobody' is not known; choose one of leaf-compatible"),
        ("leaf-compatible", "mini@9", "arms", "harness 'mini@9' has no such version; it has 1"),
        ("scripted/solver", "nobody", "arms", "model 'nobody' is not known; choose one of"),
    ],
)
def test_what_the_lab_does_not_have_is_named_with_what_it_has(
    lab: User, before: str, after: str, field: str, said: str
) -> None:
    assert said in refused(lab, PLAN.replace(before, after, 1))[field]


def test_a_model_that_was_retired_meanwhile_is_named(lab: User) -> None:
    Model.objects.filter(name="scripted/solver").update(retired=True)
    assert "'scripted/solver' is retired" in refused(lab, PLAN)["models"]


def test_a_limit_is_never_widened(lab: User) -> None:
    errors = refused(lab, PLAN + "limits: {max_steps: 100000}\n")
    assert "is more than the 150 of leaf-compatible v1" in errors["max_steps"]


def test_a_budget_in_dollars_needs_an_arm_with_a_price(lab: User) -> None:
    server("coder")
    priceless = PLAN.replace("[scripted/solver]", "[coder]") + "budgets: {max_cost_usd: 2}\n"
    said = refused(lab, priceless)["budget_max_cost_usd"]
    assert "'2' cannot hold: the price of no chosen model is known; leave it empty" in said


def test_a_failing_preflight_needs_consent(lab: User) -> None:
    model = server("coder")
    found = Preflight.objects.create(model=model, state="ended", outcome="failing")
    text = PLAN.replace("[scripted/solver]", "[scripted/solver, coder]")
    with pytest.raises(FieldErrors) as error:
        launch(lab, text)
    assert "The newest preflight of 'coder'" in error.value.errors["despite"]
    assert launch(lab, text + f"despite: [{found.pk}]\n").launched_despite == [found.pk]
    assert launch(lab, text, despite=[found.pk]).launched_despite == [found.pk]


def test_an_older_version_of_a_model_that_is_pinned_can_be_launched(lab: User) -> None:
    server("coder")
    server("coder", version=2)
    made = launch(lab, PLAN.replace("[scripted/solver]", "[coder@1]"))
    assert made.arms.get().model.version == 1
    assert launch(lab, PLAN.replace("[scripted/solver]", "[coder]")).arms.get().model.version == 2


def test_a_name_may_look_like_a_version(lab: User) -> None:
    server("coder@4")
    assert launch(lab, PLAN.replace("[scripted/solver]", "[coder@4]")).arms.get().model.name == "coder@4"


def test_a_launch_of_1500_runs_takes_few_queries(lab: User) -> None:
    task_set = TaskSet.objects.create(name="large", version="1", digest="d", folder="")
    Task.objects.bulk_create(
        Task(task_set=task_set, slug=f"task-{n}", position=n, title="t", statement="s", digest=str(n))
        for n in range(500)
    )
    plan = read(PLAN.replace("{set: practice}", "{set: large}") + "seeds: 3\n")
    with CaptureQueriesContext(
        connection,
    ) as small:
        experiment_plans.launch(by=lab, plan=read(PLAN))
    with CaptureQueriesContext(connection) as large:
        made = experiment_plans.launch(by=lab, plan=plan)
    assert made.runs.count() == 1500
    inserts = sum(query["sql"].startswith("INSERT") for query in large.captured_queries)
    assert len(large) - inserts <= len(small)
    assert inserts < 150


def test_scripted_arms_have_nothing_that_cannot_be_pinned(lab: User) -> None:
    assert experiment_plans.unpinned(launch(lab)) == []


def test_what_cannot_be_pinned_is_named_with_what_was_recorded(lab: User) -> None:
    run = builders.run(limits=Limits(max_cost_usd=Decimal(2)))
    run.task.environment = {"image": "python:3.13"}
    run.task.save()
    model = run.arm.model
    Call.objects.create(
        run=run,
        attempt=1,
        step=1,
        request=1,
        seq=1,
        model="cedar-0925",
        state="finished",
        started_at=timezone.now(),
    )
    Preflight.objects.create(model=model, state="ended", outcome="healthy", measured={"server": "vllm"})
    Attempt.objects.create(
        run=run, n=1, sandbox={"image": {"reference": "python:3.13", "digest": "python@sha256:" + "b" * 64}}
    )
    RunFacts.objects.create(run=run, got_message=True)
    said = "\n".join(experiment_plans.unpinned(run.experiment))
    assert "the weights behind 'cedar-large' at" in said
    assert "it answered as cedar-0925" in said
    assert "recognised vllm" in said
    assert "no seed is sent" in said
    assert "the image python:3.13: it was sha256:bbbbbbbbbbbb" in said
    assert "what people did to 1 run" in said
    assert "Dockerfile" not in said
    assert "# Not pinned: the image python:3.13" in experiment_plans.write(run.experiment)
