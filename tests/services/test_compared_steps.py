"""The steps that are opened side by side: read by themselves, masked, long texts as excerpts."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from lab.models import Event
from lab.render.step_differences import RowColumn, row_body
from lab.render.text import excerpt
from lab.services import blobs
from lab.services.compared_steps import views_of
from tests import builders

pytestmark = pytest.mark.django_db


def test_steps_of_several_runs_and_attempts_come_in_one_query_a_run() -> None:
    one = builders.run()
    builders.start(one)
    builders.append(one, *builders.bash_step(1, "ls", "first\n"), *builders.bash_step(2, "pwd", "here\n"))
    one.attempts.create(n=2)
    builders.append(one, *builders.bash_step(1, "ls -l", "again\n"), attempt=2)
    other = builders.another_run(one, seed=2)
    builders.start(other)
    builders.append(other, *builders.edit_step(1))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        views = views_of([(one.pk, 2, 1), (one.pk, 1, 2), (other.pk, 1, 1), (other.pk, 1, 9)])
    assert len(asked) == 2
    assert sorted(views) == sorted([(one.pk, 1), (one.pk, 2), (other.pk, 1)])
    assert views[one.pk, 1].calls[0].arguments["command"] == "ls -l"
    assert views[other.pk, 1].calls[0].tool == "Edit"


def test_nothing_asked_reads_nothing(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert views_of([]) == {}


def test_long_output_is_an_excerpt_longer_than_what_is_shown_and_equal_ones_are_known_by_their_hash() -> None:
    long = "".join(f"line {number}\n" for number in range(20_000))
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.bash_step(1, "cat a", long), *builders.bash_step(2, "cat b", long))
    builders.append(run, *builders.bash_step(3, "cat c", long.replace("line 3000\n", "another\n")))
    views = views_of([(run.pk, 1, number) for number in (1, 2, 3)])
    text = excerpt(views[run.pk, 1].calls[0].result["stdout"]["text"])
    assert not text.whole
    assert len(text.text) == 40_000
    equal = row_body([RowColumn(run.pk, letter, views[run.pk, n]) for letter, n in (("A", 1), ("B", 2))])
    assert "equal output, 20,000 lines" in equal
    other = row_body([RowColumn(run.pk, letter, views[run.pk, n]) for letter, n in (("A", 1), ("B", 3))])
    assert ">another\n</mark>" in other.replace('<span class="word">', "").replace("</span>", "")


def test_a_text_whose_file_is_gone_is_said_to_be_missing() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.bash_step(1, "cat a", "x" * 50_000))
    stored = Event.objects.get(run=run, kind="tool_call_finished").payload["stdout"]["text"]
    blobs.path_of(stored["$blob"]).unlink()
    views = views_of([(run.pk, 1, 1)])
    assert "[body missing]" in row_body([RowColumn(run.pk, "A", views[run.pk, 1])])


def test_what_looks_like_a_key_is_masked() -> None:
    key = "sk-ant-api03-" + "A1b2C3d4" * 12
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.bash_step(1, f"export KEY={key}", f"{key}\n"))
    views = views_of([(run.pk, 1, 1)])
    assert key not in row_body([RowColumn(run.pk, "A", views[run.pk, 1]), RowColumn(run.pk, "B", None)])
