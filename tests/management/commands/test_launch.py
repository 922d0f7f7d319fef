"""`manage.py launch`: an experiment from a file, followed to its end."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from lab.models import Endpoint, Experiment, Model, Preflight, Role, Run
from lab.services import endpoints, experiment_plans, harnesses, tasks
from tests import builders
from tests.timing import SOON

pytestmark = pytest.mark.django_db(transaction=True)

README = Path(__file__).parents[3] / "README.md"
PLAN = """
name: nightly
tasks: {set: practice, sample: {number: 2, seed: 1}}
harnesses: [leaf-compatible]
models: [scripted/solver]
"""


@pytest.fixture(autouse=True)
def lab(transactional_db: None) -> None:
    builders.person(Role.ADMIN, name="alice")
    tasks.sync_practice()
    harnesses.sync_presets()
    endpoints.sync_scripted()


def written(folder: Path, text: str = PLAN) -> str:
    file = folder / "plan.yaml"
    file.write_text(text)
    return str(file)


def launch(*arguments: object) -> tuple[int, str]:
    """Exit code and standard output."""
    out = io.StringIO()
    try:
        call_command("launch", *map(str, arguments), stdout=out, stderr=io.StringIO())
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def meanwhile(change: Callable[[Experiment], object]) -> threading.Thread:
    """Do something to the experiment once it is there, as another process would."""

    def work() -> None:
        try:
            for _ in range(int(SOON * 20)):
                if (made := Experiment.objects.first()) and made.runs.exists():
                    change(made)
                    return
                threading.Event().wait(0.05)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def followed(folder: Path, change: Callable[[Experiment], object], *more: str) -> tuple[int, str]:
    thread = meanwhile(change)
    try:
        return launch(written(folder), "--wait", *more)
    finally:
        thread.join()


def test_a_file_is_launched_by_an_admin_and_its_page_is_told(tmp_path: Path) -> None:
    code, said = launch(written(tmp_path))
    made = Experiment.objects.get()
    assert code == 0
    assert f"Experiment {made.pk}: 2 runs queued, at /experiments/{made.pk}/" in said
    assert made.launched_by is not None
    assert made.launched_by.username == "alice"


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PLAN.encode())))
    assert launch("-")[0] == 0
    assert Experiment.objects.get().name == "nightly"


def test_as_json_nothing_else_is_printed(tmp_path: Path) -> None:
    facts = json.loads(launch(written(tmp_path), "--json")[1])
    made = Experiment.objects.get()
    assert (facts["experiment"], facts["runs"], facts["state"]) == (made.pk, 2, "active")
    assert facts["page"] == f"/experiments/{made.pk}/"


def test_waiting_ends_with_0_when_every_run_has_ended(tmp_path: Path) -> None:
    def end(made: Experiment) -> None:
        made.runs.update(status=Run.Status.ENDED)

    code, said = followed(tmp_path, end)
    assert code == 0
    assert "Every run has ended: 2 of 2 runs have ended, 0 of 0 graded resolved." in said


def test_waiting_says_that_a_budget_paused_it(tmp_path: Path) -> None:
    def pause(made: Experiment) -> None:
        made.runs.filter(pk=made.runs.values("pk")[:1]).update(status=Run.Status.ENDED)
        because = {"paused_because": "$2.50 of $2.50 are spent", "paused_by_budget": "max_cost_usd"}
        Experiment.objects.filter(pk=made.pk).update(state="paused", **because)

    code, said = followed(tmp_path, pause, "--json")
    facts = json.loads(said)
    assert code == 2
    assert facts["paused_by_budget"] == "max_cost_usd"
    assert facts["said"].startswith("The experiment is paused ($2.50 of $2.50 are spent): ")


def test_waiting_says_that_it_was_cancelled(tmp_path: Path) -> None:
    def cancel(made: Experiment) -> None:
        Experiment.objects.filter(pk=made.pk).update(state="cancelled")

    code, said = followed(tmp_path, cancel)
    assert code == 3
    assert "The experiment was cancelled: 0 of 2 runs have ended" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "yaml: line 2: '' is no YAML"),
        (PLAN + "seeds: x", "seeds: 'x' is no whole number; write how often each task is run"),
        (PLAN.replace("scripted/solver", "nobody"), "model 'nobody' is not known; choose one of"),
        (PLAN + "limits: {max_steps: 999}", "max_steps: '999' is more than the 150 of leaf-compatible v1"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_launched(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError, match=re.escape(said)):
        launch(written(tmp_path, text))
    assert not Run.objects.exists()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match="'nowhere.yaml' cannot be read .* or - for standard input"):
        launch("nowhere.yaml")


def test_a_person_who_is_not_there_or_may_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="'bob' is not here; choose one of alice"):
        launch(written(tmp_path), "--person", "bob")


def test_a_failing_preflight_needs_despite(tmp_path: Path) -> None:
    endpoint = Endpoint.objects.create(name="there", base_url="http://127.0.0.1:9/v1")
    model = Model.objects.create(endpoint=endpoint, name="coder", model_id="coder")
    found = Preflight.objects.create(model=model, state="ended", outcome="failing")
    file = written(tmp_path, PLAN.replace("scripted/solver", "coder"))
    with pytest.raises(CommandError, match=f"launch despite {found.pk}"):
        launch(file)
    assert launch(file, "--despite", found.pk)[0] == 0


def example() -> Any:
    """The YAML of README's section."""
    section = README.read_text().partition("## Experiments from a file")[2]
    return section.partition("```yaml\n")[2].partition("```")[0]


def test_the_example_of_the_readme_is_launched_as_it_stands(tmp_path: Path) -> None:
    plan = experiment_plans.read(example())
    assert launch(written(tmp_path, example()))[0] == 0
    made = Experiment.objects.get()
    assert experiment_plans.of(made).budgets == plan.budgets
    assert made.runs.count() == experiment_plans.resolve(plan).run_count


def test_a_viewer_launches_nothing_and_is_told_so(tmp_path: Path) -> None:
    builders.person(Role.VIEWER, name="vera")
    with pytest.raises(CommandError, match="--person: .*; name an operator or an admin"):
        launch(written(tmp_path), "--person", "vera")
    assert not Experiment.objects.exists()
