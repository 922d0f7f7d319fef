"""Selections of runs: read from links and back, observed in one query, and traced to the runs behind."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import InvalidValueError
from lab.engine.limits import Limits
from lab.engine.llm.base import Cost
from lab.models import Arm, Endpoint, Experiment, Flag, Model, Run, RunFacts, Task, TaskSet
from lab.services import analysis
from lab.services.analysis import Observed, Selection
from lab.services.analysis_selections import ORIGINS
from lab.services.errors import FieldErrors
from lab.services.tasks import RECORDED_ELSEWHERE
from tests import builders

database = pytest.mark.django_db


# ---- links -------------------------------------------------------------------------------------------------

_numbers = st.lists(st.integers(1, 10**12), max_size=3, unique=True).map(tuple)
_texts = st.lists(st.text(min_size=1, max_size=20), max_size=3, unique=True).map(tuple)
_keys = st.from_regex(r"[1-9][0-9]{0,4}\.[1-9][0-9]{0,4}\.[0-9a-f]{0,12}", fullmatch=True)
_selections = st.builds(
    Selection,
    experiments=_numbers,
    arms=st.lists(_keys, max_size=3, unique=True).map(tuple),
    task_sets=_numbers,
    tasks=_texts,
    repositories=_texts,
    seeds=_numbers,
    origins=st.lists(st.sampled_from(ORIGINS), max_size=3, unique=True).map(tuple),
    invalid=st.sampled_from(["out", "failures"]),
    flagged=st.sampled_from(["in", "out"]),
    stepped_in=st.sampled_from(["out", "in"]),
    costs=st.sampled_from(["priced", "reported"]),
    pair=st.one_of(st.none(), st.tuples(_keys, _keys).filter(lambda pair: pair[0] != pair[1])),
)


@given(selection=_selections)
def test_a_link_says_the_whole_selection(selection: Selection) -> None:
    assert Selection.from_query(QueryDict(selection.query())) == selection


def test_a_link_is_short_and_in_one_order() -> None:
    assert Selection().query() == ""
    chosen = Selection(experiments=(4, 2), seeds=(1,), invalid="failures", pair=("1.2.ab", "1.3.ab"))
    assert chosen.query() == "experiment=4&experiment=2&seed=1&invalid=failures&pair=1.2.ab&pair=1.3.ab"
    assert Selection.from_query({"experiment": ["4", "", "4", "2"]}).experiments == (4, 2)
    assert Selection.from_query({"page": ["x"], "outcome": ["resolved"]}) == Selection()


def test_what_a_link_says_wrongly_is_named_with_its_value_and_the_way_out() -> None:
    with pytest.raises(FieldErrors) as caught:
        Selection.from_query(
            {
                "experiment": ["seven"],
                "arm": ["1.2"],
                "seed": ["0"],
                "origin": ["elsewhere"],
                "invalid": ["perhaps"],
                "flagged": ["in", "out"],
                "pair": ["1.2.ab"],
            }
        )
    assert caught.value.errors == {
        "experiment": "experiment: 'seven' is not the number of an experiment; write one in digits",
        "arm": "arm: '1.2' is no arm's key; choose an arm on the analysis page and take its link",
        "seed": "seed: '0' is not a seed, from 1; write one in digits",
        "origin": "origin: 'elsewhere' is none; use launched, imported, demo",
        "invalid": "invalid: 'perhaps' is not understood; use out or failures",
        "flagged": "flagged: 'in and out' is said twice; leave one of in and out",
        "pair": "pair: '1.2.ab' is no pair; name two different arms, pair=… twice",
    }


@pytest.mark.parametrize("value", ["9" * 30, "-1", "1e3", "٣", " 1"])
def test_a_number_that_no_row_can_have_is_refused(value: str) -> None:
    with pytest.raises(FieldErrors):
        Selection.from_query({"experiment": [value]})


# ---- runs of a lab -----------------------------------------------------------------------------------------


def arm_of(experiment: Experiment, like: Arm, *, letter: str, **changes: object) -> Arm:
    """An arm with what `like` has, except for `changes`."""
    fields: dict[str, object] = {
        "harness_version": like.harness_version,
        "model": like.model,
        "limits": like.limits,
        "limits_digest": like.limits_digest,
    }
    return Arm.objects.create(experiment=experiment, letter=letter, **fields | changes)


def another_model(name: str, **changes: object) -> Model:
    endpoint = Endpoint.objects.create(name=f"endpoint-of-{name}")
    return Model.objects.create(endpoint=endpoint, name=name, model_id=name, **changes)


def ended(arm: Arm, task: Task, verdict: str = "resolved", *, seed: int = 1, **facts: object) -> Run:
    """A run that has ended, by its roll-up alone."""
    run = Run.objects.create(
        experiment=arm.experiment,
        arm=arm,
        task=task,
        seed=seed,
        status=Run.Status.ENDED,
        exit_reason="agent" if verdict in ("resolved", "unresolved") else "tool_error",
    )
    RunFacts.objects.create(run=run, verdict=verdict, **facts)
    return run


def see(selection: Selection | None = None) -> Observed:
    return analysis.observed(selection or Selection())


def ids(found: Observed) -> list[int]:
    return [one.run for one in found.observations]


@database
def test_a_run_is_observed_as_its_log_says() -> None:
    run = builders.run()
    builders.believable(run, outcome="unresolved")
    RunFacts.objects.filter(run=run).update(cost=Decimal("0.25"), cost_earlier=Decimal("0.1"))
    facts = RunFacts.objects.get(run=run)
    (one,) = see(Selection(experiments=(run.experiment_id,))).observations
    assert (one.run, one.seed, one.ended, one.verdict, one.exit_reason) == (
        *(run.pk, 1, True, "unresolved", "agent"),
    )
    assert (one.steps, one.requests, one.usage_unknown) == (7, facts.calls, facts.usage_unknown)
    assert (one.input_total, one.output_total) == (facts.input_total, facts.output_total)
    assert (one.cost, one.cost_earlier, one.cost_unknown) == (0.25, 0.1, facts.cost_unknown)
    assert (one.fail_to_pass, one.pass_to_pass) == ((1, 2), (3, 3))
    assert one.changed_files == len(facts.changed_files)
    assert one.behaviour is not None
    assert (one.behaviour.tools, one.behaviour.malformed) == (facts.behaviour["tools"], 1)
    assert not one.flagged
    assert not one.stepped_in


@database
def test_costs_are_the_labs_or_what_providers_reported() -> None:
    run = builders.run()
    builders.start(run)
    for step, reported in ((1, Decimal("0.5")), (2, None), (3, Decimal("0.25"))):
        cost = Cost(amount=Decimal("0.4"), basis="table", reported=reported)
        builders.append(run, builders.asked(step), builders.answered(step, content="On.", cost=cost))
    untouched = builders.another_run(run, seed=2)
    chosen = Selection(experiments=(run.experiment_id,))
    priced = see(chosen).observations[0]
    assert (priced.cost, priced.cost_unknown, priced.cost_basis) == (pytest.approx(1.2), 0, "table")
    one, other = see(dataclasses.replace(chosen, costs="reported")).observations
    assert (one.cost, one.cost_unknown, one.cost_basis) == (0.75, 1, "reported")
    assert (one.cost_earlier, one.cost_earlier_unknown) == (None, 0)
    assert (other.run, other.cost, other.cost_basis) == (untouched.pk, None, "unknown")


@database
def test_of_an_imported_run_without_requests_nothing_is_known_and_a_launched_one_asked_nothing() -> None:
    arm, task = _arm_and_task()
    run = ended(arm, task, calls=0, cost=None)
    chosen = Selection(experiments=(arm.experiment_id,))
    assert not see(chosen).observations[0].unrecorded
    assert analysis.runs_behind(see(chosen), outcome="unpriced") == []
    Experiment.objects.filter(pk=arm.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    (imported,) = see(chosen).observations
    assert (imported.unrecorded, imported.steps) == (True, None)
    assert analysis.runs_behind(see(chosen), outcome="unpriced") == [run.pk]
    RunFacts.objects.update(calls=4)
    assert not see(chosen).observations[0].unrecorded


@database
def test_runs_that_nobody_graded_are_behind_a_number_of_their_own() -> None:
    arm, task = _arm_and_task()
    graded, ungraded = ended(arm, task), ended(arm, task, "", seed=2)
    Run.objects.update(exit_reason="agent")
    found = see()
    assert analysis.runs_behind(found, outcome="not_graded") == [ungraded.pk]
    assert analysis.runs_behind(found, outcome="invalid") == []
    assert analysis.runs_behind(found, outcome="counted") == [graded.pk]


@database
def test_a_run_that_has_not_begun_is_open_and_nothing_is_known_of_it() -> None:
    run = builders.run()
    (one,) = see(Selection(experiments=(run.experiment_id,))).observations
    assert (one.ended, one.verdict, one.requests, one.cost, one.behaviour) == (False, "", 0, None, None)
    assert (one.steps, one.changed_files, one.fail_to_pass) == (None, None, None)


@database
def test_flags_and_people_who_stepped_in_are_seen() -> None:
    arm, task = _arm_and_task()
    flagged = ended(arm, task)
    changed = ended(arm, task, seed=2, limits_changed=True)
    told = ended(arm, task, seed=3, got_message=True)
    cleared = ended(arm, task, seed=4)
    Flag.objects.create(run=flagged, code="leaked_calls", event_seq=1)
    Flag.objects.create(run=flagged, code="leaked_calls", event_seq=2)
    Flag.objects.create(run=cleared, code="leaked_calls", event_seq=1, present=False)
    found = {one.run: (one.flagged, one.stepped_in) for one in see().observations}
    assert found == {
        flagged.pk: (True, False),
        changed.pk: (False, True),
        told.pk: (False, True),
        cleared.pk: (False, False),
    }


@database
def test_behaviour_of_another_release_is_unknown() -> None:
    arm, task = _arm_and_task()
    ended(arm, task, behaviour={"tools": {}, "calls": 1})
    ended(arm, task, seed=2)
    assert [one.behaviour for one in see().observations] == [None, None]


@database
def test_of_imported_runs_without_changes_nobody_knows_whether_a_patch_was_recorded() -> None:
    arm, task = _arm_and_task()
    ended(arm, task, changed_files=[])
    chosen = Selection(experiments=(arm.experiment_id,))
    assert see(chosen).observations[0].changed_files == 0
    Experiment.objects.update(kind="imported")
    assert see(chosen).observations[0].changed_files is None


def _arm_and_task() -> tuple[Arm, Task]:
    """An arm and its task, of an experiment of which two runs have ended already elsewhere."""
    run = builders.run()
    arm, task = run.arm, run.task
    run.delete()
    return arm, task


def _with_two_runs(arm: Arm, task: Task) -> Experiment:
    ended(arm, task)
    ended(arm, task, "unresolved", seed=2)
    return arm.experiment


@database
def test_when_nothing_is_asked_it_is_the_newest_experiment_with_ended_runs() -> None:
    assert see().observations == []
    assert see().selection.experiments == ()
    demo = _with_two_runs(*_arm_and_task())
    Experiment.objects.filter(pk=demo.pk).update(kind="demo")
    assert see().selection.experiments == (demo.pk,)
    imported = _with_two_runs(*_arm_and_task())
    Experiment.objects.filter(pk=imported.pk).update(kind="imported")
    assert see().selection.experiments == (imported.pk,)
    own = _with_two_runs(*_arm_and_task())
    later = _with_two_runs(*_arm_and_task())
    Experiment.objects.filter(pk=later.pk).update(kind="demo")
    builders.run()
    arm, task = _arm_and_task()
    ended(arm, task)
    assert see().selection.experiments == (own.pk,)
    assert see(Selection(invalid="failures")).selection.query() == f"experiment={own.pk}&invalid=failures"


@database
def test_a_selection_without_experiments_is_of_all_that_hold_such_runs_but_no_demo() -> None:
    arm, task = _arm_and_task()
    first = _with_two_runs(arm, task)
    second = Experiment.objects.create(task_set=first.task_set)
    _with_two_runs(arm_of(second, arm, letter="A"), task)
    demo = Experiment.objects.create(task_set=first.task_set, kind="demo")
    _with_two_runs(arm_of(demo, arm, letter="A"), task)
    _with_two_runs(*_arm_and_task())
    by_set = see(Selection(task_sets=(task.task_set_id,)))
    assert by_set.selection.experiments == (first.pk, second.pk)
    assert len(by_set.observations) == 4
    key = by_set.arms[0].key
    assert see(Selection(arms=(key,))).selection.experiments == (first.pk, second.pk)
    assert see(Selection(origins=("demo",))).selection.experiments == (demo.pk,)


@database
def test_equal_arms_of_several_experiments_are_one_and_keep_their_place() -> None:
    arm, task = _arm_and_task()
    first = arm.experiment
    other = arm_of(first, arm, letter="B", model=another_model("birch"))
    second = Experiment.objects.create(task_set=first.task_set)
    again, third = (
        arm_of(second, other, letter="A"),
        arm_of(second, arm, letter="B", model=another_model("oak", version=2)),
    )
    for number, one in enumerate((arm, other, again, third), start=1):
        ended(one, task, seed=number)
    found = see(Selection(experiments=(second.pk, first.pk)))
    assert [(one.letter, one.series, one.arm_ids) for one in found.arms] == [
        ("A", 1, (arm.pk,)),
        ("B", 2, (other.pk, again.pk)),
        ("C", 3, (third.pk,)),
    ]
    assert [one.name for one in found.arms] == [arm.model.name, "birch", "oak v2"]
    assert found.arms[1].experiments == (first.pk, second.pk)
    narrowed = see(Selection(experiments=(first.pk, second.pk), arms=(found.arms[2].key,)))
    assert [(one.letter, one.series) for one in narrowed.arms] == [("C", 3)]
    assert len(narrowed.observations) == 1
    assert len(narrowed.all_arms) == 3
    alone = see(Selection(experiments=(second.pk,)))
    assert [(one.letter, one.series) for one in alone.arms] == [("A", 1), ("B", 2)]


@database
def test_arms_that_differ_in_limits_alone_are_told_apart_by_them() -> None:
    arm, task = _arm_and_task()
    shorter = Limits(max_steps=50, max_context_tokens=131_072, max_cost_usd=Decimal(2))
    changes = {"limits": shorter.model_dump(mode="json"), "limits_digest": shorter.digest}
    other = arm_of(arm.experiment, arm, letter="B", **changes)
    ended(arm, task)
    ended(other, task)
    found = see()
    assert [one.name for one in found.arms] == [
        f"{arm.model.name}, steps 150",
        f"{arm.model.name}, steps 50",
    ]
    lights = {light.name: (light.state, light.detail) for light in found.lights}
    assert lights["limits"] == ("different", "steps 150 and 50")
    assert lights["harness"] == ("same", "")


@database
def test_a_task_that_a_newer_version_of_its_set_holds_unchanged_is_the_same_task() -> None:
    arm, task = _arm_and_task()
    newer = TaskSet.objects.create(name="set", version="2", digest="f" * 64, folder="")
    same = Task.objects.create(task_set=newer, slug=task.slug, position=1, digest=task.digest, folder="")
    changed = Task.objects.create(task_set=newer, slug=f"{task.slug}-2", position=2, digest="9", folder="")
    first, second, third = ended(arm, task), ended(arm, same, seed=2), ended(arm, changed)
    found = see()
    keys = {one.run: one.task for one in found.observations}
    assert keys[first.pk] == keys[second.pk] != keys[third.pk]
    assert found.tasks[keys[first.pk]].ids == (task.pk, same.pk)
    assert found.tasks[keys[first.pk]].slug == task.slug
    assert ids(see(Selection(tasks=(task.slug,), experiments=(arm.experiment_id,)))) == [first.pk, second.pk]
    by_set = Selection(task_sets=(newer.pk,), experiments=(arm.experiment_id,))
    assert ids(see(by_set)) == [second.pk, third.pk]


@database
def test_a_selection_narrows_to_seeds_tasks_repositories_and_arms() -> None:
    arm, task = _arm_and_task()
    Task.objects.filter(pk=task.pk).update(repository="django/django")
    other = Task.objects.create(task_set=task.task_set, slug="other", position=2, digest="8", folder="")
    first, second, third = ended(arm, task), ended(arm, task, seed=2), ended(arm, other)
    experiments = (arm.experiment_id,)
    assert ids(see(Selection(experiments, seeds=(2,)))) == [second.pk]
    assert ids(see(Selection(experiments, repositories=("django/django",)))) == [first.pk, second.pk]
    assert ids(see(Selection(experiments, tasks=("other",)))) == [third.pk]
    assert see(Selection(experiments, tasks=("other",))).observations[0].repository == ""


@database
def test_what_there_is_none_of_is_said_with_its_field() -> None:
    arm, task = _arm_and_task()
    ended(arm, task)
    asked = Selection(
        experiments=(arm.experiment_id, 987654),
        arms=("9.9.ab",),
        task_sets=(55555,),
        tasks=("nothing",),
        repositories=("no/where",),
        pair=("9.9.ab", "9.8.ab"),
    )
    with pytest.raises(FieldErrors) as caught:
        see(asked)
    errors = caught.value.errors
    assert set(errors) == {"experiment", "arm", "task_set", "task", "repository", "pair"}
    assert errors["experiment"] == (
        "experiment: 987654 is no experiment of this lab; choose one of the list of experiments"
    )
    assert "'nothing' is no task of the selected runs" in errors["task"]


@database
def test_lights_say_what_differs_between_arms() -> None:
    arm, task = _arm_and_task()
    other = arm_of(arm.experiment, arm, letter="B", model=another_model("birch", sampling={"temperature": 1}))
    extra = Task.objects.create(task_set=task.task_set, slug="extra", position=2, digest="8", folder="")
    ended(arm, task)
    ended(other, task)
    found = see()
    assert [(light.name, light.state) for light in found.lights] == [
        ("harness", "same"),
        ("limits", "same"),
        ("task set", "same"),
    ]
    assert found.sampling == "temperature not set and 1"
    ended(other, extra)
    assert see().lights[2].detail == "tasks A 1, B 2; 1 in common"
    keys = [one.key for one in found.arms]
    assert analysis.lights_between(see(), keys[0], keys[1])[2].state == "different"
    assert analysis.sampling_between(found, keys[0], keys[1]) == found.sampling
    assert analysis.lights_between(found, keys[0], keys[0]) == []


@database
def test_what_nobody_recorded_has_an_unknown_light() -> None:
    arm, task = _arm_and_task()
    TaskSet.objects.filter(pk=task.task_set_id).update(digest=RECORDED_ELSEWHERE)
    other = arm_of(arm.experiment, arm, letter="B", limits={}, limits_digest="")
    arm.harness_version.digest = None
    arm.harness_version.save()
    ended(arm, task)
    ended(other, task)
    assert [(light.state, light.detail) for light in see().lights] == [
        ("unknown", "not known of A, B"),
        ("unknown", "not known of B"),
        ("unknown", "what 1 of 1 tasks hold is not recorded"),
    ]


@database
def test_the_runs_behind_a_number() -> None:
    arm, task = _arm_and_task()
    other = arm_of(arm.experiment, arm, letter="B", model=another_model("birch"))
    resolved = ended(arm, task)
    invalid = ended(arm, task, "infrastructure", seed=2, cost_earlier=Decimal(1), cost=Decimal(2))
    stepped_in = ended(arm, task, seed=3, limits_changed=True)
    failed = ended(other, task, "unresolved", cost_unknown=2)
    found = see()
    key, other_key = (one.key for one in found.arms)

    def behind(outcome: str = "", **more: object) -> list[int]:
        return analysis.runs_behind(found, outcome=outcome, **more)  # type: ignore[arg-type]

    assert behind() == [resolved.pk, invalid.pk, failed.pk]
    assert behind(arm=other_key) == behind("unresolved") == behind("unpriced") == [failed.pk]
    assert behind("counted") == [resolved.pk, failed.pk]
    assert behind("invalid") == behind("retried") == behind(exit_reason="tool_error") == [invalid.pk]
    assert behind("stepped_in") == behind("left_out") == [stepped_in.pk]
    assert behind("resolved", task=task.slug, seed=1) == [resolved.pk]
    assert behind("flagged") == behind("open") == behind("cancelled") == behind(task="none") == []
    with pytest.raises(InvalidValueError, match="outcome: 'won' is none; use one of resolved"):
        behind("won")
    with pytest.raises(InvalidValueError, match="name two arms"):
        behind("first_only")
    paired = dataclasses.replace(found.selection, pair=(key, other_key))
    with_pair = found._replace(selection=paired)
    assert analysis.runs_behind(with_pair, outcome="first_only") == [resolved.pk, failed.pk]
    for outcome in ("both", "second_only", "neither"):
        assert analysis.runs_behind(with_pair, outcome=outcome) == []


@database
def test_as_many_queries_for_many_runs_as_for_few() -> None:
    arm, task = _arm_and_task()
    _with_two_runs(arm, task)
    with CaptureQueriesContext(
        connection,
    ) as few:
        see()
    other = arm_of(arm.experiment, arm, letter="B", model=another_model("birch"))
    for number in range(3, 30):
        ended(other, task, seed=number)
    with CaptureQueriesContext(connection) as many:
        assert len(see().observations) == 29
    assert len(many) == len(few) <= 6
