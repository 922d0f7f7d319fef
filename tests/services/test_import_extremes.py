"""What a file may hold and a database may not: it is stored all the same, on every database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, Probe
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Found,
    FoundGrading,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Problem,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Usage
from lab.engine.verify.base import Outcome, TestOutcome, TestStatus
from lab.models import Call as CallRow
from lab.models import Import, Run
from lab.services import import_reading, interchange
from lab.services.exports import CHOICES, export
from lab.services.log import read_records

pytestmark = pytest.mark.django_db(transaction=True)

# Each at every place where a file may have a text.
TEXTS = {
    "long": "very long " * 2000,
    "of characters no database holds": "a\0b\ud800c",
    "of characters of four bytes": "\N{GRINNING FACE}" * 5000,
}
MUCH = 2**53


class Given:
    """A format that finds what a test gives it."""

    name = "given"
    title = "given by a test"

    def __init__(self, *found: Found) -> None:
        self._found = found

    def recognises(self, probe: Probe) -> bool:
        return True

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        yield from self._found


def imported(folder: Path, *found: Found) -> Import:
    file = folder / "any.json"
    file.write_text("{}")
    return import_reading.import_now(paths=[file], worker="w/1/1", formats=(Given(*found),))


def origin(text: str, digest: str) -> Origin:
    return Origin(format=text, file=text, place=text, sha256=digest * 64)


def grading(text: str) -> Grading:
    test = TestOutcome(test_id=text, group="fail_to_pass", status=TestStatus.PASSED, assertion=text, log=text)
    return Grading(
        rule=text,
        outcome=Outcome.RESOLVED,
        tests=(test,),
        rewards={text: 1e300},
        detail=text,
        log=text,
        seconds=1e300,
        kept={text: text},
    )


def everything(text: str) -> Trajectory:
    usage = Usage(input_total=MUCH, output_total=MUCH, source="provider", raw={text: text})
    call = Call(
        id=text, name=text, arguments={text: [text]}, raw_arguments=text, observation=text, output=text + "!",
        message={"role": "tool", "content": text}, exit_code=2**40, seconds=1e300, kept={text: text},
    )  # fmt: skip
    message = {"role": "assistant", "content": text, "tool_calls": [{"id": text}]}
    items: tuple[Item, ...] = (
        Turn(
            message=message, reasoning=text, calls=(call,), finish_reason=text, model=text, response_id=text,
            usage=usage, cost_reported=Decimal("99999.123456789012345"), kept={text: text},
            ended_at=dt.datetime(1, 1, 1, tzinfo=dt.UTC), seconds=1e300,
        ),
        Message(message={"role": "user", "content": text}, reason=text, kept={text: text}),
        FailedRequest(error=text, message=text, status=2**40, usage=usage, seconds=1e300, kept={text: text}),
        Rewritten(reason=text, messages=({"role": "user", "content": text},), kept={text: text}),
        Turn(message=message, agent=text),
        Aside(name=text, kept={text: text}),
    )  # fmt: skip
    return Trajectory(
        origin=origin(text, "a"),
        harness=HarnessUsed(name=text, version=text, family=text, config={text: text}),
        model=ModelUsed(name=text, provider=text, base_url=text, sampling={text: text}),
        instance_id=text,
        statement=text,
        task_kept={text: text},
        seed=2**60,
        opening=({"role": "user", "content": text},),
        tools=({"type": "function", "function": {"name": text}},),
        items=items,
        exit_reason=ExitReason.AGENT,
        native_reason=text,
        error=text,
        final_message=text,
        patch=f"diff --git a/{text} b/{text}\n--- a/{text}\n+++ b/{text}\n@@ -1 +1 @@\n-a\n+b\n",
        totals=Totals(cost=Decimal(10**9), input_tokens=MUCH, calls=MUCH, steps=MUCH, seconds=1e300),
        gradings=(grading(text),),
        limits={text: text},
        notes=(Note(kind="guessed", field=text, detail=text),),
        kept={text: text},
    )


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_every_part_of_a_trajectory_is_stored_shown_and_exported(tmp_path: Path, text: str) -> None:
    row = imported(tmp_path, everything(text))
    told = interchange.report_of(row)
    assert ([problem.message for problem in told.problems], told.imported) == ([], 1)
    run = Run.objects.get(experiment=row.experiment)
    assert (run.status, run.facts.verdict, run.facts.fail_to_pass_passed) == ("ended", "resolved", 1)
    assert {call.input_total for call in CallRow.objects.filter(run=run)} == {MUCH, None}
    assert len(read_records(run_id=run.pk)) == run.last_seq
    for choice in CHOICES:
        found = export(runs=[run.pk], name="run", format_name=choice.name, sees_hidden=True)
        assert b"".join(found.pieces), choice.name


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_every_part_of_a_verdict_alone_is_stored(tmp_path: Path, text: str) -> None:
    found = FoundGrading(
        origin=origin(text, "b"),
        instance_id=text,
        grading=grading(text),
        seed=2**60,
        model=text,
        harness=text,
        trajectory=text,
        patch=text,
    )
    problem = Problem(file=text, place=text, message=text)
    told = interchange.report_of(imported(tmp_path, found, problem))
    assert (told.problem_count, told.gradings.verdict_only) == (1, 1)
