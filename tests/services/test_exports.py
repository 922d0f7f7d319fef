"""Exports leave out what nobody may see, hold every run in order, and read one run at a time."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import zipfile

import atif
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from lab.engine.errors import InvalidValueError
from lab.engine.events import Event
from lab.engine.formats.to_events import Standing, to_events
from lab.engine.formats.trajectory import HarnessUsed, Note, Origin, Trajectory, Turn
from lab.engine.llm.base import Cost
from lab.models import Blob, Endpoint, Experiment, Role, Run
from lab.services import blobs, exports, log
from lab.services.errors import AccessDeniedError
from lab.services.exported_runs import Loading
from lab.services.records import FOR_OPERATORS
from tests import builders
from tests.web.test_masked_pages import KEY, SECRET, sample_events

pytestmark = pytest.mark.django_db
FORMATS = [choice.name for choice in exports.CHOICES]
KNOWN = "an-endpoint-key-0123456789"
HIDDEN = "# hidden source"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def texts(export: exports.Export) -> dict[str, str]:
    """The files of an export by name, unpacked, each as text."""
    data = b"".join(export.pieces)
    if export.content_type != "application/zip":
        return {export.file_name: data.decode()}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: _text(name, archive.read(name)) for name in archive.namelist()}


def _text(name: str, data: bytes) -> str:
    if not name.endswith(".parquet"):
        return data.decode()
    arrow = pytest.importorskip("pyarrow.parquet")
    return "\n".join(map(repr, arrow.read_table(io.BytesIO(data)).to_pylist()))


def exported(*runs: Run, name: str, sees_hidden: bool = True) -> str:
    """All files of an export, one after the other, behind their names."""
    if name == "parquet":
        pytest.importorskip("pyarrow")
    numbers = [run.pk for run in runs]
    export = exports.export(runs=numbers, name="runs", format_name=name, sees_hidden=sees_hidden)
    return "\n".join(f"{file}\n{text}" for file, text in texts(export).items())


def whole_run(**changes: object) -> Run:
    run = builders.run()
    builders.believable(run)
    Run.objects.filter(pk=run.pk).update(**changes)
    return Run.objects.get(pk=run.pk)


# What nobody may see.


@pytest.mark.parametrize("name", FORMATS)
def test_what_looks_like_a_key_is_masked_in_every_format(name: str) -> None:
    run = builders.run()
    # Stored without what is derived from them: with a key in every text they are no believable run.
    rows = log.thin_events(run_id=run.pk, attempt=1, events=[(NOW, event) for event in sample_events()]).rows
    for seq, row in enumerate(rows, start=1):
        row.seq = seq
        row.save()
    run.last_seq = len(rows)
    run.save()
    text = exported(run, name=name)
    assert len(text) > 100
    assert SECRET not in text
    assert KEY not in text


@pytest.mark.parametrize("name", FORMATS)
def test_a_secret_that_became_known_later_is_replaced_on_the_way_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = builders.run()
    builders.start(run)
    events: list[Event] = [
        builders.asked(1),
        builders.answered(1, ("Bash", json.dumps({"command": KNOWN})), content=f"it is {KNOWN}"),
        builders.called(1, KNOWN, {"command": f"echo {KNOWN}"}, raw=f'{{"command": "{KNOWN}"}}'),
        builders.printed(1, f"{KNOWN}\n" * 400),
        *builders.ending(),
    ]
    builders.append(run, *events)
    assert KNOWN in exported(run, name="trajectory-lab")
    monkeypatch.setenv("ACME_KEY", KNOWN)
    Endpoint.objects.create(name="acme", key_variable="ACME_KEY")
    text = exported(run, name=name)
    assert KNOWN not in text
    assert "[redacted: ACME_KEY]" in text or name in {"swe-bench"}


@pytest.mark.parametrize("name", FORMATS)
def test_what_hidden_tests_printed_is_for_operators_only(name: str) -> None:
    run = whole_run()
    assert HIDDEN not in exported(run, name=name, sees_hidden=False)


def test_operators_get_what_hidden_tests_printed_and_others_a_sentence() -> None:
    run = whole_run()
    for role, expected in (
        (Role.OPERATOR, HIDDEN),
        (Role.ANNOTATOR, FOR_OPERATORS),
        (Role.VIEWER, FOR_OPERATORS),
    ):
        by = builders.person(role)
        for name in ("trajectory-lab", "atif", "mini-swe-agent"):
            (text,) = texts(exports.of_run(by=by, run=run, format_name=name)).values()
            assert expected in text, (role, name)


def test_whoever_does_not_belong_to_the_lab_gets_nothing() -> None:
    stranger = builders.person(Role.VIEWER)
    stranger.membership.delete()
    stranger = type(stranger).objects.get(pk=stranger.pk)
    with pytest.raises(AccessDeniedError):
        exports.of_run(by=stranger, run=whole_run(), format_name="atif")


def test_the_key_of_an_endpoint_is_nowhere_in_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    run = whole_run()
    endpoint = run.arm.model.endpoint
    monkeypatch.setenv("ACME_KEY", KNOWN)
    headers = {"X-Api-Key": "the-key-in-a-header"}
    Endpoint.objects.filter(pk=endpoint.pk).update(key_variable="ACME_KEY", headers=headers)
    for name in FORMATS:
        text = exported(run, name=name)
        assert KNOWN not in text
        assert "the-key-in-a-header" not in text


# What is there.


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_runs_make_the_same_file_in_the_order_of_their_numbers(name: str) -> None:
    run = whole_run()
    other = builders.another_run(run, seed=2)
    builders.believable(other, outcome="resolved")
    numbers = exports.runs_of(run.experiment)
    assert numbers == sorted(numbers) == [run.pk, other.pk]
    if name == "parquet":
        pytest.importorskip("pyarrow")
    first, second = (
        b"".join(exports.export(runs=numbers, name="x", format_name=name, sees_hidden=True).pieces)
        for _ in range(2)
    )
    assert first == second


def test_runs_that_are_named_are_those_of_the_experiment() -> None:
    run = whole_run()
    other = builders.another_run(run, seed=2)
    assert exports.runs_of(run.experiment, only=[other.pk]) == [other.pk]
    stranger = whole_run()
    with pytest.raises(InvalidValueError, match=f"run: {stranger.pk} is no run of experiment"):
        exports.runs_of(run.experiment, only=[stranger.pk])


def test_an_imported_run_is_exported_as_it_was_recorded() -> None:
    run = builders.run()
    run.attempts.create(n=1)
    found = Trajectory(
        origin=Origin(format="mini-swe-agent-1.1", file="a.traj.json", sha256="a" * 64),
        harness=HarnessUsed(name="mini-swe-agent"),
        instance_id="click-1",
        items=(Turn(message={"role": "assistant", "content": "look"}),),
        native_reason="Submitted",
        notes=(Note(kind="missing", field="usage", detail="none is recorded"),),
    )
    standing = Standing(
        task={"id": "click-1"},
        harness={"name": "mini-swe-agent (imported)", "version": 3, "recorded_version": "2.4.6"},
        model={"name": "model not recorded (imported)"},
        seed=1,
        lab_version="1",
    )
    events = list(to_events(found, standing, price=lambda *_: Cost(), imported_at=NOW))
    log.append(run_id=run.pk, attempt=1, lease_token=None, events=events)
    (text,) = texts(exports.export(runs=[run.pk], name="x", format_name="atif", sees_hidden=True)).values()
    document = json.loads(text)
    assert (document["agent"]["name"], document["agent"]["version"]) == ("mini-swe-agent", "2.4.6")
    assert document["extra"]["recorded_as"] == {"format": "mini-swe-agent-1.1", "sha256": "a" * 64}
    assert document["extra"]["native_reason"] == "Submitted"
    assert "missing: usage: none is recorded" in document["notes"]
    assert "timestamp" not in document["steps"][-1]


def test_demo_runs_are_exported_like_any_other_and_say_so() -> None:
    run = whole_run()
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.DEMO)
    (text,) = texts(exports.export(runs=[run.pk], name="x", format_name="atif", sees_hidden=True)).values()
    assert json.loads(text)["extra"]["trajectory_lab"]["experiment"]["kind"] == "demo"


def test_a_body_that_is_gone_is_said_and_stops_nothing() -> None:
    run = whole_run()
    builders.append(run, *builders.bash_step(8, "cat", "line of output\n" * 2000))
    run.refresh_from_db()
    for blob in Blob.objects.all():
        blobs.path_of(blob.sha256).unlink()
    (text,) = texts(exports.export(runs=[run.pk], name="x", format_name="atif", sees_hidden=True)).values()
    atif.Trajectory.model_validate_json(text)
    assert "[body missing" in text


def test_one_run_is_read_at_a_time() -> None:
    run = whole_run()
    for seed in range(2, 6):
        builders.believable(builders.another_run(run, seed=seed))
    export = exports.of_experiment(
        by=builders.person(Role.VIEWER), experiment=run.experiment, format_name="atif"
    )
    loaded = Loading(sees_hidden=True).runs(exports.runs_of(run.experiment))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        next(loaded)
    assert sum("lab_event" in query["sql"] for query in queries) == 1
    assert len(texts(export)) == 6


# Hostile texts.

HOSTILE = "../../../etc/<script>alert(1)</script>\u202e\x00=1+1"


@pytest.mark.parametrize("name", FORMATS)
def test_no_name_of_a_file_is_made_of_what_somebody_typed(name: str) -> None:
    run = whole_run()
    run.task.slug = HOSTILE.replace("\x00", "")
    run.task.save()
    Experiment.objects.filter(pk=run.experiment_id).update(name=HOSTILE.replace("\x00", ""))
    if name == "parquet":
        pytest.importorskip("pyarrow")
    other = builders.another_run(run, seed=2)
    builders.believable(other)
    by = builders.person(Role.VIEWER)
    export = exports.of_experiment(by=by, experiment=run.experiment, format_name=name)
    assert export.file_name.startswith(f"experiment-{run.experiment_id}")
    for file in (export.file_name, *texts(export)):
        assert set(file) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"), file
        assert ".." not in file
        assert not file.startswith("/")


def test_bytes_that_no_text_has_make_valid_json_and_csv() -> None:
    printed = 'a,"b"\r\n\x00\ud800\u202e\x1b]52;c;x\x07' + "y" * 1_000_000
    run = builders.run()
    builders.start(run)
    call = builders.called(1, "=cmd", {"command": HOSTILE}, raw=HOSTILE)
    told = builders.told(1, printed)
    builders.append(run, builders.asked(1), builders.answered(1, ("Bash", "{}")), call, told)
    run.refresh_from_db()
    documents = {
        name: texts(exports.export(runs=[run.pk], name="x", format_name=name, sees_hidden=True))
        for name in ("trajectory-lab", "atif", "mini-swe-agent", "chat", "csv")
    }
    (document,) = documents["atif"].values()
    atif.Trajectory.model_validate_json(document)
    (mini,) = documents["mini-swe-agent"].values()
    assert json.loads(mini)["messages"]
    for name in ("trajectory-lab", "chat"):
        (lines,) = documents[name].values()
        assert all(json.loads(line) for line in lines.splitlines() if line.startswith("{"))
    (row,) = csv.DictReader(io.StringIO(documents["csv"]["calls.csv"], newline=""))
    assert row["tool"] == "'=cmd"
    assert int(row["observation_characters"]) == len(printed)


def test_a_number_that_is_no_run_is_refused_also_where_it_is_0() -> None:
    run = whole_run()
    for number in (0, run.pk + 1):
        with pytest.raises(InvalidValueError, match="is no run of"):
            exports.runs_of(run.experiment, only=[run.pk, number])
        with pytest.raises(InvalidValueError, match="is no run of"):
            exports.known_runs([run.pk, number])
    assert exports.runs_of(run.experiment, only=[run.pk]) == exports.known_runs([run.pk, run.pk]) == [run.pk]
