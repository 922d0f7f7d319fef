"""The first page and Launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from lab.engine.harnesses.presets import load_preset
from lab.models import Experiment, HarnessVersion, Model, Run, Task
from lab.services import harnesses, isolation, tasks
from tests import builders
from tests.services.builders import small_task_set

Form = Callable[..., dict[str, object]]


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_a_fresh_lab_shows_only_launch_filled_in_with_a_task_and_the_solver(
    operator: Client, filled: None
) -> None:
    html = operator.get("/").content.decode()
    checked = re.findall(r'name="(tasks|models)" value="(\d+)"[^>]* checked', html)
    assert [name for name, _ in checked] == ["tasks", "models"]
    assert Model.objects.get(pk=checked[1][1]).name == "scripted/solver"
    assert "You watch each reply and each tool call as it happens" in html
    assert 'id="running"' not in html
    assert html.count("scripted, no intelligence") >= 2
    assert 'placeholder="150"' in html


def test_one_run_leads_to_its_page_and_several_to_their_experiment(
    operator: Client, launch_form: Form
) -> None:
    one = operator.post("/launch/", launch_form())
    run = Run.objects.get()
    assert (one.status_code, one.url) == (302, f"/runs/{run.pk}/")
    many = operator.post("/launch/", launch_form(seeds="3"))
    experiment = Experiment.objects.first()
    assert experiment is not None
    assert many.url == f"/experiments/{experiment.pk}/"
    assert experiment.runs.count() == 3


def test_the_same_form_sent_twice_launches_once(operator: Client, launch_form: Form) -> None:
    form = launch_form(idempotency_key="abc")
    assert operator.post("/launch/", form).url == operator.post("/launch/", form).url
    assert Run.objects.count() == 1


def test_another_selection_on_a_page_that_was_gone_back_to_is_launched(
    operator: Client, launch_form: Form
) -> None:
    first = operator.post("/launch/", launch_form(idempotency_key="abc"))
    other = Task.objects.get(slug="topo-cycle")
    second = operator.post("/launch/", launch_form(idempotency_key="abc", tasks=[other.pk]))
    assert first.url != second.url
    assert Run.objects.filter(task=other).count() == 1


def test_limits_are_taken_as_typed_and_lifted_only_on_purpose(operator: Client, launch_form: Form) -> None:
    operator.post(
        "/launch/",
        launch_form(limit_max_steps="10", limit_max_cost_usd="2.50", limit_max_context_tokens_none="on"),
    )
    limits = Run.objects.get().arm.limits
    assert limits["max_steps"] == 10
    assert limits["max_cost_usd"] == "2.50"
    assert limits["max_context_tokens"] is None
    assert limits["max_total_time_sec"] == 10800


@pytest.mark.parametrize("field", ["tasks", "models", "harness_version", "seeds", "limit_max_steps"])
@pytest.mark.parametrize("digits", [23, 5000])
def test_a_number_that_is_absurdly_long_is_an_error_of_its_field(
    operator: Client, launch_form: Form, field: str, digits: int
) -> None:
    number = "9" * digits
    sent: object = [number] if field in {"tasks", "models"} else number
    answer = operator.post("/launch/", launch_form(**{field: sent}))
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {field}
    assert len(str(answer.context["form"].errors)) < 500
    assert not Run.objects.exists()


def test_a_number_beside_a_ticked_no_limit_is_refused(operator: Client, launch_form: Form) -> None:
    sent = launch_form(limit_max_steps="5", limit_max_steps_none="on")
    answer = operator.post("/launch/", sent)
    assert answer.status_code == 422
    words = text_of(answer.content.decode())
    assert "“5” and “no limit” are both given; write a number or tick no limit, not both" in words
    assert not Run.objects.exists()


def test_mistakes_are_named_beside_their_fields_and_everything_typed_stays(
    operator: Client, launch_form: Form
) -> None:
    other = Task.objects.get(slug="topo-cycle").pk
    answer = operator.post(
        "/launch/", launch_form(tasks=[other], seeds="many", limit_max_steps="-1", limit_max_cost_usd="$5")
    )
    html = answer.content.decode()
    assert answer.status_code == 422
    assert 'value="-1"' in html
    assert 'value="$5"' in html
    assert 'value="many"' in html
    assert f'name="tasks" value="{other}" checked' in html
    assert html.count('aria-invalid="true"') == 3
    words = text_of(html)
    assert "“-1” is not a positive number of steps" in words
    assert "“$5” is not a number of dollars; write 5" in words
    assert "“many” is no whole number from 1 to 100; write 1" in words
    assert not Run.objects.exists()


def test_what_was_typed_with_an_apostrophe_is_quoted_like_the_rest(
    operator: Client, launch_form: Form
) -> None:
    answer = operator.post("/launch/", launch_form(limit_max_steps="1'0"))
    errors = answer.context["form"].errors
    assert errors["limit_max_steps"] == ["“1'0” is not a number of steps; write 10"]


def test_a_viewer_cannot_launch(viewer: Client, launch_form: Form) -> None:
    assert "an operator can launch runs" in viewer.get("/").content.decode()
    answer = viewer.post("/launch/", launch_form())
    assert answer.status_code == 403
    assert "needs the role operator; yours is viewer" in answer.content.decode()
    assert not Run.objects.exists()


def test_a_limit_above_the_harness_is_refused_with_the_number_to_write(
    operator: Client, launch_form: Form
) -> None:
    html = operator.post("/launch/", launch_form(limit_max_steps="400")).content.decode()
    assert "write 150 or less" in text_of(html)


class TestTheHarnessThatIsChosen:
    @pytest.fixture
    def older(self, filled: None) -> HarnessVersion:
        """A version of a harness that has a newer one, with fewer steps than any that is offered."""
        leaf = load_preset("leaf-compatible")
        first, _ = (
            harnesses.create_version(
                by=builders.person(),
                config=leaf.model_copy(
                    update={"name": "mine", "limits": leaf.limits.model_copy(update={"max_steps": steps})}
                ),
            )
            for steps in (7, 9)
        )
        return first

    def test_can_be_an_older_version_which_stands_beside_the_newest_ones(
        self, operator: Client, older: HarnessVersion
    ) -> None:
        plain = operator.get("/").content.decode()
        assert "mine v1" not in plain
        html = operator.get(f"/?harness={older.pk}").content.decode()
        assert chosen_harnesses(html) == [str(older.pk)]
        names = re.findall(r'name="harness_version".*?<span class="grow cut">([^<]+)', html)
        assert names == [
            *re.findall(r'name="harness_version".*?<span class="grow cut">([^<]+)', plain),
            "mine v1",
        ]
        assert "mine v1 older, 5 tools" in text_of(html)
        assert 'data-limit="max_steps" placeholder="7"' in html

    def test_can_be_a_newest_one_that_is_not_the_first_and_no_line_stands_twice(
        self, operator: Client, filled: None
    ) -> None:
        version = HarnessVersion.objects.get(harness__name="r2e")
        html = operator.get(f"/?harness={version.pk}").content.decode()
        assert chosen_harnesses(html) == [str(version.pk)]
        assert html.count(f'name="harness_version" value="{version.pk}"') == 1
        steps = version.config["limits"]["max_steps"]
        assert steps != 150
        assert f'data-limit="max_steps" placeholder="{steps}"' in html

    def test_is_still_chosen_after_a_mistake_and_launched_once_that_is_mended(
        self, operator: Client, launch_form: Form, older: HarnessVersion
    ) -> None:
        refused = operator.post("/launch/", launch_form(harness_version=older.pk, seeds="many"))
        html = refused.content.decode()
        assert refused.status_code == 422
        assert chosen_harnesses(html) == [str(older.pk)]
        assert 'data-limit="max_steps" placeholder="7"' in html
        operator.post("/launch/", launch_form(harness_version=older.pk))
        arm = Run.objects.get().arm
        assert (arm.harness_version, arm.limits["max_steps"]) == (older, 7)

    @pytest.mark.parametrize("odd", ["", "x", "-1", "²", "999999", "9" * 30])
    def test_is_the_first_where_the_address_names_none(
        self, operator: Client, filled: None, odd: str
    ) -> None:
        answer = operator.get("/", {"harness": odd})
        assert answer.status_code == 200
        assert chosen_harnesses(answer.content.decode()) == chosen_harnesses(
            operator.get("/").content.decode()
        )

    @pytest.mark.parametrize("fields", [{"digest": None}, {"config": {"family": "of another lab"}}])
    def test_is_none_whose_content_is_unknown_or_cannot_be_read(
        self, operator: Client, launch_form: Form, fields: dict[str, object]
    ) -> None:
        version = HarnessVersion.objects.get(harness__name="leaf-compatible")
        HarnessVersion.objects.filter(pk=version.pk).update(**fields)
        html = operator.get(f"/?harness={version.pk}").content.decode()
        assert "leaf-compatible v1" not in html
        assert len(chosen_harnesses(html)) == 1
        answer = operator.post("/launch/", launch_form(harness_version=version.pk))
        assert answer.status_code == 422
        assert "this harness is not known any more; choose one from the list" in text_of(
            answer.content.decode()
        )
        # Nothing is chosen, and so no limit is known.
        assert chosen_harnesses(answer.content.decode()) == []
        assert 'data-limit="max_steps" placeholder=""' in answer.content.decode()
        assert "/?harness=" not in operator.get(f"/harnesses/{version.pk}/").content.decode()


def chosen_harnesses(html: str) -> list[str]:
    return re.findall(r'name="harness_version" value="(\d+)"[^>]* checked', html)


def test_running_and_finished_runs_stand_in_lists_of_their_own(operator: Client, filled: None) -> None:
    ended, going = builders.run(), builders.run()
    builders.believable(ended, outcome="resolved")
    builders.start(going)
    html = operator.get("/").content.decode()
    running, finished = html.split('id="finished-rows"')
    assert f'id="run-{going.pk}"' in running.split('id="running-rows"')[1]
    assert f'id="run-{ended.pk}"' in finished
    words = text_of(html)
    assert "1 of 8 slots, 0 queued" in words
    assert "1 running" in words


def test_only_an_admin_may_agree_to_runs_without_isolation_and_is_asked_first(
    admin: Client, operator: Client, filled: None
) -> None:
    assert operator.post("/launch/without-isolation/", {"agreed": "yes"}).status_code == 403
    asked = admin.post("/launch/without-isolation/")
    assert "Run without isolation?" in asked.content.decode()
    assert "apt-get install bubblewrap" in asked.content.decode()
    assert admin.post("/launch/without-isolation/", {"agreed": "yes"}).url == "/"


def test_the_latest_experiment_of_several_runs_is_summed_up_by_arm(operator: Client, filled: None) -> None:
    for _ in range(2):
        first = builders.run()
        builders.another_run(first, seed=2)
        builders.believable(first, outcome="resolved")
    builders.run()
    words = text_of(operator.get("/").content.decode())
    assert f"Experiment {first.experiment_id} 1 of 2 graded" in words
    assert f"A {first.arm.model.name} 1 of 1 resolved" in words


class TestTasksOfAnotherSet:
    @pytest.fixture
    def with_image(self, filled: None, tmp_path: Path, settings: Settings) -> Iterator[Task]:
        """A task that brings an image, on a machine where no daemon answers."""
        small_task_set(tmp_path / "set")
        described = tmp_path / "set" / "adds" / "task.toml"
        described.write_text(described.read_text() + '\n[environment]\nimage = "debian:12"\n')
        settings.LAB_DOCKER_HOST = f"unix://{tmp_path}/docker.sock"
        isolation.look_again()
        yield tasks.sync_task_set(folder=tmp_path / "set").tasks.get(slug="adds")
        isolation.look_again()

    def test_are_offered_where_the_address_names_the_set(self, operator: Client, with_image: Task) -> None:
        number = with_image.task_set_id
        assert f'href="/?set={number}#launch"' in operator.get("/tasks/").content.decode()
        page = operator.get(f"/?set={number}").content.decode()
        assert f'name="tasks" value="{with_image.pk}"' in page
        assert "small 1 or of practice 1" in text_of(page)
        first_page = operator.get("/").content.decode()
        assert f'value="{with_image.pk}"' not in first_page
        assert f'href="/?set={number}#launch"' in first_page
        assert 'name="tasks"' in operator.get("/?set=999999").content.decode()

    def test_are_one_link_a_name_and_the_rest_a_number(
        self, operator: Client, with_image: Task, tmp_path: Path
    ) -> None:
        for number in range(5):
            small_task_set(tmp_path / str(number))
            named = tmp_path / str(number) / "set.toml"
            named.write_text(named.read_text().replace('"small"', f'"set{number % 4}"'))
            (tmp_path / str(number) / "adds" / "issue.md").write_text(f"It is wrong {number} times.\n")
            tasks.sync_task_set(folder=tmp_path / str(number))
        assert "or of set0 1 , set3 1 , set2 1 , 2 more" in text_of(operator.get("/").content.decode())

    def test_are_launched_from_there(self, operator: Client, launch_form: Form, with_image: Task) -> None:
        plain = with_image.task_set.tasks.get(slug="subtracts")
        sent = launch_form(tasks=[plain.pk], task_set=with_image.task_set_id)
        assert operator.post("/launch/", sent).status_code == 302
        assert Run.objects.get().task == plain

    def test_that_need_what_does_not_work_here_are_named_and_nothing_typed_is_lost(
        self, operator: Client, launch_form: Form, with_image: Task
    ) -> None:
        answer = operator.post(
            "/launch/", launch_form(tasks=[with_image.pk], task_set=with_image.task_set_id, seeds="7")
        )
        assert answer.status_code == 422
        html = answer.content.decode()
        assert "adds brings an image of its own, which needs docker" in text_of(html)
        assert "no Docker daemon answers there" in text_of(html)
        assert f'name="tasks" value="{with_image.pk}" checked' in html
        assert f'name="task_set" value="{with_image.task_set_id}"' in html
        assert 'value="7"' in html
        assert not Run.objects.exists()
