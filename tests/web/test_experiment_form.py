"""The page that makes an experiment: templates, preview, mistakes beside their fields, clone and YAML."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from lab.models import (
    Endpoint,
    Experiment,
    HarnessVersion,
    Model,
    Preflight,
    Run,
    RunFacts,
    Task,
    TaskCheck,
    TaskSet,
)
from lab.services import experiment_plans
from lab.services.experiment_plans import read
from tests import builders

pytestmark = pytest.mark.usefixtures("filled")


def pair(harness: str = "leaf-compatible", model: str = "scripted/solver") -> str:
    version = HarnessVersion.objects.get(harness__name=harness)
    return f"{version.pk}:{Model.objects.get(name=model).pk}"


def form(**changed: object) -> dict[str, object]:
    """What the form sends for one arm over the practice set, with what one changes."""
    fields: dict[str, object] = {
        "do": "launch",
        "idempotency_key": "k",
        "task_set": TaskSet.objects.get(name="practice").pk,
        "selection": "all",
        "pair": [pair()],
    }
    return {name: value for name, value in (fields | changed).items() if value is not None}


def send(client: Client, **changed: object) -> HttpResponse:
    return client.post(reverse("experiment_new"), form(**changed))


def preview(client: Client, **changed: object) -> str:
    answer = client.post(
        reverse("experiment_new"), form(do="preview", **changed), headers={"HX-Request": "true"}
    )
    assert answer.status_code == 200
    text = words(answer)
    assert "<html" not in answer.content.decode()
    return text


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.content.decode()))


def coder(name: str = "coder", **fields: Any) -> Model:
    endpoint, _ = Endpoint.objects.get_or_create(name="there", base_url="http://127.0.0.1:9/v1")
    return Model.objects.create(endpoint=endpoint, name=name, model_id=name, **fields)


def ran(experiment: Experiment, **facts: Any) -> None:
    """All its runs have ended, graded."""
    experiment.runs.update(status=Run.Status.ENDED)
    for index, row in enumerate(RunFacts.objects.filter(run__experiment=experiment).order_by("run")):
        row.verdict = "resolved" if index % 2 else "unresolved"
        row.agent_seconds = 60.0 + 10 * (index % 3)
        row.input_total, row.output_total = 10_000 + 1_000 * (index % 3), 500
        for name, value in facts.items():
            setattr(row, name, value)
        row.save()


def test_the_page_offers_all_there_is_and_launches_nothing_by_itself(operator: Client) -> None:
    page = operator.get(reverse("experiment_new")).content.decode()
    for harness in ("leaf-compatible", "mini", "r2e"):
        assert f"{harness} v1" in page
    assert 'value="sample"' in page
    assert not Experiment.objects.exists()


def test_a_viewer_is_told_who_may(viewer: Client) -> None:
    assert viewer.get(reverse("experiment_new")).status_code == 403
    assert send(viewer).status_code == 403


def test_what_is_ticked_is_launched(operator: Client) -> None:
    answer = send(
        operator,
        name="two",
        pair=[pair(), pair("mini")],
        seeds="2",
        limit_max_steps="1,0",
        budget_max_tokens="5,000,000",
    )
    assert answer.status_code == 422
    answer = send(
        operator,
        name="two",
        pair=[pair(), pair("mini")],
        seeds="2",
        limit_max_steps="20",
        budget_max_tokens="5,000,000",
        concurrency="3",
        max_attempts="2",
    )
    made = Experiment.objects.get()
    assert answer["Location"] == reverse("experiment", args=[made.pk])
    assert made.runs.count() == 2 * 2 * Task.objects.filter(task_set=made.task_set).count()
    assert made.budgets == {"max_tokens": 5_000_000}
    assert (made.name, made.concurrency, made.max_attempts) == ("two", 3, 2)
    assert {arm.limits["max_steps"] for arm in made.arms.all()} == {20}
    assert made.plan["harnesses"] == ["leaf-compatible@1", "mini@1"]


def test_pairs_that_are_no_product_are_arms_one_by_one(operator: Client) -> None:
    send(operator, pair=[pair(), pair("mini", "scripted/struggler")])
    made = Experiment.objects.get()
    assert [str(arm) for arm in made.arms.all()] == [
        "leaf-compatible v1 × scripted/solver",
        "mini v1 × scripted/struggler",
    ]
    assert "arms" in made.plan


def test_a_form_sent_twice_launches_once(operator: Client) -> None:
    assert send(operator)["Location"] == send(operator)["Location"]
    assert Experiment.objects.count() == 1


def test_a_sample_and_ticked_tasks_are_launched(operator: Client) -> None:
    send(operator, selection="sample", sample_number="3", sample_seed="5", idempotency_key="a")
    assert Experiment.objects.get().runs.count() == 3
    slug = Task.objects.filter(task_set__name="practice").last().slug  # type: ignore[union-attr]
    send(operator, selection="ticked", task=[slug], idempotency_key="b")
    assert Experiment.objects.first().runs.get().task.slug == slug  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"pair": None}, "arms", "nothing is ticked; tick at least one pair"),
        ({"task_set": ""}, "tasks", "no task set is chosen"),
        ({"selection": "ticked"}, "tasks", "no task is ticked"),
        ({"selection": "sample", "sample_number": ""}, "sample_number", "is no whole number; write how many"),
        ({"selection": "sample", "sample_number": "99"}, "sample_number", "“99” is more than the"),
        ({"seeds": "many"}, "seeds", "“many” is no whole number; write how often"),
        ({"seeds": "101"}, "seeds", "“101” is not from 1 to 100"),
        ({"concurrency": "0"}, "concurrency", "“0” is too small"),
        ({"max_attempts": "11"}, "max_attempts", "“11” is too large"),
        (
            {"budget_max_cost_usd": "$5"},
            "budget_max_cost_usd",
            "“$5” is no number; write a number of dollars",
        ),
        ({"budget_max_hours": "-1"}, "budget_max_hours", "“-1” is no positive number"),
        ({"limit_max_steps": "999"}, "limit_max_steps", "“999” is more than the 150 of leaf-compatible v1"),
        ({"limit_max_steps": "5", "limit_max_steps_none": "on"}, "limit_max_steps", "are both given"),
    ],
)
def test_a_mistake_stands_at_its_field_and_nothing_typed_is_lost(
    operator: Client, changed: dict[str, object], field: str, said: str
) -> None:
    answer = send(operator, **({"name": "kept <b>", "budget_max_tokens": "777"} | changed))
    assert answer.status_code == 422
    page = answer.content.decode()
    error = page[page.index(f'id="error_{field}"') :]
    assert said in re.sub(r"<[^>]*>", "", error[: error.index("</svg>") + 600]).replace("&#x27;", "'")
    assert f'href="#id_{field}"' in page
    assert 'value="kept &lt;b&gt;"' in page
    assert 'value="777"' in page
    for name, value in changed.items():
        if name.startswith(("limit_max_steps", "seeds", "budget")) and value != "on":
            assert f'value="{value}"' in page
    assert not Run.objects.exists()


def test_a_failing_preflight_is_confirmed_before_anything_runs(operator: Client) -> None:
    model = coder()
    found = Preflight.objects.create(
        model=model, state="ended", outcome="failing", findings=[{"severity": "failing", "title": "No tools"}]
    )
    answer = send(operator, pair=[pair(model="coder")])
    assert answer.status_code == 422
    assert f'name="despite" value="{found.pk}"' in answer.content.decode()
    assert send(operator, pair=[pair(model="coder")], despite=[found.pk]).status_code == 302


@pytest.mark.parametrize("wrong", ["999:999", "abc", "-1:1", "1:"])
def test_a_pair_that_is_not_here_is_named_and_launches_nothing(operator: Client, wrong: str) -> None:
    answer = send(operator, pair=[pair(), wrong])
    assert answer.status_code == 422
    assert f"“{wrong}” is no pair of a harness and a model of this lab; leave it out" in words(answer)
    assert not Experiment.objects.exists()


def test_an_unknown_selection_of_tasks_is_named_and_launches_nothing(operator: Client) -> None:
    answer = send(operator, selection="zzz")
    assert answer.status_code == 422
    assert "selection “zzz” is not known; choose all, sample or ticked" in words(answer)
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("name", "label"),
    [("budget_max_tokens", "Tokens"), ("limit_max_steps", "Steps"), ("name", "Name"), ("seeds", "Seeds")],
)
def test_a_field_that_comes_twice_is_named_and_launches_nothing(
    operator: Client, name: str, label: str
) -> None:
    answer = send(operator, **{name: ["20", "30"]})
    assert answer.status_code == 422
    assert re.search(rf"{label} : “20” and “30” are both given; send the field once", words(answer))
    assert not Experiment.objects.exists()


def test_the_buttons_act_and_the_set_come_once_too(operator: Client) -> None:
    chosen = TaskSet.objects.get(name="practice").pk
    assert "Tasks : “" in words(send(operator, task_set=[chosen, chosen]))
    assert "idempotency_key: “a” and “b” are both given" in words(send(operator, idempotency_key=["a", "b"]))
    assert not Experiment.objects.exists()


# ---- the preview -----------------------------------------------------------------------------


def test_what_no_run_has_told_is_unknown_and_never_nothing(operator: Client) -> None:
    coder()
    said = preview(operator, pair=[pair(model="coder")])
    assert "unknown: no earlier run" in said
    assert "$0" not in said
    assert " 0 s" not in said


def test_earlier_runs_of_the_arm_tell_tokens_time_and_cost(operator: Client) -> None:
    coder()
    arm = {"pair": [pair(model="coder")]}
    send(operator, **arm)
    ran(Experiment.objects.get(), cost="0.10", cost_basis="card")
    said = preview(operator, seeds="3", **arm)
    assert "24 runs 8 tasks × 1 arm × 3 seeds" in said
    assert "from 8 earlier runs" in said
    assert "Cost about $2.40" in said
    assert re.search(r"Tokens 2[5-7]0,000 to 2[8-9]0,000", said)
    assert re.search(r"Work of agents \d+ min to \d+ min", said)
    assert "under other limits" in preview(operator, limit_max_steps="9", **arm)


def test_a_cost_that_is_partly_unknown_is_unknown(operator: Client) -> None:
    coder()
    arm = {"pair": [pair(model="coder")]}
    send(operator, **arm)
    ran(Experiment.objects.get(), cost="0.10", cost_basis="card", cost_unknown=1)
    said = preview(operator, **arm)
    assert "unknown: the cost of earlier runs is not known" in said
    said = preview(operator, pair=[pair(model="coder"), pair()])
    assert "unknown for arm A" in said or "unknown for arm B" in said


def test_the_warning_of_few_tasks_says_the_seeds_and_the_range_of_them(operator: Client) -> None:
    both = [pair(), pair("mini")]
    said = preview(operator, pair=both, seeds="4")
    assert "With 8 tasks and 4 seeds no difference would be found; one of 10 points takes 42 to 159" in said
    said = preview(operator, pair=both, seeds="16")
    assert "With 8 tasks and 16 seeds only a difference of 13 points or more, or none, would be found" in said
    said = preview(operator, pair=both)
    assert "With 8 tasks and 1 seed no difference would be found; one of 10 points takes 168 tasks" in said


def test_dollars_that_free_arms_never_use_up_are_warned_of(operator: Client) -> None:
    assert "never be reached" in preview(operator, budget_max_cost_usd="5")
    assert "never be reached" not in preview(operator, budget_max_tokens="500000")
    coder()
    both = [pair(), pair(model="coder")]
    assert "never be reached" not in preview(operator, pair=both, budget_max_cost_usd="5")


def test_the_smallest_difference_is_told_with_its_assumption(operator: Client) -> None:
    said = preview(operator, pair=[pair(), pair("mini")])
    # 44.3 points by the normal approximation, of which no more than 20 can be.
    assert (
        "none: even if all tasks that differ differ one way, the exact test finds it with a power of" in said
    )
    assert "20 % of tasks differ, assumed" in said
    assert "on 8 tasks: power of the exact McNemar test." in said
    said = preview(operator, pair=[pair(), pair("mini")], seeds="16")
    assert "from 12.9 points, or none" in said
    assert "power of the paired t test" in said
    assert "taken for the variance of one task's difference" in said.replace("’", "'").replace("&#x27;", "'")
    assert "Smallest difference" not in preview(operator)


def test_the_lights_say_what_differs_between_the_arms(operator: Client) -> None:
    said = preview(operator, pair=[pair(), pair("mini")])
    assert "harness different : A against B" in said
    assert "task set same" in said
    assert "harness same" in preview(operator, pair=[pair(), pair(model="scripted/struggler")])


def test_what_speaks_against_launching_is_said_before(operator: Client) -> None:
    model = coder()
    task = Task.objects.filter(task_set__name="practice").first()
    TaskCheck.objects.create(task=task, sandbox="bubblewrap", valid=True)  # type: ignore[misc]
    TaskCheck.objects.create(task=task, sandbox="bubblewrap", valid=False)  # type: ignore[misc]
    said = preview(operator, pair=[pair(), pair(model="coder")], budget_max_cost_usd="3")
    assert "coder has had no preflight." in said
    assert "The price of coder is unknown, so it counts in no budget of dollars." in said
    assert f"1 task is invalid by the newest check: {task.slug}." in said  # type: ignore[union-attr]
    Preflight.objects.create(
        model=model, state="ended", outcome="failing", findings=[{"severity": "failing", "title": "No tools"}]
    )
    assert "The newest preflight of coder is failing: No tools." in preview(
        operator, pair=[pair(model="coder")]
    )


def test_a_budget_that_will_be_reached_is_said(operator: Client) -> None:
    send(operator)
    ran(Experiment.objects.get())
    assert "budget of tokens will probably be reached" in preview(operator, budget_max_tokens="100")
    assert "budget of tokens" not in preview(operator, budget_max_tokens="100000000")


def test_a_form_that_means_nothing_yet_says_what_is_missing(operator: Client) -> None:
    assert "Nothing can be said yet: nothing is ticked" in preview(operator, pair=None)
    assert "Seeds: “x” is no whole number" in preview(operator, seeds="x")


def test_the_preview_works_without_script(operator: Client) -> None:
    answer = send(operator, do="preview", name="kept", seeds="2")
    assert answer.status_code == 200
    assert "16 runs" in words(answer)
    assert 'value="kept"' in answer.content.decode()
    assert not Run.objects.exists()


def test_another_task_set_shows_its_tasks(operator: Client) -> None:
    other = TaskSet.objects.create(name="other", version="1", digest="o", folder="")
    Task.objects.create(task_set=other, slug="the-only-one", position=1, title="t", statement="s", digest="x")
    answer = send(operator, do="tasks", task_set=other.pk, name="kept")
    assert "the-only-one" in answer.content.decode()
    assert 'value="kept"' in answer.content.decode()


# ---- templates -------------------------------------------------------------------------------


def begun(client: Client, key: str) -> str:
    return client.get(reverse("experiment_new"), {"template": key}).content.decode()


def test_a_template_ticks_one_model_on_several_harnesses_or_the_other_way(operator: Client) -> None:
    assert len(re.findall(r'name="pair"[^>]* checked', begun(operator, "harnesses"))) == 5
    page = begun(operator, "models")
    assert len(re.findall(r'name="pair"[^>]* checked', page)) == Model.objects.in_use().count()
    assert re.search(r'name="seeds" value="3"', page)


@pytest.mark.parametrize(
    ("key", "title", "count"),
    [
        ("swe-bench-verified", "SWE-bench Verified", 500),
        ("swe-bench-pro", "SWE-bench Pro", 731),
        ("terminal-bench-2", "Terminal-Bench 2", 89),
        ("patcheval", "PatchEval", 230),
    ],
)
def test_frognanos_evaluations_are_filled_in_and_say_what_is_missing(
    operator: Client, key: str, title: str, count: int
) -> None:
    page = begun(operator, key)
    for name, value in (("max_steps", 150), ("max_context_tokens", 131072), ("max_total_time_sec", 10800)):
        assert f'name="limit_{name}" value="{value}"' in page
    assert 'name="seeds" value="3"' in page
    assert f"The task set {title} ({count} tasks) is not in this lab." in page
    assert "manage.py check_tasks FOLDER" in page
    large_turns = key in ("swe-bench-pro", "terminal-bench-2")
    assert ("32,000 for max_tokens_per_turn" in page) == large_turns
    assert ('name="limit_max_tokens_per_turn" value="8192"' in page) != large_turns


def test_an_evaluation_takes_its_task_set_once_it_is_here(operator: Client) -> None:
    there = TaskSet.objects.create(name="swe-bench_verified", version="1", digest="v", folder="")
    page = begun(operator, "swe-bench-verified")
    assert f'<option value="{there.pk}" selected>' in page
    assert "is not in this lab" not in page
    assert "has 0 tasks" in page


# ---- clone and YAML --------------------------------------------------------------------------


def launched(client: Client) -> Experiment:
    send(
        client,
        name="first",
        pair=[pair(), pair("mini")],
        selection="sample",
        sample_number="2",
        sample_seed="9",
        seeds="2, 5",
        limit_max_steps="20",
        limit_max_total_time_sec_none="on",
        budget_max_hours="2.5",
        concurrency="2",
        max_attempts="4",
    )
    return Experiment.objects.get()


def fields_of(page: str) -> dict[str, list[str]]:
    """What the form would send as it stands."""
    body = page[page.index('id="experiment-form"') :]
    fields: dict[str, list[str]] = {}
    for tag in re.findall(r"<input[^>]*>", body):
        name = re.search(r'name="([^"]*)"', tag)
        value = re.search(r'value="([^"]*)"', tag)
        box = 'type="checkbox"' in tag or 'type="radio"' in tag
        if name and (not box or " checked" in tag):
            fields.setdefault(name[1], []).append(value[1] if value else "on")
    selected = re.search(r'<option value="(\d+)" selected', body)
    return fields | {"task_set": [selected[1] if selected else ""], "do": ["launch"]}


def test_a_clone_sent_as_it_stands_is_the_same_experiment_again(operator: Client) -> None:
    first = launched(operator)
    page = operator.get(reverse("experiment_clone", args=[first.pk])).content.decode()
    assert "Nothing it is made of can have changed." in page
    answer = operator.post(reverse("experiment_new"), fields_of(page))
    assert answer.status_code == 302
    second = Experiment.objects.exclude(pk=first.pk).get()
    assert second.cloned_from == first
    assert second.plan == first.plan
    assert sorted(second.runs.values_list("task", "seed", "arm__limits_digest")) == sorted(
        first.runs.values_list("task", "seed", "arm__limits_digest")
    )


def test_what_other_programs_recorded_has_no_plan_to_clone_and_says_so(operator: Client) -> None:
    made = launched(operator)
    Experiment.objects.update(kind=Experiment.Kind.IMPORTED)
    page = operator.get(reverse("experiment", args=[made.pk])).content.decode()
    for name in ("experiment_clone", "experiment_yaml"):
        assert f'href="{reverse(name, args=[made.pk])}"' not in page
        answer = operator.get(reverse(name, args=[made.pk]), follow=True)
        assert answer.redirect_chain == [(reverse("experiment", args=[made.pk]), 302)]
        assert "was recorded by other programs and cannot be launched again" in words(answer)


@pytest.mark.parametrize("asked", ["", "list"])
def test_a_name_stands_as_it_was_typed_and_the_labs_own_begins_with_a_capital(
    operator: Client, asked: str
) -> None:
    launched(operator)
    for name, heading in (("big", "big"), ("", "Experiment ")):
        Experiment.objects.update(name=name)
        made = Experiment.objects.get()
        page = operator.get(reverse("experiment", args=[made.pk]), {"as": asked}).content.decode()
        assert f"<h1>{heading}" in page


def test_a_clone_names_what_cannot_be_pinned_and_what_is_gone(operator: Client) -> None:
    run = builders.run()
    run.task.environment = {"image": "python:3.13"}
    run.task.save()
    Model.objects.filter(pk=run.arm.model_id).update(retired=True)
    page = operator.get(reverse("experiment_clone", args=[run.experiment_id])).content.decode()
    assert "the weights behind" in page
    assert "the image python:3.13: which one is not recorded" in page
    assert "retired" in page


def test_the_plan_of_an_experiment_is_a_file_that_fills_the_form_in(operator: Client, viewer: Client) -> None:
    first = launched(operator)
    file = viewer.get(reverse("experiment_yaml", args=[first.pk]))
    assert file["Content-Disposition"] == f'attachment; filename="experiment-{first.pk}.yaml"'
    assert read(file.content.decode()) == experiment_plans.of(first)
    given = {"do": "yaml", "file": SimpleUploadedFile("plan.yaml", file.content)}
    filled = operator.post(reverse("experiment_new"), given)
    assert filled.status_code == 200
    operator.post(reverse("experiment_new"), fields_of(filled.content.decode()))
    assert Experiment.objects.exclude(pk=first.pk).get().plan == first.plan


def test_the_form_is_saved_as_yaml_without_launching(operator: Client) -> None:
    answer = send(operator, do="save", name="later", seeds="3")
    assert answer["Content-Type"].startswith("application/yaml")
    plan = read(answer.content.decode())
    assert (plan.name, plan.seeds, plan.harnesses) == ("later", (1, 2, 3), ("leaf-compatible@1",))
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "is no YAML"), ("tasks: {set: a}\nseeds: x", "is no whole number"), ("", "it is empty")],
)
def test_yaml_that_cannot_be_read_stays_where_it_was_pasted(operator: Client, text: str, said: str) -> None:
    answer = operator.post(reverse("experiment_new"), {"do": "yaml", "yaml": text})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in page
    assert f">\n{text}</textarea>" in page


def test_a_file_that_is_no_text_is_refused(operator: Client) -> None:
    given = {"do": "yaml", "file": SimpleUploadedFile("plan.yaml", b"\xff\xfe\x00")}
    answer = operator.post(reverse("experiment_new"), given)
    assert answer.status_code == 422
    assert "is no text in UTF-8" in answer.content.decode()


def test_what_the_lab_does_not_have_is_named_and_the_rest_is_filled_in(operator: Client) -> None:
    text = (
        "name: moved\ntasks: {set: practice}\n"
        "harnesses: [leaf-compatible, elsewhere]\nmodels: [scripted/solver]"
    )
    answer = operator.post(reverse("experiment_new"), {"do": "yaml", "yaml": text})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "elsewhere" in page[page.index('id="error_arms"') :]
    assert 'value="moved"' in page
    assert len(re.findall(r'name="pair"[^>]* checked', page)) == 1


def test_arms_with_limits_of_their_own_are_kept_by_the_form(operator: Client) -> None:
    text = (
        "tasks: {set: practice}\n"
        "arms: [{harness: mini, model: scripted/solver, limits: {max_steps: 7}},"
        " {harness: r2e, model: scripted/solver}]"
    )
    page = operator.post(reverse("experiment_new"), {"do": "yaml", "yaml": text}).content.decode()
    assert "mini with scripted/solver: steps 7" in page
    fields = {
        name: [one.replace("&quot;", '"') for one in values] for name, values in fields_of(page).items()
    }
    operator.post(reverse("experiment_new"), fields)
    made = Experiment.objects.get()
    assert sorted(arm.limits["max_steps"] for arm in made.arms.all()) == [7, 50]
