"""`manage.py rebuild_inputs`: every model call's input comes from the log alone, equal to what was sent."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.engine.events import ModelCallStarted
from lab.engine.harnesses.conversation import Conversation
from lab.engine.llm.base import canonical_sha256
from lab.models import Event, Run
from lab.services import log
from tests.services.builders import launched, person
from tests.services.events import attempt_started, call_failed, call_finished


@pytest.fixture
def run(db: None) -> Run:
    """A run with two attempts and three requests, one of them tried again."""
    made = launched(person()).runs.get()
    for attempt, tries in ((1, 2), (2, 1)):
        conversation = Conversation()
        for event in _attempt(conversation, tries):
            conversation.apply(event)
            log.append(run_id=made.pk, attempt=attempt, lease_token=None, events=[event])
    return made


def _attempt(conversation: Conversation, tries: int) -> Iterator[Any]:
    yield attempt_started(messages=[{"role": "user", "content": "a long text " * 1000}])
    for request in range(1, tries + 1):
        sha256 = canonical_sha256(conversation.body(None))
        yield ModelCallStarted(step=1, request=request, body_sha256=sha256, message_count=1)
        yield call_failed(1) if request < tries else call_finished(1)


def rebuild(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("rebuild_inputs", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_every_call_of_every_attempt_is_compared(run: Run) -> None:
    code, said = rebuild(str(run.pk))
    assert (code, said) == (0, f"run {run.pk}: 3 of 3 model calls are rebuilt as they were sent\n")


def test_one_that_differs_is_named_and_the_exit_code_is_1(run: Run) -> None:
    row = Event.objects.filter(run=run, kind="model_call_started").last()
    assert row is not None
    Event.objects.filter(pk=row.pk).update(payload={**row.payload, "body_sha256": "0" * 64})
    code, said = rebuild(str(run.pk))
    assert code == 1
    assert "2 of 3 model calls" in said
    assert f"event {row.seq} (attempt 2, step 1, request 1) differs: sent {'0' * 64}, rebuilt " in said

    code, said = rebuild(str(run.pk), "--json")
    found = json.loads(said)
    assert code == 1
    assert (found["run"], found["calls"], found["equal"]) == (run.pk, 3, 2)
    (one,) = found["differing"]
    assert (one["seq"], one["attempt"], one["sent"]) == (row.seq, 2, "0" * 64)


@pytest.mark.django_db
def test_a_run_that_nobody_knows_is_named() -> None:
    with pytest.raises(CommandError, match="run: 77 is not known"):
        rebuild("77")
