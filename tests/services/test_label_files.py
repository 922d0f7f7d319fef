"""Labels as files: out and in again, of other people's collections, and never more than one may see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from lab.models import Annotation, Annotator, Role, Run
from lab.services import guidelines, known_facts, label_exports, label_imports, label_rows, labels
from lab.services.annotators import annotator_of
from lab.services.errors import FieldErrors
from tests import builders

pytestmark = pytest.mark.django_db


def failed_run() -> Run:
    run = builders.run()
    builders.believable(run)
    run.refresh_from_db()
    return run


def submitted(by: User, run: Run, *, step: int = 2, note: str = "= 1 + 1\nand 'more'") -> Annotation:
    draft = labels.open_draft(by=by, run_id=run.pk, guideline=guidelines.default())
    for operation in (
        {"do": "set_owner", "value": "agent"},
        {"do": "point_root", "step": {"step": step}},
        {"do": "change_event", "key": 1, "field": "category", "value": "wrong-root-cause"},
        {"do": "set_sure", "value": True},
        {"do": "set_note", "value": note},
    ):
        draft = labels.edit(by=by, annotation_id=draft.pk, revision=draft.revision, operation=operation)
    return labels.submit(by=by, annotation_id=draft.pk, revision=draft.revision, known=known_facts.as_json)


def adjudicated(run: Run, *parents: Annotation) -> Annotation:
    row = Annotation(
        run=run,
        guideline=parents[0].guideline,
        kind="adjudication",
        annotator=annotator_of(builders.person()),
        lead_seconds=12.5,
    )
    label_rows.write(row, label_rows.read(parents[0]))
    row.parents.set(parents)
    return row


@pytest.mark.parametrize("format_name", ["lab-jsonl", "lab-csv"])
def test_what_is_exported_and_imported_is_exported_the_same_again(format_name: str) -> None:
    run = failed_run()
    first = submitted(builders.person(Role.ANNOTATOR, name="ada"), run)
    other = submitted(builders.person(Role.ANNOTATOR, name="bo"), run, step=3)
    adjudicated(run, first, other)
    exported = label_exports.export_all(format_name=format_name)
    assert (exported.labels, exported.hidden, exported.unfit) == (3, 0, 0)
    again = label_imports.import_labels(name="x", data=exported.content)
    assert (again.new, again.known, again.missing, again.problems) == (0, 3, [], [])
    Annotation.objects.all().delete()
    taken = label_imports.import_labels(name="x", data=exported.content)
    assert (taken.new, taken.missing, taken.problems) == (3, [], [])
    assert set(Annotation.objects.values_list("annotator__kind", flat=True)) == {"imported"}
    assert Annotation.objects.get(kind="adjudication").parents.count() == 2
    assert label_exports.export_all(format_name=format_name).content == exported.content


def test_labels_of_a_run_that_is_not_here_are_listed_and_imported_later() -> None:
    run = failed_run()
    submitted(builders.person(Role.ANNOTATOR), run)
    data = label_exports.export_all(format_name="lab-jsonl").content
    Annotation.objects.all().delete()
    slug, run.task.slug = run.task.slug, "another"
    run.task.save()
    found = label_imports.import_labels(name="x", data=data)
    assert (found.new, [one.place for one in found.missing]) == (0, ["line 2"])
    assert "import the trajectory" in found.missing[0].why
    run.task.slug = slug
    run.task.save()
    assert label_imports.import_labels(name="x", data=data).new == 1


def agentrx(task: str, **changes: Any) -> bytes:
    failure = {
        "failure_id": 1,
        "step_number": 2,
        "step_reason": "it was told not to",
        "failure_category": "Instruction Adherence",
        "category_reason": "policy",
        "failed_agent": "Assistant",
    }
    root = {"failure_id": "1", "reason_for_root_cause": "never mended"}
    whole = {"trajectory_id": task, "failures": [failure | changes], "root_cause": root}
    return json.dumps([whole | {"failure_summary": "s"}]).encode()


def test_a_pointer_written_as_text_and_a_category_in_other_words_are_understood_and_kept() -> None:
    data = agentrx(failed_run().task.slug)
    found = label_imports.import_labels(name="x.json", data=data)
    assert (found.new, found.problems) == (1, [])
    row = Annotation.objects.get()
    event = row.events.get()
    assert (event.category, event.native_category) == ("instruction-plan-adherence", "Instruction Adherence")
    assert (row.root_event, event.seq is not None, row.annotator.name) == (1, True, "AgentRx")
    assert json.loads(label_exports.export_all(format_name="agentrx").content) == json.loads(data)


def test_a_category_that_no_code_means_is_kept_as_written() -> None:
    data = agentrx(failed_run().task.slug, failure_category="Bad luck")
    found = label_imports.import_labels(name="x.json", data=data)
    assert dict(found.words) == {"Bad luck": 1}
    event = Annotation.objects.get().events.get()
    assert (event.category, event.native_category) == ("", "Bad luck")


def test_a_step_that_the_run_does_not_have_is_a_problem_with_the_number() -> None:
    found = label_imports.import_labels(name="x", data=agentrx(failed_run().task.slug, step_number=99))
    assert (found.new, len(found.problems)) == (0, 1)
    assert "99" in found.problems[0].why
    assert "7 steps" in found.problems[0].why


def test_a_newer_edition_of_a_collection_replaces_its_label_and_keeps_it() -> None:
    slug = failed_run().task.slug
    label_imports.import_labels(name="x", data=agentrx(slug))
    found = label_imports.import_labels(name="x", data=agentrx(slug, step_number=3))
    assert (found.new, found.replaced, Annotation.objects.count()) == (1, 1, 2)
    assert len(label_rows.current(Annotation.objects.all())) == 1


def test_steps_of_who_and_when_count_from_0_in_the_file_and_from_1_here() -> None:
    log = {
        "question_ID": failed_run().task.slug,
        "mistake_agent": "Web",
        "mistake_step": "1",
        "mistake_reason": "r",
    }
    found = label_imports.import_labels(name="1.json", data=json.dumps(log).encode())
    assert (found.format, found.new) == ("who-and-when", 1)
    assert Annotation.objects.get().events.get().step == 2
    written = json.loads(label_exports.export_all(format_name="who-and-when").content)
    assert written["mistake_step"] == "1"


def test_categories_of_a_model_judge_are_judgements_and_no_labels() -> None:
    slug = failed_run().task.slug
    data = f'instance_id,category,rationale\ninstance_{slug},wrong_solution,"why, so"\n'.encode()
    found = label_imports.import_labels(name="sonnet.csv", data=data)
    assert (found.new, found.judgements) == (1, 1)
    row = Annotation.objects.get()
    assert (row.kind, row.annotator.name, row.note) == ("judgement", "sonnet", "why, so")
    assert row.extras["native_category"] == "wrong_solution"
    assert "category" in row.extras
    assert label_exports.export_all(format_name="agentrx").unfit == 1


def test_of_several_runs_of_a_task_none_is_chosen_until_somebody_says_which() -> None:
    run = failed_run()
    twin = builders.another_run(run, seed=2)
    builders.believable(twin)
    found = label_imports.import_labels(name="x", data=agentrx(run.task.slug))
    assert (found.new, "could be meant" in found.missing[0].why) == (0, True)


def test_labels_that_a_person_may_not_see_yet_are_left_out_and_counted() -> None:
    run = failed_run()
    ada, bo = builders.person(Role.ANNOTATOR), builders.person(Role.OPERATOR)
    submitted(ada, run)
    labels.open_draft(by=bo, run_id=run.pk, guideline=guidelines.default())
    found = label_exports.export(by=bo, format_name="lab-jsonl")
    assert (found.labels, found.hidden, found.content) == (0, 1, b"")
    own = label_exports.export(by=ada, format_name="lab-jsonl")
    assert (own.labels, own.hidden) == (1, 0)
    assert label_exports.counts(by=bo) == (0, 1)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"a,b\n1,2\n", b"{}", b"[1]", b"{broken"])
def test_a_file_that_holds_no_labels_is_refused_with_the_formats(data: bytes) -> None:
    with pytest.raises(FieldErrors, match=r"x\.json"):
        label_imports.import_labels(name="x.json", data=data)
    assert not Annotator.objects.exists()


def test_a_line_that_is_broken_does_not_stop_the_others() -> None:
    submitted(builders.person(Role.ANNOTATOR), failed_run())
    data = label_exports.export_all(format_name="lab-jsonl").content
    Annotation.objects.all().delete()
    lines = data.decode().splitlines()
    broken = "\n".join([lines[0], "{no json", lines[1]]).encode()
    found = label_imports.import_labels(name="x", data=broken)
    assert (found.new, [one.place for one in found.problems]) == (1, ["line 2"])
