"""A run's log for programs: records as they are in the log, without what the reader may not see."""

from __future__ import annotations

import json
from typing import NamedTuple

from django.contrib.auth.models import User

from lab.engine.events import KEPT_FOR_OPERATORS
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject
from lab.models import Event, Role, Run
from lab.services.access import for_role, holds
from lab.services.log import read_row

MOST_RECORDS = 500
# One record can hold a long output; what would make an answer longer than this comes with the next one.
ANSWER_CHARACTERS = 8_000_000
FOR_OPERATORS = "[shown to operators and admins: it holds the source of hidden tests]"


class Page(NamedTuple):
    """Records after a number, oldest first; `last_seq` is the log's newest number when it was read."""

    records: list[JSONObject]
    last_seq: int


@for_role(Role.VIEWER)
def after(*, by: User, run: Run, seq: int, limit: int) -> Page:
    """The records after number `seq`, `limit` of them at most and one at least where there is one.

    Texts that look like a key are masked. What a grading printed is left out for people who are no operators,
    with a sentence in its place.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
    """
    sees_hidden = holds(by, Role.OPERATOR)
    records: list[JSONObject] = []
    characters = 0
    rows = Event.objects.filter(run=run, seq__gt=seq).order_by("seq")[: min(limit, MOST_RECORDS)]
    for row in rows.iterator(chunk_size=50):
        record: JSONObject = json.loads(read_row(row).to_line())
        shown = for_reader(record, sees_hidden=sees_hidden)
        characters += len(json.dumps(shown, ensure_ascii=False))
        if records and characters > ANSWER_CHARACTERS:
            break
        records.append(shown)
    return Page(records, Run.objects.values_list("last_seq", flat=True).get(pk=run.pk))


def for_reader(record: JSONObject, *, sees_hidden: bool) -> JSONObject:
    """An event's fields as somebody may read them: what looks like a key masked, hidden tests for few."""
    shown: JSONObject = masked(record if sees_hidden else _without_hidden_tests(record))
    return shown


def is_for_operators(*, run_id: int, seq: int, part: str) -> bool:
    """Whether a text of an event may hold a gold patch or hidden tests."""
    if part == "log":
        return True
    about = Event.objects.filter(run_id=run_id, seq=seq, kind="source_kept").values_list("payload", flat=True)
    return part == "kept" and any(payload.get("about") in KEPT_FOR_OPERATORS for payload in about)


def _without_hidden_tests(record: JSONObject) -> JSONObject:
    if record["kind"] == "source_kept" and record["about"] in KEPT_FOR_OPERATORS:
        return record | {"kept": json.dumps({"hidden": FOR_OPERATORS})}
    if record["kind"] != "verification_finished":
        return record
    tests = [test | {"log": FOR_OPERATORS if test.get("log") else ""} for test in record["tests"]]
    return record | {"log": FOR_OPERATORS if record["log"] else "", "tests": tests}
