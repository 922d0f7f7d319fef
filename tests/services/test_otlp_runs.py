"""Traces that programs sent become runs once they are quiet, each once, and nothing of them is lost."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from lab.engine.formats.otlp_wire import PROTOBUF_TYPE, ReceivedSpan, read_request
from lab.engine.stop import StopSignal
from lab.models import Event, Experiment, Import, Role, Run, RunFacts, Trace
from lab.services import otlp, otlp_runs
from lab.services.import_holding import Holding
from tests import builders
from tests.otel_agent import Told, as_protobuf, told, two_steps

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sender() -> User:
    return builders.person(Role.OPERATOR)


def spans(tell: object = two_steps) -> list[ReceivedSpan]:
    return read_request(as_protobuf(told(tell)), content_type=PROTOBUF_TYPE).spans  # type: ignore[arg-type]


def pass_time(seconds: float) -> None:
    """As if the last spans had come so long ago."""
    ago = dt.timedelta(seconds=seconds)
    for trace in Trace.objects.all():
        Trace.objects.filter(pk=trace.pk).update(last_at=timezone.now() - ago)


def assemble() -> int:
    return otlp_runs.assemble(worker="test/1/1", stop=StopSignal())


def test_a_trace_becomes_a_run_when_its_root_has_ended(sender: User) -> None:
    otlp.receive(by=sender, spans=spans())
    assert assemble() == 0
    pass_time(3)
    assert assemble() == 1
    run = Run.objects.get()
    assert (run.status, run.exit_reason) == (Run.Status.ENDED, "agent")
    facts = RunFacts.objects.get()
    assert (facts.steps, facts.input_total, facts.output_total, facts.verdict) == (2, 200, 20, "resolved")
    experiment = run.experiment
    assert (experiment.kind, experiment.launched_by) == (Experiment.Kind.IMPORTED, sender)
    assert experiment.name.startswith("mender by OpenTelemetry")
    assert assemble() == 0


def test_a_trace_without_its_root_waits_longer(sender: User) -> None:
    parts = [span for span in spans() if span.parent_id]
    otlp.receive(by=sender, spans=parts)
    pass_time(10)
    assert assemble() == 0
    pass_time(61)
    assert assemble() == 1
    assert Run.objects.count() == 1


def test_traces_of_a_program_and_day_are_one_experiment(sender: User) -> None:
    otlp.receive(by=sender, spans=[*spans(), *spans(), *spans()])
    pass_time(3)
    assert assemble() == 3
    assert Experiment.objects.get().runs.count() == 3
    imported = Import.objects.get()
    assert (imported.state, imported.found["imported"]) == (Import.State.ENDED, 3)


def test_spans_that_come_late_are_kept_in_the_log(sender: User) -> None:
    sent = spans()
    otlp.receive(by=sender, spans=sent[1:])
    pass_time(3)
    assemble()
    otlp.receive(by=sender, spans=sent[:1])
    pass_time(3)
    assert assemble() == 1
    late = Event.objects.get(kind="source_kept", payload__about="late_spans")
    assert sent[0].span_id in json.dumps(late.payload)
    assert "came after" in Trace.objects.get().problem
    assert Run.objects.count() == 1


def test_a_trace_of_something_else_is_kept_and_no_run(sender: User) -> None:
    def web(agent: Told) -> None:
        agent.span("GET /", {"http.request.method": "GET"}, 1)

    otlp.receive(by=sender, spans=spans(web))
    pass_time(3)
    assert assemble() == 1
    assert Trace.objects.get().problem == otlp_runs.NO_CALL
    assert not Run.objects.exists()
    assert assemble() == 0


def test_a_trace_whose_import_is_held_waits_for_its_turn(sender: User) -> None:
    otlp.receive(by=sender, spans=spans())
    pass_time(3)
    assemble()
    row = Import.objects.get()
    Import.objects.update(state=Import.State.READING, lease_until=timezone.now() + dt.timedelta(hours=1))
    otlp.receive(by=sender, spans=spans())
    pass_time(3)
    with Holding(row, StopSignal()):
        assert assemble() == 0
    assert Trace.objects.filter(waits=True).count() == 1


def test_a_name_that_no_database_holds_stops_neither_its_trace_nor_the_next(sender: User) -> None:
    def renamed(span: ReceivedSpan) -> ReceivedSpan:
        body = json.dumps(span.body).replace("mender", "men\\u0000\\ud800der")
        return dataclasses.replace(span, body=json.loads(body))

    otlp.receive(by=sender, spans=[renamed(span) for span in spans()])
    otlp.receive(by=sender, spans=spans())
    pass_time(3)
    assert assemble() == 2
    assert {row.name.split(" by ")[0] for row in Import.objects.all()} == {
        "mender",
        "men\N{SYMBOL FOR NULL}\N{REPLACEMENT CHARACTER}der",
    }
    assert Run.objects.count() == 2


@pytest.mark.parametrize("state", [Import.State.CANCELLED, Import.State.FAILED])
def test_traces_become_runs_after_somebody_ended_the_import_of_their_day(
    sender: User, state: Import.State
) -> None:
    otlp.receive(by=sender, spans=spans())
    pass_time(3)
    assemble()
    Import.objects.update(state=state, cancel_asked=True)
    otlp.receive(by=sender, spans=spans())
    pass_time(3)
    assert assemble() == 1
    row = Import.objects.get()
    assert (row.state, row.cancel_asked, Run.objects.count()) == (Import.State.ENDED, False, 2)
